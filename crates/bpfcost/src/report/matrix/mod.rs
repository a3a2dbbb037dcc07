//! Several targets in one view: what each case costs on each, and where they differ, by verdict.
//!
//! What is compared with what is decided in [`Across`]; here it becomes text, once for all views.

mod captions;
mod changes;
mod grid;
mod summary;
mod view;

pub use self::{changes::changes, summary::sentence, view::view};
use crate::{
    experiment::{Grid, Role},
    record::{
        Across, Against, CaseAcross, Cell, Difference, Record, Standing, Status, Verdict,
        by_experiment,
    },
    report::{
        absent,
        cost::CostText,
        number::{self, MISSING},
        rows,
        style::Tone,
        target, text,
    },
};

/// Stands where a case was no part of a run.
const ABSENT: &str = "—";

/// One experiment on several targets, as text.
#[derive(Debug)]
pub struct Matrix<'a> {
    /// What the text was made from.
    pub across: Across<'a>,
    /// The experiment's name.
    pub experiment: String,
    /// The targets.
    pub heads: Vec<Head>,
    /// The cases by heading.
    pub groups: Vec<Group>,
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
pub struct Head {
    /// `vm:6.1 (emulated)`.
    pub label: String,
    /// `Linux 6.1.0`.
    pub kernel: String,
    /// `ns/op`.
    pub unit: String,
    /// What its numbers are.
    pub numbers: String,
    /// The column that it is compared with.
    pub against: Option<usize>,
}

/// The cases of one heading.
#[derive(Debug)]
pub struct Group {
    /// The heading.
    pub name: String,
    /// Its cases.
    pub rows: Vec<Row>,
}

/// One case on every target.
#[derive(Debug)]
pub struct Row {
    /// Its place in [`Across::rows`].
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
        format!("{}{}", self.text.value, mark(self.footnote))
    }
}

/// Where a row stands.
struct Placed {
    /// Its place in [`Across::rows`].
    index: usize,
    group: String,
    name: String,
}

impl Placed {
    /// Under its own heading, by its own name.
    fn plain(index: usize, row: &CaseAcross<'_>) -> Self {
        Placed {
            index,
            group: row.group.to_owned(),
            name: text::line(row.name),
        }
    }
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
pub enum Part<'a> {
    /// One experiment on several targets.
    Matrix(Box<Matrix<'a>>, Vec<&'a Record>),
    /// Records of one experiment on one target.
    Alone(Vec<&'a Record>),
}

/// Records by experiment.
pub fn parts(records: &[Record]) -> Vec<Part<'_>> {
    let part = |records: Vec<_>| match Matrix::new(&records) {
        Some(matrix) => Part::Matrix(Box::new(matrix), records),
        None => Part::Alone(records),
    };
    by_experiment(records).into_iter().map(part).collect()
}

