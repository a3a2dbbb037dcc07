//! The warnings of a run as every view tells them: many of one kind as one. The record keeps them all.

use crate::{
    measure::{PROPORTIONALITY, Warning},
    record::{CaseRecord, Record},
    report::{number, summary, text, words},
};

/// More cases than this whose cost depends on the batch are told in one warning.
const FEW: usize = 2;
/// More of them than this are counted, not named.
const NAMED: usize = 6;

/// The warnings of a record, one each.
pub(super) fn lines(record: &Record) -> Vec<String> {
    let mut by_batch: Vec<&CaseRecord> = Vec::new();
    let of_case = |warning: &Warning| {
        let named = |case: &&CaseRecord| {
            let rest = warning.text.strip_prefix(&case.name);
            rest.is_some_and(|rest| rest.starts_with(": "))
        };
        let ratios = record
            .cases
            .iter()
            .filter(|case| words::off_two(case).is_some());
        ratios
            .filter(|_| warning.code == PROPORTIONALITY)
            .find(named)
    };
    by_batch.extend(record.warnings.iter().filter_map(of_case));
    let mut folded = (by_batch.len() > FEW).then(|| cost_by_batch(&by_batch, record));
    let fold = folded.is_some();
    let line = |warning: &Warning| match fold && of_case(warning).is_some() {
        true => folded.take(),
        false => Some(text::line(&warning.text)),
    };
    // Said first of all.
    let told = summary::reason(record);
    let others = record.warnings.iter();
    let others = others.filter(|one| told.is_none_or(|told| !std::ptr::eq(told, *one)));
    others.filter_map(line).collect()
}

/// Twice the operations did not take twice as long: what it means, once for all cases.
fn cost_by_batch(cases: &[&CaseRecord], record: &Record) -> String {
    let (crowded, own): (Vec<&CaseRecord>, Vec<&CaseRecord>) =
        cases.iter().partition(|case| shares_cpus(case, record));
    let mut named: Vec<String> = own
        .iter()
        .take(NAMED)
        .map(|case| text::line(&case.name))
        .collect();
    if own.len() > NAMED {
        named.push(format!("{} more", own.len() - NAMED));
    }
    if !crowded.is_empty() {
        named.push(format!(
            "{} in which threads share CPUs, as is in the nature of the case",
            crowded.len()
        ));
    }
    let off = |ratio: f64| (ratio / 2.0).ln().abs();
    let ratios = cases
        .iter()
        .filter_map(|case| Some((words::off_two(case)?, case)));
    let worst = ratios.max_by(|a, b| off(a.0).total_cmp(&off(b.0)));
    let worst = worst.map_or_else(String::new, |(ratio, case)| {
        let ratio = number::fixed(ratio, 2);
        format!("; at worst {ratio} times, {}", text::line(&case.name))
    });
    format!(
        "in {} cases twice the operations did not take twice {} (2.00 ± 5 % expected{worst}): {}. Their cost \
         per operation depends on the batch, or the machine was disturbed meanwhile. Read their numbers as \
         those of batches of that size; run it again on a quieter machine to see whether that stays.",
        cases.len(),
        words::as_much(record.unit),
        named.join(", ")
    )
}

/// Whether a case has more threads than there are CPUs.
fn shares_cpus(case: &CaseRecord, record: &Record) -> bool {
    let threads = record
        .layout
        .scaling()
        .and_then(|scaling| case.factors.get(&scaling.over)?.parse::<usize>().ok());
    threads.is_some_and(|threads| threads > record.asked.cpus.len())
}
