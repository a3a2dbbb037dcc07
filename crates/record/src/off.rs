//! The case of a workload without a probe.

use bpfcost_model::{OFF, VARIANT};

use crate::{CaseRecord, ComparisonRecord, Record};

/// The comparison of a case of a record with the one without a probe.
pub(super) fn against_off<'a>(record: &'a Record, name: &str) -> Option<&'a ComparisonRecord> {
    let mut comparisons = record.comparisons.iter();
    comparisons.find(|one| one.case == name && record.case(&one.baseline).is_some_and(is_off))
}

/// Returns whether a case has no probe.
pub(super) fn is_off(case: &CaseRecord) -> bool {
    case.factors.get(VARIANT).is_some_and(|name| name == OFF)
}
