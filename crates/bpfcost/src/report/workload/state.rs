//! One state of the server: with one probe a row for each value, with several a row for each probe.

use super::{Overhead, Quantity};
use crate::{
    record::{CaseRecord, Probed, State, Status},
    report::{
        block::{Block, Cell, Head, Note},
        style::Tone,
        text, words,
    },
};

/// The heading above differences and their intervals.
const DIFFERENCE: &str = "difference, 95 %";

/// The tables of a state.
pub(super) fn blocks(overhead: &Overhead<'_>, state: &State<'_>) -> Vec<Block> {
    match state.probes.as_slice() {
        [one] => vec![of_one(overhead, state, one)],
        _ => of_several(overhead, state),
    }
}

/// Every value, off and on.
fn of_one(overhead: &Overhead<'_>, state: &State<'_>, probed: &Probed<'_>) -> Block {
    let compared = std::iter::once(&overhead.headline).chain(&overhead.metrics);
    let mut rows = Vec::new();
    for quantity in compared.chain(&overhead.of_probes) {
        let scale = quantity.scale(state.cases());
        let of_probe = overhead
            .of_probes
            .iter()
            .any(|one| std::ptr::eq(one, quantity));
        let off = state.off.filter(|_| !of_probe);
        let change =
            off.and_then(|off| quantity.change(&overhead.states, &probed.case.name, &off.name));
        let mut row = vec![
            Cell::words(quantity.heading(&scale)),
            off.map_or_else(Cell::default, |off| quantity.cell(off, &scale)),
            quantity.cell(probed.case, &scale),
        ];
        row.extend(match change {
            Some(change) => [change.difference_cell(), change.verdict_cell()],
            None => [Cell::default(), Cell::default()],
        });
        rows.push(row);
    }
    Block {
        title: overhead.title(&text::line(&overhead.states.record.experiment), state),
        head: vec![
            Head::words(""),
            Head::number("off"),
            Head::number(text::line(probed.variant)),
            Head::number(DIFFERENCE),
            Head::words("verdict"),
        ],
        rows,
        notes: unresolved(overhead, state),
        ..Block::default()
    }
}

/// What leads, what else changes, and what is to know of the probes themselves: a table each.
fn of_several(overhead: &Overhead<'_>, state: &State<'_>) -> Vec<Block> {
    let mut blocks = vec![headline(overhead, state)];
    blocks.extend(each_other(overhead, state));
    if !overhead.metrics.is_empty() {
        blocks.push(metrics(overhead, state));
    }
    if !overhead.of_probes.is_empty() && !state.probes.is_empty() {
        blocks.push(of_probes(overhead, state));
    }
    blocks
}

fn headline(overhead: &Overhead<'_>, state: &State<'_>) -> Block {
    let quantity = &overhead.headline;
    let scale = quantity.scale(state.cases());
    let row = |name: &str, case: &CaseRecord| {
        let off = state.off.map_or("", |off| off.name.as_str());
        let mut row = vec![Cell::words(text::line(name)), quantity.cell(case, &scale)];
        row.extend(change_cells(overhead, &case.name, off));
        row
    };
    let off = state.off.iter().map(|off| row("off", off));
    let probes = state.probes.iter();
    Block {
        title: overhead.title(&text::line(&overhead.states.record.experiment), state),
        head: vec![
            Head::words("probe"),
            Head::number(quantity.heading(&scale)),
            Head::number(DIFFERENCE),
            Head::words("verdict"),
        ],
        rows: off
            .chain(probes.map(|probed| row(probed.variant, probed.case)))
            .collect(),
        notes: unresolved(overhead, state),
        ..Block::default()
    }
}

/// Difference and verdict of what leads.
fn change_cells(overhead: &Overhead<'_>, case: &str, baseline: &str) -> [Cell; 2] {
    match overhead.headline.change(&overhead.states, case, baseline) {
        Some(change) => [change.difference_cell(), change.verdict_cell()],
        None => [Cell::default(), Cell::default()],
    }
}

