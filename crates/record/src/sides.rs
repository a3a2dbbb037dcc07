//! The two sides of a comparison: the records and cases of each.

use std::collections::HashSet;

use bpfcost_stats::{Estimate, Spread, hodges_lehmann, sessions::Session};

use crate::{
    CaseRecord, CompareError, Cost, OneSided, Reading, Record, Side, Status, compat,
    history::began_s,
};
use bpfcost_measure::Warning;
use bpfcost_model::Role;

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

/// A case's sessions on one side, by their costs as measured.
pub(super) fn raw_sessions(side: &[&Record], name: &str) -> Vec<Session> {
    dated(side, |record| {
        let case = record.case(name).filter(|case| case.status == Status::Ok)?;
        estimate(&Cost::raw(case)?)
    })
}

/// How far the costs as found of a case's epochs differ, in the record in which they do most: a relative standard
/// deviation. 0 if the undisturbed costs lead: how far those differ is in their intervals.
pub(super) fn epoch_spread<'a>(records: impl IntoIterator<Item = &'a Record>, name: &str) -> f64 {
    let spread = |record: &Record| {
        let case = record.case(name)?;
        match case.reading() {
            Reading::AsFound => Some(Spread::from_epochs(&case.samples)?.epoch),
            Reading::Undisturbed => None,
        }
    };
    let spreads = records.into_iter().filter_map(spread);
    spreads.fold(0.0, f64::max)
}

/// What each record of a side that knows it says, with the time when it began.
pub(super) fn dated(side: &[&Record], value: impl Fn(&Record) -> Option<Estimate>) -> Vec<Session> {
    let session = |record: &&Record| {
        Some(Session {
            began_s: began_s(record),
            estimate: value(record)?,
        })
    };
    side.iter().filter_map(session).collect()
}

/// A time with its interval, where it has one.
pub(super) fn estimate(cost: &Cost) -> Option<Estimate> {
    let [low, high] = cost.ends?;
    Some(Estimate {
        value: cost.value,
        low,
        high,
    })
}

/// What the cases of a side cost as measured.
pub(super) fn costs(cases: &[&CaseRecord]) -> Vec<Cost> {
    cases.iter().filter_map(|case| Cost::raw(case)).collect()
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

/// The status of a case that a side was to measure; `None` where it was not.
pub(super) fn lacks(side: &[&Record], name: &str) -> Option<Status> {
    side.iter()
        .find_map(|record| Some(record.case(name)?.status))
}

/// A case that `side` has and `other` has no value of. `unjudged`: it was to be measured there, too.
pub(super) fn one_sided(
    side: &[&Record],
    other: &[&Record],
    case: String,
    unjudged: bool,
) -> OneSided {
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
        unjudged,
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
