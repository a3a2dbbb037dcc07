//! The record in one sentence: the first line that a person reads, and sometimes the only one.

use crate::{
    budget::{self, Judged},
    cost, estimate, target,
    view::layout::ViewLayout,
};
use bpfcost_measure::{Stop, Warning};
use bpfcost_model::{ABORTED, ENDED, Role};
use bpfcost_record::{BudgetVerdict, CaseRecord, Reading, Record, Status, VerdictRecord};
use bpfcost_text::{line, number};

/// Returns the record in one sentence.
pub fn sentence(record: &Record) -> String {
    of_layout(record, &ViewLayout::new(record))
}

/// Returns the record in one sentence, given its layout.
pub(crate) fn of_layout(record: &Record, layout: &ViewLayout<'_>) -> String {
    let mut parts = match layout.sentence() {
        Some(sentence) => vec![sentence],
        None => std::iter::once(budget(record) + &costs(record))
            .chain(comparisons(record))
            .collect(),
    };
    parts.extend(failures(record));
    let start = match record.stop {
        Stop::Interrupted => format!("Interrupted after {}: ", number::duration(record.seconds)),
        Stop::Aborted => match (reason(record), valid_cases(record).next()) {
            (Some(reason), Some(_)) => {
                format!("{} Before that: ", line(&reason.text))
            }
            (Some(reason), None) => {
                let trials = record.cases.iter().flat_map(|case| &case.samples);
                let before = if trials.flatten().next().is_some() {
                    "Too little was measured before that for a result."
                } else {
                    "Nothing was measured before that."
                };
                return format!("{} {before}", line(&reason.text));
            }
            (None, _) => String::new(),
        },
        _ => String::new(),
    };
    format!("{start}{}.", parts.join("; "))
}

/// The warning that says why an aborted run could not go on.
pub(crate) fn reason(record: &Record) -> Option<&Warning> {
    let aborted = record.stop == Stop::Aborted;
    let mut warnings = record.warnings.iter();
    warnings.find(|warning| aborted && [ABORTED, ENDED].contains(&warning.code.as_str()))
}

/// Half the width of the typical case's interval, as a share of its value.
pub(crate) fn typical_half_width(record: &Record) -> Option<f64> {
    let mut widths: Vec<f64> = valid_cases(record)
        .filter_map(|(_, case)| estimate::half_width(case.raw.as_ref()?))
        .collect();
    widths.sort_by(f64::total_cmp);
    widths.get(widths.len() / 2).copied()
}

/// The valid cases that are no floors, with their values.
pub(crate) fn valid_cases(record: &Record) -> impl Iterator<Item = (f64, &CaseRecord)> {
    record
        .cases
        .iter()
        .filter(|case| case.role == Role::Case && case.status == Status::Ok)
        .filter_map(|case| Some((case.raw.as_ref()?.value, case)))
        .filter(|(value, _)| value.is_finite())
}

/// The answer to the budget over all comparisons; empty without a budget.
pub(crate) fn budget(record: &Record) -> String {
    let judged = || record.judged_by_budget().map(|(_, verdict)| verdict);
    let judged = Judged {
        what: "comparison",
        over: judged()
            .filter(|verdict| *verdict == BudgetVerdict::Over)
            .count(),
        all: judged().count(),
    };
    budget::sentence_start(record, &judged).unwrap_or_default()
}

fn costs(record: &Record) -> String {
    let (experiment, target) = (line(&record.experiment), target::label(record));
    // One reading of all, or they could not be compared.
    let found = valid_cases(record).any(|(_, case)| case.reading() == Reading::AsFound);
    let reading = if found {
        Reading::AsFound
    } else {
        Reading::Undisturbed
    };
    let mut all: Vec<(f64, &CaseRecord)> = valid_cases(record)
        .filter_map(|(_, case)| Some((case.level(reading)?, case)))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let named = |(value, case): &(f64, &CaseRecord)| {
        let ci95 = CaseRecord::clone(case)
            .in_reading(reading)
            .raw
            .and_then(|raw| raw.ci95);
        let decimals = estimate::decimals(*value, ci95, record.unit).min(1);
        let value = number::fixed(*value, decimals);
        format!("{value} {} ({})", record.unit, line(&case.name))
    };
    let same = same_in_every_load(record);
    let width = typical_half_width(record).map(number::percent);
    let mixed = found && record.has_undisturbed();
    let precision = match (record.unit.is_counted(), width) {
        (true, _) if same == all.len() => ", the same in every load".to_owned(),
        (true, _) if same > 0 => format!(
            ", {} of them the same in every load",
            number::count(same as u64)
        ),
        (false, Some(_)) if mixed => " as found".to_owned(),
        (false, Some(width)) => format!(", typically ±{width}"),
        _ => String::new(),
    };
    match all.as_slice() {
        [] => format!("No case of {experiment} has a result on {target}"),
        [one] => format!(
            "{experiment} on {target}: 1 case costs {}{precision}",
            named(one)
        ),
        [least, .., most] => format!(
            "{experiment} on {target}: {} cost from {} to {}{precision}",
            number::plural(all.len(), "case"),
            named(least),
            named(most)
        ),
    }
}

/// Number of cases whose count is the same in all of several loads.
pub(crate) fn same_in_every_load(record: &Record) -> usize {
    valid_cases(record)
        .filter(|(_, case)| cost::same_in_loads(case))
        .count()
}

fn comparisons(record: &Record) -> Option<String> {
    let verdicts = record
        .comparisons
        .iter()
        .map(|comparison| comparison.verdict);
    let count =
        |wanted: &[VerdictRecord]| verdicts.clone().filter(|one| wanted.contains(one)).count();
    let same = if record.asked.margin > 0.0 {
        format!(
            "are the same within {}",
            number::round_percent(record.asked.margin)
        )
    } else {
        "are the same".to_owned()
    };
    let parts = number::counts(&[
        (
            count(&[VerdictRecord::Slower, VerdictRecord::Faster]),
            "differ",
        ),
        (count(&[VerdictRecord::Same]), &same),
        (count(&[VerdictRecord::Unresolved]), "are unresolved"),
    ]);
    let all = number::plural(record.comparisons.len(), "comparison");
    (!parts.is_empty()).then(|| format!("of {all} {}", number::list(&parts)))
}

fn failures(record: &Record) -> Option<String> {
    let parts = number::counts(&[
        (count(record, Status::Invalid), "cases are INVALID"),
        (
            count(record, Status::Unsupported),
            "cases can't run on this target",
        ),
    ]);
    (!parts.is_empty()).then(|| number::list(&parts))
}

pub(crate) fn count(record: &Record, status: Status) -> usize {
    let cases = record.cases.iter();
    cases.filter(|case| case.status == status).count()
}
