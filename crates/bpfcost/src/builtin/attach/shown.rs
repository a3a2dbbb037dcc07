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
    let mut captions = vec![sum_caption(parts, record)];
    captions.extend(kernel_caption(parts, unit));
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
        notes: parts
            .sums()
            .filter_map(|one| finding(one, parts, unit))
            .collect(),
        captions,
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

/// The answer in a few words, and its tone.
fn answer(sum: &PartsSum, unit: Unit) -> (String, Tone) {
    match sum.adds_up {
        Additive::Yes => (format!("yes{}", reach(sum, unit)), Tone::Plain),
        Additive::No => ("no, see below".to_owned(), Tone::More),
        Additive::CantTell => ("can't tell".to_owned(), Tone::Open),
    }
}

/// `, to 2 %`: how far off the sum may be, of the whole.
fn reach(sum: &PartsSum, unit: Unit) -> String {
    let ends = sum.residual.ci95.unwrap_or([sum.residual.value; 2]);
    let share = ends[0].abs().max(ends[1].abs()) / sum.total.value.abs();
    match share.is_finite() && !(unit.is_counted() && share == 0.0) {
        true => format!(", to {}", number::percent(share)),
        false => String::new(),
    }
}

/// What is to say of a sum that doesn't add up, or can't be judged.
fn finding((row, sum): (&AttachParts, &PartsSum), parts: &Parts, unit: Unit) -> Option<Note> {
    let case = text::line(&format!("{}/{}", row.attach, sum.body));
    let Part { value, ci95 } = sum.residual;
    let decimals = words::decimals(value, ci95, unit);
    let interval = |[low, high]: [f64; 2]| number::interval([low, high], decimals);
    let with_interval = |value: String, ci95: Option<[f64; 2]>| match ci95 {
        Some(ends) => format!("{value} {unit} {}", interval(ends)),
        None => format!("{value} {unit}"),
    };
    let left = with_interval(number::signed(value, decimals), ci95);
    let text = match sum.adds_up {
        Additive::Yes => return None,
        Additive::No => {
            let (more, size) = match value > 0.0 {
                true => ("more", ci95),
                false => ("less", ci95.map(|[low, high]| [-high, -low])),
            };
            let by = with_interval(number::fixed(value.abs(), decimals), size);
            let share = number::percent((value / sum.total.value).abs());
            format!(
                "{case}: the parts do not add up. Together they cost {by} {more}, {share} of the whole: \
                 bpf_stats costs this body {more} than it costs an empty program."
            )
        }
        Additive::CantTell if unit.is_counted() => format!(
            "{case}: can't tell whether the parts add up ({left}): its counts differ from load to load by more."
        ),
        Additive::CantTell if ci95.is_none() => format!(
            "{case}: can't tell whether the parts add up: {} are too few for an interval.",
            number::plural(sum.epochs, "epoch")
        ),
        Additive::CantTell => format!(
            "{case}: can't tell whether the parts add up ({left}): alone it would be a finding, but {} were \
             looked at, and one in twenty is as far off by chance.",
            number::plural(parts.sums().count(), "sum")
        ),
    };
    let tone = Tone::Open;
    Some(Note { text, tone })
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

fn sum_caption(parts: &Parts, record: &Record) -> String {
    let mut text = "The tax, + bpf_stats, is what the kernel's account of run times adds to the empty program. together: \
                    the body with it, less the events alone. less parts: that, less mechanism, body and + \
                    bpf_stats, measured in the same rounds. "
        .to_owned();
    let sums = parts.sums().count();
    text += &match record.unit.is_counted() {
        true => {
            "They add up where nothing is left beyond 0.1 % of the whole, or the clock's rounding."
                .to_owned()
        }
        false => format!(
            "They add up (yes) where the 95 % interval of what is left holds zero, or its 90 % interval lies \
             within the {} of the whole that matters; the share beside yes is how far off they may be. no: where a test \
             says so that allows for {}.",
            number::round_percent(record.asked.margin),
            match sums {
                1 => "this one sum".to_owned(),
                sums => format!("all {} sums", number::count(sums as u64)),
            }
        ),
    };
    text
}

/// What the kernel's account is.
fn kernel_caption(parts: &Parts, unit: Unit) -> Option<String> {
    let mut empty: Vec<f64> = parts
        .rows
        .iter()
        .filter_map(|row| Some(row.kernel_empty?.value))
        .filter(|value| value.is_finite())
        .collect();
    empty.sort_by(f64::total_cmp);
    let (least, most) = (*empty.first()?, *empty.last()?);
    let value = |value: f64| match unit.is_counted() {
        true => words::value(value, None, unit),
        false => number::fixed(value, 0),
    };
    let range = match value(least) == value(most) {
        true => value(least),
        false => format!("{} to {}", value(least), value(most)),
    };
    let what = match unit.is_counted() {
        true => "instructions",
        false => "ns",
    };
    Some(format!(
        "by the kernel: the body by the kernel's own account (run_time_ns ∕ run_cnt, as bpftool shows it), less \
         that of the empty program. Each run's time holds about one reading of the kernel's clock, so that even \
         an empty program shows {range} {what} there; the difference is free of it, and stands beside the body \
         as measured from outside."
    ))
}
