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
    let Some(middle) = median(differences) else {
        return format!("{here} and {there} have no case in common");
    };
    let what = match record.unit.is_counted() {
        true => ["fewer instructions", "more instructions"],
        false => ["less time", "more time"],
    };
    let percent = number::percent(middle.abs());
    let costs = match number::percent(middle).as_str() {
        "0.0\u{A0}%" | "0.00\u{A0}%" | "−0.00\u{A0}%" => format!("costs as much as {there}"),
        _ if middle < 0.0 => format!("costs {percent} {} than {there}", what[0]),
        _ => format!("costs {percent} {} than {there}", what[1]),
    };
    let of = match differences.len() {
        1 => "in the one case that both have".to_owned(),
        cases => format!("in the median of {cases} cases"),
    };
    format!("{here} {costs} {of}: {}", verdicts(differences))
}

/// `20 cost less, 2 cost more, 2 are the same`.
fn verdicts(differences: &[Difference]) -> String {
    let parts = [
        (Verdict::Faster, "cost less", "costs less"),
        (Verdict::Slower, "cost more", "costs more"),
        (Verdict::Same, "are the same", "is the same"),
        (Verdict::Unresolved, "are unresolved", "is unresolved"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter_map(|(verdict, many, one)| {
            let count = differences
                .iter()
                .filter(|one| one.verdict == verdict)
                .count();
            match count {
                0 => None,
                1 => Some(format!("1 {one}")),
                more => Some(format!("{} {many}", number::count(more as u64))),
            }
        })
        .collect();
    parts.join(", ")
}

fn median(differences: &[Difference]) -> Option<f64> {
    let values: Vec<f64> = differences.iter().map(|one| one.relative).collect();
    bpfcost_stats::sample::median(&values)
}

/// Cases without a number, by target.
fn failures(matrix: &Matrix<'_>) -> Vec<String> {
    let columns = matrix.across.columns.iter().zip(&matrix.heads);
    columns
        .filter_map(|(column, head)| {
            let count = |status| {
                let cases = column.record.cases.iter();
                cases.filter(|case| case.status == status).count()
            };
            let invalid = match count(Status::Invalid) {
                0 => None,
                1 => Some("1 case is INVALID".to_owned()),
                more => Some(format!("{} cases are INVALID", number::count(more as u64))),
            };
            let unsupported = match count(Status::Unsupported) {
                0 => None,
                some => Some(format!("{} can't run", number::plural(some, "case"))),
            };
            let parts: Vec<String> = invalid.into_iter().chain(unsupported).collect();
            (!parts.is_empty()).then(|| format!("on {} {}", head.label, parts.join(" and ")))
        })
        .collect()
}
