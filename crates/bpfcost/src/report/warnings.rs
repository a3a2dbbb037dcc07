//! The warnings of a run as every view shows them: many of one kind as one. The record keeps them all.

use crate::{
    measure::{PROPORTIONALITY, Warning},
    record::Record,
    report::{number, summary, text, words},
};

/// More cases than this whose cost depends on the batch are told in one warning.
const FEW: usize = 2;
/// More of them than this are counted, not named.
const NAMED: usize = 6;

/// The warnings of a record, one each.
pub(super) fn lines(record: &Record) -> Vec<String> {
    // Said first of all.
    let told = summary::reason(record);
    let others = record.warnings.iter();
    let others = others.filter(|one| told.is_none_or(|told| !std::ptr::eq(told, *one)));
    let (by_batch, others): (Vec<&Warning>, Vec<&Warning>) =
        others.partition(|warning| warning.code == PROPORTIONALITY);
    let folded = (by_batch.len() > FEW).then(|| cost_by_batch(record, &by_batch));
    let folded = folded.flatten();
    let apart = by_batch.iter().filter(|_| folded.is_none());
    let texts = others.iter().chain(apart);
    let texts = texts.map(|warning| text::line(&warning.text));
    texts.chain(folded.clone()).collect()
}

/// Twice the operations did not take twice as long: what it means, once for all cases.
fn cost_by_batch(record: &Record, warnings: &[&Warning]) -> Option<String> {
    let off = |ratio: f64| (ratio / 2.0).ln().abs();
    let of = |warning: &&Warning, name: &str| {
        let rest = warning.text.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(": "))
    };
    let warned = |name: &str| warnings.iter().any(|warning| of(warning, name));
    let cases = record.cases.iter().filter(|case| warned(&case.name));
    let mut cases: Vec<_> = cases
        .filter_map(|case| Some((words::off_two(case)?, case)))
        .collect();
    cases.sort_by(|a, b| off(b.0).total_cmp(&off(a.0)));
    let named = cases.iter().take(NAMED);
    let mut named: Vec<String> = named
        .map(|(ratio, case)| format!("{} ({})", text::line(&case.name), number::fixed(*ratio, 2)))
        .collect();
    let more = cases.len().saturating_sub(NAMED);
    named.extend((more > 0).then(|| format!("{more} more")));
    (!cases.is_empty()).then(|| {
        format!(
            "in {} cases twice the operations did not take twice {} (2.00 ± 5 % expected): {}. Their cost per operation \
             depends on the batch, or the machine was disturbed meanwhile.",
            cases.len(),
            words::as_much(record.unit),
            named.join(", ")
        )
    })
}
