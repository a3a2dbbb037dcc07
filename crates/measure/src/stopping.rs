//! When a run ends, and how many rounds its epochs have.
//!
//! A run ends on the width of its raw intervals, on time, or on an interrupt; never on a verdict,
//! for then chance would choose when to look. Looks come at epoch counts that are fixed in advance.

use bpfcost_stats::{
    Estimate, Total, TotalRatio,
    looks::{first_look, looks, next_look, precise_enough},
    sample::TRIALS,
};

use crate::{
    CaseData, EpochTime, Error, Event, Measurements, Plan, Stop, Warning, count, run::Run,
    time_option,
};
use bpfcost_model::Role;

/// Seconds after which a run without a time limit ends. At the usual 2.4 s an epoch these are 1,500
/// epochs; what an hour has not resolved, a second hour would narrow by a mere 30 %.
pub const LONGEST_S: f64 = 3600.0;

/// A raw interval is narrow enough at this half-width, in nanoseconds, however small the value: it is a
/// third of a clock cycle.
const NARROW_NS: f64 = 0.1;

/// The share by which the projected time of the first look may exceed the time asked for: a projection from two epochs
/// errs by about as much.
const PROJECTION_ERROR: f64 = 0.1;

/// The same once the run has gone on: machines get busier, and what was measured would be lost.
const SLOWED_DOWN: f64 = 1.0;

/// [`Warning::code`] of a run whose time ended before its precision was reached.
pub const PRECISION: &str = "precision";

/// No longer time is recommended, in seconds: over more than a day a machine drifts anyway.
const REACHABLE_S: f64 = 86_400.0;

/// Names in a warning before it says "…".
const MAX_NAMES: usize = 3;

impl Run<'_> {
    /// Returns why the run ends between two epochs, or `None` if it goes on. Looks at the data when a look is due. A
    /// run that counts has no precision to wait for, and its clock is not one of seconds: it ends after its loads.
    pub(super) fn due(&mut self) -> Result<Option<Stop>, Error> {
        if self.is_interrupted() {
            return Ok(Some(Stop::Interrupted));
        }
        if running_cases(self.plan, &self.measured).next().is_none() {
            return Ok(Some(Stop::Rounds));
        }
        let epochs = self.measured.whole().count();
        if let Some(loads) = self.plan.loads() {
            return Ok((epochs >= loads).then_some(Stop::Rounds));
        }
        if looks(self.plan.comparisons())
            .take_while(|&look| look <= epochs)
            .any(|look| look == epochs)
        {
            let open = open(self.plan, &self.measured).len();
            self.emit(Event::Looked {
                epochs,
                open,
                next: next_look(epochs),
            })?;
            if open == 0 && totals_are_narrow(self.plan, &self.measured) {
                return Ok(Some(Stop::Precision));
            }
        }
        if self.plan.quick && epochs >= first_look(self.plan.comparisons()) {
            return Ok(Some(Stop::Rounds));
        }
        Ok(self.time_up(epochs)?.then_some(Stop::Time))
    }

    /// Returns whether another epoch would end more than half an epoch after the time asked for. Rejects a time that is
    /// too short for the first look, once two epochs have shown what one takes: by the quicker of them, because others
    /// may have kept the CPUs busy. After one epoch, which does work that later ones need not do, it judges by the
    /// rounds alone.
    fn time_up(&self, epochs: usize) -> Result<bool, Error> {
        let Some(epoch_s) = self.epoch_s() else {
            return Ok(false);
        };
        let first = first_look(self.plan.comparisons());
        if epochs >= first {
            return Ok(self.spent_s() + epoch_s > self.limit_s() + epoch_s / 2.0);
        }
        let until = |epoch_s: f64| self.spent_s() + (first - epochs) as f64 * epoch_s;
        let measured = &self.measured;
        let whole = measured.whole();
        let (least, error) = match epochs {
            1 => (
                whole
                    .map(|epoch| measured.rounds_s[epoch])
                    .fold(epoch_s, f64::min),
                PROJECTION_ERROR,
            ),
            2 => (self.quickest_s(), PROJECTION_ERROR),
            _ => (self.quickest_s(), SLOWED_DOWN),
        };
        match self.plan.seconds {
            Some(seconds) if !self.plan.patient && until(least) > seconds * (1.0 + error) => {
                Err(Error::TooShort {
                    seconds,
                    needed: until(epoch_s).ceil(),
                    epochs: first,
                })
            }
            _ => Ok(false),
        }
    }

    /// Seconds of the quickest whole epoch, calibration left out.
    fn quickest_s(&self) -> f64 {
        let whole = self.measured.whole().enumerate();
        let seconds = whole.map(|(place, epoch)| {
            let calibrating_s = if place == 0 { self.calibrating_s } else { 0.0 };
            self.measured.epoch_s[epoch] - calibrating_s
        });
        seconds.fold(f64::INFINITY, f64::min)
    }

    /// Returns whether the next round of an epoch is too late: the epoch was expected to end half an epoch after the
    /// time asked for, at the latest.
    pub(super) fn late(&self) -> bool {
        if self.plan.counts() {
            return false;
        }
        let over_s = self.spent_s() - self.limit_s();
        over_s > 0.0
            && self.measured.whole().count() >= first_look(self.plan.comparisons())
            && self.epoch_s().is_some_and(|epoch_s| over_s > epoch_s / 2.0)
    }

    fn limit_s(&self) -> f64 {
        self.plan.seconds.unwrap_or(LONGEST_S)
    }

    /// The expected seconds of the next epoch.
    fn epoch_s(&self) -> Option<f64> {
        let mut epoch_time = EpochTime::from_measurements(&self.measured, self.measured.epochs())?;
        if self.measured.whole().count() == 1 {
            epoch_time.load_s = (epoch_time.load_s - self.calibrating_s).max(0.0);
        }
        Some(epoch_time.epoch_s(rounds(self.plan)))
    }
}

