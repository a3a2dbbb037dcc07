//! Several targets in one view: the cost of each case on each, and the differences, by verdict.
//!
//! [`CrossTarget`] decides what is compared with what; here it becomes text, once for all views.

mod captions;
mod changes;
mod grid;
mod summary;
mod view;

pub use self::{changes::changes, summary::sentence, view::view};
use crate::{absent, cost::CostText, rows, style::Tone, target, words};
use bpfcost_model::{Grid, Role};
use bpfcost_record::{
    CrossTarget, CrossTargetCell, CrossTargetColumn, Difference, Record, Reference, VerdictRecord,
    by_experiment,
};
use bpfcost_text::{self, number};

/// Stands where a case was no part of a run.
const ABSENT: &str = "—";

/// One experiment on several targets, as text.
#[derive(Debug)]
pub struct Matrix<'a> {
    /// What the text was made from.
    pub cross_target: CrossTarget<'a>,
    /// The experiment's name.
    pub experiment: String,
    /// The targets.
    pub heads: Vec<MatrixHead>,
    /// The cases by heading.
    pub groups: Vec<MatrixGroup>,
    /// Groups of a short view: of a grid its first column, of curves the usual circumstances.
    short: usize,
    /// The factors whose values are groups and rows, where cases span a grid.
    pub grid: Option<Grid>,
    /// What no target can run, with the reason; of a grid alone.
    pub absent: Vec<(String, String)>,
    /// Why cells have no number; each is marked where it holds.
    pub footnotes: Vec<String>,
}

/// One target.
#[derive(Debug)]
pub struct MatrixHead {
    /// `vm:6.1 (emulated)`.
    pub label: String,
    /// `ns/op`.
    pub unit: String,
    /// The column that it is compared with.
    pub against: Option<usize>,
}

/// The cases of one heading.
#[derive(Debug)]
pub struct MatrixGroup {
    /// The heading.
    pub name: String,
    /// Its cases.
    pub rows: Vec<MatrixRow>,
}

/// One case on every target.
#[derive(Debug)]
pub struct MatrixRow {
    /// Its place in [`CrossTarget::rows`].
    pub index: usize,
    /// The case's name.
    pub name: String,
    /// What it costs on each target.
    pub cells: Vec<CellText>,
}

/// One case on one target.
#[derive(Debug, Default)]
pub struct CellText {
    /// The cost, or why there is none.
    pub text: CostText,
    /// The place of the footnote that says why there is no number.
    pub footnote: Option<usize>,
    /// How it differs from the target that this one is compared with.
    pub difference: Option<DifferenceText>,
}

impl CellText {
    /// The cost, with the mark of its footnote.
    pub fn marked(&self) -> String {
        format!("{}{}", self.text.value, absent::mark(self.footnote))
    }
}

/// Where a row stands.
struct RowPosition {
    /// Its place in [`CrossTarget::rows`].
    index: usize,
    group: String,
    name: String,
}

/// A difference, as text.
#[derive(Clone, Debug)]
pub struct DifferenceText {
    /// What the text was made from.
    pub difference: Difference,
    /// `−4.1 %`.
    pub relative: String,
    /// `[−6.0, −2.1]`; empty for counts.
    pub interval: String,
    /// `costs less`.
    pub verdict: &'static str,
    /// The tone of the verdict.
    pub tone: Tone,
}