/// Probes against each other, where they were compared.
fn each_other(overhead: &Overhead<'_>, state: &State<'_>) -> Option<Block> {
    let mut rows = Vec::new();
    for case in &state.probes {
        for other in &state.probes {
            let found =
                overhead
                    .headline
                    .change(&overhead.states, &case.case.name, &other.case.name);
            if found.is_none() {
                continue;
            }
            let names = [case, other].map(|probed| text::line(probed.variant));
            let mut row = vec![Cell::words(format!("{} against {}", names[0], names[1]))];
            row.extend(change_cells(overhead, &case.case.name, &other.case.name));
            rows.push(row);
        }
    }
    (!rows.is_empty()).then(|| Block {
        title: overhead.title("One probe against another", state),
        head: vec![
            Head::words(overhead.headline.name.clone()),
            Head::number(DIFFERENCE),
            Head::words("verdict"),
        ],
        rows,
        ..Block::default()
    })
}

/// What else is compared: values without a probe, changes with each.
fn metrics(overhead: &Overhead<'_>, state: &State<'_>) -> Block {
    let scales: Vec<_> = overhead
        .metrics
        .iter()
        .map(|quantity| (quantity, quantity.scale(state.cases())))
        .collect();
    let mut head = vec![Head::words("probe")];
    head.extend(
        scales
            .iter()
            .map(|(quantity, scale)| Head::number(quantity.heading(scale))),
    );
    let mut rows = Vec::new();
    if let Some(off) = state.off {
        let cells = scales
            .iter()
            .map(|(quantity, scale)| quantity.cell(off, scale));
        rows.push(std::iter::once(Cell::words("off")).chain(cells).collect());
    }
    for probed in &state.probes {
        let cells = overhead.metrics.iter().map(|quantity| {
            let off = state.off?;
            let change = quantity.change(&overhead.states, &probed.case.name, &off.name)?;
            Some(change.cell())
        });
        let name = Cell::words(text::line(probed.variant));
        let cells = cells.map(|cell| cell.unwrap_or_else(|| no_result(probed.case)));
        rows.push(std::iter::once(name).chain(cells).collect());
    }
    Block {
        title: overhead.title("What else changes", state),
        head,
        rows,
        ..Block::default()
    }
}

/// What stands where a case has no comparison.
pub(super) fn no_result(case: &CaseRecord) -> Cell {
    let (tone, words) = match case.status {
        Status::Invalid => (Tone::Alarm, "INVALID"),
        Status::Unsupported => (Tone::Quiet, "not run"),
        Status::Ok => (Tone::Quiet, crate::report::number::MISSING),
    };
    Cell {
        tone,
        ..Cell::words(words)
    }
}

/// What probes use and see themselves.
fn of_probes(overhead: &Overhead<'_>, state: &State<'_>) -> Block {
    let probed = || state.probes.iter().map(|probed| probed.case);
    let scaled: Vec<(&Quantity<'_>, _)> = overhead
        .of_probes
        .iter()
        .map(|quantity| (quantity, quantity.scale(probed())))
        .collect();
    let mut head = vec![Head::words("probe")];
    head.extend(
        scaled
            .iter()
            .map(|(quantity, scale)| Head::number(quantity.heading(scale))),
    );
    let row = |probed: &Probed<'_>| {
        let cells = scaled
            .iter()
            .map(|(quantity, scale)| quantity.cell(probed.case, scale));
        let name = Cell::words(text::line(probed.variant));
        std::iter::once(name).chain(cells).collect()
    };
    Block {
        title: overhead.title("The probes themselves", state),
        head,
        rows: state.probes.iter().map(row).collect(),
        ..Block::default()
    }
}

/// What would resolve the comparisons that are not.
fn unresolved(overhead: &Overhead<'_>, state: &State<'_>) -> Vec<Note> {
    let Some(off) = state.off else {
        return Vec::new();
    };
    let note = |probed: &Probed<'_>| {
        let headline = &overhead.headline;
        let change = headline.change(&overhead.states, &probed.case.name, &off.name)?;
        let (told, tone) = words::verdict(change.comparison, overhead.states.record);
        (tone == Tone::Open).then(|| Note {
            text: format!("{}: {told}.", text::line(probed.variant)),
            tone,
        })
    };
    state.probes.iter().filter_map(note).collect()
}