impl<'a> Matrix<'a> {
    /// The records of one experiment; `None` where they have fewer than two targets. Nor for a workload: what a server
    /// takes in one run is not compared with what it takes in another, and what probes add is told by each record.
    pub fn new(records: &[&'a Record]) -> Option<Self> {
        if records
            .iter()
            .any(|record| record.layout.workload().is_some())
        {
            return None;
        }
        let across = Across::new(records);
        let first = across
            .columns
            .first()
            .filter(|_| across.columns.len() > 1)?;
        let experiment = text::line(&first.record.experiment);
        let grid = first.record.layout.grid();
        let (placed, absent) = match grid {
            Some(grid) => grid::placed(&across, grid),
            None => {
                let rows = across.rows.iter().enumerate();
                let placed = rows.map(|(index, row)| Placed::plain(index, row));
                let mut placed: Vec<Placed> = placed.collect();
                placed.sort_by_key(|placed| apart(&across, placed.index));
                (placed, Vec::new())
            }
        };
        let mut footnotes = Vec::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut short = 0;
        let mut places = std::collections::HashMap::new();
        for placed in placed {
            let case = &across.rows[placed.index];
            // Floors may share a heading with cases, and stand last all the same.
            let apart = apart(&across, placed.index);
            let place = *places
                .entry((placed.group.clone(), case.role == Role::Floor, apart))
                .or_insert_with(|| {
                    groups.push(Group {
                        name: rows::heading(&placed.group),
                        rows: Vec::new(),
                    });
                    if !apart {
                        short = groups.len();
                    }
                    groups.len() - 1
                });
            let cells = case.cells.iter().zip(&across.columns);
            groups[place].rows.push(Row {
                index: placed.index,
                name: placed.name,
                cells: cells
                    .map(|(cell, column)| cell_text(cell, column.record, &mut footnotes))
                    .collect(),
            });
        }
        Some(Matrix {
            heads: heads(&across),
            experiment,
            short: match grid {
                Some(_) => groups.len().min(1),
                None => short,
            },
            groups,
            grid: grid.cloned(),
            absent,
            footnotes,
            across,
        })
    }

    /// All groups, or those of a short view.
    pub fn shown(&self, all: bool) -> &[Group] {
        match all {
            true => &self.groups,
            false => &self.groups[..self.short],
        }
    }

    /// What has no number in a view, and why, one line each.
    pub fn notes(&self, all: bool) -> Vec<String> {
        let rows = self.shown(all).iter().flat_map(|group| &group.rows);
        let cells = rows.flat_map(|row| &row.cells);
        let mut places: Vec<usize> = cells.filter_map(|cell| cell.footnote).collect();
        places.sort_unstable();
        places.dedup();
        let footnotes = places.into_iter().filter_map(|place| {
            let note = self.footnotes.get(place)?;
            Some(format!("{} {note}", mark(Some(place))))
        });
        absent::reasons(&self.absent)
            .into_iter()
            .chain(footnotes)
            .collect()
    }

    /// The rows of all groups.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    /// The differences of the cases (not of floors) in a column.
    pub fn differences(&self, column: usize) -> impl Iterator<Item = Difference> {
        self.across
            .rows
            .iter()
            .filter(|row| row.role == Role::Case)
            .filter_map(move |row| row.cells.get(column)?.difference)
    }
}

/// Whether a row is beside the usual curves: under other circumstances, or a floor of them.
fn apart(across: &Across<'_>, row: usize) -> bool {
    let row = &across.rows[row];
    let mut found = row.cells.iter().zip(&across.columns);
    found.any(
        |(cell, column)| match (cell.case, column.record.layout.scaling()) {
            (Some(case), Some(scaling)) => match scaling.place(case) {
                Some(_) => !scaling.apart(case).is_empty(),
                None => case.role == Role::Floor,
            },
            _ => false,
        },
    )
}

fn heads(across: &Across<'_>) -> Vec<Head> {
    let head = |column: &Standing<'_>| {
        let record = column.record;
        let emulator = record.machine.emulator.as_deref().map(text::line);
        Head {
            label: target::label(record),
            kernel: target::kernel(record),
            unit: record.unit.to_string(),
            numbers: match (record.unit.is_counted(), emulator) {
                (true, None) => "counted".to_owned(),
                (true, Some(emulator)) => format!("counted in {emulator}"),
                (false, Some(emulator)) if target::is_emulated(record) => {
                    format!("timed in {emulator}")
                }
                (false, Some(guest)) => {
                    format!("timed on {} in {guest}", text::line(&record.machine.cpu))
                }
                (false, None) => format!("timed on {}", text::line(&record.machine.cpu)),
            },
            against: match column.against {
                Against::Column(first) => Some(first),
                Against::First | Against::Nothing(_) => None,
            },
        }
    };
    across.columns.iter().map(head).collect()
}

fn cell_text(cell: &Cell<'_>, record: &Record, footnotes: &mut Vec<String>) -> CellText {
    let Some(case) = cell.case else {
        let text = CostText {
            value: ABSENT.to_owned(),
            tone: Tone::Quiet,
            ..CostText::default()
        };
        return CellText {
            text,
            ..CellText::default()
        };
    };
    let text = CostText::new(case, record);
    // A way out of every cell of a grid would be the same over and over.
    let why = text.why.as_deref().map(|why| match record.layout.grid() {
        Some(_) if case.status == Status::Unsupported => absent::parted(why).0,
        _ => why,
    });
    let footnote = why.map(|why| {
        let place = footnotes.iter().position(|note| note == why);
        place.unwrap_or_else(|| {
            footnotes.push(why.to_owned());
            footnotes.len() - 1
        })
    });
    CellText {
        text,
        footnote,
        difference: cell.difference.map(difference_text),
    }
}

fn difference_text(difference: Difference) -> DifferenceText {
    let percent = match (difference.relative_ci95, difference.verdict) {
        // Counts that are the same differ at most by what the clock rounds.
        (None, Verdict::Same) => 0.0,
        _ => difference.relative * 100.0,
    };
    let ci95 = difference
        .relative_ci95
        .map(|ends| ends.map(|end| end * 100.0));
    let decimals = match (ci95, percent.abs()) {
        (_, 0.0) => 0,
        (Some(_), size) if size < 9.95 => number::estimate_decimals(percent, ci95),
        // As many as leave a digit: one instruction in thousands is a difference.
        (_, size) if size < 0.0095 => 4,
        (_, size) if size < 0.095 => 2,
        _ => 1,
    };
    let relative = match number::signed(percent, decimals).as_str() {
        MISSING => MISSING.to_owned(),
        text => format!("{text}{}%", number::HOLD),
    };
    let (verdict, tone) = match difference.verdict {
        Verdict::Slower => ("costs more", Tone::More),
        Verdict::Faster => ("costs less", Tone::Less),
        Verdict::Same => ("same", Tone::Quiet),
        Verdict::Unresolved => ("unresolved", Tone::Open),
    };
    DifferenceText {
        difference,
        relative,
        interval: ci95.map_or_else(String::new, |ends| {
            let [low, high] = ends.map(|end| number::signed(end, decimals));
            format!("[{low}, {high}]")
        }),
        verdict,
        tone,
    }
}

/// The mark of a footnote: its number, raised.
pub fn mark(footnote: Option<usize>) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = footnote.map_or_else(String::new, |place| (place + 1).to_string());
    digits
        .bytes()
        .filter_map(|digit| RAISED.get(usize::from(digit - b'0')))
        .collect()
}
