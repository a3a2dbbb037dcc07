//! The matrix in a sentence: how each target differs from the one that it is compared with.

use super::{Head, Matrix};
use crate::{
    record::{Difference, Record, Status, Verdict},
    report::number,
};

/// The matrix in a sentence.
pub fn sentence(matrix: &Matrix<'_>) -> String {
    let targets = matrix.heads.len();
    let start = format!("{} on {targets} targets", matrix.experiment);
    let differing: Vec<String> = matrix
        .heads
        .iter()
        .enumerate()
        .filter_map(|(column, head)| {
            let first = &matrix.heads[head.against?];
            let record = matrix.across.columns[column].record;
            let differences: Vec<Difference> = matrix.differences(column).collect();
            Some(differs(head, first, record, &differences))
        })
        .collect();
    let mut parts = match differing.as_slice() {
        [] => vec![format!(
            "{start}, which measure in different ways: shown side by side, nothing is compared"
        )],
        clauses => vec![format!("{start}: {}", clauses.join("; "))],
    };
    parts.extend(failures(matrix));
    format!("{}.", parts.join("; "))
}

/// One target against another, over all cases that both have.
fn differs(head: &Head, first: &Head, record: &Record, differences: &[Difference]) -> String {
    let (here, there) = (&head.label, &first.label);
    let relative: Vec<f64> = differences.iter().map(|one| one.relative).collect();
    let Some(middle) = bpfcost_stats::sample::median(&relative) else {
        return format!("{here} and {there} have no case in common");
    };
    let what = match record.unit.is_counted() {
        true => ["fewer instructions", "more instructions"],
        false => ["less time", "more time"],
    };
    let percent = number::percent(middle.abs());
    let costs = match percent.as_str() {
        "0.0\u{A0}%" | "0.00\u{A0}%" => format!("costs as much as {there}"),
        _ => {
            let what = what[usize::from(middle > 0.0)];
            format!("costs {percent} {what} than {there}")
        }
    };
    let of = match differences.len() {
        1 => "in the one case that both have".to_owned(),
        cases => format!("in the median of {cases} cases"),
    };
    let count = |verdict| {
        let found = differences.iter();
        found.filter(|one| one.verdict == verdict).count()
    };
    let verdicts = number::counts(&[
        (count(Verdict::Faster), "cost less"),
        (count(Verdict::Slower), "cost more"),
        (count(Verdict::Same), "are the same"),
        (count(Verdict::Unresolved), "are unresolved"),
    ]);
    format!("{here} {costs} {of}: {}", verdicts.join(", "))
}

/// Cases without a number, by target.
fn failures(matrix: &Matrix<'_>) -> Vec<String> {
    let columns = matrix.across.columns.iter().zip(&matrix.heads);
    let failed = columns.map(|(column, head)| {
        let count = |status| {
            let cases = column.record.cases.iter();
            cases.filter(|case| case.status == status).count()
        };
        let parts = number::counts(&[
            (count(Status::Invalid), "cases are INVALID"),
            (count(Status::Unsupported), "cases can't run"),
        ]);
        (head, parts)
    });
    let some = failed.filter(|(_, parts)| !parts.is_empty());
    some.map(|(head, parts)| format!("on {} {}", head.label, parts.join(" and ")))
        .collect()
}
