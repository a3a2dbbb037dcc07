//! The data of a run in the shape from which the parts of its record are computed.

use bpfcost_stats::{
    Differences, Estimate, Policy, Quantity, Sense, Total, TotalRatio, hodges_lehmann,
    looks::first_look,
    sample::{epoch_medians, median},
    spread as spreads,
    undisturbed::Undisturbed,
};

use crate::{
    CaseRecord, ComparisonRecord, Cost, MetricRecord, MetricValue, SpreadRecord, Status,
    UndisturbedRecord, exact,
    judgement::{Candidate, judge_run, mean_epoch_s},
    net::{NetInputs, Unnoticed, net, second_reset},
    noise::{null_readings, widest},
    raw,
    reading::Reading,
    totals,
    undisturbed_case::{NotUndisturbed, UndisturbedCase, centre, undisturbed},
};
use bpfcost_measure::{CaseData, Centre, Measurements, Plan, Stop, Summed};
use bpfcost_model::{Case, Metric, Role};

/// The data of a run in one shape: a list of epochs for each case.
pub(super) struct RunData {
    cases: Vec<CaseData>,
    /// Values of epochs as found, or counts where instructions are counted; NaN where an epoch has no trial.
    found: Vec<Vec<f64>>,
    /// The undisturbed values of each case, or why they are not known.
    undisturbed: Vec<Result<UndisturbedCase, NotUndisturbed>>,
    /// True if the run was aborted: then there is no estimate without an interval.
    aborted: bool,
}

impl RunData {
    /// Takes usable values alone and counts the others.
    pub(super) fn from_measurements(plan: &Plan, measured: &Measurements) -> (Self, usize) {
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
        let aborted = measured.stop == Some(Stop::Aborted);
        let undisturbed = if measured.came_to_rest(plan) {
            undisturbed(plan, &cases, measured.undisturbed(plan))
        } else {
            let why = NotUndisturbed::of_itself("the machine never came to rest");
            vec![Err(why); cases.len()]
        };
        let found = cases.iter().zip(&undisturbed).map(|(data, known)| {
            if plan.counts() {
                exact::load_counts(data)
            } else {
                bearing(centre(known).epochs(&data.samples), aborted)
            }
        });
        let data = RunData {
            found: found.collect(),
            cases,
            undisturbed,
            aborted,
        };
        (data, dropped)
    }

    /// The index of a case whose numbers count.
    fn valid(&self, plan: &Plan, name: &str) -> Option<usize> {
        let index = plan.cases.iter().position(|case| case.name == name)?;
        self.cases[index].live().then_some(index)
    }