/// What is shown of some records: a matrix where an experiment has several targets, and every record.
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
    /// The records of one experiment; `None` where they have fewer than two targets, or are of a workload: what a
    /// server takes is not compared between runs, and each record shows what probes add.
    pub fn new(records: &[&'a Record]) -> Option<Self> {
        if records.iter().any(|record| record.layout.times_windows()) {
            return None;
        }
        let cross_target = CrossTarget::new(records);
        let first = cross_target
            .columns
            .first()
            .filter(|_| cross_target.columns.len() > 1)?;
        let experiment = bpfcost_text::line(&first.record.experiment);
        let grid = first.record.layout.grid();
        let (placed, absent) = grid::placed(&cross_target, grid);
        let mut footnotes = Vec::new();
        let mut groups: Vec<MatrixGroup> = Vec::new();
        let mut short = 0;
        let mut places = std::collections::HashMap::new();
        for placed in placed {
            let case = &cross_target.rows[placed.index];
            // Floors may share a heading with cases, and stand last all the same.
            let apart = apart(&cross_target, placed.index);
            let key = (placed.group.clone(), case.role == Role::Floor, apart);
            let place = *places.entry(key).or_insert_with(|| {
                let name = rows::group_heading(&placed.group, &placed.name);
                let rows = Vec::new();
                groups.push(MatrixGroup { name, rows });
                if !apart {
                    short = groups.len();
                }
                groups.len() - 1
            });
            let cells = case.cells.iter().zip(&cross_target.columns);
            let cells = cells.map(|(cell, column)| cell_text(cell, column.record, &mut footnotes));
            groups[place].rows.push(MatrixRow {
                index: placed.index,
                name: placed.name,
                cells: cells.collect(),
            });
        }
        if grid.is_some() {
            short = groups.len().min(1);
        }
        Some(Matrix {
            heads: cross_target.columns.iter().map(head).collect(),
            experiment,
            short,
            groups,
            grid: grid.cloned(),
            absent,
            footnotes,
            cross_target,
        })
    }

    /// All groups, or those of a short view.
    pub fn shown(&self, all: bool) -> &[MatrixGroup] {
        if all {
            &self.groups
        } else {
            &self.groups[..self.short]
        }
    }

    /// What has no number in a view, and why, one line each.
    pub fn notes(&self, all: bool) -> Vec<String> {
        let rows = self.shown(all).iter().flat_map(|group| &group.rows);
        let cells = rows.flat_map(|row| &row.cells);
        let places = cells.filter_map(|cell| cell.footnote);
        absent::notes(&self.absent, &self.footnotes, places)
    }

    /// The rows of all groups.
    pub fn rows(&self) -> impl Iterator<Item = &MatrixRow> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    /// The differences of the cases (not of floors) in a column.
    pub fn differences(&self, column: usize) -> impl Iterator<Item = Difference> {
        self.cross_target
            .rows
            .iter()
            .filter(|row| row.role == Role::Case)
            .filter_map(move |row| row.cells.get(column)?.difference)
    }
}

/// Whether a row is beside the usual curves: under other circumstances, or a floor of them.
fn apart(cross_target: &CrossTarget<'_>, row: usize) -> bool {
    let row = &cross_target.rows[row];
    let mut cells = row.cells.iter().zip(&cross_target.columns);
    cells.any(
        |(cell, column)| match (cell.case.as_deref(), column.record.layout.scaling()) {
            (Some(case), Some(scaling)) => match case.point(scaling) {
                Some(_) => !case.beside_point(scaling).is_empty(),
                None => case.role == Role::Floor,
            },
            _ => false,
        },
    )
}

fn head(column: &CrossTargetColumn<'_>) -> MatrixHead {
    MatrixHead {
        label: target::label(column.record),
        unit: column.record.unit.to_string(),
        against: match column.against {
            Reference::Column(first) => Some(first),
            Reference::First | Reference::Nothing(_) => None,
        },
    }
}

fn cell_text(cell: &CrossTargetCell<'_>, record: &Record, footnotes: &mut Vec<String>) -> CellText {
    let text = match cell.case.as_deref() {
        Some(case) => CostText::new(case, record),
        None => CostText {
            value: ABSENT.to_owned(),
            tone: Tone::Quiet,
            ..CostText::default()
        },
    };
    let why = text.why.as_deref();
    CellText {
        footnote: why.map(|why| absent::footnote(footnotes, why)),
        text,
        difference: cell.difference.map(difference_text),
    }
}

fn difference_text(difference: Difference) -> DifferenceText {
    let relative = match (difference.relative_ci95, difference.verdict) {
        // Counts that are the same differ at most by what the clock rounds.
        (None, VerdictRecord::Same) => 0.0,
        _ => difference.relative,
    };
    let (relative, interval) = number::change(relative, difference.relative_ci95);
    let (verdict, tone) = words::of_verdict(difference.verdict);
    DifferenceText {
        difference,
        relative,
        interval,
        verdict,
        tone,
    }
}
