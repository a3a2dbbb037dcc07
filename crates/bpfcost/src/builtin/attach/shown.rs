//! The parts of what an attached program costs: the mechanism, what each body adds, the tax of `bpf_stats`;
//! whether they add up; and what the kernel's own account says.

use bpfcost_stats::Additive;

use super::parts::{AttachParts, Parts, PartsSum};
use crate::{
    experiment::Unit,
    record::{Part, Record},
    report::{
        block::{Block, Cell, Head, Note},
        csv::{self, Columns},
        number,
        style::Tone,
        text, words,
    },
};

/// The tables of a record's parts; none where it has no such cases.
pub fn blocks(record: &Record) -> Vec<Block> {
    let Some(parts) = Parts::of(record) else {
        return Vec::new();
    };
    let mut blocks = vec![costs(&parts, record)];
    if parts.rows.iter().any(|row| row.tax.is_some()) {
        blocks.push(sums(&parts, record));
    }
    blocks
}

/// What each case is of a cost's parts, for CSV.
pub(in crate::builtin) fn columns(record: &Record) -> Option<Columns<'_>> {
    let parts = Parts::of(record)?;
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
fn costs(parts: &Parts, record: &Record) -> Block {
    let unit = record.unit;
    let measured: Vec<usize> = (0..parts.bodies.len())
        .filter(|&body| parts.rows.iter().any(|row| row.bodies[body].is_some()))
        .collect();
    let mut head = vec![Head::words("attach"), Head::number("mechanism")];
    head.extend(measured.iter().map(|&body| {
        // Room is short: a long name takes two lines.
        let name = text::line(&parts.bodies[body]).replace("-", "-\n");
        Head::number(format!("+ {name}"))
    }));
    let row = |row: &AttachParts| {
        let bodies = measured.iter().map(|&body| part(row.bodies[body], unit));
        [
            Cell::words(text::line(&row.attach)),
            part(row.mechanism, unit),
        ]
        .into_iter()
        .chain(bodies)
        .collect()
    };
    let reach = match unit.is_counted() {
        true => "",
        false => " ±: as far as its 95 % interval reaches.",
    };
    Block {
        title: format!("Parts of the cost, {unit}"),
        head,
        rows: parts.rows.iter().map(row).collect(),
        notes: parts.rows.iter().filter_map(passed).collect(),
        captions: vec![format!(
            "mechanism: the events with an empty program attached, less the events alone. +: what a body adds \
             to the empty program, within the same epochs.{reach}"
        )],
        ..Block::default()
    }
}

/// The tax, whether the parts add up, and the kernel's own account.
fn sums(parts: &Parts, record: &Record) -> Block {
    let unit = record.unit;
    let mut rows = Vec::new();
    for row in &parts.rows {
        for sum in &row.sums {
            let body = parts.bodies.iter().position(|body| *body == sum.body);
            let measured = body.and_then(|body| row.bodies[body]);
            let (answer, tone) = answer(sum, unit);
            rows.push(vec![
                Cell::words(text::line(&format!("{}/{}", row.attach, sum.body))),
                part(row.tax, unit),
                part(Some(sum.total), unit),
                part(Some(sum.residual), unit),
                Cell {
                    tone,
                    ..Cell::words(answer)
                },
                part(measured, unit),
                part(sum.kernel, unit),
            ]);
        }
        if row.sums.is_empty() && row.tax.is_some() {
            let mut cells = vec![Cell::words(text::line(&row.attach)), part(row.tax, unit)];
            cells.resize(7, Cell::default());
            rows.push(cells);
        }
    }
    Block {
        title: format!("The tax of bpf_stats, and whether the parts add up, {unit}"),
        head: vec![
            Head::words("attach/body"),
            Head::number("+ bpf_stats"),
            Head::number("together"),
            Head::number("less parts"),
            Head::words("adds up"),
            Head::number("body"),
            Head::number("by the kernel"),
        ],
        rows,
        captions: captions(parts, record),
        ..Block::default()
    }
}

/// `20.1 ±0.3`.
fn part(part: Option<Part>, unit: Unit) -> Cell {
    match part.filter(|part| part.value.is_finite()) {
        Some(part) => Cell::number(with_reach(part, unit), part.value),
        None => Cell::default(),
    }
}

/// A value and how far its interval reaches from it.
fn with_reach(part: Part, unit: Unit) -> String {
    match unit.is_counted() {
        true => words::value(part.value, part.ci95, unit),
        false => number::with_reach(part.value, part.ci95),
    }
}

/// The answer in a few words, with how far off the sum may be, of the whole; and its tone.
fn answer(sum: &PartsSum, unit: Unit) -> (String, Tone) {
    let ends = sum.residual.ci95.unwrap_or([sum.residual.value; 2]);
    let share = ends[0].abs().max(ends[1].abs()) / sum.total.value.abs();
    let told = share.is_finite() && !(unit.is_counted() && share == 0.0);
    let share = |word| match told {
        true => format!(", {word} {}", number::percent(share)),
        false => String::new(),
    };
    match sum.adds_up {
        Additive::Yes => (format!("yes{}", share("to")), Tone::Plain),
        Additive::No => (format!("no{}", share("by")), Tone::More),
        Additive::CantTell => ("can't tell".to_owned(), Tone::Open),
    }
}

/// What a mechanism passed over.
fn passed(row: &AttachParts) -> Option<Note> {
    let passed = row.passed?;
    let times = |an_event: f64| {
        let decimals = number::plain_decimals(an_event).min(2);
        number::fixed(an_event, decimals)
    };
    Some(Note {
        text: format!(
            "{}: beside each event its program ran {} times for other functions, and {} calls were passed over, for \
             they came while it ran.",
            text::line(&row.attach),
            times(passed.others_per_event),
            times(passed.missed_per_event)
        ),
        tone: Tone::Quiet,
    })
}

fn captions(parts: &Parts, record: &Record) -> Vec<String> {
    let unit = record.unit;
    let rule = match unit.is_counted() {
        true => "nothing is left beyond 0.1 % of the whole, or the clock's rounding".to_owned(),
        false => format!(
            "the 95 % interval of what is left holds zero, or its 90 % interval lies within {} of the whole, all {} \
             sums judged together",
            number::round_percent(record.asked.margin),
            parts.sums().count()
        ),
    };
    let empty = parts
        .rows
        .iter()
        .filter_map(|row| Some(row.kernel_empty?.value));
    let ends = empty.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
        [low.min(value), high.max(value)]
    });
    let mut ends_told = ends.map(|end| number::fixed(end, 0)).to_vec();
    ends_told.dedup();
    let mut captions = vec![format!(
        "+ bpf_stats: what the kernel's account of run times adds to the empty program. together: the body with it, \
         less the events alone. less parts: that, less mechanism, body and + bpf_stats. yes: {rule}; the share beside \
         it is how far off they may be."
    )];
    if ends[0].is_finite() && ends[1].is_finite() {
        captions.push(format!(
            "by the kernel: the body by the kernel's own account (run_time_ns ∕ run_cnt, as bpftool shows it), less \
             that of the empty program, which holds about one reading of the kernel's clock: {} {unit}.",
            ends_told.join(" to ")
        ));
    }
    captions
}
