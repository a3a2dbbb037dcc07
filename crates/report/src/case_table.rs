//! Cases as a table: a column for each target, or for each value of a grid's second factor.

use std::borrow::Cow;

use crate::{
    absent,
    cost::CostText,
    rows::RowGroup,
    style::Tone,
    table::{Cell, Column, Head},
};
use bpfcost_record::{CaseRecord, Cost, Difference, Record};
use bpfcost_text::line;

/// Rows of cases under headings.
#[derive(Debug, Default)]
pub struct CaseTable<'a> {
    /// Columns.
    pub heads: Vec<ColumnHead>,
    /// Rows by heading.
    pub groups: Vec<RowGroup<CellRow<'a>>>,
    /// Names of rows that run nowhere, each with the reason; of a grid alone.
    pub absent: Vec<(String, String)>,
    /// Reasons of cells without a number ([`CaseCell::footnote`]).
    pub footnotes: Vec<String>,
}

/// A column.
#[derive(Debug)]
pub struct ColumnHead {
    /// `vm:6.1 (emulated)`, or the value of a factor.
    pub label: String,
    /// `ns/op`.
    pub unit: String,
    /// Index of the column that this one is compared with.
    pub against: Option<usize>,
}

/// A row: a case on every target, or the cases that share a value of a grid's first factor.
#[derive(Debug)]
pub struct CellRow<'a> {
    /// Name, made safe to show.
    pub name: String,
    /// A cell for each column.
    pub cells: Vec<CaseCell<'a>>,
}

/// A case in a column.
#[derive(Debug, Default)]
pub struct CaseCell<'a> {
    /// Result of the case; `None` where it was no part of the run.
    pub case: Option<Cow<'a, CaseRecord>>,
    /// Cost in numbers.
    pub cost: Option<Cost>,
    /// Cost as text, or a word for why there is none.
    pub text: CostText,
    /// Index into [`CaseTable::footnotes`] of the reason that there is no number.
    pub footnote: Option<usize>,
    /// Difference from the column that this one is compared with.
    pub difference: Option<Difference>,
}

impl<'a> CaseTable<'a> {
    /// The rows of all groups.
    pub fn rows(&self) -> impl Iterator<Item = &CellRow<'a>> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    /// Adds a row to a group, and the reasons of its cells to the footnotes.
    pub(crate) fn push(&mut self, group: usize, mut row: CellRow<'a>) {
        for cell in &mut row.cells {
            let why = cell.text.why.as_deref();
            cell.footnote = why.map(|why| absent::footnote(&mut self.footnotes, why));
        }
        self.groups[group].rows.push(row);
    }

    /// Cells of some groups that have no number, and rows that are absent, with the reason, one line each.
    pub(crate) fn notes(&self, groups: &[RowGroup<CellRow<'a>>]) -> Vec<String> {
        let rows = groups.iter().flat_map(|group| &group.rows);
        let cells = rows.flat_map(|row| &row.cells);
        let places = cells.filter_map(|cell| cell.footnote);
        absent::notes(&self.absent, &self.footnotes, places)
    }

    /// Returns true if a cell has a remark beside its cost.
    pub fn has_remarks(&self) -> bool {
        let mut cells = self.rows().flat_map(|row| &row.cells);
        cells.any(|cell| !cell.text.note.is_empty())
    }
}

impl CellRow<'_> {
    /// The case of the first column that has one.
    pub fn case(&self) -> Option<&CaseRecord> {
        self.cells.iter().find_map(|cell| cell.case.as_deref())
    }

    /// Name of the floor that is subtracted from all cells, made safe to show; may be empty.
    pub fn floor(&self) -> String {
        let mut cases = self.cells.iter().filter_map(|cell| cell.case.as_deref());
        line(
            cases
                .find_map(|case| case.floor.as_deref())
                .unwrap_or_default(),
        )
    }
}

impl<'a> CaseCell<'a> {
    /// The cell of a case; an empty one without a case.
    pub(crate) fn new(case: Option<Cow<'a, CaseRecord>>, record: &Record) -> Self {
        let found = case.as_deref();
        CaseCell {
            cost: found.and_then(|case| record.cost(case)),
            text: found.map_or_else(CostText::default, |case| CostText::new(case, record)),
            case,
            ..CaseCell::default()
        }
    }

    /// The cost, with the mark of its footnote.
    pub fn marked(&self) -> String {
        format!("{}{}", self.text.value, absent::mark(self.footnote))
    }
}

/// The columns of costs and of their spread, for the column of cells at `at`.
pub(crate) fn cost_columns<'f, 'a>(
    at: usize,
    heads: [Head; 2],
    texts: impl Fn(&CaseCell<'_>) -> (String, String) + Copy + 'f,
) -> [Column<'f, CellRow<'a>>; 2] {
    let [cost, spread] = heads;
    [
        cost.cells(move |row: &CellRow<'_>| {
            let cell = &row.cells[at];
            Cell::keyed(texts(cell).0, cell.cost.map(|cost| cost.value)).toned(cell.text.tone)
        }),
        spread.joined().cells(move |row: &CellRow<'_>| {
            let cell = &row.cells[at];
            let low = cell.cost.and_then(|cost| Some(cost.ends?[0]));
            Cell::keyed(texts(cell).1, low).toned(Tone::Quiet)
        }),
    ]
}