    pub(super) fn case(&self, plan: &Plan, index: usize) -> CaseRecord {
        let (case, data) = (&plan.cases[index], &self.cases[index]);
        let status = match (&data.unsupported, data.problems.is_empty()) {
            (Some(_), _) => Status::Unsupported,
            (None, false) => Status::Invalid,
            (None, true) => Status::Ok,
        };
        let ok = status == Status::Ok;
        let known = self.undisturbed[index].as_ref().ok();
        let known = known.map(|case| &case.known);
        let leading = match known {
            Some(_) => Reading::Undisturbed,
            None => Reading::AsFound,
        };
        let net = |reading| ok.then(|| self.net(plan, case, index, reading)).flatten();
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
            observed: data.observed.clone(),
            calibration: data.calibration,
            samples: data.samples.clone(),
            secondary: data.secondary.clone(),
            slices: data.slices.clone(),
            secondary_slices: data.secondary_slices.clone(),
            raw: match (ok, plan.counts()) {
                (false, _) => None,
                (true, false) => {
                    raw::raw(&data.samples, &self.found[index], known, self.centre(index))
                }
                (true, true) => exact::raw(data, &self.found[index]),
            },
            net: net(leading),
            not_undisturbed: self.undisturbed[index]
                .as_ref()
                .err()
                .filter(|_| ok && !data.slices.is_empty())
                .map(|not| not.why.clone()),
            own_work: self.undisturbed[index]
                .as_ref()
                .err()
                .and_then(|not| not.own_work)
                .filter(|_| ok),
            undisturbed: known.filter(|_| ok).and_then(|known| {
                let medians = &self.found[index];
                let value = |value: &f64| value.is_finite().then_some(*value);
                Some(UndisturbedRecord {
                    share: known.share,
                    epochs: known.values.iter().map(value).collect(),
                    as_found: hodges_lehmann(medians)?,
                    as_found_ci95: ci95(medians),
                    as_found_net: net(Reading::AsFound),
                })
            }),
        }
    }

    /// The epoch values of a case; `None` if they are not known undisturbed.
    fn values(&self, index: usize, reading: Reading) -> Option<&[f64]> {
        match reading {
            Reading::AsFound => self.found.get(index).map(Vec::as_slice),
            Reading::Undisturbed => Some(&self.undisturbed.get(index)?.as_ref().ok()?.known.values),
        }
    }

    /// The centre of a case's cost as found.
    fn centre(&self, index: usize) -> Centre {
        centre(&self.undisturbed[index])
    }

    fn net(&self, plan: &Plan, case: &Case, index: usize, reading: Reading) -> Option<super::Net> {
        let floor = self.valid(plan, case.floor.as_deref()?)?;
        if plan.counts() {
            return exact::net(&self.cases[index], &self.cases[floor]);
        }
        let empty = match plan.cases[floor].floor.as_deref() {
            Some(name) => Some(self.values(self.valid(plan, name)?, reading)?),
            None => None,
        };
        let second_reset = match reading {
            Reading::AsFound => second_reset(&self.cases[index]),
            Reading::Undisturbed => self.undisturbed[index].as_ref().ok()?.second_reset(),
        };
        let unnoticed = match reading {
            Reading::AsFound => Unnoticed::default(),
            Reading::Undisturbed => self.unnoticed(plan, index, floor)?,
        };
        net(&NetInputs {
            raw: self.values(index, reading)?,
            floor: self.values(floor, reading)?,
            empty,
            second_reset: second_reset.as_deref(),
            role: case.role,
            margin: plan.margin,
            centre: self.centre(index),
            unnoticed,
        })
    }

    /// The largest unnoticed errors of the undisturbed parts of a case's net.
    fn unnoticed(&self, plan: &Plan, index: usize, floor: usize) -> Option<Unnoticed> {
        let known = |index: usize| Some(&self.undisturbed.get(index)?.as_ref().ok()?.known);
        let high = |known: &Undisturbed| {
            hodges_lehmann(&known.values).map_or(0.0, |value| value * known.blind)
        };
        let (own, twice) = (known(index)?, self.undisturbed[index].as_ref().ok()?);
        let empty = plan.cases[floor].floor.as_deref();
        let empty = empty.and_then(|name| known(self.valid(plan, name)?));
        Some(Unnoticed {
            raw_high: high(own),
            raw_low: hodges_lehmann(&own.values)? * own.unnoticed,
            floor_high: known(floor).map_or(0.0, high),
            empty_high: empty.or(known(floor)).map_or(0.0, high),
            twice_high: twice.reset_twice.as_ref().map_or(0.0, high),
        })
    }

    /// The comparisons of the main value, unless its times mean nothing (`speechless`), and the further values
    /// that the plan names. All comparisons are judged as one family, whatever value they are of.
    pub(super) fn quantities(
        &self,
        plan: &Plan,
        measured: &Measurements,
        cases: &[CaseRecord],
        speechless: bool,
    ) -> (Vec<ComparisonRecord>, Vec<MetricRecord>) {
        let metrics = plan.metrics.iter().map(|metric| self.metric(metric));
        let metrics: Vec<Vec<Vec<f64>>> = metrics.collect();
        // Without times to compare there are no cases, so no comparisons.
        let timed: &[Vec<f64>] = if speechless || plan.counts() {
            &[]
        } else {
            &self.found
        };
        let policy = Policy {
            margin: plan.margin,
            budget: plan.budget,
            sense: Sense::Cost,
        };
        let totals = self.totals(plan, |data| Some(&data.samples), Some(Total::of_cost));
        let main = self.quantity(plan, timed, true, &totals, policy);
        let further = plan.metrics.iter().zip(&metrics).map(|(metric, medians)| {
            let policy = Policy {
                margin: metric.margin,
                budget: None,
                sense: match metric.more_is_better {
                    Some(true) => Sense::Rate,
                    Some(false) | None => Sense::Cost,
                },
            };
            let totals = self.totals(
                plan,
                |data| data.secondary.get(&metric.name),
                totals::total_function(metric),
            );
            self.quantity(plan, medians, false, &totals, policy)
        });
        let all = std::iter::once(main).chain(further);
        let (pairs, quantities): (Vec<Vec<Candidate<'_>>>, Vec<Quantity>) = all.unzip();
        let mut judged = judge_run(&pairs, &quantities, mean_epoch_s(measured)).into_iter();
        let main = judged.next().unwrap_or_default();
        let records = plan.metrics.iter().zip(metrics).zip(judged);
        let records = records.map(|((metric, medians), comparisons)| {
            let value = |medians: &Vec<f64>| {
                Some(MetricValue {
                    value: hodges_lehmann(medians)?,
                    ci95: ci95(medians),
                })
            };
            let cases = plan.cases.iter().zip(&medians);
            MetricRecord {
                cases: cases
                    .filter_map(|(case, medians)| Some((case.name.clone(), value(medians)?)))
                    .collect(),
                comparisons,
                metric: metric.clone(),
            }
        });
        let comparisons = if plan.counts() && !speechless {
            self.count_comparisons(plan, cases)
        } else {
            main
        };
        (comparisons, records.collect())
    }

    /// The plan's pairs whose two cases have counts.
    fn count_comparisons(&self, plan: &Plan, cases: &[CaseRecord]) -> Vec<ComparisonRecord> {
        let cost = |name: &str| Cost::raw(&cases[self.valid(plan, name)?]);
        let compared = plan.pairs.iter().filter_map(|pair| {
            let (case, baseline) = (cost(&pair.case)?, cost(&pair.baseline)?);
            exact::comparison(pair, &case, &baseline, plan.budget)
        });
        compared.collect()
    }

    /// The epoch medians of a further value, case by case; NaN where a case or an epoch has none.
    fn metric(&self, metric: &Metric) -> Vec<Vec<f64>> {
        let medians = self
            .cases
            .iter()
            .map(|data| match data.secondary.get(&metric.name) {
                Some(values) if data.live() => bearing(epoch_medians(values), self.aborted),
                _ => vec![f64::NAN; data.samples.len()],
            });
        medians.collect()
    }

    /// The plan's pairs whose two cases have these values in the same epochs, and how they are judged.
    fn quantity<'a>(
        &self,
        plan: &'a Plan,
        medians: &[Vec<f64>],
        is_main: bool,
        totals: &[Vec<Option<Total>>],
        policy: Policy,
    ) -> (Vec<Candidate<'a>>, Quantity) {
        let enough = first_look(plan.comparisons());
        let pairs = plan.pairs.iter().filter_map(|pair| {
            let case = self.valid(plan, &pair.case)?;
            let baseline = self.valid(plan, &pair.baseline)?;
            let known = |index: usize| self.undisturbed[index].as_ref().ok().filter(|_| is_main);
            // One reading of both. Too few epochs could not have a verdict.
            let known = known(case).zip(known(baseline));
            let known = known.map(|(case, baseline)| case.known.differences(&baseline.known));
            let known = known.filter(|known| known.log_ratio.len() >= enough);
            let candidate = Candidate {
                pair,
                total: TotalRatio::from_epochs(&totals[case], &totals[baseline]),
                undisturbed: known.is_some(),
            };
            let differences = match known {
                Some(known) => known,
                // If either does work of its own now and then, means of both.
                None if is_main
                    && [case, baseline]
                        .map(|one| self.centre(one))
                        .contains(&Centre::Mean) =>
                {
                    let means = |index: usize| Centre::Mean.epochs(&self.cases[index].samples);
                    Differences::pair(&means(case), &means(baseline))
                }
                None => Differences::pair(medians.get(case)?, medians.get(baseline)?),
            };
            (!differences.log_ratio.is_empty()).then_some((candidate, differences))
        });
        let (pairs, comparisons) = pairs.unzip();
        let quantity = Quantity {
            comparisons,
            policy,
        };
        (pairs, quantity)
    }

    /// The totals of these values by case and epoch.
    fn totals<'a>(
        &'a self,
        plan: &Plan,
        values: impl Fn(&'a CaseData) -> Option<&'a Vec<Vec<f64>>>,
        summed: Option<Summed>,
    ) -> Vec<Vec<Option<Total>>> {
        let windows = plan.layout.times_windows();
        let of_case = |data: &'a CaseData| {
            let values = values(data).filter(|_| data.live()).zip(summed);
            values.map_or_else(Vec::new, |(values, summed)| {
                data.totals(values, summed, windows)
            })
        };
        self.cases.iter().map(of_case).collect()
    }

    pub(super) fn spread(&self, plan: &Plan, measured: &Measurements) -> SpreadRecord {
        let cases: Vec<spreads::Spread> = plan
            .cases
            .iter()
            .zip(&self.cases)
            .filter(|(case, data)| case.role == Role::Case && data.live())
            .filter_map(|(_, data)| spreads::Spread::from_epochs(&data.samples))
            .collect();
        let live = plan.cases.iter().zip(&self.cases);
        let live = live.filter(|(_, data)| data.live());
        let typical = spreads::Spread::typical(&cases);
        let percent = |share: f64| share * 100.0;
        let nothing = null_readings(
            live.map(|(case, data)| (case, data.samples.as_slice())),
            plan.seed,
        );
        SpreadRecord {
            session: None,
            sessions: None,
            undisturbed_sessions: None,
            epoch: percent(typical.map_or(0.0, |spread| spread.epoch)),
            trial: percent(typical.map_or(0.0, |spread| spread.trial)),
            sentinel: median(&measured.sentinel.concat()),
            anchor: measured.anchor_undisturbed(),
            sentinel_drift: spreads::sentinel_drift(&measured.sentinel).map(percent),
            noise: widest(&nothing),
            nothing,
        }
    }
}

/// The interval of a case's own value.
fn ci95(epochs: &[f64]) -> Option<[f64; 2]> {
    Estimate::for_case(epochs).map(|e| [e.low, e.high])
}

/// Returns whether a value can be computed with and written as JSON: it is finite, and so is a sum of squares.
fn usable(value: f64) -> bool {
    value.abs() < 1e150
}

/// These epoch medians; no values if the run was aborted before they could bear an interval.
fn bearing(medians: Vec<f64>, aborted: bool) -> Vec<f64> {
    if aborted && Estimate::for_case(&medians).is_none() {
        vec![f64::NAN; medians.len()]
    } else {
        medians
    }
}
