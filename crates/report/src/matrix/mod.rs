//! Several targets in one view: the cost of each case on each, and the differences, by verdict.
//!
//! [`CrossTarget`] decides what is compared with what; here it becomes text, once for all views.

mod captions;
mod changes;
mod grid;
mod summary;
mod view;

use std::collections::HashMap;

pub use self::{changes::changes, summary::sentence, view::view};
use crate::{
    case_table::{CaseCell, CaseTable, CellRow, ColumnHead},
    rows::{self, RowGroup},
    style::Tone,
    target,
};
use bpfcost_model::{Grid, Role};
use bpfcost_record::{
    CrossTarget, CrossTargetCell, CrossTargetColumn, CrossTargetRow, Difference, Record, Reference,
    VerdictRecord, by_experiment,
};
use bpfcost_stats::session_spread::SessionSpread;
use bpfcost_text::{line, number};

/// Shown for a case that was no part of a run.
const ABSENT: &str = "—";

/// One experiment on several targets, as text.
#[derive(Debug)]
pub struct Matrix<'a> {
    /// Targets.
    pub columns: Vec<CrossTargetColumn<'a>>,
    /// Cases by heading, with a column for each target.
    pub table: CaseTable<'a>,
    /// The experiment's name.
    pub experiment: String,
    /// Groups of a short view: of a grid its first column, of curves the usual circumstances.
    short: usize,
    /// Factors whose values are groups and rows, where cases span a grid.
    pub grid: Option<Grid>,
    /// Spread between sessions that widened the intervals of times most ([`CrossTarget::session_spread`]).
    pub session_spread: Option<SessionSpread>,
    /// Number of earlier sessions of the same targets, which are left out.
    pub left_out: usize,
}

/// Position of a row, and its name there.
struct RowPosition<'a> {
    row: CrossTargetRow<'a>,
    group: String,
    name: String,
}

/// Records of one experiment, as they are shown: side by side if they have several targets.
#[derive(Debug)]
pub enum ReportPart<'a> {
    /// One experiment on several targets.
    Matrix(Box<Matrix<'a>>, Vec<&'a Record>),
    /// Records of one experiment on one target.
    Alone(Vec<&'a Record>),
}

/// Records by experiment.
pub fn parts(records: &[Record]) -> Vec<ReportPart<'_>> {
    let part = |records: Vec<_>| match Matrix::new(&records) {
        Some(matrix) => ReportPart::Matrix(Box::new(matrix), records),
        None => ReportPart::Alone(records),
    };
    by_experiment(records).into_iter().map(part).collect()
}

impl<'a> Matrix<'a> {
    /// Returns the matrix of one experiment's records. `None` if they have fewer than two targets, or are of a workload:
    /// costs of a server are not compared between runs, and each record shows the costs of its probes.
    pub fn new(records: &[&'a Record]) -> Option<Self> {
        if records.iter().any(|record| record.layout.times_windows()) {
            return None;
        }
        let CrossTarget {
            columns,
            rows,
            session_spread,
            left_out,
        } = CrossTarget::new(records);
        let first = columns.first().filter(|_| columns.len() > 1)?;
        let grid = first.record.layout.grid();
        let (positions, absent) = grid::positions(&columns, rows, grid);
        let mut table = CaseTable {
            heads: columns.iter().map(head).collect(),
            absent,
            ..CaseTable::default()
        };
        let mut short = 0;
        let mut places = HashMap::new();
        for RowPosition { row, group, name } in positions {
            // Floors may share a heading with cases, and stand last all the same.
            let apart = is_apart(&row, &columns);
            let place = (group.clone(), row.role == Role::Floor, apart);
            let place = *places.entry(place).or_insert_with(|| {
                let name = rows::group_heading(&group, &name);
                table.groups.push(RowGroup { name, rows: vec![] });
                if !apart {
                    short = table.groups.len();
                }
                table.groups.len() - 1
            });
            let cells = row.cells.into_iter().zip(&columns);
            let cells = cells
                .map(|(cell, column)| case_cell(cell, column.record))
                .collect();
            table.push(place, CellRow { name, cells });
        }
        if grid.is_some() {
            short = table.groups.len().min(1);
        }
        Some(Matrix {
            experiment: line(&first.record.experiment),
            table,
            short,
            grid: grid.cloned(),
            session_spread,
            left_out,
            columns,
        })
    }

    /// Returns all groups, or those of a short view.
    pub fn groups(&self, all: bool) -> &[RowGroup<CellRow<'a>>] {
        let groups = &self.table.groups;
        if all { groups } else { &groups[..self.short] }
    }

    /// Cells of a view that have no number, with the reason, one line each.
    pub fn notes(&self, all: bool) -> Vec<String> {
        self.table.notes(self.groups(all))
    }

    /// The differences of the cases (not of floors) in a column.
    pub fn differences(&self, column: usize) -> impl Iterator<Item = Difference> {
        let cases = |row: &&CellRow<'_>| row.case().is_some_and(|case| case.role == Role::Case);
        let rows = self.table.rows().filter(cases);
        rows.filter_map(move |row| row.cells.get(column)?.difference)
    }
}

/// Returns true if a row is beside the usual curves: under other circumstances, or a floor of them.
fn is_apart(row: &CrossTargetRow<'_>, columns: &[CrossTargetColumn<'_>]) -> bool {
    let mut cells = row.cells.iter().zip(columns);
    cells.any(|(cell, column)| {
        let layout = &column.record.layout;
        let Some((case, scaling)) = cell.case.as_deref().zip(layout.scaling()) else {
            return false;
        };
        match case.point(scaling) {
            Some(_) => !case.beside_point(scaling).is_empty(),
            None => case.role == Role::Floor,
        }
    })
}

fn head(column: &CrossTargetColumn<'_>) -> ColumnHead {
    ColumnHead {
        label: target::label(column.record),
        unit: column.record.unit.to_string(),
        against: match column.against {
            Reference::Column(first) => Some(first),
            Reference::First | Reference::Nothing(_) => None,
        },
    }
}

fn case_cell<'a>(cell: CrossTargetCell<'a>, record: &Record) -> CaseCell<'a> {
    let difference = cell.difference;
    let mut cell = CaseCell::new(cell.case, record);
    if cell.case.is_none() {
        (cell.text.value, cell.text.tone) = (ABSENT.to_owned(), Tone::Quiet);
    }
    CaseCell { difference, ..cell }
}

/// `−4.1 %` and `[−6.0, −2.1]`; the interval is empty for counts.
pub fn relative(difference: &Difference) -> (String, String) {
    let share = match (difference.relative_ci95, difference.verdict) {
        // Counts that are the same differ at most by the rounding of the clock.
        (None, VerdictRecord::Same) => 0.0,
        _ => difference.relative,
    };
    number::change(share, difference.relative_ci95)
}
