//! Cases that span a grid as one table: the net cost of each, cheapest row first.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeSet};

use crate::{
    absent, captions,
    case_table::{CaseCell, CaseTable, CellRow, ColumnHead, cost_columns},
    cost::{self, CostText, NOTHING},
    estimate,
    figure::heat,
    rows::RowGroup,
    section::{Detail, Figures, Section},
    style::Tone,
    table::{Cell, Head, Note, Table},
    target,
};
use bpfcost_model::Grid;
use bpfcost_record::{Cost, Record, Status};
use bpfcost_text::{line, number};

/// A record's cases as rows and columns, as text.
#[derive(Debug)]
pub struct GridTable<'a> {
    /// Source of the text.
    pub record: &'a Record,
    /// Factors whose values are rows and columns.
    pub grid: &'a Grid,
    /// Cells, in one group, the cheapest row first.
    pub table: CaseTable<'a>,
}

impl<'a> GridTable<'a> {
    /// Returns the table of a record; `None` where its cases span none.
    pub fn new(record: &'a Record) -> Option<Self> {
        let cells = record.cells()?;
        let head = |name: &&str| ColumnHead {
            label: line(name),
            unit: record.unit.to_string(),
            against: None,
        };
        let row = |name: &&str| {
            let case = |column: &&str| cells.at((name, column)).map(Cow::Borrowed);
            let cell = |column: &&str| CaseCell::new(case(column), record);
            let cells = cells.columns.iter().map(cell).collect();
            let name = line(name);
            CellRow { name, cells }
        };
        let mut rows: Vec<CellRow<'a>> = cells.rows.iter().map(row).collect();
        rows.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
        let (name, none) = (String::new(), Vec::new());
        let mut table = CaseTable {
            heads: cells.columns.iter().map(head).collect(),
            groups: vec![RowGroup { name, rows: none }],
            ..CaseTable::default()
        };
        for row in rows {
            let cases = || row.cells.iter().filter_map(|cell| cell.case.as_deref());
            if cases().all(|case| case.status == Status::Unsupported) {
                let reason = cases().find_map(|case| case.reason.as_deref());
                let reason = reason.map(line).unwrap_or_default();
                table.absent.push((row.name, reason));
            } else {
                table.push(0, row);
            }
        }
        Some(GridTable {
            record,
            grid: cells.grid,
            table,
        })
    }

    /// The rows, cheapest first.
    pub fn rows(&self) -> &[CellRow<'a>] {
        &self.table.groups[0].rows
    }

    /// Returns true if rows are about events of different kinds.
    fn floors_differ(&self) -> bool {
        let mut pairs = self.rows().windows(2);
        pairs.any(|pair| pair[0].floor() != pair[1].floor())
    }

    fn notes(&self) -> Vec<String> {
        self.table.notes(&self.table.groups)
    }

    /// The first sections of a view.
    pub(crate) fn sections(&self, detail: Detail) -> Vec<Section> {
        let table = self.table(detail);
        let identity = [
            captions::reading(self.record),
            captions::session(self.record),
            target::identity(self.record),
        ];
        let identity = identity.into_iter().flatten();
        let remedies = absent::remedies(&self.table.absent);
        let caption = vec![self.caption()];
        if detail == Detail::Page {
            let below = self.notes().into_iter().chain(remedies).chain(identity);
            let figures = Figures {
                title: "Costs".to_owned(),
                key: heat::COSTS_KEY.to_owned(),
                caption: self.caption(),
                figures: vec![heat::costs(&self.table).into()],
                below: below.collect(),
                ..Figures::default()
            };
            let table = Table {
                notes: Vec::new(),
                captions: caption,
                ..table
            };
            return vec![Section::Figures(figures), Section::Table(table)];
        }
        let unit = target::unit_caption(self.record);
        let remedies = remedies
            .into_iter()
            .map(|text| Note::new(Tone::Quiet, text));
        vec![Section::Table(Table {
            notes: table.notes.into_iter().chain(remedies).collect(),
            captions: caption.into_iter().chain(unit).chain(identity).collect(),
            ..table
        })]
    }

