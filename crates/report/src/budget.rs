//! The answer of a run to its budget, as the first words of its sentence. The exit code is made from the same answer.

use crate::words;
use bpfcost_record::{BudgetAnswer, BudgetVerdict, ComparisonRecord, Record};
use bpfcost_text::number;

/// How many of a run's things, probes or comparisons, the budget judged.
pub(crate) struct Judged<'a> {
    /// The name of one of them.
    pub(crate) what: &'a str,
    /// Of them, those that are over it.
    pub(crate) over: usize,
    /// All of them.
    pub(crate) all: usize,
}

/// `Over the budget of 5 %: `; `None` where the run has no budget. The number that follows has a 95 % interval, so the end
/// of the 90 % one stands [elsewhere](end).
pub(crate) fn lead(record: &Record, judged: &Judged<'_>) -> Option<String> {
    let budget = number::round_percent(record.asked.budget?);
    let budget = format!("the budget of {budget}");
    Some(match record.budget_answer()? {
        BudgetAnswer::Within => format!("Within {budget}: "),
        BudgetAnswer::CantTell => format!("Not resolved yet for {budget}: "),
        BudgetAnswer::NotJudged => format!("Not everything could be judged by {budget}: "),
        BudgetAnswer::Over => match (judged.over, judged.all, judged.what) {
            (over, all, what) if over > 0 && all > 1 => {
                let are = if over == 1 { "is" } else { "are" };
                format!("{over} of {all} {what}s {are} over {budget}. ")
            }
            _ => format!("Over {budget}: "),
        },
    })
}

/// `90 % interval: at least 8.2 %`: the end of the interval that decides, of the comparison with the run's answer for which
/// it lies furthest up.
pub(crate) fn end(record: &Record) -> Option<String> {
    let wanted = match record.budget_answer()? {
        BudgetAnswer::Within => BudgetVerdict::Within,
        BudgetAnswer::CantTell => BudgetVerdict::CantTell,
        BudgetAnswer::Over => BudgetVerdict::Over,
        BudgetAnswer::NotJudged => return None,
    };
    let judged = record.judged_by_budget();
    let judged = judged.filter_map(|(one, verdict)| (verdict == wanted).then_some(one));
    let furthest = judged.max_by(|a, b| decisive(a).total_cmp(&decisive(b)))?;
    words::budget_end(furthest, record.asked.budget)
}

/// The higher end of the intervals on which the budget is judged.
fn decisive(comparison: &ComparisonRecord) -> f64 {
    let typical = comparison
        .relative_ci90
        .map_or(f64::NEG_INFINITY, |ends| ends[1]);
    comparison
        .totals
        .map_or(typical, |totals| typical.max(totals.ci90[1]))
}
