//! Predicts how long a run takes, before it (for `--dry-run`) and after its first epochs, which also show what it can
//! detect on this machine.

use bpfcost_stats::{
    Sample,
    looks::{first_look, looks},
    power::{detectable_for_spread, epochs_for_spread, spread_of_first_epochs},
    sample::epoch_medians,
};

use crate::{EpochTime, LONGEST_S, Measurements, Plan, stopping::rounds};
use bpfcost_model::{Case, Description, Overhead, Role, Sizing};

/// Trials that calibrating a case takes: two of one operation, some four to grow, two to check.
const CALIBRATION_TRIALS: f64 = 8.0;

/// Batches at full length among them, in sum: the last to grow, half and whole of the check.
const CALIBRATION_BATCHES: f64 = 2.0;

/// Batches at full length that a warm-up trial counts as.
const WARM_UP_BATCHES: f64 = 0.1;

/// The duration of a run on a machine at rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Cases that would run, floors included.
    pub cases: usize,
    /// Seconds of calibration, once.
    pub calibration_s: f64,
    /// Seconds of an epoch.
    pub epoch_s: f64,
    /// Epochs before the first look.
    pub first_look: usize,
    /// Seconds until the first look: a shorter time is refused.
    pub first_look_s: f64,
    /// Epochs of the whole run, at most: it may be precise enough before.
    pub epochs: usize,
    /// Seconds of the whole run, at most.
    pub seconds: f64,
}

/// Forecasts the duration of a run of `plan`, by what the experiment expects of a machine at rest.
pub fn forecast(description: &Description, plan: &Plan) -> Forecast {
    let runs = |role: Option<Role>| {
        plan.cases
            .iter()
            .filter(|case| role.is_none_or(|role| role == case.role))
            .count()
    };
    let cases = runs(None);
    let Overhead {
        load_s,
        trial_s,
        batches: per_trial,
    } = description.overhead;
    if let Some(loads) = plan.loads() {
        return forecast_counting(cases, loads, load_s, rounds(plan));
    }
    let batches = plan.cases.iter();
    let goals = batches.map(|case| match case.sizing {
        Sizing::Window(ms) => ms as f64 * 1e6,
        _ => case.batch_ns.unwrap_or(plan.goal_ns),
    });
    let batch_s = goals.sum::<f64>() / 1e9 / cases.max(1) as f64;
    let all = |trials: f64, batches: f64| {
        cases as f64 * (trials * trial_s + per_trial * batches * batch_s)
    };

    let windows = |case: &Case| matches!(case.sizing, Sizing::Window(_));
    let (calibration_s, warm_up_s) = if plan.cases.iter().any(windows) {
        // One window a case, and no warm-up.
        (all(1.0, 1.0), 0.0)
    } else {
        (
            all(CALIBRATION_TRIALS, CALIBRATION_BATCHES),
            all(1.0, WARM_UP_BATCHES),
        )
    };
    let epoch_time = EpochTime {
        load_s: load_s + warm_up_s,
        round_s: all(1.0, 1.0),
    };
    let epoch_s = epoch_time.epoch_s(rounds(plan));
    let until = |epochs: usize| calibration_s + epochs as f64 * epoch_s;

    let comparisons = plan.comparisons();
    let first = first_look(comparisons);
    let in_time = |seconds: f64| ((seconds - calibration_s) / epoch_s).round() as usize;
    let by_time = in_time(plan.seconds.unwrap_or(LONGEST_S)).max(first);
    let epochs = match (runs(Some(Role::Case)), plan.quick) {
        (0, _) => 0,
        (_, true) => first,
        (_, false) => by_time,
    };
    Forecast {
        cases,
        calibration_s,
        epoch_s,
        first_look: first,
        first_look_s: until(first),
        epochs,
        seconds: if epochs == 0 { 0.0 } else { until(epochs) },
    }
}

/// Half-width of a case's own interval over n epochs, in standard deviations of an epoch over √n: the
/// normal quantile of the 96 % that are asked for (`Estimate::for_case`), 2.05, times √(π/3), the price
/// of ranks.
const HALF_WIDTH: f64 = 2.1;

/// Whole epochs that show what a run takes and can detect: fewer have no scatter to speak of.
pub const FIRST_EPOCHS: usize = 3;

