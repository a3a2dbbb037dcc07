//! A workload's record in a sentence that can be pasted into a ticket: whether it is within the budget, which
//! probe costs how much CPU time per operation, and how sure that is.

use super::{Overhead, named, quantity};
use crate::{
    record::{BudgetVerdict, CaseRecord, Comparison, State, Status, Verdict},
    report::{
        number::{self, HOLD},
        text,
    },
    workload::{Headline, LOAD},
};

/// So many probes are each told of; of more, the dearest and the cheapest.
const EACH: usize = 3;
/// Nobody waits longer, in seconds.
const MOST_S: f64 = 86_400.0;

/// What a probe costs in each state of the server.
struct Costs<'a> {
    variant: &'a str,
    /// Never empty; dearest first.
    found: Vec<(&'a State<'a>, &'a Comparison)>,
}

/// The record in a sentence without its end; `None` where no case has a result.
pub(super) fn sentence(overhead: &Overhead<'_>) -> Option<String> {
    let costs = costs(overhead);
    let (Some(dearest), Some(cheapest)) = (costs.first(), costs.last()) else {
        return problem(overhead).or_else(|| alone(overhead));
    };
    let told = match costs.as_slice() {
        few if few.len() <= EACH => {
            let each = few.iter().map(|one| clause(overhead, one));
            each.chain(each_other(overhead))
                .collect::<Vec<_>>()
                .join("; ")
        }
        many => format!(
            "the dearest of {} probes: {}; the cheapest: {}",
            many.len(),
            clause(overhead, dearest),
            clause(overhead, cheapest)
        ),
    };
    let lead = lead(overhead, &costs);
    let told = format!("{lead}{}{told}{}", alone_in(overhead), remedy(&costs));
    // A probe's name stays as it is.
    let begins = |words: &str| told.starts_with(words);
    Some(match begins("the dearest") || begins("with ") {
        true => told[..1].to_uppercase() + &told[1..],
        false => told,
    })
}

/// The probes that have results, dearest first.
fn costs<'a>(overhead: &'a Overhead<'_>) -> Vec<Costs<'a>> {
    let of = |variant: &'a str| {
        let found = overhead.states.all.iter().filter_map(|state| {
            let case = &state.probed(variant)?.case.name;
            let comparison = overhead
                .states
                .comparison(None, case, &state.off?.name)
                .filter(|comparison| comparison.relative.is_finite())?;
            Some((state, comparison))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by(|a, b| b.1.relative.total_cmp(&a.1.relative));
        (!found.is_empty()).then_some(Costs { variant, found })
    };
    let mut costs: Vec<Costs<'_>> = overhead
        .states
        .variants()
        .into_iter()
        .filter_map(of)
        .collect();
    costs.sort_by(|a, b| b.found[0].1.relative.total_cmp(&a.found[0].1.relative));
    costs
}

/// `with target bystander, `: what others may have been left out of, where there is one state alone. Load is as usual
/// then.
fn alone_in(overhead: &Overhead<'_>) -> String {
    let [state] = overhead.states.all.as_slice() else {
        return String::new();
    };
    match named(state.apart(LOAD)).as_str() {
        "" => String::new(),
        name => format!("with {name}, "),
    }
}

/// What pays.
fn subject(overhead: &Overhead<'_>) -> String {
    let own = overhead.states.workload.subject.as_deref();
    text::line(own.unwrap_or(&overhead.states.record.experiment))
}

/// What the budget says of all, or what the verdict does; nothing where a cost is told.
fn lead(overhead: &Overhead<'_>, costs: &[Costs<'_>]) -> String {
    let all = || costs.iter().flat_map(|one| &one.found);
    let verdicts: Vec<BudgetVerdict> = all().filter_map(|(_, one)| one.budget).collect();
    if let (Some(budget), false) = (overhead.states.record.asked.budget, verdicts.is_empty()) {
        let budget = number::round_percent(budget);
        let over = costs.iter().filter(|one| {
            let mut found = one.found.iter();
            found.any(|(_, comparison)| comparison.budget == Some(BudgetVerdict::Over))
        });
        let words = match (over.count(), costs.len()) {
            (0, _) if verdicts.contains(&BudgetVerdict::CantTell) => "Can't tell yet".to_owned(),
            (0, _) => "Within budget".to_owned(),
            (_, 1) => "Over budget".to_owned(),
            (over, all) => format!("{over} of {all} over budget"),
        };
        return format!("{words} ({budget}): ");
    }
    let every = |wanted| all().all(|(_, comparison)| comparison.verdict == wanted);
    match (every(Verdict::Same), every(Verdict::Unresolved)) {
        (true, _) => "No difference that matters: ".to_owned(),
        (_, true) => "Can't tell yet: ".to_owned(),
        _ => String::new(),
    }
}

