//! Records of one kind on the two sides of a comparison, and the judge of their costs.

use std::collections::HashSet;

use bpfcost_stats::{
    Estimate, Policy, Sense, Spread, hodges_lehmann,
    session_spread::SessionSpreads,
    sessions::{Session, SessionComparison, Sides, judge_sessions},
};

use crate::{
    CaseRecord, CompareError, Cost, OneSided, Reading, Record, Side, Status, history::began_s,
};
use bpfcost_measure::Warning;
use bpfcost_model::Role;

/// Records whose cases are compared: of one experiment, and on one target unless targets are compared.
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

    /// The records of both sides, the new ones first.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.new.iter().chain(&self.old).copied()
    }

    /// The names of cases on either side, in the new side's order.
    pub(super) fn names(&self, role: Role) -> Vec<String> {
        let mut unique = HashSet::new();
        self.records()
            .flat_map(|record| &record.cases)
            .filter(|case| case.role == role && unique.insert(case.name.as_str()))
            .map(|case| case.name.clone())
            .collect()
    }

    /// The sessions of a case on both sides, for [`judge`]. `cost` returns the cost in a record of the old (0) or the
    /// new side (1).
    pub(super) fn sides(
        &self,
        name: &str,
        spreads: SessionSpreads,
        cost: impl Fn(usize, &Record) -> Option<Cost>,
    ) -> Sides {
        let costs = [(0, &self.old), (1, &self.new)].map(|(side, records)| {
            let dated = |record: &&Record| Some((began_s(record), cost(side, record)?));
            records
                .iter()
                .filter_map(dated)
                .collect::<Vec<(f64, Cost)>>()
        });
        let parts = costs.iter().flatten().map(|(_, cost)| cost.part);
        let part = parts.reduce(f64::min).unwrap_or(1.0);
        let session = |(began_s, cost): (f64, Cost)| {
            let [low, high] = cost.ends?;
            let value = cost.value;
            let estimate = Estimate { value, low, high };
            Some(Session { began_s, estimate })
        };
        let [old, new] = costs.map(|side| side.into_iter().filter_map(session).collect());
        Sides {
            spreads,
            leverage: 1.0 / part,
            epochs: self.epoch_spread(name),
            ..Sides::new(old, new)
        }
    }

    /// The relative standard deviation of a case's costs as found between epochs, in the record where it is largest;
    /// 0 if the undisturbed costs are compared, whose intervals include it.
    fn epoch_spread(&self, name: &str) -> f64 {
        let spread = |record: &Record| {
            let case = record.case(name)?;
            match case.reading() {
                Reading::AsFound => Some(Spread::from_epochs(&case.samples)?.epoch),
                Reading::Undisturbed => None,
            }
        };
        self.records().filter_map(spread).fold(0.0, f64::max)
    }
}

/// Judges costs on two sides as one family, with a relative margin for "the same".
pub(super) fn judge(sides: &[Sides], family: usize, margin: f64) -> Vec<SessionComparison> {
    let policy = Policy {
        margin,
        budget: None,
        sense: Sense::Cost,
    };
    judge_sessions(sides, family, &policy)
}

/// A case's records on one side that have a value.
pub(super) fn sessions<'a>(side: &[&'a Record], name: &str) -> Vec<&'a CaseRecord> {
    side.iter()
        .filter_map(|record| record.case(name))
        .filter(|case| case.status == Status::Ok && case.raw.is_some())
        .collect()
}

/// The first failed check, where a case failed its checks in any record of a side.
pub(super) fn first_failure(side: &[&Record], name: &str) -> Option<String> {
    let mut cases = side.iter().filter_map(|record| record.case(name));
    let invalid = cases.find(|case| case.status == Status::Invalid)?;
    let problem = invalid.problems.first();
    Some(problem.map_or_else(|| "it failed its checks".to_owned(), ToString::to_string))
}

/// The cost of a case as measured; `None` where the record has no valid one.
pub(super) fn raw_cost(record: &Record, name: &str) -> Option<Cost> {
    Cost::raw(record.case(name).filter(|case| case.status == Status::Ok)?)
}

/// The costs of a side's cases as measured.
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
pub(super) fn status_of(side: &[&Record], name: &str) -> Option<Status> {
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

/// The key that distinguishes one run from another.
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
