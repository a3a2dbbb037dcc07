//! The tables of a workload: for one probe a row per value, for several a row per probe, and along a factor a row
//! per size, as study 004 shows it.

use super::{ChangeText, Quantity, WorkloadReport};
use crate::{
    cost,
    rows::heading,
    style::Tone,
    table::{Cell, Column, Head, Note, Table},
    verdict,
};
use bpfcost_model::OFF;
use bpfcost_record::{CaseRecord, ProbedCase, State};
use bpfcost_text::line;

/// The heading above differences and their intervals.
const DIFFERENCE: &str = "difference, 95 %";

/// A row: a quantity of a case, and the case that it is compared with.
struct ValueRow<'a, 'q> {
    name: String,
    quantity: &'q Quantity<'a>,
    case: &'a CaseRecord,
    off: Option<&'a CaseRecord>,
    /// True for a comparison of two probes, whose values stand in rows of their own.
    of_two: bool,
}

/// Tables of one state of the server.
struct StateTables<'o, 'a> {
    report: &'o WorkloadReport<'a>,
    state: &'o State<'a>,
}

/// The tables of a state of the server, most important first.
pub(crate) fn state_tables<'a>(report: &WorkloadReport<'a>, state: &State<'a>) -> Vec<Table> {
    let tables = StateTables { report, state };
    let mut all = match state.probes.as_slice() {
        [one] => vec![tables.of_one_probe(one)],
        _ => tables.of_several_probes(),
    };
    all[0].notes = tables.unresolved();
    all
}

impl<'a> StateTables<'_, 'a> {
    /// A row for each quantity: its value without the probe and with it, and the difference.
    fn of_one_probe(&self, probe: &ProbedCase<'a>) -> Table {
        let report = self.report;
        let compared = std::iter::once(&report.headline)
            .chain(&report.total)
            .chain(&report.metrics);
        let rows = compared.chain(&report.probes).map(|quantity| ValueRow {
            name: self.heading(quantity),
            quantity,
            case: probe.case,
            off: self.state.off,
            of_two: false,
        });
        let rows: Vec<ValueRow<'a, '_>> = rows.collect();
        let off = |row: &ValueRow<'a, '_>| {
            let off = row.off.filter(|_| !row.quantity.is_of_probes());
            off.map_or_else(Cell::default, |off| self.cell(row.quantity, off))
        };
        let columns = vec![
            name_column(""),
            Head::number(OFF).cells(off),
            self.own_column(line(probe.variant)),
            self.difference_column(),
            self.verdict_column(),
        ];
        Table {
            title: report.title(&line(&report.states.record.experiment), self.state),
            ..Table::new(columns, &rows)
        }
    }

    /// A row for each probe: the headline, then other values that were compared, then values of the probes themselves.
    fn of_several_probes(&self) -> Vec<Table> {
        let report = self.report;
        let rows = rows(report, self.state);
        let total = report.total.as_ref();
        let in_total = |row: &ValueRow<'a, '_>| {
            let change = total.and_then(|total| report.change(total, row.case, row.off));
            change.map_or_else(Cell::default, |change| {
                let totals = change.comparison.totals;
                let relative = totals.map_or(f64::NAN, |totals| totals.relative);
                Cell::number(change.difference, relative)
            })
        };
        let leading = vec![
            name_column("probe"),
            self.own_column(self.heading(&report.headline)),
            self.difference_column(),
            Head::number("in total, 95 %")
                .cells(in_total)
                .only(total.is_some()),
            self.verdict_column(),
        ];
        let metric = |quantity| {
            Head::number(self.heading(quantity)).cells(move |row: &ValueRow<'a, '_>| {
                match (row.off, report.change(quantity, row.case, row.off)) {
                    (None, _) => self.cell(quantity, row.case),
                    (Some(_), Some(change)) => change.cell(),
                    (Some(_), None) => no_result(row.case),
                }
            })
        };
        let of_probe = |quantity| {
            Head::number(self.heading(quantity))
                .cells(move |row: &ValueRow<'a, '_>| self.cell(quantity, row.case))
        };
        let own: Vec<&ValueRow<'a, '_>> = rows.iter().filter(|row| !row.of_two).collect();
        let probes = &own[usize::from(self.state.off.is_some())..];
        let titled = |title: &str, table: Table| Table {
            title: report.title(title, self.state),
            ..table
        };
        let metrics: Vec<Column<'_, _>> = report.metrics.iter().map(metric).collect();
        let of_probes: Vec<Column<'_, _>> = report.probes.iter().map(of_probe).collect();
        let experiment = line(&report.states.record.experiment);
        let mut tables = vec![titled(&experiment, Table::new(leading, &rows))];
        for (title, columns, rows) in [
            ("What else changes", metrics, own.as_slice()),
            ("The probes themselves", of_probes, probes),
        ] {
            if !columns.is_empty() {
                let columns = std::iter::once(name_column("probe"))
                    .chain(columns)
                    .collect();
                let table = Table::new(columns, rows.iter().copied()).filled();
                tables.extend(table.map(|table| titled(title, table)));
            }
        }
        tables
    }

    /// The time or the epochs that would resolve the comparisons that are not.
    fn unresolved(&self) -> Vec<Note> {
        let note = |row: ValueRow<'a, '_>| {
            let comparison = self.change(&row)?.comparison;
            let (words, tone) = verdict::sentence(comparison, self.report.states.record);
            (tone == Tone::Open).then(|| Note::new(tone, format!("{}: {words}.", row.name)))
        };
        let rows = rows(self.report, self.state).into_iter();
        rows.filter_map(note).collect()
    }

    fn heading(&self, quantity: &Quantity<'_>) -> String {
        quantity.heading(&quantity.scale(self.state.cases()))
    }

    fn cell(&self, quantity: &Quantity<'_>, case: &CaseRecord) -> Cell {
        quantity.cell(case, &quantity.scale(self.state.cases()))
    }

    fn change(&self, row: &ValueRow<'a, '_>) -> Option<ChangeText<'a>> {
        self.report.change(row.quantity, row.case, row.off)
    }

    /// The value of the case itself; empty for a comparison of two probes.
    fn own_column<'q>(&self, heading: String) -> Column<'_, ValueRow<'a, 'q>> {
        Head::number(heading).cells(|row: &ValueRow<'a, '_>| {
            let own = (!row.of_two).then(|| self.cell(row.quantity, row.case));
            own.unwrap_or_default()
        })
    }

    fn difference_column<'q>(&self) -> Column<'_, ValueRow<'a, 'q>> {
        Head::number(DIFFERENCE).cells(|row: &ValueRow<'a, '_>| {
            self.change(row).map_or_else(Cell::default, |change| {
                Cell::number(change.difference, change.comparison.relative)
            })
        })
    }

    fn verdict_column<'q>(&self) -> Column<'_, ValueRow<'a, 'q>> {
        Head::words("verdict").cells(|row: &ValueRow<'a, '_>| {
            let change = self.change(row);
            change.map_or_else(Cell::default, |change| change.verdict_cell())
        })
    }
}

