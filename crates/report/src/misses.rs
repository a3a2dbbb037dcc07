//! Calls that a probe missed, if misses are part of the question.

use crate::target;
use bpfcost_record::{CaseRecord, MISSED_SHARE, Record};
use bpfcost_text::{line, number};

/// Returns true if the misses of a case are calls that a probe should have seen. Each of them counts.
pub(crate) fn are_missed_calls(case: &CaseRecord) -> bool {
    case.secondary.contains_key(MISSED_SHARE)
}

/// A share of misses; never `0` where there are some.
pub(crate) fn share(share: f64) -> String {
    match share {
        0.0 => "0".to_owned(),
        share if share > 0.0 && share < 5e-5 => format!("<{}", number::percent(1e-4)),
        share => number::percent(share),
    }
}

/// The calls that probes missed on a target, case by case, where several stand side by side; `None` where there are no
/// probes of the kind.
pub(crate) fn caption(record: &Record) -> Option<String> {
    record.cases.iter().find(|case| are_missed_calls(case))?;
    let missing = record.cases.iter().filter_map(|case| {
        let missed = case.misses().filter(|missed| *missed > 0.0)?;
        Some(format!("{} {}", line(&case.name), share(missed)))
    });
    let missing: Vec<String> = missing.collect();
    let target = target::label(record);
    Some(if missing.is_empty() {
        format!("No probe missed a call on {target}.")
    } else {
        format!(
            "Calls that the probe missed on {target}: {}; none in all other cases.",
            missing.join(", ")
        )
    })
}
