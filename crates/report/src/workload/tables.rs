//! The tables of a workload: for one probe a row per value, for several a row per probe, and along a factor a row
//! per size, as study 004 shows it.

use super::{ChangeText, Quantity, WorkloadReport};
use crate::{
    rows::heading,
    style::Tone,
    table::{Cell, Column, Head, Note, Table},
    words,
};
use bpfcost_model::OFF;
use bpfcost_record::{CaseRecord, State, Status};
use bpfcost_text::{self, number::MISSING};

/// The heading above differences and their intervals.
const DIFFERENCE: &str = "difference, 95 %";

/// A row: a value of a case, and the case that it is compared with.
struct ValueRow<'a, 'q> {
    name: String,
    quantity: &'q Quantity<'a>,
    case: &'a CaseRecord,
    off: Option<&'a CaseRecord>,
    /// Whether it is of two probes, the values of which stand in rows of their own.
    of_two: bool,
}

/// The tables of a state of the server.
pub(crate) fn of_state<'a>(overhead: &WorkloadReport<'a>, state: &State<'a>) -> Vec<Table> {
    let cell = |quantity: &Quantity<'_>, case: &CaseRecord| {
        quantity.cell(case, &quantity.scale(state.cases()))
    };
    let heading = |quantity: &Quantity<'_>| quantity.heading(&quantity.scale(state.cases()));
    let change = |row: &ValueRow<'a, '_>| overhead.change(row.quantity, row.case, row.off);
    let titled = |what: &str, table: Table| Table {
        title: overhead.title(what, state),
        ..table
    };
    let rows = rows(overhead, state);
    let of_one: Option<Vec<ValueRow<'a, '_>>> = match state.probes.as_slice() {
        [one] => {
            let compared = std::iter::once(&overhead.headline)
                .chain(&overhead.total)
                .chain(&overhead.metrics);
            let of_one = compared
                .chain(&overhead.of_probes)
                .map(|quantity| ValueRow {
                    name: heading(quantity),
                    quantity,
                    case: one.case,
                    off: state.off,
                    of_two: false,
                });
            Some(of_one.collect())
        }
        _ => None,
    };
    let (corner, value) = match state.probes.as_slice() {
        [one] => ("", bpfcost_text::line(one.variant)),
        _ => ("probe", heading(&overhead.headline)),
    };
    let names = |head: &str| Head::words(head).of(|row: &ValueRow<'a, '_>| Cell::words(&row.name));
    let off = |row: &ValueRow<'a, '_>| {
        let off = row.off.filter(|_| !row.quantity.is_of_probes());
        off.map_or_else(Cell::default, |off| cell(row.quantity, off))
    };
    let own = |row: &ValueRow<'a, '_>| {
        if row.of_two {
            Cell::default()
        } else {
            cell(row.quantity, row.case)
        }
    };
    let difference = |row: &ValueRow<'a, '_>| {
        let cell =
            |change: ChangeText<'_>| Cell::number(change.difference, change.comparison.relative);
        change(row).map_or_else(Cell::default, cell)
    };
    let in_total = |row: &ValueRow<'a, '_>| {
        let total = overhead.total.as_ref();
        let change = total.and_then(|total| overhead.change(total, row.case, row.off));
        let cell = |change: ChangeText<'_>| {
            let relative = change
                .comparison
                .totals
                .map_or(f64::NAN, |totals| totals.relative);
            Cell::number(change.difference, relative)
        };
        change.map_or_else(Cell::default, cell)
    };
    let verdict = |row: &ValueRow<'a, '_>| {
        change(row).map_or_else(Cell::default, |change| change.verdict_cell())
    };
    let leading = vec![
        names(corner),
        Head::number(OFF).of(off).only(of_one.is_some()),
        Head::number(value).of(own),
        Head::number(DIFFERENCE).of(difference),
        Head::number("in total, 95 %")
            .of(in_total)
            .only(of_one.is_none() && overhead.total.is_some()),
        Head::words("verdict").of(verdict),
    ];
    let experiment = bpfcost_text::line(&overhead.states.record.experiment);
    let leading = Table::of(leading, of_one.as_ref().unwrap_or(&rows));
    let mut tables = vec![titled(&experiment, leading)];
    // What would resolve the comparisons that are not.
    let unresolved = |row: &ValueRow<'a, '_>| {
        let (words, tone) = words::verdict(change(row)?.comparison, overhead.states.record);
        (tone == Tone::Open).then(|| Note::new(tone, format!("{}: {words}.", row.name)))
    };
    tables[0].notes = rows.iter().filter_map(unresolved).collect();
    if of_one.is_some() {
        return tables;
    }
    let metric = |quantity| {
        Head::number(heading(quantity)).of(move |row: &ValueRow<'a, '_>| match row.off {
            None => cell(quantity, row.case),
            off => match overhead.change(quantity, row.case, off) {
                Some(change) => change.cell(),
                None => no_result(row.case),
            },
        })
    };
    let of_probe = |quantity| {
        Head::number(heading(quantity)).of(move |row: &ValueRow<'a, '_>| cell(quantity, row.case))
    };
    let metrics: Vec<Column<'_, _>> = overhead.metrics.iter().map(metric).collect();
    let of_probes: Vec<Column<'_, _>> = overhead.of_probes.iter().map(of_probe).collect();
    for (title, columns, from) in [
        ("What else changes", metrics, 0),
        (
            "The probes themselves",
            of_probes,
            usize::from(state.off.is_some()),
        ),
    ] {
        if !columns.is_empty() {
            let columns = std::iter::once(names("probe")).chain(columns).collect();
            let rows = rows[from..].iter().filter(|row| !row.of_two);
            tables.extend(
                Table::of(columns, rows)
                    .filled()
                    .map(|table| titled(title, table)),
            );
        }
    }
    tables
}