/// How long it would take to tell what is not told yet.
fn remedy(costs: &[Costs<'_>]) -> String {
    let all = costs.iter().flat_map(|one| &one.found);
    // Who keeps to the budget, or does not, need not wait.
    let waits = all.filter_map(|(_, one)| match one.budget {
        Some(BudgetVerdict::CantTell) => one.budget_s,
        Some(_) => None,
        None => one.resolve_s,
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

/// `bpftrace costs redis 1.9 % more CPU per command (95 %: 1.1 to 2.7)`.
fn clause(overhead: &Overhead<'_>, costs: &Costs<'_>) -> String {
    let probe = text::line(costs.variant);
    let what = subject(overhead);
    let per = &overhead.headline.name;
    let several = overhead.states.all.len() > 1;
    let (first, last) = (costs.found[0], costs.found[costs.found.len() - 1]);
    let verdicts = || costs.found.iter().map(|(_, one)| one.verdict);
    if costs.found.len() == 1 {
        let place = match several {
            true => place(overhead, first.0),
            false => String::new(),
        };
        return one(overhead, &probe, &what, first.1) + &place;
    }
    let margin = number::round_percent(overhead.states.record.asked.margin);
    if verdicts().all(|verdict| verdict == Verdict::Same) {
        return format!(
            "with {probe} {} differs by less than {margin}{}",
            possessive(overhead, &what),
            everywhere(overhead)
        );
    }
    let dearer = |verdict| matches!(verdict, Verdict::Slower | Verdict::Same);
    let ends = [last, first].map(|(state, one)| {
        let (value, interval) = shares(one, 1.0);
        let value = match one.verdict {
            _ if !verdicts().all(dearer) => signed(one),
            Verdict::Same => format!("less than {margin}"),
            _ => value,
        };
        format!("{value} ({interval}; {})", state_name(overhead, state))
    });
    match verdicts().all(dearer) {
        true => format!(
            "{probe} costs {what} from {} to {} more {per}",
            ends[0], ends[1]
        ),
        false => format!(
            "with {probe} {} changes by {} to {}",
            possessive(overhead, &what),
            ends[0],
            ends[1]
        ),
    }
}

/// A probe in one state.
fn one(overhead: &Overhead<'_>, probe: &str, what: &str, one: &Comparison) -> String {
    let per = &overhead.headline.name;
    match (one.verdict, one.relative_ci95) {
        (Verdict::Same, _) => {
            let margin = number::round_percent(overhead.states.record.asked.margin);
            let (_, interval) = shares(one, 1.0);
            format!(
                "with {probe} {} differs by less than {margin} ({interval})",
                possessive(overhead, what)
            )
        }
        (Verdict::Unresolved, Some([low, high])) => {
            let decimals = decimals(one);
            let side = |share: f64| {
                let value = number::fixed(share.abs() * 100.0, decimals);
                let way = if share < 0.0 { "less" } else { "more" };
                format!("{value}{HOLD}% {way}")
            };
            format!(
                "{probe} costs {what} between {} and {} {per} (95{HOLD}%)",
                side(low),
                side(high)
            )
        }
        (Verdict::Unresolved, None) => format!(
            "too few epochs to tell what {probe} costs {what} ({} {per} so far)",
            signed(one)
        ),
        (Verdict::Faster, _) => {
            let (value, interval) = shares(one, -1.0);
            format!("{probe} costs {what} {value} less {per} ({interval})")
        }
        _ => {
            let (value, interval) = shares(one, 1.0);
            format!("{probe} costs {what} {value} more {per} ({interval})")
        }
    }
}

/// Whether one of two probes costs more than the other, where both were compared.
fn each_other(overhead: &Overhead<'_>) -> Option<String> {
    let [state] = overhead.states.all.as_slice() else {
        return None;
    };
    let [a, b] = state.probes.as_slice() else {
        return None;
    };
    let found = |case: &CaseRecord, other: &CaseRecord| {
        overhead.states.comparison(None, &case.name, &other.name)
    };
    let (case, other, found) = match found(b.case, a.case) {
        Some(found) => (b, a, found),
        None => (a, b, found(a.case, b.case)?),
    };
    let [case, other] = [case, other].map(|probed| text::line(probed.variant));
    let (value, interval) = shares(found, if found.relative < 0.0 { -1.0 } else { 1.0 });
    let (_, signed) = shares(found, 1.0);
    let what = subject(overhead);
    let per = &overhead.headline.name;
    // Not that one probe costs so much more than the other: the server takes so much more.
    let takes = |way: &str| {
        format!("with {case} {what} takes {value} {way} {per} than with {other} ({interval})")
    };
    Some(match found.verdict {
        Verdict::Slower => takes("more"),
        Verdict::Faster => takes("less"),
        Verdict::Same => format!("with {case} and with {other} it is the same ({signed})"),
        Verdict::Unresolved => {
            format!("{case} and {other} are not told apart ({signed})")
        }
    })
}

/// A relative difference, turned by `sign`: `1.9 %` and `95 %: 1.1 to 2.7`.
fn shares(one: &Comparison, sign: f64) -> (String, String) {
    let decimals = decimals(one);
    let shown = |share: f64| number::fixed(share * sign * 100.0, decimals);
    let interval = match one.relative_ci95 {
        Some([low, high]) => {
            let (low, high) = if sign < 0.0 { (high, low) } else { (low, high) };
            format!("95{HOLD}%: {} to {}", shown(low), shown(high))
        }
        None => "too few epochs for an interval".to_owned(),
    };
    (format!("{}{HOLD}%", shown(one.relative)), interval)
}

/// `+1.9 %`.
fn signed(one: &Comparison) -> String {
    quantity::held(&number::signed(one.relative * 100.0, decimals(one)), "%")
}

/// No more decimals than the interval has use for.
fn decimals(one: &Comparison) -> usize {
    let interval = one.relative_ci95.map(|ends| ends.map(|end| end * 100.0));
    number::estimate_decimals(one.relative * 100.0, interval).min(1)
}

/// `redis's CPU per command`.
fn possessive(overhead: &Overhead<'_>, what: &str) -> String {
    let operation = text::line(&overhead.states.workload.operation);
    match overhead.states.workload.headline {
        Headline::Server => format!("{what}'s {}", overhead.headline.name),
        Headline::Machine => format!("CPU of the machine per {operation} of {what}"),
    }
}

fn place(overhead: &Overhead<'_>, state: &State<'_>) -> String {
    format!(", {}", state_name(overhead, state))
}

fn everywhere(overhead: &Overhead<'_>) -> String {
    match overhead.states.over() {
        Some(over) => format!(" at every {}", text::line(over)),
        None => " in every state".to_owned(),
    }
}

/// `size 4`: what tells a state from the others.
fn state_name(overhead: &Overhead<'_>, state: &State<'_>) -> String {
    let differs = |name: &str, value: &str| {
        let mut all = overhead.states.all.iter();
        all.any(|other| other.factors.get(name).copied() != Some(value))
    };
    named(state.apart("").filter(|(name, value)| differs(name, value)))
}

/// Why there is nothing to compare: what was found wrong, as it was recorded.
fn problem(overhead: &Overhead<'_>) -> Option<String> {
    let invalid = overhead.states.all.iter().flat_map(|state| {
        let probes = state.probes.iter().map(|probed| probed.case);
        probes.chain(state.off)
    });
    let mut invalid = invalid.filter(|case| case.status == Status::Invalid);
    let problem = invalid.find_map(|case| case.problems.first())?;
    let detail = text::line(problem.detail.trim());
    let found = text::line(&problem.to_string());
    Some(match detail.trim_end_matches('.') {
        "" => found,
        detail => format!("{detail} ({found})"),
    })
}

/// What a workload uses where no probe has a result.
fn alone(overhead: &Overhead<'_>) -> Option<String> {
    let mut states = overhead.states.all.iter();
    let case = states.find_map(|state| {
        let probes = state.probes.iter().map(|probed| probed.case);
        state
            .off
            .into_iter()
            .chain(probes)
            .find(|case| overhead.headline.value(case).is_some())
    })?;
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
