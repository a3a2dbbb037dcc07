//! The two sides of a comparison: the records and cases of each.

use std::collections::HashSet;

use bpfcost_stats::{Estimate, hodges_lehmann, power::FALSE_ALARM_LEVEL, sessions::Sides};

use super::{CaseRecord, CompareError, Cost, OneSided, Record, Side, Status, compat};
use crate::{experiment::Role, measure::Warning};

/// The records of one experiment on one target.
pub(super) struct RecordGroup<'a> {
    pub(super) old: Vec<&'a Record>,
    pub(super) new: Vec<&'a Record>,
}

/// All groups, in the order of the new records, then of the old ones.
pub(super) fn groups<'a>(old: &[&'a Record], new: &[&'a Record]) -> Vec<RecordGroup<'a>> {
    let key = |record: &Record| (record.experiment.clone(), record.target.clone());
    let mut seen = HashSet::new();
    new.iter()
        .chain(old)
        .filter(|record| seen.insert(key(record)))
        .map(|first| {
            let on_side = |side: &[&'a Record]| {
                let same = side.iter().filter(|record| key(record) == key(first));
                same.copied().collect()
            };
            RecordGroup {
                old: on_side(old),
                new: on_side(new),
            }
        })
        .collect()
}

impl RecordGroup<'_> {
    pub(super) fn is_shared(&self) -> bool {
        !self.old.is_empty() && !self.new.is_empty()
    }

    /// The names of cases on either side, in the new side's order.
    pub(super) fn names(&self, role: Role) -> Vec<String> {
        let mut seen = HashSet::new();
        self.new
            .iter()
            .chain(&self.old)
            .flat_map(|record| &record.cases)
            .filter(|case| case.role == role && seen.insert(case.name.as_str()))
            .map(|case| case.name.clone())
            .collect()
    }
}

/// A case's records on one side that have a value.
pub(super) fn sessions<'a>(side: &[&'a Record], name: &str) -> Vec<&'a CaseRecord> {
    side.iter()
        .filter_map(|record| record.case(name))
        .filter(|case| case.status == Status::Ok && case.raw.is_some())
        .collect()
}

/// What failed first, where a case failed its checks in any record of a side.
pub(super) fn failed(side: &[&Record], name: &str) -> Option<String> {
    let mut cases = side.iter().filter_map(|record| record.case(name));
    let invalid = cases.find(|case| case.status == Status::Invalid)?;
    let problem = invalid.problems.first();
    Some(problem.map_or_else(|| "it failed its checks".to_owned(), ToString::to_string))
}

/// What times of several sessions are, where they have intervals.
pub(super) fn estimates(costs: &[Cost]) -> Vec<Estimate> {
    costs
        .iter()
        .filter_map(|cost| {
            let [low, high] = cost.ends?;
            Some(Estimate {
                value: cost.value,
                low,
                high,
            })
        })
        .collect()
}

/// What the cases of a side cost as measured.
pub(super) fn costs(cases: &[&CaseRecord]) -> Vec<Cost> {
    cases.iter().filter_map(|case| Cost::raw(case)).collect()
}

/// Whether so many sessions a side can show a change at all by the exact test among `family` cases:
/// its smallest p is 2 over the number of ways to draw one side from both.
pub(super) fn exact_suffices(old: usize, new: usize, family: usize) -> bool {
    let ways: f64 = (1..=new).map(|i| (old + i) as f64 / i as f64).product();
    2.0 / ways <= FALSE_ALARM_LEVEL / family.max(1) as f64
}

/// The number of sessions a side from which the exact test can show a change among `family` cases.
pub(super) fn sessions_needed(family: usize) -> usize {
    // At 40 a side it suffices for more cases than there can be.
    (1..40)
        .find(|count| exact_suffices(*count, *count, family))
        .unwrap_or(40)
}

