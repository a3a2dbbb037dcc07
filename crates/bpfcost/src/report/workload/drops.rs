//! What probes take away along a factor, as study 004 tells it: a row for each size, a column for each probe.
//! CPU time per operation leads, throughput follows.

use super::{Overhead, Quantity, named, quantity::Scale, state::no_result};
use crate::{
    record::{CaseRecord, State},
    report::{
        block::{Block, Cell, Head},
        rows::heading,
        text,
    },
};

/// A table of CPU time and one of each further value that a reader of sizes asks for, for all states that
/// differ in `over` alone.
pub(super) fn blocks(overhead: &Overhead<'_>, over: &str) -> Vec<Block> {
    let rates = overhead
        .metrics
        .iter()
        .filter(|quantity| quantity.is_throughput());
    let told: Vec<&Quantity<'_>> = std::iter::once(&overhead.headline).chain(rates).collect();
    let curves = overhead.states.curves_over(over);
    let several = curves.len() > 1;
    let blocks = curves.iter().flat_map(|curve| {
        let apart = match several {
            true => named(curve[0].apart(over)),
            false => String::new(),
        };
        told.iter()
            .map(move |quantity| block(overhead, quantity, over, curve, &apart))
    });
    blocks.collect()
}

fn block(
    overhead: &Overhead<'_>,
    quantity: &Quantity<'_>,
    over: &str,
    curve: &[&State<'_>],
    apart: &str,
) -> Block {
    let scale = quantity.scale(curve.iter().flat_map(|state| state.cases()));
    let variants: Vec<&str> = overhead
        .states
        .variants()
        .into_iter()
        .filter(|variant| curve.iter().any(|state| state.probed(variant).is_some()))
        .collect();
    let mut head = vec![Head::words(text::line(over)), Head::number("off")];
    for variant in &variants {
        head.push(Head::number(text::line(variant)));
    }
    let row = |state: &&State<'_>| {
        let at = state.factors.get(over).copied().unwrap_or_default();
        let off = state
            .off
            .map_or_else(Cell::default, |off| quantity.cell(off, &scale));
        let mut row = vec![Cell::words(text::line(at)), off];
        for variant in &variants {
            let probed = state.probed(variant).map(|probed| probed.case);
            row.push(probed.map_or_else(Cell::default, |case| {
                changed(overhead, quantity, case, state.off, &scale)
            }));
        }
        row
    };
    let apart = match apart {
        "" => String::new(),
        apart => format!(", {apart}"),
    };
    Block {
        title: heading(&format!(
            "{} by {}, {}{apart}",
            quantity.name,
            text::line(over),
            scale.unit
        )),
        head,
        rows: curve.iter().map(row).collect(),
        ..Block::default()
    }
}

/// The value with a probe, and what became of it: `45.5 more +44.4 % [+44.2, +44.6]`.
fn changed(
    overhead: &Overhead<'_>,
    quantity: &Quantity<'_>,
    case: &CaseRecord,
    off: Option<&CaseRecord>,
    scale: &Scale,
) -> Cell {
    let change = off.and_then(|off| quantity.change(&overhead.states, &case.name, &off.name));
    match (quantity.value(case), change) {
        (Some(value), Some(change)) => {
            let cell = change.cell();
            Cell {
                text: format!("{}  {}", scale.plain(value), cell.text),
                ..cell
            }
        }
        _ => no_result(case),
    }
}
