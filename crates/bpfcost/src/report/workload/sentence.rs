//! A workload's record in a sentence that can be pasted into a ticket: whether it is within the budget, the CPU
//! time per operation of the most expensive probe, and how certain that is.

use std::collections::BTreeSet;

use super::{WorkloadReport, named};
use crate::{
    record::{BudgetVerdict, ComparisonRecord, State, VerdictRecord},
    report::{
        number::{self, HOLD},
        text,
    },
    workload::LOAD,
};

/// The longest time worth proposing, in seconds.
const MOST_S: f64 = 86_400.0;

/// What a probe costs in a state of the server.
struct ProbeCost<'a> {
    variant: &'a str,
    state: &'a State<'a>,
    comparison: &'a ComparisonRecord,
}

/// The record in a sentence without its end; `None` where nothing was compared.
pub(in crate::report) fn sentence(overhead: &WorkloadReport<'_>) -> Option<String> {
    let costs = costs(overhead);
    let most_expensive = costs.first()?;
    let (lead, clause) = (lead(overhead, &costs), clause(overhead, most_expensive));
    let highest = match (probes(&costs, |_| true), lead.as_str()) {
        (1, _) => String::new(),
        (many, "") => format!("The most expensive of {many} probes, "),
        (_, lead) if lead.ends_with(". ") => "The most expensive, ".to_owned(),
        (many, _) => format!("the most expensive of {many} probes, "),
    };
    let comma = if highest.is_empty() { "" } else { "," };
    let (probe, cost) = clause;
    Some(format!(
        "{lead}{highest}{probe}{comma} {cost}{}",
        remedy(&costs)
    ))
}

/// What every probe costs in every state, the most expensive first.
fn costs<'a>(overhead: &'a WorkloadReport<'_>) -> Vec<ProbeCost<'a>> {
    let mut costs = Vec::new();
    for state in &overhead.states.all {
        for probed in &state.probes {
            let change = overhead.change(&overhead.headline, probed.case, state.off);
            let comparison = change.map(|change| change.comparison);
            costs.extend(
                comparison
                    .filter(|found| found.relative.is_finite())
                    .map(|found| ProbeCost {
                        variant: probed.variant,
                        state,
                        comparison: found,
                    }),
            );
        }
    }
    costs.sort_by(|a, b| b.comparison.relative.total_cmp(&a.comparison.relative));
    costs
}

/// How many probes are in some of these.
fn probes(costs: &[ProbeCost<'_>], wanted: impl Fn(&ComparisonRecord) -> bool) -> usize {
    let costs = costs.iter().filter(|cost| wanted(cost.comparison));
    costs
        .map(|cost| cost.variant)
        .collect::<BTreeSet<_>>()
        .len()
}

/// What the budget says of all, or what the verdict does; nothing where there is a cost.
fn lead(overhead: &WorkloadReport<'_>, costs: &[ProbeCost<'_>]) -> String {
    let any = |wanted| {
        costs
            .iter()
            .any(|cost| cost.comparison.budget == Some(wanted))
    };
    let every = |wanted| costs.iter().all(|cost| cost.comparison.verdict == wanted);
    let asked = &overhead.states.record.asked;
    let over = |comparison: &ComparisonRecord| comparison.budget == Some(BudgetVerdict::Over);
    match asked
        .budget
        .filter(|_| costs.iter().any(|cost| cost.comparison.budget.is_some()))
    {
        Some(budget) => {
            let budget = format!("the budget of {}", number::round_percent(budget));
            match (probes(costs, over), probes(costs, |_| true)) {
                (0, _) if any(BudgetVerdict::CantTell) => {
                    format!("Not resolved yet for {budget}: ")
                }
                (0, _) => format!("Within {budget}: "),
                (_, 1) => format!("Over {budget}: "),
                (1, all) => format!("1 of {all} probes is over {budget}. "),
                (over, all) => format!("{over} of {all} probes are over {budget}. "),
            }
        }
        None if every(VerdictRecord::Same) => {
            let margin = number::round_percent(asked.margin);
            format!("No difference beyond ±{margin}: ")
        }
        None if every(VerdictRecord::Unresolved) => "Not resolved yet: ".to_owned(),
        None => String::new(),
    }
}

/// How long it would take to resolve what is not.
fn remedy(costs: &[ProbeCost<'_>]) -> String {
    // A verdict on the budget is final.
    let waits = costs
        .iter()
        .filter_map(|cost| match cost.comparison.budget {
            Some(BudgetVerdict::CantTell) => cost.comparison.budget_s,
            Some(_) => None,
            None => cost.comparison.resolve_s,
        });
    match waits.fold(0.0, f64::max).ceil() {
        seconds if seconds > MOST_S => "; at this noise a day would not resolve it".to_owned(),
        seconds if seconds > 0.0 => format!("; --time {seconds:.0}s would resolve it"),
        _ => String::new(),
    }
}

/// `bpftrace`, and `costs redis 1.9 % more CPU per command (95 %: 1.1 to 2.7), target bystander`.
fn clause(overhead: &WorkloadReport<'_>, cost: &ProbeCost<'_>) -> (String, String) {
    let comparison = cost.comparison;
    // Load is as usual, where there is one state alone.
    let place = match overhead.states.all.len() {
        1 => named(cost.state.apart(LOAD)),
        _ => named(cost.state.apart("")),
    };
    let place = match place.as_str() {
        "" => String::new(),
        place => format!(", {place}"),
    };
    let (sign, way) = if comparison.relative < 0.0 {
        (-100.0, "less")
    } else {
        (100.0, "more")
    };
    let percent = comparison.relative * sign;
    let ends = comparison
        .relative_ci95
        .map(|ends| ends.map(|end| end * sign));
    // No more decimals than the interval has use for.
    let decimals = number::estimate_decimals(percent, ends).min(1);
    let shown = |percent: f64| number::fixed(percent, decimals);
    let interval = match ends {
        Some([a, b]) => {
            let [low, high] = [a.min(b), a.max(b)].map(shown);
            let (percent, name) = (shown(percent), &overhead.headline.name);
            format!("{percent}{HOLD}% {way} {name} (95{HOLD}%: {low} to {high})")
        }
        None => format!(
            "{}{HOLD}% {} (too few epochs for an interval)",
            number::signed(comparison.relative * 100.0, decimals),
            overhead.headline.name
        ),
    };
    let (probe, states) = (text::line(cost.variant), &overhead.states);
    let subject = states.workload.subject.as_deref();
    let subject = text::line(subject.unwrap_or(&states.record.experiment));
    (probe, format!("costs {subject} {interval}{place}"))
}
