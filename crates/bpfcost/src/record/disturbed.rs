//! Records side by side: a case must be in one state in all of them, undisturbed or as found.

use std::collections::BTreeSet;

use super::{CaseRecord, Raw, Record};
use crate::{experiment::Role, measure::Warning};

impl Raw {
    /// The same as found, where it is undisturbed.
    fn into_found(self) -> Raw {
        match self.undisturbed {
            Some(state) => Raw {
                value: state.as_found,
                ci95: state.as_found_ci95,
                undisturbed: None,
                ..self
            },
            None => self,
        }
    }
}

impl CaseRecord {
    /// Whether its value is of the undisturbed state.
    pub fn is_undisturbed(&self) -> bool {
        self.raw
            .as_ref()
            .is_some_and(|raw| raw.undisturbed.is_some())
    }
}

impl Record {
    /// Whether most of its cases are known undisturbed.
    pub fn is_undisturbed(&self) -> bool {
        let cases = self.cases.iter().filter(|case| case.role == Role::Case);
        let (undisturbed, others): (Vec<_>, Vec<_>) = cases
            .filter(|case| case.raw.is_some())
            .partition(|case| case.is_undisturbed());
        undisturbed.len() > others.len()
    }
}

/// The records of both sides, in which each case that is not undisturbed in all of them is as found in all; and a warning
/// that names those.
pub(super) fn in_one_state(sides: [&[Record]; 2]) -> ([Vec<Record>; 2], Option<Warning>) {
    let key = |record: &Record, case: &CaseRecord| {
        [&record.experiment, &record.target, &case.name].map(Clone::clone)
    };
    let mut states: [BTreeSet<[String; 3]>; 2] = Default::default();
    for record in sides.into_iter().flatten() {
        for case in record.cases.iter().filter(|case| case.raw.is_some()) {
            states[usize::from(case.is_undisturbed())].insert(key(record, case));
        }
    }
    let mixed: BTreeSet<_> = states[0].intersection(&states[1]).collect();
    let of_record = |record: &Record| {
        let mut record = record.clone();
        for at in 0..record.cases.len() {
            if mixed.contains(&key(&record, &record.cases[at])) {
                let raw = record.cases[at].raw.take();
                record.cases[at].raw = raw.map(Raw::into_found);
            }
        }
        record
    };
    let of_side = |side: &[Record]| side.iter().map(of_record).collect();
    let names: Vec<&str> = mixed.iter().map(|key| key[2].as_str()).collect();
    let warning = names.first().map(|first| {
        let others = match names.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        Warning::new(
            "as-found",
            format!(
                "{first}{others}: not undisturbed in every record, so compared as found, with what neighbours on the \
                 machine added. Measure again, for longer, for an undisturbed number (bpfcost run --time)"
            ),
        )
    });
    (sides.map(of_side), warning)
}
