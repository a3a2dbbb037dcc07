//! The two readings of a cost: undisturbed, and as found. Costs are compared in one of them.

use std::{borrow::Cow, collections::BTreeSet};

use bpfcost_stats::sample::epoch_medians;

use crate::{CaseRecord, Raw, Record};
use bpfcost_measure::{Centre, Warning};

/// A reading of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The cost with everything that slowed it.
    AsFound,
    /// The cost between the bursts of neighbours.
    Undisturbed,
}

impl Reading {
    /// Both, each at its own number.
    pub const ALL: [Self; 2] = [Reading::AsFound, Reading::Undisturbed];
}

impl CaseRecord {
    /// The reading of its `raw` and `net`.
    pub fn reading(&self) -> Reading {
        match self.undisturbed {
            Some(_) => Reading::Undisturbed,
            None => Reading::AsFound,
        }
    }

    /// The case's level in a reading; `None` if it has none.
    pub fn level(&self, reading: Reading) -> Option<f64> {
        let raw = self.raw.as_ref()?;
        match (&self.undisturbed, reading) {
            (Some(known), Reading::AsFound) => Some(known.as_found),
            (None, Reading::Undisturbed) => None,
            _ => Some(raw.value),
        }
    }

    /// The value of each epoch in a reading, NaN where it has none; `None` if the case is not known undisturbed.
    pub fn epoch_values(&self, reading: Reading) -> Option<Vec<f64>> {
        match reading {
            Reading::AsFound => Some(self.centre().epochs(&self.samples)),
            Reading::Undisturbed => {
                let epochs = self.undisturbed.as_ref()?.epochs.iter();
                Some(epochs.map(|value| value.unwrap_or(f64::NAN)).collect())
            }
        }
    }

    /// The centre of its cost as found.
    pub fn centre(&self) -> Centre {
        match self.own_work {
            Some(_) => Centre::Mean,
            None => Centre::Typical,
        }
    }

    /// The case with its cost in a reading; unchanged if it has no other.
    pub fn in_reading(self, reading: Reading) -> Self {
        match reading {
            Reading::AsFound => self.into_found(),
            Reading::Undisturbed => self,
        }
    }

    /// The same as found.
    pub fn into_found(mut self) -> Self {
        let Some(known) = self.undisturbed.take() else {
            return self;
        };
        let medians = epoch_medians(&self.samples);
        self.raw = self.raw.map(|raw| Raw {
            epochs: medians.iter().filter(|median| median.is_finite()).count(),
            value: known.as_found,
            ci95: known.as_found_ci95,
            ..raw
        });
        self.net = known.as_found_net;
        self
    }
}

impl Record {
    /// The record with one reading of all cases that have the same value of a factor: as found, unless all of them that
    /// have a cost are known undisturbed.
    pub fn in_one_reading_by(&self, factor: &str) -> Cow<'_, Record> {
        let value = |case: &CaseRecord| case.factors.get(factor).cloned();
        let cases = self.cases.iter();
        let found = cases.filter(|case| case.raw.is_some() && case.reading() == Reading::AsFound);
        let found: BTreeSet<String> = found.filter_map(value).collect();
        if found.is_empty() || !self.has_undisturbed() {
            return Cow::Borrowed(self);
        }
        let mut record = self.clone();
        for case in &mut record.cases {
            if value(case).is_some_and(|value| found.contains(&value)) {
                *case = case.clone().into_found();
            }
        }
        Cow::Owned(record)
    }

    /// Returns whether the undisturbed cost of any case is known.
    pub fn has_undisturbed(&self) -> bool {
        self.cases.iter().any(|case| case.undisturbed.is_some())
    }
}

/// The records of both sides, with one reading of each case: as found, if any of them has no other. The warning names
/// such cases. `None` where nothing changes.
pub(super) fn in_one_reading(sides: [&[Record]; 2]) -> Option<([Vec<Record>; 2], Warning)> {
    let key = |record: &Record, case: &CaseRecord| {
        [&record.experiment, &record.target, &case.name].map(Clone::clone)
    };
    let mut readings: [BTreeSet<[String; 3]>; 2] = Default::default();
    for record in sides.into_iter().flatten() {
        for case in record.cases.iter().filter(|case| case.raw.is_some()) {
            let known = case.reading() == Reading::Undisturbed;
            readings[usize::from(known)].insert(key(record, case));
        }
    }
    let mixed: BTreeSet<_> = readings[0].intersection(&readings[1]).collect();
    let names: Vec<&str> = mixed.iter().map(|key| key[2].as_str()).collect();
    let others = match names.len().checked_sub(1)? {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let warning = Warning::new(
        "as-found",
        format!(
            "{}{others}: not every record has an undisturbed cost, so costs as found are compared, with what neighbours \
             added. Records of earlier versions have none; if all are new, measure for longer (--time)",
            names[0]
        ),
    );
    let of_record = |record: &Record| {
        let mut found = record.clone();
        for case in &mut found.cases {
            if mixed.contains(&key(record, case)) {
                *case = case.clone().into_found();
            }
        }
        found
    };
    let of_side = |side: &[Record]| side.iter().map(of_record).collect();
    Some((sides.map(of_side), warning))
}
