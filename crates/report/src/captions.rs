//! Captions below the tables of a record, which say how to read them.

use crate::target;
use bpfcost_record::{CaseRecord, Record};
use bpfcost_text::{line, number};

/// Cases as found that a caption names.
const MAX_FOUND: usize = 4;

/// Definition of the columns of a table of costs.
pub(crate) fn costs(record: &Record) -> String {
    let unit = record.unit;
    if unit.is_counted() {
        format!(
            "cost: {unit}, retired instructions per operation, and their spread over loads. net: cost minus the \
             harness."
        )
    } else {
        let (how, found) = if record.has_undisturbed() {
            (
                "without what neighbours and timer ticks added (one that never rests goes unnoticed)",
                " as found: with everything that slowed it.",
            )
        } else {
            ("as measured", "")
        };
        format!(
            "cost: {unit} {how}, the estimate over epochs with its 95 % interval (of this run; epochs count as \
             independent).{found} net: cost minus the harness, a range where overlap in the CPU leaves it open."
        )
    }
}

/// Definition of undisturbed costs, with the cases as found; `None` if no cost is undisturbed.
pub(crate) fn reading(record: &Record) -> Option<String> {
    let found = |case: &&CaseRecord| case.raw.is_some() && case.undisturbed.is_none();
    let found: Vec<&CaseRecord> = record.cases.iter().filter(found).collect();
    let named: Vec<String> = found
        .iter()
        .take(MAX_FOUND)
        .map(|case| line(&case.name))
        .collect();
    let more = found.len() - named.len();
    record.has_undisturbed().then(|| {
        let others = match (named.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!(" As found: {}.", named.join(", ")),
            (false, more) => format!(" As found: {} and {more} more.", named.join(", ")),
        };
        format!(
            "Costs are undisturbed: without what neighbours and timer ticks added; what a neighbour that never rests \
             adds stays in them.{others}"
        )
    })
}

/// Definition of the columns of a table of comparisons.
pub(crate) fn pairs(record: &Record) -> String {
    if record.unit.is_counted() {
        "Differences of counts have no interval. same: equal in every load. more or less: the ranges over loads do \
         not overlap."
            .to_owned()
    } else {
        let all = match record.comparisons.len() {
            0 | 1 => String::new(),
            several => format!(", and the verdicts account for all {several} of them"),
        };
        format!(
            "Differences are within epochs. Each 95 % interval is for its comparison alone{all}."
        )
    }
}

/// The run's peak memory, as far as it is known.
pub(crate) fn memory(record: &Record) -> Option<String> {
    let machine = &record.machine;
    let parts = [
        (machine.kernel_bytes, "in the kernel"),
        (machine.user_bytes, "in this process"),
    ];
    let sizes = parts.into_iter();
    let sizes =
        sizes.filter_map(|(bytes, place)| Some(format!("{} {place}", number::bytes(bytes?))));
    let sizes: Vec<String> = sizes.collect();
    (!sizes.is_empty()).then(|| format!("Peak memory: {}.", sizes.join(", ")))
}

/// Captions below the costs of a record, most important first.
pub(crate) fn below_costs(record: &Record) -> Vec<String> {
    let below = [
        target::unit_caption(record),
        session(record),
        target::identity(record),
    ];
    std::iter::once(costs(record))
        .chain(below.into_iter().flatten())
        .collect()
}

/// Warning that sessions differ by more than an interval; `None` for counts, which repeat.
pub fn session(record: &Record) -> Option<String> {
    if record.unit.is_counted() {
        return None;
    }
    let spread = record.spread.within_sitting();
    let spread = spread.filter(|spread| spread.is_finite());
    let size = spread.map(|spread| format!(" ({} here)", number::percent(spread / 100.0)));
    Some(format!(
        "Two sessions minutes apart differ by more than an interval{}. To compare two things, measure them in one \
         run.",
        size.unwrap_or_default()
    ))
}
