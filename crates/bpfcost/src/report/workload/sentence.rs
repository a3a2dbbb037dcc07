//! A workload's record in a sentence that can be pasted into a ticket: whether it is within the budget, what the
//! dearest probe costs in CPU time per operation, and how sure that is.

use std::collections::BTreeSet;

use super::{Overhead, named, quantity};
use crate::{
    record::{BudgetVerdict, Comparison, State, Status, Verdict},
    report::{
        number::{self, HOLD},
        text,
    },
    workload::LOAD,
};

/// Nobody waits longer, in seconds.
const MOST_S: f64 = 86_400.0;

/// What a probe costs in a state of the server.
struct Cost<'a> {
    variant: &'a str,
    state: &'a State<'a>,
    found: &'a Comparison,
}

/// The record in a sentence without its end; `None` where no case has a result.
pub(super) fn sentence(overhead: &Overhead<'_>) -> Option<String> {
    let costs = costs(overhead);
    let Some(dearest) = costs.first() else {
        return problem(overhead).or_else(|| alone(overhead));
    };
    let lead = lead(overhead, &costs);
    let probes: BTreeSet<&str> = costs.iter().map(|cost| cost.variant).collect();
    let of = match probes.len() {
        1 => String::new(),
        many => format!("the dearest of {many} probes: "),
    };
    let told = format!("{lead}{of}{}{}", clause(overhead, dearest), remedy(&costs));
    // A probe's name stays as it is.
    let begins = |words: &str| told.starts_with(words);
    Some(match begins("the dearest") || begins("with ") {
        true => told[..1].to_uppercase() + &told[1..],
        false => told,
    })
}

/// What every probe costs in every state, dearest first.
fn costs<'a>(overhead: &'a Overhead<'_>) -> Vec<Cost<'a>> {
    let mut costs = Vec::new();
    for state in &overhead.states.all {
        for probed in &state.probes {
            let off = state.off.map_or("", |off| off.name.as_str());
            let found = overhead.states.comparison(None, &probed.case.name, off);
            if let Some(found) = found.filter(|found| found.relative.is_finite()) {
                let variant = probed.variant;
                costs.push(Cost {
                    variant,
                    state,
                    found,
                });
            }
        }
    }
    costs.sort_by(|a, b| b.found.relative.total_cmp(&a.found.relative));
    costs
}

/// What the budget says of all, or what the verdict does; nothing where a cost is told.
fn lead(overhead: &Overhead<'_>, costs: &[Cost<'_>]) -> String {
    let budgets = || costs.iter().filter_map(|cost| cost.found.budget);
    if let (Some(budget), true) = (overhead.states.record.asked.budget, budgets().count() > 0) {
        let names = |wanted: &dyn Fn(&&Cost<'_>) -> bool| -> usize {
            let costs = costs.iter().filter(wanted);
            let names: BTreeSet<&str> = costs.map(|cost| cost.variant).collect();
            names.len()
        };
        let over = names(&|cost| cost.found.budget == Some(BudgetVerdict::Over));
        let words = match (over, names(&|_| true)) {
            (0, _) if budgets().any(|one| one == BudgetVerdict::CantTell) => {
                "Can't tell yet".to_owned()
            }
            (0, _) => "Within budget".to_owned(),
            (_, 1) => "Over budget".to_owned(),
            (over, all) => format!("{over} of {all} over budget"),
        };
        return format!("{words} ({}): ", number::round_percent(budget));
    }
    let every = |wanted| costs.iter().all(|cost| cost.found.verdict == wanted);
    match (every(Verdict::Same), every(Verdict::Unresolved)) {
        (true, _) => "No difference that matters: ".to_owned(),
        (_, true) => "Can't tell yet: ".to_owned(),
        _ => String::new(),
    }
}