    /// Returns the table, with the cells that have no number, and why, as notes.
    pub fn table(&self, detail: Detail) -> Table {
        let unit = self.record.unit;
        let quiet = |text: String| Cell::words(text).toned(Tone::Quiet);
        let corner = Head::words(format!("net, {unit}"));
        let mut columns = vec![corner.cells(|row: &CellRow<'_>| Cell::words(&row.name))];
        for (at, head) in self.table.heads.iter().enumerate() {
            let heads = [
                Head::number(&head.label),
                Head::words(cost::spread_heading(unit)),
            ];
            let texts = move |cell: &CaseCell<'_>| texts(cell, self.record, detail);
            columns.extend(cost_columns(at, heads, texts));
        }
        let note = self.grid.note.as_ref();
        let note = note.map_or("", |note| note.prefix.trim_end_matches('_'));
        let floors = self.floors_differ() && detail != Detail::Brief;
        columns.extend([
            Head::words(line(note))
                .adjacent()
                .cells(|row: &CellRow<'_>| quiet(remarks(row))),
            Head::words("floor")
                .adjacent()
                .cells(|row: &CellRow<'_>| quiet(row.floor()))
                .only(floors),
        ]);
        let notes = self.notes().into_iter();
        Table {
            title: match detail {
                Detail::Page => "All cells".to_owned(),
                _ => String::new(),
            },
            notes: notes.map(|note| Note::new(Tone::Quiet, note)).collect(),
            ..Table::new(columns, self.rows())
        }
    }

    /// Returns the definition of the costs, and of the marks beside them.
    pub fn caption(&self) -> String {
        let (record, grid) = (self.record, self.grid);
        let counted = record.unit.is_counted();
        let net = line(&grid.net);
        let cells = || self.rows().iter().flat_map(|row| &row.cells);
        let any = |test: &dyn Fn(&CostText) -> bool| cells().any(|cell| test(&cell.text));
        let parts = [
            (
                true,
                format!(
                    "Costs are net, in {}: {net}. Sorted by the first column.",
                    record.unit
                ),
            ),
            (self.floors_differ(), line(&grid.floors)),
            (
                counted && any(&|text| !text.range.is_empty()),
                "a–b: the count differs between loads, from a to b.".to_owned(),
            ),
            (!counted, "±: half of the 95\u{A0}% interval.".to_owned()),
            (
                any(&|text| text.value == NOTHING),
                format!("{NOTHING}: not distinguishable from its floor."),
            ),
            (self.table.has_remarks(), note_caption(grid)),
        ];
        let parts = parts.into_iter().filter(|part| part.0).map(|part| part.1);
        parts.collect::<Vec<_>>().join(" ")
    }
}

/// Definition of the remarks beside costs.
pub fn note_caption(grid: &Grid) -> String {
    let note = grid.note.as_ref();
    note.map_or_else(String::new, |note| {
        let heading = note.prefix.trim_end_matches('_');
        line(&format!("{heading}: {}.", note.about))
    })
}

/// The remarks of a row's cells, each once.
fn remarks(row: &CellRow<'_>) -> String {
    let remarks = row.cells.iter().map(|cell| cell.text.note.as_str());
    let remarks: BTreeSet<&str> = remarks.filter(|remark| !remark.is_empty()).collect();
    Vec::from_iter(remarks).join(", ")
}

/// The number, and its uncertainty: half the interval where there is little room, else both ends. A count has the
/// range that it takes over loads; in a document the range replaces it.
fn texts(cell: &CaseCell<'_>, record: &Record, detail: Detail) -> (String, String) {
    let (text, counted) = (&cell.text, record.unit.is_counted());
    let spread = if counted || matches!(detail, Detail::Full | Detail::Page) {
        text.range.clone()
    } else {
        text.width.clone()
    };
    if counted && detail == Detail::Document && !spread.is_empty() {
        (spread, String::new())
    } else {
        (cell.marked(), spread)
    }
}

/// Key by which rows are sorted: the first cell that has a cost.
fn order(row: &CellRow<'_>) -> (usize, f64) {
    let costs = row.cells.iter().map(|cell| cell.cost).enumerate();
    let mut costs = costs.filter_map(|(place, cost)| Some((place, cost?.value)));
    costs.next().unwrap_or((usize::MAX, 0.0))
}

/// The cheapest and the most expensive row, in a sentence without its full stop; `None` where no cell has a number.
pub fn sentence(grid_table: &GridTable<'_>) -> Option<String> {
    let record = grid_table.record;
    let column = |at: usize| -> Vec<(&CellRow<'_>, Cost)> {
        let rows = grid_table.rows().iter();
        let mut costs: Vec<_> = rows
            .filter_map(|row| Some((row, row.cells[at].cost?)))
            .collect();
        costs.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
        costs
    };
    let at = (0..grid_table.table.heads.len()).find(|at| !column(*at).is_empty())?;
    let costs = column(at);
    let named = |(row, found): &(&CellRow<'_>, Cost)| {
        if row.cells[at].text.value == NOTHING {
            return format!("{NOTHING} ({})", row.name);
        }
        let ci95 = found.ends.filter(|_| !record.unit.is_counted());
        let decimals = estimate::decimals(found.value, ci95, record.unit).min(1);
        let value = number::fixed(found.value, decimals);
        format!("{value} {} ({})", record.unit, row.name)
    };
    let start = format!(
        "{} on {}: with {} {}",
        line(&record.experiment),
        target::label(record),
        line(&grid_table.grid.columns),
        grid_table.table.heads[at].label
    );
    let (first, last) = (costs.first()?, costs.last()?);
    Some(match costs.len() {
        1 => format!("{start}, {}", named(first)),
        all => format!(
            "{start}, {all} cases cost from {} to {}",
            named(first),
            named(last)
        ),
    })
}
