//! The answer of a run to its budget, as the first words of its sentence. The exit code is made from the same answer.

use bpfcost_record::{BudgetAnswer, BudgetVerdict, ComparisonRecord, Record};
use bpfcost_text::number;

/// Numbers of probes or comparisons that the budget judged.
pub(crate) struct Judged<'a> {
    pub(crate) what: &'a str,
    pub(crate) over: usize,
    pub(crate) all: usize,
}

/// `Over the budget of 5 %: `; `None` where the run has no budget. The number that follows has a 95 % interval, so the end
/// of the 90 % one stands [elsewhere](end).
pub(crate) fn sentence_start(record: &Record, judged: &Judged<'_>) -> Option<String> {
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

/// The deciding end of the interval ([`interval_end`]) of the comparison that gives the run its answer and lies furthest up.
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
    interval_end(furthest, record.asked.budget)
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

/// The words before `the budget`.
pub(crate) fn word(budget: BudgetVerdict) -> &'static str {
    match budget {
        BudgetVerdict::Within => "within",
        BudgetVerdict::Over => "over",
        BudgetVerdict::CantTell => "can't tell if within",
    }
}

/// `90 % interval: at most 4.6 %`: the end of the interval on which the budget was judged; `None` where it is not
/// recorded. The claim holds of typical windows and of the total.
pub(crate) fn interval_end(comparison: &ComparisonRecord, budget: Option<f64>) -> Option<String> {
    let (verdict, typical) = (comparison.budget?, comparison.relative_ci90?);
    let total = comparison.totals.map_or(typical, |totals| totals.ci90);
    let (least, most) = (typical[0].max(total[0]), typical[1].max(total[1]));
    let (words, end) = match verdict {
        BudgetVerdict::Within => ("at most", most),
        BudgetVerdict::Over => ("at least", least),
        BudgetVerdict::CantTell => ("up to", most),
    };
    let near = budget.is_some_and(|budget| (end - budget).abs() < 0.000_95);
    let end = number::fixed(end * 100.0, if near { 2 } else { 1 });
    let hold = number::HOLD;
    Some(format!("90{hold}% interval: {words} {end}{hold}%"))
}