/// How long it would take to tell what is not told yet.
fn remedy(costs: &[Cost<'_>]) -> String {
    // Who keeps to the budget, or does not, need not wait.
    let waits = costs.iter().filter_map(|cost| match cost.found.budget {
        Some(BudgetVerdict::CantTell) => cost.found.budget_s,
        Some(_) => None,
        None => cost.found.resolve_s,
    });
    match waits.fold(0.0, f64::max).ceil() {
        seconds if seconds > MOST_S => "; at this noise no day would tell".to_owned(),
        seconds if seconds > 0.0 => format!(
            "; about {} would tell (--time {seconds:.0}s)",
            number::duration(seconds)
        ),
        _ => String::new(),
    }
}

/// `with target bystander, bpftrace costs redis 1.9 % more CPU per command (95 %: 1.1 to 2.7)`.
fn clause(overhead: &Overhead<'_>, cost: &Cost<'_>) -> String {
    let found = cost.found;
    let probe = text::line(cost.variant);
    let what = subject(overhead);
    let per = &overhead.headline.name;
    // Load is as usual, where there is one state alone.
    let place = match overhead.states.all.len() {
        1 => named(cost.state.apart(LOAD)),
        _ => named(cost.state.apart("")),
    };
    let place = match place.as_str() {
        "" => String::new(),
        place => format!("with {place}, "),
    };
    let percent = found.relative * 100.0;
    let ends = found.relative_ci95.map(|ends| ends.map(|end| end * 100.0));
    // No more decimals than the interval has use for.
    let decimals = number::estimate_decimals(percent, ends).min(1);
    let shown = |percent: f64| number::fixed(percent, decimals);
    let interval = |[low, high]: [f64; 2]| format!("95{HOLD}%: {} to {}", shown(low), shown(high));
    let few = "too few epochs for an interval";
    let interval_of = |sign: f64| match ends.map(|ends| ends.map(|end| end * sign)) {
        Some([low, high]) => interval([low.min(high), low.max(high)]),
        None => few.to_owned(),
    };
    let side = |percent: f64| {
        let way = if percent < 0.0 { "less" } else { "more" };
        format!("{}{HOLD}% {way}", shown(percent.abs()))
    };
    let told = match (found.verdict, ends) {
        (Verdict::Same, _) => {
            let margin = number::round_percent(overhead.states.record.asked.margin);
            let interval = interval_of(1.0);
            format!("with {probe} {per} of {what} differs by less than {margin} ({interval})")
        }
        (Verdict::Unresolved, Some([low, high])) => format!(
            "{probe} costs {what} between {} and {} {per} (95{HOLD}%)",
            side(low),
            side(high)
        ),
        (Verdict::Unresolved, None) => format!(
            "too few epochs to tell what {probe} costs {what} ({} {per} so far)",
            quantity::held(&number::signed(percent, decimals), "%")
        ),
        (verdict, _) => {
            let sign = if verdict == Verdict::Faster {
                -1.0
            } else {
                1.0
            };
            let way = if sign < 0.0 { "less" } else { "more" };
            let (value, interval) = (shown(percent * sign), interval_of(sign));
            format!("{probe} costs {what} {value}{HOLD}% {way} {per} ({interval})")
        }
    };
    format!("{place}{told}")
}

/// What pays.
fn subject(overhead: &Overhead<'_>) -> String {
    let own = overhead.states.workload.subject.as_deref();
    text::line(own.unwrap_or(&overhead.states.record.experiment))
}

/// Why there is nothing to compare: what was found wrong, as it was recorded.
fn problem(overhead: &Overhead<'_>) -> Option<String> {
    let mut invalid = overhead.states.all.iter().flat_map(State::cases);
    let failed = invalid.find(|case| case.status == Status::Invalid && !case.problems.is_empty());
    let problem = failed?.problems.first()?;
    let found = text::line(&problem.to_string());
    Some(
        match text::line(problem.detail.trim()).trim_end_matches('.') {
            "" => found,
            detail => format!("{detail} ({found})"),
        },
    )
}

/// What a workload uses where no probe has a result.
fn alone(overhead: &Overhead<'_>) -> Option<String> {
    let mut cases = overhead.states.all.iter().flat_map(State::cases);
    let case = cases.find(|case| overhead.headline.value(case).is_some())?;
    let scale = overhead.headline.scale(std::iter::once(case));
    let value = scale.shown(overhead.headline.value(case)?);
    let what = match quantity::is_share(overhead.states.workload) {
        true => String::new(),
        false => format!(" {}", overhead.headline.name),
    };
    Some(format!(
        "{} takes {}{what} ({}); nothing was compared",
        subject(overhead),
        quantity::held(&value, &scale.unit),
        text::line(&case.name)
    ))
}
