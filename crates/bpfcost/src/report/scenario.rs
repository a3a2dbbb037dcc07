//! One case alone in full (`--case NAME --verbose`): how its batch was found, whether it proved itself, and how its
//! trials lie.

use crate::{
    experiment::Role,
    record::{CaseRecord, Record, Status},
    report::{
        block::{Block, Cell, Head, Note},
        histogram::{self, Histogram},
        number, rows,
        style::Tone,
        text, trials, words,
    },
};

/// A tail this many times longer than the other is worth a note.
const LONG_TAIL: f64 = 2.0;
/// The percentiles that are listed.
const PERCENTILES: [f64; 5] = [50.0, 75.0, 90.0, 95.0, 99.0];

/// The tables of the only case of a record that is no floor; of several none.
pub(super) fn blocks(record: &Record) -> Vec<Block> {
    let mut cases = record.cases.iter().filter(|case| case.role == Role::Case);
    match (cases.next(), cases.next()) {
        (Some(case), None) => {
            let shown = case.status == Status::Ok;
            let histogram = histogram(case, record).filter(|_| shown);
            std::iter::once(lines(case, record))
                .chain(histogram)
                .collect()
        }
        _ => Vec::new(),
    }
}

/// How its batch was found, whether it proved itself, and what was measured beside its cost.
fn lines(case: &CaseRecord, record: &Record) -> Block {
    let unit = record.unit;
    let factors = case.factors.iter();
    let factors = factors.map(|(name, value)| text::line(&format!("{name} = {value}")));
    let found = case.calibration;
    let calibration = found.map(|found| {
        let batch_ns = found.ns_per_op * found.batch.0 as f64;
        format!(
            "{} {unit}, a batch of {} operations takes {}",
            words::value(found.ns_per_op, None, unit),
            number::count(found.batch.0),
            match unit.is_counted() {
                // The clock of an exact target counts instructions: a ns is one.
                true => format!("{} instructions", number::fixed(batch_ns, 0)),
                false => number::duration(batch_ns / 1e9),
            }
        )
    });
    let proportional = found.map(|found| match found.ratio {
        None => "not checked: the size of the batch is part of the case".to_owned(),
        Some(ratio) => format!(
            "twice the batch took {} times {}, attempt {}",
            number::fixed(ratio, 4),
            words::as_much(unit),
            found.attempts
        ),
    });
    let loads = case.samples.iter().filter(|epoch| !epoch.is_empty());
    let validation = (case.status == Status::Ok).then(|| {
        format!(
            "passed: {} in {}, each checked while it was timed",
            number::plural(case.samples.iter().map(Vec::len).sum(), "trial"),
            number::plural(loads.count(), "load")
        )
    });
    let values = histogram::sorted(&case.samples);
    let percentiles = PERCENTILES.iter().filter_map(|percent| {
        let value = histogram::percentile(&values, percent / 100.0)?;
        let ends = case.raw.as_ref().and_then(|raw| raw.ci95);
        Some(format!("p{percent} {}", words::value(value, ends, unit)))
    });
    let medians = case.secondary.iter().filter_map(|(name, values)| {
        let middle = histogram::percentile(&histogram::sorted(values), 0.5)?;
        let decimals = match middle.fract() == 0.0 {
            true => 0,
            false => number::plain_decimals(middle),
        };
        Some(format!(
            "{} {}",
            text::line(name),
            number::fixed(middle, decimals)
        ))
    });
    let lines = [
        ("Case", text::line(&case.about)),
        ("Factors", factors.collect::<Vec<_>>().join(", ")),
        ("Calibration", calibration.unwrap_or_default()),
        ("Proportional", proportional.unwrap_or_default()),
        ("Validation", validation.unwrap_or_default()),
        ("Percentiles", percentiles.collect::<Vec<_>>().join(", ")),
        ("Also (medians)", medians.collect::<Vec<_>>().join(", ")),
    ];
    type Line = (&'static str, String);
    Block::of(
        vec![
            Head::words("").of(|line: &Line| Cell::words(line.0)),
            Head::words("").of(|line: &Line| Cell::words(&line.1)),
        ],
        lines.iter().filter(|line| !line.1.is_empty()),
    )
}

/// How its trials lie.
fn histogram(case: &CaseRecord, record: &Record) -> Option<Block> {
    let values = histogram::sorted(&case.samples);
    let histogram = Histogram::new(&values)?;
    // Counts have a tail by their nature: what a timer tick adds.
    let skew = histogram::skew(&values).filter(|_| !record.unit.is_counted());
    let tail = skew.and_then(|skew| {
        let (side, times) = match skew > 1.0 {
            true => ("right", skew),
            false => ("left", 1.0 / skew),
        };
        let times = Some(times).filter(|times| *times >= LONG_TAIL)?;
        let words = format!(
            "NOTE: long tail to the {side}, {} times the other; the estimate rests on medians and does not follow it.",
            number::fixed(times, 1)
        );
        Some(Note::new(Tone::Open, words))
    });
    let trials = rows::heading(trials::name(record));
    let step = histogram.step_text();
    Some(Block {
        title: format!("{trials}, {} (bins of {step})", record.unit),
        notes: tail.into_iter().collect(),
        ..histogram.block()
    })
}
