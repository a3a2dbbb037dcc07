//! Builds a record from the events of a run. It is pure, so a record can be built again from a journal.

use bpfcost_stats::{
    Differences, Estimate, Policy, Sample, Sense, hodges_lehmann, judge, modes,
    power::epochs_to_resolve,
    sample::{epoch_medians, median},
    spread as spreads,
    verdict::{Budget as StatsBudget, Comparison as Judged, Verdict as StatsVerdict},
};

use super::{
    Asked, BudgetVerdict, CaseRecord, ComparisonRecord, Cost, Machine, MetricRecord, MetricValue,
    ModeRecord, Raw, Record, SCHEMA, SpreadRecord, Status, VerdictRecord, exact,
    net::{NetInputs, net, second_reset},
    noise::noise,
};
use crate::{
    experiment::{Case, Metric, Pair, Role},
    measure::{CaseData, Measurements, PROPORTIONALITY, Plan, Stop, Warning},
};

impl Record {
    /// Builds the record of a run, whole or interrupted. `started` is RFC 3339 in UTC;
    /// `session_spread` is the relative standard deviation of a session's level (0.01 is 1 %).
    pub fn build(
        plan: &Plan,
        measured: &Measurements,
        started: &str,
        machine: Machine,
        session_spread: Option<f64>,
    ) -> Record {
        let (seen, dropped) = RunData::of(plan, measured);
        let speechless = plan.contends && machine.emulates_time();
        let cases: Vec<CaseRecord> = (0..plan.cases.len())
            .map(|index| seen.case(plan, index))
            .collect();
        Record {
            schema: SCHEMA,
            bpfcost: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: plan.experiment.clone(),
            target: plan.target.clone(),
            unit: plan.unit,
            started: started.to_owned(),
            seconds: measured.seconds(),
            seed: plan.seed,
            stop: measured.stop.unwrap_or(Stop::Interrupted),
            asked: Asked {
                precision: plan.precision,
                seconds: plan.seconds,
                quick: plan.quick,
                cpus: plan.cpus.clone(),
                budget: plan.budget,
                margin: plan.margin,
            },
            machine: Machine {
                kernel_bytes: machine.kernel_bytes.max(measured.kernel_bytes),
                ..machine
            },
            warnings: warnings(measured, dropped, speechless),
            layout: plan.layout.clone(),
            contends: plan.contends,
            comparisons: if speechless {
                Vec::new()
            } else {
                seen.comparisons(plan, measured, &cases)
            },
            metrics: seen.metrics(plan, measured),
            spread: seen.spread(plan, measured, session_spread),
            cases,
        }
    }
}

/// Whether a value can be reckoned with and written as JSON: finite, and so is a sum of squares.
fn usable(value: f64) -> bool {
    value.abs() < 1e150
}

/// The run's warnings, each once, because a resumed run warns again. `speechless`: its times mean nothing.
fn warnings(measured: &Measurements, dropped: usize, speechless: bool) -> Vec<Warning> {
    let mut kept: Vec<Warning> = Vec::new();
    for warning in &measured.warnings {
        // Times that mean nothing need not be proportional either.
        let moot = speechless && warning.code == PROPORTIONALITY;
        if !moot && !kept.contains(warning) {
            kept.push(warning.clone());
        }
    }
    if speechless {
        kept.push(Warning::new(
            "no-verdict",
            "there are no comparisons: these costs come from cache-line contention, which an emulated machine does \
             not have. Run it on hardware, or in a guest with KVM",
        ));
    }
    if dropped > 0 {
        kept.push(Warning::new(
            "not-finite",
            format!(
                "{dropped} values were not finite numbers and are left out; this is a bug in the experiment, \
                 please report it"
            ),
        ));
    }
    kept
}

/// The data of a run in one shape: a list of epochs for each case.
struct RunData {
    cases: Vec<CaseData>,
    /// Epoch medians, or counts where instructions are counted; NaN where an epoch has no trial.
    medians: Vec<Vec<f64>>,
}