/// What is judged of a case: its sessions, where they are enough to speak for themselves; else each side as one.
pub(super) fn judged(old: Vec<Estimate>, new: Vec<Estimate>, spread: f64, family: usize) -> Sides {
    if exact_suffices(old.len(), new.len(), family) {
        return Sides { old, new };
    }
    Sides {
        old: pooled(&old, spread),
        new: pooled(&new, spread),
    }
}

/// Several sessions of a side as one, its interval widened by the spread between sessions; both
/// shrink with the number of sessions. Sessions that are not above zero throughout are skipped.
pub(super) fn pooled(sessions: &[Estimate], spread: f64) -> Vec<Estimate> {
    /// Half the width of a 95 % interval of the normal distribution, in standard deviations.
    const Z: f64 = 1.959_963_984_540_054;
    let logs: Vec<Estimate> = sessions
        .iter()
        .filter(|e| e.low > 0.0 && e.low <= e.value && e.value <= e.high && e.high.is_finite())
        .map(|e| e.map(f64::ln))
        .collect();
    let count = logs.len() as f64;
    let mean = |part: fn(&Estimate) -> f64| logs.iter().map(part).sum::<f64>() / count;
    let half = |squares: f64| ((squares + (Z * spread).powi(2)) / count).sqrt();
    let value = mean(|e| e.value);
    let one = Estimate {
        value,
        low: value - half(mean(|e| (e.value - e.low).powi(2))),
        high: value + half(mean(|e| (e.high - e.value).powi(2))),
    };
    if logs.is_empty() {
        return Vec::new();
    }
    vec![one.map(f64::exp)]
}

pub(super) fn side(cases: &[&CaseRecord]) -> Option<Side> {
    let raws: Vec<_> = cases.iter().filter_map(|case| case.raw.as_ref()).collect();
    let values: Vec<f64> = raws.iter().map(|raw| raw.value).collect();
    Some(Side {
        sessions: raws.len(),
        value: hodges_lehmann(&values)?,
        ci95: match raws.as_slice() {
            [one] => one.ci95,
            _ => None,
        },
        added: None,
        added_ci95: None,
    })
}

/// A case that `side` has and `other` has no value of.
pub(super) fn one_sided(side: &[&Record], other: &[&Record], case: String) -> OneSided {
    let reason = match other.iter().find_map(|record| record.case(&case)) {
        Some(case_there) => Some(match case_there.status {
            Status::Invalid => "it failed its checks there".to_owned(),
            Status::Unsupported => case_there
                .reason
                .clone()
                .unwrap_or_else(|| "unsupported".to_owned()),
            Status::Ok => "it has no trials there".to_owned(),
        }),
        None => other
            .is_empty()
            .then(|| "no record of this experiment and target".to_owned()),
    };
    let (experiment, target) = side.first().map_or_else(Default::default, |record| {
        (record.experiment.clone(), record.target.clone())
    });
    OneSided {
        experiment,
        target,
        case,
        reason,
    }
}

/// What distinguishes one run from another.
pub(super) fn run(record: &Record) -> (&str, &str, &str, u64) {
    (
        &record.experiment,
        &record.target,
        &record.started,
        record.seed,
    )
}

/// A side's records without copies of the same run, which would pass for sessions that agree.
pub(super) fn distinct<'a>(
    side: &'a [Record],
    name: &'static str,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<&'a Record>, CompareError> {
    let mut seen = HashSet::new();
    let kept: Vec<&Record> = side
        .iter()
        .filter(|record| seen.insert(run(record)))
        .collect();
    if kept.len() < side.len() {
        warnings.push(Warning::new(
            "copies",
            format!(
                "the {name} side has {} duplicate runs; they are left out",
                side.len() - kept.len()
            ),
        ));
    }
    if kept.is_empty() {
        return Err(CompareError::NoRecord(name));
    }
    Ok(kept)
}

pub(super) fn named(side: &[&Record]) -> String {
    let mut names: Vec<String> = side.iter().map(|record| compat::what(record)).collect();
    names.sort();
    names.dedup();
    names.join(", ")
}
