//! Tables of `attach`: the mechanism, what each body adds, the tax of `bpf_stats`, whether these parts add up, and
//! the kernel's own account.

pub mod atlas;
pub mod parts;

use bpfcost_model::Unit;
use bpfcost_record::{CostEstimate, Reading, Record};
use bpfcost_report::{
    csv::{self, CsvColumns},
    estimate,
    section::table_sections,
    style::Tone,
    table::{Cell, Head, Note, Table},
};
use bpfcost_stats::Additive;
use bpfcost_text::{self, number};

use self::parts::{AttachParts, COUNTED_MARGIN, Parts, PartsSum};
use super::Extras;

/// The experiment's name.
pub const NAME: &str = "attach";

/// Nanoseconds a run by the kernel's own account, where `bpf_stats` is on and all runs are the driver's.
pub const KERNEL_NS: &str = "kernel_ns";
/// Calls that the mechanism reports as skipped, an event, where it is attached to all functions.
pub const MISSED: &str = "missed";
/// Runs for functions other than the target, an event, likewise. Both have in them what the system calls
/// around a batch add.
pub const OTHER_FUNCTIONS: &str = "other_functions";

/// The parts of costs, and an atlas of kernels.
pub(super) const EXTRAS: Extras = Extras {
    sections: |record, _| table_sections(tables(record)),
    columns,
    document: |records| {
        let of_attach = records.first()?.experiment == NAME;
        of_attach.then(|| atlas::render(records))?
    },
    ..Extras::NOTHING
};

/// The tables of a record's parts; none where it has no such cases.
pub fn tables(record: &Record) -> Vec<Table> {
    let Some(parts) = Parts::from_record(record) else {
        return Vec::new();
    };
    let taxed = parts.rows.iter().any(|row| row.tax.is_some());
    let sums = taxed.then(|| sums(&parts, record));
    std::iter::once(costs(&parts, record)).chain(sums).collect()
}

/// Returns the CSV columns on the part of a cost that each case is, and on whether the parts add up.
fn columns(record: &Record) -> Option<CsvColumns<'_>> {
    let parts = Parts::from_record(record)?;
    Some(Box::new(move |case| {
        let role = parts.role(case);
        let sum = role.and_then(|(_, _, sum)| sum);
        let answer = match sum.map(|sum| sum.adds_up) {
            Some(Additive::Yes) => "yes",
            Some(Additive::No) => "no",
            Some(Additive::CantTell) => "can't tell",
            None => "",
        };
        let named = |name: &str, text: &str| [(name.to_owned(), text.to_owned())];
        let mut cells = named("part", role.map_or("", |role| role.0)).to_vec();
        cells.extend(csv::with_ends(
            "part_value",
            "part",
            role.map(|role| role.1),
        ));
        cells.extend(csv::with_ends(
            "residual",
            "residual",
            sum.map(|sum| sum.residual),
        ));
        cells.extend(named("adds_up", answer));
        cells.extend(csv::with_ends(
            "kernel_body",
            "kernel_body",
            sum.and_then(|sum| sum.kernel),
        ));
        cells
    }))
}

/// The mechanism, and what each body adds to it.
fn costs(parts: &Parts, record: &Record) -> Table {
    let unit = record.unit;
    let mut columns = vec![
        Head::words("attach")
            .cells(|row: &AttachParts| Cell::words(bpfcost_text::line(&row.attach))),
        Head::number("mechanism").cells(|row: &AttachParts| part(row.mechanism, unit)),
    ];
    columns.extend(parts.bodies.iter().enumerate().map(|(at, body)| {
        // Room is short: a long name takes two lines.
        let name = bpfcost_text::line(body).replace("-", "-\n");
        Head::number(format!("+ {name}")).cells(move |row: &AttachParts| part(row.bodies[at], unit))
    }));
    let found = parts
        .rows
        .iter()
        .filter(|row| row.reading == Reading::AsFound);
    let found: Vec<String> = found.map(|row| bpfcost_text::line(&row.attach)).collect();
    let reading = (record.has_undisturbed() && !found.is_empty()).then(|| {
        format!(
            "As found, because some of their costs are not known undisturbed: {}.",
            found.join(", ")
        )
    });
    let captions = [
        "mechanism: the events with an empty program attached, minus the events alone. +: what a body adds to the \
         empty program, within the same epochs."
            .to_owned(),
    ];
    Table {
        title: format!("Parts of the cost, {unit}"),
        notes: parts.rows.iter().filter_map(passed).collect(),
        captions: captions.into_iter().chain(reading).collect(),
        ..Table::new(columns, &parts.rows)
    }
}

