//! The matrix in one sentence: how each target differs from the one that it is compared with.

use bpfcost_stats::sample::median;

use super::Matrix;
use crate::summary;
use bpfcost_record::{Difference, Status, VerdictRecord};
use bpfcost_text::number;

/// The matrix in a sentence.
pub fn sentence(matrix: &Matrix<'_>) -> String {
    let start = format!(
        "{} on {} targets",
        matrix.experiment,
        matrix.table.heads.len()
    );
    let mut clauses: Vec<String> = (0..matrix.table.heads.len())
        .filter_map(|at| differs(matrix, at))
        .collect();
    if clauses.is_empty() {
        clauses.push("they measure in different ways and are not compared".to_owned());
    }
    for (column, head) in matrix.columns.iter().zip(&matrix.table.heads) {
        let count = |status| summary::count(column.record, status);
        let parts = number::counts(&[
            (count(Status::Invalid), "cases are INVALID"),
            (count(Status::Unsupported), "cases can't run"),
        ]);
        clauses.extend(
            (!parts.is_empty()).then(|| format!("on {} {}", head.label, parts.join(" and "))),
        );
    }
    format!("{}{start}: {}.", budgets(matrix), clauses.join("; "))
}

/// The answers to the budget, a sentence for each target; empty without a budget.
fn budgets(matrix: &Matrix<'_>) -> String {
    let mut all = String::new();
    for (column, head) in matrix.columns.iter().zip(&matrix.table.heads) {
        let answer = summary::budget(column.record);
        let answer = answer.trim_end_matches([':', '.', ' ']);
        if !answer.is_empty() {
            all += &format!("{}: {answer}. ", head.label);
        }
    }
    all
}

/// One target against another, over all cases that both have.
fn differs(matrix: &Matrix<'_>, at: usize) -> Option<String> {
    let here = &matrix.table.heads[at].label;
    let there = &matrix.table.heads[matrix.table.heads[at].against?].label;
    let differences: Vec<Difference> = matrix.differences(at).collect();
    let relative: Vec<f64> = differences.iter().map(|one| one.relative).collect();
    let Some(middle) = median(&relative) else {
        return Some(format!("{here} and {there} have no case in common"));
    };
    let what = match (matrix.columns[at].record.unit.is_counted(), middle > 0.0) {
        (true, false) => "fewer instructions than",
        (true, true) => "more instructions than",
        (false, false) => "less time than",
        (false, true) => "more time than",
    };
    let share = number::percent(middle.abs());
    let costs = if share == number::percent(0.0) {
        "as much as".to_owned()
    } else {
        format!("{share} {what}")
    };
    let count = |verdict| {
        differences
            .iter()
            .filter(|one| one.verdict == verdict)
            .count()
    };
    let verdicts = number::counts(&[
        (count(VerdictRecord::Faster), "cost less"),
        (count(VerdictRecord::Slower), "cost more"),
        (count(VerdictRecord::Same), "are the same"),
        (count(VerdictRecord::Unresolved), "are unresolved"),
    ]);
    Some(format!(
        "{here} costs {costs} {there} in the median of {} cases: {}",
        differences.len(),
        verdicts.join(", ")
    ))
}