fn name_column<'a, 'q>(head: &str) -> Column<'static, ValueRow<'a, 'q>> {
    Head::words(head).cells(|row: &ValueRow<'_, '_>| Cell::words(&row.name))
}

/// Off, every probe, and the probes that were compared with each other.
fn rows<'a, 'q>(report: &'q WorkloadReport<'a>, state: &State<'a>) -> Vec<ValueRow<'a, 'q>> {
    let row = |name: &str, case, off, of_two| ValueRow {
        name: line(name),
        quantity: &report.headline,
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
            let compared = report.change(&report.headline, one.case, off);
            let name = format!("{} against {}", one.variant, other.variant);
            rows.extend(compared.map(|_| row(&name, one.case, off, true)));
        }
    }
    rows
}

/// A table of CPU time and one of each rate, for all states that differ in `over` alone.
pub(crate) fn along(report: &WorkloadReport<'_>, over: &str) -> Vec<Table> {
    let along = report.along(over).into_iter().map(|along| {
        let (quantity, scale) = (along.quantity, &along.scale);
        let place = |state: &&State<'_>| Cell::words(line(state.factors[over]));
        let off = |state: &&State<'_>| {
            state
                .off
                .map_or_else(Cell::default, |off| quantity.cell(off, scale))
        };
        let mut columns = vec![
            Head::words(line(over)).cells(place),
            Head::number(OFF).cells(off),
        ];
        for variant in report.states.variants() {
            // The value with a probe, and the change: `45.5 more +44.4 % [+44.2, +44.6]`.
            let changed = move |state: &&State<'_>| {
                let Some(probed) = state.probed(variant) else {
                    return Cell::default();
                };
                let change = report.change(quantity, probed.case, state.off);
                match (quantity.value(probed.case), change) {
                    (Some(value), Some(change)) => {
                        let cell = change.cell();
                        let text = format!("{}  {}", scale.plain(value), cell.text);
                        Cell { text, ..cell }
                    }
                    _ => no_result(probed.case),
                }
            };
            columns.push(Head::number(line(variant)).cells(changed));
        }
        let (name, over, unit) = (&quantity.name, line(over), &scale.unit);
        Table {
            title: heading(&format!("{name} by {over}, {unit}{}", along.apart)),
            ..Table::new(columns, &along.states)
        }
    });
    along.collect()
}

/// The cell of a case without a value, or without a comparison.
pub(crate) fn no_result(case: &CaseRecord) -> Cell {
    let (word, tone) = cost::no_result(case.status);
    Cell::words(word).toned(tone)
}
