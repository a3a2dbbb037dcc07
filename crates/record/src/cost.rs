//! The cost of a case for comparisons and reports: raw, or net if the cases span a grid. In a grid the floor is the
//! cost of the event itself, and would dilute every difference.

use crate::{
    CaseRecord, Record, Status,
    recorded_count::{recorded_range, recorded_rounding},
};
use bpfcost_model::Role;

/// A value with its 95 % interval; counts have none, and neither have values of too few epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostEstimate {
    /// The estimate, in the unit of what it is of.
    pub value: f64,
    /// The interval.
    pub ci95: Option<[f64; 2]>,
}

/// The cost of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The cost.
    pub value: f64,
    /// The 95 % interval, or the range that a count takes over loads; `None` if it is unknown.
    pub ends: Option<[f64; 2]>,
    /// The largest difference between two counts that are the same.
    pub rounding: f64,
    /// The part of the measured value that it is: sessions move the measured value as a whole.
    pub(super) part: f64,
}

impl Cost {
    /// As it was measured; `None` without a value.
    pub fn raw(case: &CaseRecord) -> Option<Self> {
        let raw = case.raw.as_ref()?;
        Some(Cost {
            value: raw.value,
            ends: recorded_range(case).or(raw.ci95),
            rounding: recorded_rounding(case),
            part: 1.0,
        })
    }

    /// The cost without the floor; `None` where that is no number.
    fn net(case: &CaseRecord, floor: Option<&CaseRecord>) -> Option<Self> {
        let (raw, net) = (Cost::raw(case)?, case.net.as_ref()?);
        let value = net.value?;
        let floor = floor.and_then(Cost::raw);
        // Counts add up: the least net cost is the cheapest load of the case minus the most
        // expensive of the floor.
        let counted = || {
            let ([low, high], [least, most]) = (raw.ends?, floor?.ends?);
            Some([low - most, high - least])
        };
        Some(Cost {
            value,
            ends: net.ci95.or_else(counted),
            rounding: raw.rounding + floor.map_or(0.0, |floor| floor.rounding),
            part: value / raw.value,
        })
    }

    /// The range, where a count differs from load to load by more than the clock rounds.
    pub fn range(&self) -> Option<[f64; 2]> {
        self.ends.filter(|[low, high]| high - low > self.rounding)
    }

    /// Returns whether it is shown to be above zero.
    pub(super) fn is_something(&self) -> bool {
        self.ends.map_or(self.value, |[low, _]| low) > self.rounding
    }
}

impl Record {
    /// The cost of a case: net where cases span a grid, otherwise as measured. `None` where it has no number.
    pub fn cost(&self, case: &CaseRecord) -> Option<Cost> {
        if case.status != Status::Ok {
            return None;
        }
        let cost = if self.layout.compares_nets() && case.role == Role::Case {
            Cost::net(case, case.floor.as_deref().and_then(|name| self.case(name)))
        } else {
            Cost::raw(case)
        };
        cost.filter(|cost| cost.value.is_finite())
    }
}