/// Rounds of an epoch. Every epoch of a run has the same number: epochs of other numbers have other centres, and a
/// case's own value would mix them.
pub fn rounds(plan: &Plan) -> u32 {
    match plan.rounds {
        Some(rounds) => rounds.max(1),
        None if plan.counts() => count::rounds(plan.quick),
        None => TRIALS as u32,
    }
}

/// The cases that still run, without floors, by index into the plan.
fn running_cases<'a>(
    plan: &'a Plan,
    measured: &'a Measurements,
) -> impl Iterator<Item = (usize, &'a CaseData)> {
    let cases = plan.cases.iter().zip(&measured.cases).enumerate();
    cases
        .filter(|(_, (case, data))| case.role == Role::Case && data.live())
        .map(|(index, (_, data))| (index, data))
}

/// A case whose interval is not narrow enough yet, by index into the plan, and its raw estimate.
type Open = (usize, Option<Estimate>);

/// The cases whose intervals are not narrow enough yet: all of them, if no precision was asked for.
fn open(plan: &Plan, measured: &Measurements) -> Vec<Open> {
    let leading = measured.leading(plan);
    running_cases(plan, measured)
        .map(|(index, _)| (index, Estimate::for_case(&leading[index])))
        .filter(|(_, raw)| match (raw, plan.precision) {
            (Some(raw), Some(precision)) => !precise_enough(raw, precision, NARROW_NS),
            _ => true,
        })
        .collect()
}

/// Returns whether the totals, on which a budget is judged too, are as narrow as was asked of cases; always true
/// without a budget.
fn totals_are_narrow(plan: &Plan, measured: &Measurements) -> bool {
    let Some((_, precision)) = plan.budget.zip(plan.precision) else {
        return true;
    };
    let windows = plan.layout.times_windows();
    let totals = |name: &str| {
        let index = plan.cases.iter().position(|case| case.name == name)?;
        let data = measured.cases.get(index).filter(|data| data.live())?;
        Some(data.totals(&data.samples, Total::of_cost, windows))
    };
    plan.pairs.iter().all(|pair| {
        let sides = totals(&pair.case).zip(totals(&pair.baseline));
        let ratio = sides.and_then(|(case, baseline)| TotalRatio::from_epochs(&case, &baseline));
        let width = ratio.and_then(|ratio| Some(ratio.shown?.half_width()));
        width.is_none_or(|width| width <= precision)
    })
}

/// The warning for a run whose time ended before its precision was reached: which cases, and the time
/// that would be enough. `None` where it was reached, or none was asked for.
pub(super) fn imprecise(plan: &Plan, measured: &Measurements, spent_s: f64) -> Option<Warning> {
    let precision = plan.precision?;
    let open = open(plan, measured);
    if open.is_empty() {
        return None;
    }
    let wanted = |raw: &Estimate| (precision * raw.value.abs()).max(NARROW_NS);
    let widest = open
        .iter()
        .map(|(_, raw)| raw.map_or(f64::INFINITY, |raw| raw.half_width() / wanted(&raw)))
        .fold(1.0, f64::max);
    let needed_s = spent_s * widest * widest; // widths fall with the square root of time
    let remedy = if needed_s <= REACHABLE_S {
        format!(
            "At this noise it would take --time {} (--resume keeps what was measured)",
            time_option(needed_s)
        )
    } else {
        "At this noise a day would not be enough: make the machine quieter (bpfcost check shows \
         what disturbs it), or ask for less precision"
            .to_owned()
    };
    let names: Vec<String> = open
        .iter()
        .take(MAX_NAMES)
        .map(|(index, raw)| {
            let name = &plan.cases[*index].name;
            let width = raw.map(|raw| 100.0 * raw.half_width() / raw.value.abs());
            width.map_or(name.clone(), |width| format!("{name} (±{width:.1} %)"))
        })
        .collect();
    let others = if open.len() > names.len() {
        ", …"
    } else {
        ""
    };
    Some(Warning {
        code: PRECISION.to_owned(),
        text: format!(
            "{} of {} cases are not known to ±{} % after {spent_s:.0} s: {}{others}. {remedy}",
            open.len(),
            running_cases(plan, measured).count(),
            100.0 * precision,
            names.join(", "),
        ),
    })
}