/// Off, every probe, and the probes that were compared with each other.
fn rows<'a, 'q>(overhead: &'q WorkloadReport<'a>, state: &State<'a>) -> Vec<ValueRow<'a, 'q>> {
    let row = |name: &str, case, off, of_two| ValueRow {
        name: bpfcost_text::line(name),
        quantity: &overhead.headline,
        case,
        off,
        of_two,
    };
    let off = state.off.map(|off| row(OFF, off, None, false));
    let mut rows = Vec::from_iter(off);
    let probes = state.probes.iter();
    rows.extend(probes.map(|probed| row(probed.variant, probed.case, state.off, false)));
    for one in &state.probes {
        for other in &state.probes {
            let off = Some(other.case);
            let compared = overhead.change(&overhead.headline, one.case, off);
            let name = format!("{} against {}", one.variant, other.variant);
            rows.extend(compared.map(|_| row(&name, one.case, off, true)));
        }
    }
    rows
}

/// A table of CPU time and one of each rate, for all states that differ in `over` alone.
pub(crate) fn along(overhead: &WorkloadReport<'_>, over: &str) -> Vec<Table> {
    let along = overhead.along(over).into_iter().map(|along| {
        let (quantity, scale) = (along.quantity, &along.scale);
        let place = |state: &&State<'_>| Cell::words(bpfcost_text::line(state.factors[over]));
        let off = |state: &&State<'_>| {
            state
                .off
                .map_or_else(Cell::default, |off| quantity.cell(off, scale))
        };
        let mut columns = vec![
            Head::words(bpfcost_text::line(over)).of(place),
            Head::number(OFF).of(off),
        ];
        for variant in overhead.states.variants() {
            // The value with a probe, and what became of it: `45.5 more +44.4 % [+44.2, +44.6]`.
            let changed = move |state: &&State<'_>| {
                let Some(probed) = state.probed(variant) else {
                    return Cell::default();
                };
                let change = overhead.change(quantity, probed.case, state.off);
                match (quantity.value(probed.case), change) {
                    (Some(value), Some(change)) => {
                        let cell = change.cell();
                        let text = format!("{}  {}", scale.plain(value), cell.text);
                        Cell { text, ..cell }
                    }
                    _ => no_result(probed.case),
                }
            };
            columns.push(Head::number(bpfcost_text::line(variant)).of(changed));
        }
        let (name, over, unit) = (&quantity.name, bpfcost_text::line(over), &scale.unit);
        Table {
            title: heading(&format!("{name} by {over}, {unit}{}", along.apart)),
            ..Table::of(columns, &along.states)
        }
    });
    along.collect()
}

/// What stands where a case has no value, or no comparison.
pub(crate) fn no_result(case: &CaseRecord) -> Cell {
    match case.status {
        Status::Invalid => Cell::words("INVALID").toned(Tone::Alarm),
        Status::Unsupported => Cell::words("not run").toned(Tone::Quiet),
        Status::Ok => Cell::words(MISSING).toned(Tone::Quiet),
    }
}
