//! Journals read as their user could: trials by epoch and case, as JSON.

use serde_json::Value;

/// One trial: its epoch, the number of its case in the plan, its value.
pub(crate) type Kept = (u64, usize, f64);

/// The trials in whole lines of a journal.
pub(crate) fn trials(journal: &str) -> Vec<Kept> {
    let whole = journal.rfind('\n').map_or("", |end| &journal[..end]);
    let lines = whole
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).expect("every whole line is JSON") });
    lines
        .filter_map(|line| {
            let trial = line.get("trial")?;
            Some((
                trial["epoch"].as_u64()?,
                usize::try_from(trial["case"].as_u64()?).ok()?,
                trial["trial"]["value"].as_f64()?,
            ))
        })
        .collect()
}

/// The epochs that a record has values of.
pub(crate) fn epochs(record: &Value) -> usize {
    record["cases"][0]["samples"].as_array().map_or(0, Vec::len)
}

/// Every one of these trials is in the record.
#[track_caller]
pub(crate) fn assert_holds(record: &Value, trials: &[Kept]) {
    for (epoch, case, value) in trials {
        let samples = &record["cases"][case]["samples"][*epoch as usize];
        let found = samples
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one.as_f64() == Some(*value)));
        assert!(
            found,
            "epoch {epoch}, case {case}: {value} is lost, there is {samples}"
        );
    }
}

/// The record in a text.
pub(crate) fn record(text: &str) -> Value {
    serde_json::from_str(text).expect("one record as JSON")
}
