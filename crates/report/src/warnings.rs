//! The warnings of a run as every view shows them: many of one kind as one. The record keeps them all.

use crate::{
    notes,
    section::{Detail, Warnings},
    summary,
};
use bpfcost_measure::{PROPORTIONALITY, Warning};
use bpfcost_record::Record;
use bpfcost_text::{line, number};

/// With more cases than this whose cost depends on the batch, one warning covers all.
const FEW: usize = 2;
/// More of them than this are counted, not named.
const NAMED: usize = 6;

/// A terminal shows as many, unless all are asked for.
const BRIEF: usize = 2;
/// Codes of warnings that matter less than all others, the least last. They describe the machine, or say why intervals are
/// wide.
const MINOR: [&str; 9] = [
    PROPORTIONALITY,
    "steal",
    "busy-neighbours",
    "frequency",
    "other-tracers",
    "migrations",
    "clocksource",
    "governor",
    "virtualised",
];

/// The warnings of a record that a view of this detail shows.
pub(crate) fn warnings(record: &Record, detail: Detail) -> Warnings {
    let mut all = all(record);
    let mut more = 0;
    if detail == Detail::Brief && all.len() > BRIEF {
        let rank = |code: &str| MINOR.iter().position(|minor| *minor == code);
        // None comes before Some; the sort is stable.
        all.sort_by_key(|(code, _)| rank(code));
        more = all.len() - BRIEF;
        all.truncate(BRIEF);
    }
    Warnings {
        lines: all.into_iter().map(|(_, line)| line).collect(),
        more,
    }
}

/// All warnings of a record, by code and as a line.
fn all(record: &Record) -> Vec<(&str, String)> {
    // The summary has that of an aborted run.
    let reason = summary::reason(record);
    let others = record.warnings.iter();
    let others = others.filter(|one| reason.is_none_or(|reason| !std::ptr::eq(reason, *one)));
    let (by_batch, others): (Vec<&Warning>, Vec<&Warning>) =
        others.partition(|warning| warning.code == PROPORTIONALITY);
    let folded = (by_batch.len() > FEW).then(|| cost_by_batch(record, &by_batch));
    let folded = folded.flatten();
    let apart = by_batch.into_iter().filter(|_| folded.is_none());
    let lines = others.into_iter().chain(apart);
    let lines = lines.map(|warning| (warning.code.as_str(), line(&warning.text)));
    let folded = folded.clone().map(|line| (PROPORTIONALITY, line));
    lines.chain(folded).collect()
}

/// One warning for all cases in which twice the operations did not take twice as long.
fn cost_by_batch(record: &Record, warnings: &[&Warning]) -> Option<String> {
    let off = |ratio: f64| (ratio / 2.0).ln().abs();
    let names = |warning: &&Warning, name: &str| {
        let rest = warning.text.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(": "))
    };
    let warned = |name: &str| warnings.iter().any(|warning| names(warning, name));
    let cases = record.cases.iter().filter(|case| warned(&case.name));
    let mut cases: Vec<_> = cases
        .filter_map(|case| Some((notes::off_two(case)?, case)))
        .collect();
    cases.sort_by(|a, b| off(b.0).total_cmp(&off(a.0)));
    let named = cases.iter().take(NAMED);
    let mut named: Vec<String> = named
        .map(|(ratio, case)| format!("{} ({})", line(&case.name), number::fixed(*ratio, 2)))
        .collect();
    let more = cases.len().saturating_sub(NAMED);
    named.extend((more > 0).then(|| format!("{more} more")));
    (!cases.is_empty()).then(|| {
        format!(
            "in {} cases twice the operations did not take twice {} (2.00 ± 5 % expected): {}. Their cost per \
             operation depends on the size of the batch, or something disturbed the machine.",
            cases.len(),
            notes::as_much(record.unit),
            named.join(", ")
        )
    })
}