impl RunData {
    /// Takes usable values alone and counts the others.
    fn of(plan: &Plan, measured: &Measurements) -> (Self, usize) {
        let epochs = measured
            .cases
            .iter()
            .map(|data| data.samples.len())
            .fold(measured.epochs(), usize::max);
        let mut dropped = 0;
        let mut tidy = |values: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let mut tidied: Vec<Vec<f64>> = values
                .iter()
                .map(|trials| {
                    let finite: Vec<f64> = trials.iter().copied().filter(|v| usable(*v)).collect();
                    dropped += trials.len() - finite.len();
                    finite
                })
                .collect();
            tidied.resize(epochs, Vec::new());
            tidied
        };
        let cases: Vec<CaseData> = (0..plan.cases.len())
            .map(|index| match measured.cases.get(index) {
                None => CaseData {
                    samples: vec![Vec::new(); epochs],
                    ..CaseData::default()
                },
                Some(data) => CaseData {
                    samples: tidy(&data.samples),
                    secondary: data
                        .secondary
                        .iter()
                        .map(|(name, values)| (name.clone(), tidy(values)))
                        .collect(),
                    ..data.clone()
                },
            })
            .collect();
        let medians = cases
            .iter()
            .map(|data| {
                if plan.counts() {
                    exact::load_counts(data)
                } else {
                    epoch_medians(&data.samples)
                }
            })
            .collect();
        (RunData { cases, medians }, dropped)
    }

    /// The index of a case whose numbers count.
    fn valid(&self, plan: &Plan, name: &str) -> Option<usize> {
        let index = plan.cases.iter().position(|case| case.name == name)?;
        self.cases[index].live().then_some(index)
    }

    fn case(&self, plan: &Plan, index: usize) -> CaseRecord {
        let (case, data) = (&plan.cases[index], &self.cases[index]);
        let status = match (&data.unsupported, data.problems.is_empty()) {
            (Some(_), _) => Status::Unsupported,
            (None, false) => Status::Invalid,
            (None, true) => Status::Ok,
        };
        let ok = status == Status::Ok;
        CaseRecord {
            name: case.name.clone(),
            group: case.group.clone(),
            about: case.about.clone(),
            factors: case.factors.clone(),
            baseline: plan.pairs.iter().any(|pair| pair.baseline == case.name),
            role: case.role,
            floor: case.floor.clone(),
            status,
            problems: data.problems.clone(),
            reason: data.unsupported.clone(),
            calibration: data.calibration,
            samples: data.samples.clone(),
            secondary: data.secondary.clone(),
            raw: match (ok, plan.counts()) {
                (false, _) => None,
                (true, false) => raw(&data.samples, &self.medians[index]),
                (true, true) => exact::raw(data, &self.medians[index]),
            },
            net: ok.then(|| self.net(plan, case, index)).flatten(),
        }
    }

    fn net(&self, plan: &Plan, case: &Case, index: usize) -> Option<super::Net> {
        let floor = self.valid(plan, case.floor.as_deref()?)?;
        if plan.counts() {
            return exact::net(&self.cases[index], &self.cases[floor]);
        }
        let empty = match plan.cases[floor].floor.as_deref() {
            Some(name) => Some(self.valid(plan, name)?),
            None => None,
        };
        net(&NetInputs {
            raw: &self.medians[index],
            floor: &self.medians[floor],
            empty: empty.map(|index| self.medians[index].as_slice()),
            second_reset: second_reset(&self.cases[index]).as_deref(),
            role: case.role,
            margin: plan.margin,
        })
    }

    /// The plan's pairs whose two cases have values in the same epochs, judged as one family.
    fn comparisons(
        &self,
        plan: &Plan,
        measured: &Measurements,
        cases: &[CaseRecord],
    ) -> Vec<ComparisonRecord> {
        if plan.counts() {
            let cost = |name: &str| Cost::raw(&cases[self.valid(plan, name)?]);
            let compared = plan.pairs.iter().filter_map(|pair| {
                let (case, baseline) = (cost(&pair.case)?, cost(&pair.baseline)?);
                exact::comparison(pair, &case, &baseline, plan.budget)
            });
            return compared.collect();
        }
        let policy = Policy {
            margin: plan.margin,
            budget: plan.budget,
            sense: Sense::Cost,
        };
        self.family(plan, measured, &self.medians, &policy)
    }

    /// The plan's pairs whose two cases have these values in the same epochs, judged as one family.
    fn family(
        &self,
        plan: &Plan,
        measured: &Measurements,
        medians: &[Vec<f64>],
        policy: &Policy,
    ) -> Vec<ComparisonRecord> {
        let (pairs, differences): (Vec<&Pair>, Vec<Differences>) = plan
            .pairs
            .iter()
            .filter_map(|pair| {
                let case = self.valid(plan, &pair.case)?;
                let baseline = self.valid(plan, &pair.baseline)?;
                let differences = Differences::pair(&medians[case], &medians[baseline]);
                (!differences.log_ratio.is_empty()).then_some((pair, differences))
            })
            .unzip();
        let epoch_s = mean_epoch_s(measured);
        judge(&differences, policy)
            .iter()
            .zip(pairs)
            .zip(&differences)
            .filter_map(|((judged, pair), found)| {
                let resolve_s = |effect: f64| {
                    let needed = epochs_to_resolve(&found.log_ratio, effect, differences.len());
                    Some(needed? as f64 * epoch_s?)
                };
                comparison(judged, pair, found, policy, resolve_s)
            })
            .collect()
    }

    /// The further values that the plan names, of the cases that have them.
    fn metrics(&self, plan: &Plan, measured: &Measurements) -> Vec<MetricRecord> {
        let values = |metric: &Metric| {
            let medians: Vec<Vec<f64>> = self
                .cases
                .iter()
                .map(|data| match data.secondary.get(&metric.name) {
                    Some(values) if data.live() => epoch_medians(values),
                    _ => vec![f64::NAN; data.samples.len()],
                })
                .collect();
            let policy = Policy {
                margin: metric.margin,
                budget: None,
                sense: match metric.more_is_better {
                    Some(true) => Sense::Rate,
                    Some(false) | None => Sense::Cost,
                },
            };
            let value = |medians: &Vec<f64>| {
                Some(MetricValue {
                    value: hodges_lehmann(medians)?,
                    ci95: Estimate::of_case(medians).map(|e| [e.low, e.high]),
                })
            };
            MetricRecord {
                cases: plan
                    .cases
                    .iter()
                    .zip(&medians)
                    .filter_map(|(case, medians)| Some((case.name.clone(), value(medians)?)))
                    .collect(),
                comparisons: self.family(plan, measured, &medians, &policy),
                metric: metric.clone(),
            }
        };
        plan.metrics.iter().map(values).collect()
    }

    fn spread(&self, plan: &Plan, measured: &Measurements, session: Option<f64>) -> SpreadRecord {
        let cases: Vec<spreads::Spread> = plan
            .cases
            .iter()
            .zip(&self.cases)
            .filter(|(case, data)| case.role == Role::Case && data.live())
            .filter_map(|(_, data)| spreads::Spread::of(&data.samples))
            .collect();
        let live = plan.cases.iter().zip(&self.cases);
        let live = live.filter(|(_, data)| data.live());
        let typical = spreads::Spread::typical(&cases);
        let percent = |share: f64| share * 100.0;
        SpreadRecord {
            session: session.filter(|share| share.is_finite()).map(percent),
            epoch: percent(typical.map_or(0.0, |spread| spread.epoch)),
            trial: percent(typical.map_or(0.0, |spread| spread.trial)),
            sentinel: median(&measured.sentinel.concat()),
            sentinel_drift: spreads::sentinel_drift(&measured.sentinel).map(percent),
            noise: noise(live.map(|(case, data)| (case, data.samples.as_slice()))),
        }
    }
}

