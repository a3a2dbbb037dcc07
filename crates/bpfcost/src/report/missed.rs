//! What a probe missed, where that is a part of the question.

use bpfcost_stats::Sample;

use crate::{
    experiment::kretprobe::MISSED,
    record::{CaseRecord, Record},
    report::{number, target, text},
};

/// Whom probes miss on a target, case by case; `None` where there are no probes of the kind.
pub(super) fn caption(record: &Record) -> Option<String> {
    record.scaling.as_ref()?;
    let asked = |case: &&CaseRecord| case.secondary.contains_key(MISSED);
    record.cases.iter().find(asked)?;
    let missing = record.cases.iter().filter_map(|case| {
        let share = share(case)?;
        Some(format!(
            "{} {}",
            text::line(&case.name),
            number::percent(share)
        ))
    });
    let missing: Vec<String> = missing.collect();
    let target = target::label(record);
    Some(match missing.is_empty() {
        true => format!("No probe missed a call on {target}."),
        false => format!(
            "Calls that the probe missed on {target}: {}; none in all other cases.",
            missing.join(", ")
        ),
    })
}

/// `misses 75 % of the calls`; `None` where it misses nothing.
pub(super) fn note(case: &CaseRecord, record: &Record) -> Option<String> {
    record.scaling.as_ref()?;
    Some(format!(
        "misses {} of the calls",
        number::percent(share(case)?)
    ))
}

/// The share of the calls, where it is not 0.
fn share(case: &CaseRecord) -> Option<f64> {
    // Of all trials: a median would hide misses that come now and then.
    let share = Sample::new(&case.secondary.get(MISSED)?.concat())?.mean();
    (share > 0.0).then_some(share)
}
