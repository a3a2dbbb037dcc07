//! A workload's record in a sentence that can be pasted into a ticket: whether it is within the budget, the CPU
//! time per operation of the most expensive probe, and how certain that is.

use std::collections::BTreeSet;

use super::{WorkloadReport, factor_list};
use crate::budget::{self, Judged};
use bpfcost_measure::time_option;
use bpfcost_model::LOAD;
use bpfcost_record::{BudgetVerdict, ComparisonRecord, State, VerdictRecord};
use bpfcost_text::{
    line,
    number::{self, HOLD},
};

/// The longest time worth proposing, in seconds.
const MAX_S: f64 = 86_400.0;

/// Cost of a probe in a state of the server.
struct ProbeCost<'a> {
    variant: &'a str,
    state: &'a State<'a>,
    comparison: &'a ComparisonRecord,
}

/// The record in a sentence without its end; `None` where nothing was compared.
pub(crate) fn sentence(report: &WorkloadReport<'_>) -> Option<String> {
    let costs = costs(report);
    let most_expensive = costs.first()?;
    let (lead, clause) = (
        sentence_start(report, &costs),
        clause(report, most_expensive),
    );
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

/// Cost of every probe in every state, the most expensive first.
fn costs<'a>(report: &'a WorkloadReport<'_>) -> Vec<ProbeCost<'a>> {
    let mut costs = Vec::new();
    for state in &report.states.all {
        for probed in &state.probes {
            let change = report.change(&report.headline, probed.case, state.off);
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

/// Number of probes that have a wanted comparison.
fn probes(costs: &[ProbeCost<'_>], wanted: impl Fn(&ComparisonRecord) -> bool) -> usize {
    let costs = costs.iter().filter(|cost| wanted(cost.comparison));
    costs
        .map(|cost| cost.variant)
        .collect::<BTreeSet<_>>()
        .len()
}

/// Answer to the budget, or the verdict if all have the same; empty where a cost says more.
fn sentence_start(report: &WorkloadReport<'_>, costs: &[ProbeCost<'_>]) -> String {
    let every = |wanted| costs.iter().all(|cost| cost.comparison.verdict == wanted);
    let record = report.states.record;
    let judged = Judged {
        what: "probe",
        over: probes(costs, |one| one.budget == Some(BudgetVerdict::Over)),
        all: probes(costs, |_| true),
    };
    match budget::sentence_start(record, &judged) {
        Some(lead) => lead,
        None if every(VerdictRecord::Same) => {
            let margin = number::round_percent(record.asked.margin);
            format!("No difference beyond ±{margin}: ")
        }
        None if every(VerdictRecord::Unresolved) && costs.iter().any(is_apart) => {
            "A few windows differ from most: ".to_owned()
        }
        None if every(VerdictRecord::Unresolved) => "Not resolved yet: ".to_owned(),
        None => String::new(),
    }
}

/// Returns true if the total is known to differ from typical windows.
fn is_apart(cost: &ProbeCost<'_>) -> bool {
    cost.comparison.totals.is_some_and(|totals| totals.apart)
}

/// Time that would resolve the comparisons that are not.
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
        seconds if seconds > MAX_S => "; at this noise a day would not resolve it".to_owned(),
        seconds if seconds > 0.0 => format!("; --time {} would resolve it", time_option(seconds)),
        _ => String::new(),
    }
}

/// `1.9 % more`, and `(95 %: 1.1 to 2.7)`.
fn difference(relative: f64, ends: [f64; 2]) -> (String, String) {
    let (sign, way) = if relative < 0.0 {
        (-100.0, "less")
    } else {
        (100.0, "more")
    };
    let percent = relative * sign;
    let ends = ends.map(|end| end * sign);
    // No more decimals than the interval has use for.
    let decimals = number::estimate_decimals(percent, Some(ends)).min(1);
    let shown = |percent: f64| number::fixed(percent, decimals);
    let [low, high] = [ends[0].min(ends[1]), ends[0].max(ends[1])].map(shown);
    (
        format!("{}{HOLD}% {way}", shown(percent)),
        format!("(95{HOLD}%: {low} to {high})"),
    )
}

/// Difference in total, if it is known to differ from typical windows or leaves the verdict open.
fn in_total(comparison: &ComparisonRecord, budget: Option<f64>) -> String {
    let Some(totals) = comparison.totals else {
        return String::new();
    };
    let (cost, interval) = difference(totals.relative, totals.ci95);
    let some = match (totals.apart, totals.relative > comparison.relative) {
        (true, true) => "; a few windows cost more: in total",
        (true, false) => "; a few windows cost less: in total",
        (false, _) if holds_open(comparison, budget) => "; in total",
        (false, _) => return String::new(),
    };
    format!("{some} {cost} {interval}")
}

/// Returns true if typical windows alone would have a verdict, or be within the budget.
fn holds_open(comparison: &ComparisonRecord, budget: Option<f64>) -> bool {
    let withheld = comparison.totals.is_some_and(|totals| totals.withheld);
    let typical = comparison.relative_ci90.zip(budget);
    let within = typical.is_some_and(|([_, high], budget)| high <= budget);
    withheld || (within && comparison.budget != Some(BudgetVerdict::Within))
}

/// `bpftrace`, and `costs redis 1.9 % more CPU per command (95 %: 1.1 to 2.7), target bystander`.
fn clause(report: &WorkloadReport<'_>, cost_of: &ProbeCost<'_>) -> (String, String) {
    let comparison = cost_of.comparison;
    // Load is as usual, where there is one state alone.
    let place = match report.states.all.len() {
        1 => factor_list(cost_of.state.apart(LOAD)),
        _ => factor_list(cost_of.state.apart("")),
    };
    let place = match place.as_str() {
        "" => String::new(),
        place => format!(", {place}"),
    };
    let name = &report.headline.name;
    let interval = match comparison.relative_ci95 {
        Some(ends) => {
            let (cost, interval) = difference(comparison.relative, ends);
            let total = in_total(comparison, report.states.record.asked.budget);
            let most = if is_apart(cost_of) {
                " in most windows"
            } else {
                ""
            };
            format!("{cost} {name}{most} {interval}{total}")
        }
        None => format!(
            "{}{HOLD}% {name} (too few epochs for an interval)",
            number::signed(
                comparison.relative * 100.0,
                number::estimate_decimals(comparison.relative * 100.0, None).min(1)
            ),
        ),
    };
    let (probe, states) = (line(cost_of.variant), &report.states);
    let subject = states.workload.subject.as_deref();
    let subject = line(subject.unwrap_or(&states.record.experiment));
    (probe, format!("costs {subject} {interval}{place}"))
}