/// The tax, whether the parts add up, and the kernel's own account.
fn sums(parts: &Parts, record: &Record) -> Table {
    type PartsRow<'a> = (&'a AttachParts, Option<&'a PartsSum>);
    let unit = record.unit;
    let mut rows: Vec<PartsRow<'_>> = Vec::new();
    for row in parts.rows.iter().filter(|row| row.tax.is_some()) {
        rows.extend(row.sums.iter().map(|sum| (row, Some(sum))));
        rows.extend(row.sums.is_empty().then_some((row, None)));
    }
    let measured = |(row, sum): &PartsRow<'_>| {
        let sum = sum.as_ref()?;
        let body = parts.bodies.iter().position(|body| *body == sum.body);
        row.bodies[body?]
    };
    let estimate = |row: &PartsRow<'_>, value: fn(&PartsSum) -> Option<CostEstimate>| {
        part(row.1.and_then(value), unit)
    };
    let columns = vec![
        Head::words("attach/body").cells(|(row, sum): &PartsRow<'_>| {
            let body = sum.map_or_else(String::new, |sum| format!("/{}", sum.body));
            Cell::words(bpfcost_text::line(&format!("{}{body}", row.attach)))
        }),
        Head::number("+ bpf_stats").cells(|row: &PartsRow<'_>| part(row.0.tax, unit)),
        Head::number("together").cells(|row: &PartsRow<'_>| estimate(row, |sum| Some(sum.total))),
        Head::number("less parts")
            .cells(|row: &PartsRow<'_>| estimate(row, |sum| Some(sum.residual))),
        Head::words("adds up")
            .cells(|row: &PartsRow<'_>| row.1.map_or_else(Cell::default, |sum| answer(sum, unit))),
        Head::number("body").cells(|row: &PartsRow<'_>| part(measured(row), unit)),
        Head::number("by the kernel").cells(|row: &PartsRow<'_>| estimate(row, |sum| sum.kernel)),
    ];
    let empty = parts
        .rows
        .iter()
        .filter_map(|row| Some(row.kernel_empty?.value));
    let empty: Vec<f64> = empty.filter(|value| value.is_finite()).collect();
    let empty =
        bpfcost_stats::sample::median(&empty).map(|value| estimate::value(value, None, unit));
    let kernel = empty.map(|empty| {
        format!(
            "by the kernel: run_time_ns ∕ run_cnt of the body, minus that of the empty program (median: {empty} \
             {unit})."
        )
    });
    let nothing = if unit.is_counted() {
        format!(
            "less than {}, or the rounding of a clock, is left",
            number::percent(COUNTED_MARGIN)
        )
    } else {
        format!(
            "nothing is left, or certainly less than {}",
            number::round_percent(record.asked.margin)
        )
    };
    let read = format!(
        "+ bpf_stats: what bpf_stats adds to the empty program. together: the body with bpf_stats, minus the \
         events alone. less parts: together minus mechanism, body and + bpf_stats, in the same rounds. yes: \
         {nothing} of the whole."
    );
    let findings = parts.sums().filter_map(|one| finding(one, parts, unit));
    Table {
        title: format!("The tax of bpf_stats, and whether the parts add up, {unit}"),
        notes: findings.collect(),
        captions: std::iter::once(read).chain(kernel).collect(),
        ..Table::new(columns, &rows)
    }
}

/// `20.1 ±0.3`.
fn part(part: Option<CostEstimate>, unit: Unit) -> Cell {
    let part = part.filter(|part| part.value.is_finite());
    part.map_or_else(Cell::default, |CostEstimate { value, ci95 }| {
        let text = if unit.is_counted() {
            estimate::value(value, ci95, unit)
        } else {
            number::with_reach(value, ci95)
        };
        Cell::number(text, value)
    })
}

/// The answer in a few words; with a yes how far off the sum may be, of the whole.
fn answer(sum: &PartsSum, unit: Unit) -> Cell {
    let [low, high] = sum.residual.ci95.unwrap_or([sum.residual.value; 2]);
    let share = low.abs().max(high.abs()) / sum.total.value.abs();
    match sum.adds_up {
        Additive::Yes if !share.is_finite() || (unit.is_counted() && share == 0.0) => {
            Cell::words("yes")
        }
        Additive::Yes => Cell::words(format!("yes, to {}", number::percent(share))),
        Additive::No => Cell::words("no, see below").toned(Tone::More),
        Additive::CantTell => Cell::words("can't tell").toned(Tone::Open),
    }
}

/// Note about a sum that does not add up, or that cannot be judged.
fn finding((row, sum): (&AttachParts, &PartsSum), parts: &Parts, unit: Unit) -> Option<Note> {
    let CostEstimate { value, ci95 } = sum.residual;
    let decimals = estimate::decimals(value, ci95, unit);
    let ends = ci95.map(|ends| number::signed_interval(ends, decimals));
    let left = format!(
        "{} {unit} {}",
        number::signed(value, decimals),
        ends.unwrap_or_default()
    );
    let left = left.trim_end();
    let share = number::percent((value / sum.total.value).abs());
    let finding = match sum.adds_up {
        Additive::Yes => return None,
        Additive::No => format!(
            "the parts do not add up: {left} is left, {share} of the whole. bpf_stats costs this body that much \
             more than an empty program"
        ),
        Additive::CantTell if unit.is_counted() => {
            format!(
                "can't tell whether the parts add up ({left}): its counts differ by more between loads"
            )
        }
        Additive::CantTell if ci95.is_none() => {
            "can't tell whether the parts add up: too few epochs for an interval".to_owned()
        }
        Additive::CantTell => {
            let sums = number::plural(parts.sums().count(), "sum");
            format!("can't tell whether the parts add up ({left}; {sums} tested)")
        }
    };
    let case = bpfcost_text::line(&format!("{}/{}", row.attach, sum.body));
    Some(Note::new(Tone::Open, format!("{case}: {finding}.")))
}

/// Calls that a mechanism skipped.
fn passed(row: &AttachParts) -> Option<Note> {
    let passed = row.passed?;
    let [others, missed] = [passed.others_per_event, passed.missed_per_event]
        .map(|times| number::fixed(times, number::plain_decimals(times).min(2)));
    let text = format!(
        "{}: per event, its program also ran {others} times for other functions, and missed {missed} calls that \
         came while it ran.",
        bpfcost_text::line(&row.attach)
    );
    Some(Note::new(Tone::Quiet, text))
}