/// The expected duration of a run, from its epochs so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Whole epochs so far.
    pub measured: usize,
    /// Seconds of an epoch.
    pub epoch_s: f64,
    /// Epochs of the whole run.
    pub epochs: usize,
    /// Seconds of the whole run.
    pub seconds: f64,
    /// The smallest relative difference that the whole run would find about three times in four, in the noisiest of its
    /// comparisons (0.01 is 1 %); `None` without comparisons.
    pub detectable: Option<f64>,
    /// The difference that it is to find: its budget, or the margin of its verdicts.
    pub wanted: f64,
    /// Seconds of a run that would find that one.
    pub resolve_s: Option<f64>,
}

/// Projects the duration of a run of `plan` from its epochs so far; `None` before there are [`FIRST_EPOCHS`], and where
/// instructions are counted.
pub fn expect(plan: &Plan, measured: &Measurements) -> Option<Expectation> {
    let whole = measured.whole().count();
    if plan.counts() || whole < FIRST_EPOCHS {
        return None;
    }
    let epoch_s = EpochTime::from_measurements(measured, measured.epochs())?.epoch_s(rounds(plan));
    let spent_s = measured.seconds();
    let until = |epochs: usize| spent_s + epochs.saturating_sub(whole) as f64 * epoch_s;
    let comparisons = plan.comparisons();
    let first = first_look(comparisons);
    let left_s = (plan.seconds.unwrap_or(LONGEST_S) - spent_s).max(0.0);
    let by_time = (whole + (left_s / epoch_s).round() as usize).max(first);
    let epochs = if plan.quick {
        first
    } else {
        by_time.min(by_precision(plan, measured, by_time))
    };
    let of = |name: &str| {
        let index = plan.cases.iter().position(|case| case.name == name)?;
        let data = measured.cases.get(index).filter(|data| data.live())?;
        Some(data.samples.as_slice())
    };
    let spreads = plan
        .pairs
        .iter()
        .filter_map(|pair| spread_of_first_epochs(of(&pair.case)?, of(&pair.baseline)?));
    let spread = spreads.reduce(f64::max);
    let wanted = plan.budget.unwrap_or(plan.margin);
    Some(Expectation {
        measured: whole,
        epoch_s,
        epochs,
        seconds: until(epochs),
        detectable: spread
            .and_then(|spread| detectable_for_spread(spread, epochs, comparisons))
            .map(f64::exp_m1),
        wanted,
        resolve_s: spread
            .and_then(|spread| epochs_for_spread(spread, wanted.ln_1p(), comparisons))
            .map(until),
    })
}

/// Epochs after which all cases are likely to be precise enough, if these are fewer than `most`.
fn by_precision(plan: &Plan, measured: &Measurements, most: usize) -> usize {
    let Some(precision) = plan.precision else {
        return most;
    };
    let cases = plan.cases.iter().zip(&measured.cases);
    let asked = cases.filter(|(case, data)| case.role == Role::Case && data.live());
    let spreads = asked.filter_map(|(_, data)| Sample::new(&epoch_medians(&data.samples))?.cv());
    let spread = spreads.reduce(f64::max).unwrap_or_default();
    let enough = |look: &usize| HALF_WIDTH * spread / (*look as f64).sqrt() <= precision;
    looks(plan.comparisons())
        .find(|look| *look >= most || enough(look))
        .unwrap_or(most)
}

/// The factor by which a load takes longer where the CPU is emulated, measured with QEMU's TCG.
const EMULATED_LOAD: f64 = 6.0;

/// Seconds of a trial that counts: its two batches each wait for a tick. Measured with QEMU's TCG.
const COUNTED_TRIAL_S: f64 = 0.02;

/// The same for a run that counts instructions. The guest's boot is not part of it.
fn forecast_counting(cases: usize, loads: usize, load_s: f64, rounds: u32) -> Forecast {
    let load_s = EMULATED_LOAD * load_s;
    let epoch_s = load_s + f64::from(rounds) * cases as f64 * COUNTED_TRIAL_S;
    // A separate load, and about eight batches a case.
    let calibration_s = load_s + 4.0 * cases as f64 * COUNTED_TRIAL_S;
    let seconds = calibration_s + loads as f64 * epoch_s;
    Forecast {
        cases,
        calibration_s,
        epoch_s,
        first_look: loads,
        first_look_s: seconds,
        epochs: loads,
        seconds,
    }
}