impl From<StatsVerdict> for VerdictRecord {
    fn from(verdict: StatsVerdict) -> Self {
        match verdict {
            StatsVerdict::Slower => VerdictRecord::Slower,
            StatsVerdict::Faster => VerdictRecord::Faster,
            StatsVerdict::Same { .. } => VerdictRecord::Same,
            StatsVerdict::Unresolved { .. } => VerdictRecord::Unresolved,
        }
    }
}

/// A case's own value and the description of its trials; `None` without trials.
pub(super) fn raw(samples: &[Vec<f64>], medians: &[f64]) -> Option<Raw> {
    let trials = Sample::new(&samples.concat())?;
    Some(Raw {
        epochs: medians.iter().filter(|median| median.is_finite()).count(),
        trials: trials.len(),
        value: hodges_lehmann(medians)?,
        ci95: Estimate::of_case(medians).map(|e| [e.low, e.high]),
        loads: None,
        repeats: None,
        min: trials.min(),
        max: trials.max(),
        p50: trials.median(),
        p90: trials.quantile(0.90),
        p99: trials.quantile(0.99),
        // A single trial has no spread.
        stddev: trials.stddev().unwrap_or(0.0),
        cv: trials.cv().unwrap_or(0.0),
        outliers: trials.outliers(),
        modes: modes::two_modes(medians)
            .into_iter()
            .flatten()
            .map(|mode| ModeRecord {
                value: mode.value,
                share: mode.share,
            })
            .collect(),
    })
}

/// The mean time of a whole epoch; `None` before there is one.
fn mean_epoch_s(measured: &Measurements) -> Option<f64> {
    // An epoch that was killed has no time.
    let whole: Vec<f64> = measured
        .epoch_s
        .iter()
        .copied()
        .filter(|seconds| *seconds > 0.0)
        .collect();
    Some(Sample::new(&whole)?.mean())
}

fn comparison(
    judged: &Judged,
    pair: &Pair,
    differences: &Differences,
    policy: &Policy,
    resolve_s: impl Fn(f64) -> Option<f64>,
) -> Option<ComparisonRecord> {
    let verdict = VerdictRecord::from(judged.verdict);
    let relative = hodges_lehmann(&differences.log_ratio)?;
    let open = judged.budget == Some(StatsBudget::CantTell);
    let from_budget = policy
        .budget
        .filter(|_| open)
        .map(|budget| (budget.ln_1p() - relative).abs());
    Some(ComparisonRecord {
        case: pair.case.clone(),
        baseline: pair.baseline.clone(),
        about: pair.about.clone(),
        difference: hodges_lehmann(&differences.absolute)?,
        ci95: judged.difference.map(|e| [e.low, e.high]),
        relative: relative.exp_m1(),
        relative_ci95: judged.relative.map(|e| [e.low, e.high]),
        p: judged.p,
        verdict,
        detectable: judged
            .detectable
            .map(|share| share * 100.0)
            .filter(|percent| percent.is_finite()),
        resolve_s: (verdict == VerdictRecord::Unresolved)
            .then(|| resolve_s(policy.margin.ln_1p()))
            .flatten(),
        budget_s: from_budget.and_then(resolve_s),
        budget: judged.budget.map(|budget| match budget {
            StatsBudget::Within => BudgetVerdict::Within,
            StatsBudget::Over => BudgetVerdict::Over,
            StatsBudget::CantTell => BudgetVerdict::CantTell,
        }),
    })
}
