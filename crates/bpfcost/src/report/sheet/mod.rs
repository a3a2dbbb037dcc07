//! A record whose cases span a grid as one table: what each way costs by itself, cheapest first.

mod markdown;
mod summary;
mod table;

pub use self::{markdown::render as markdown, summary::sentence, table::render as table};
use crate::{
    record::{CaseRecord, Cells, Cost, Record, Status},
    report::{absent, cost::CostText, matrix::mark, style::Tone, target, text, words},
};

/// A record's cases as rows and columns, as text.
#[derive(Debug)]
pub struct Sheet<'a> {
    /// What the text was made from.
    pub record: &'a Record,
    /// The heading above the names of rows: what the numbers are.
    pub corner: String,
    /// The headings of columns.
    pub columns: Vec<String>,
    /// The rows, cheapest first.
    pub rows: Vec<Row<'a>>,
    /// The rows of which nothing can run here, with the reason.
    pub absent: Vec<(String, String)>,
    /// Why cells have no number; each is marked where it holds.
    pub footnotes: Vec<String>,
}

/// One row.
#[derive(Debug)]
pub struct Row<'a> {
    /// Its name.
    pub name: String,
    /// The case that is taken off all its cells.
    pub floor: String,
    /// A cell a column.
    pub cells: Vec<Cell<'a>>,
}

/// One cell.
#[derive(Debug)]
pub struct Cell<'a> {
    /// What was measured; `None` where it was no part of the run.
    pub case: Option<&'a CaseRecord>,
    /// What it costs.
    pub cost: Option<Cost>,
    /// The same as text.
    pub text: CostText,
    /// The place of the footnote that says why there is no number.
    pub footnote: Option<usize>,
}

impl<'a> Sheet<'a> {
    /// The table of a record; `None` where its cases span none.
    pub fn new(record: &'a Record) -> Option<Self> {
        let cells = record.cells()?;
        let mut sheet = Sheet {
            record,
            corner: format!("net, {}", record.unit),
            columns: cells.columns.iter().map(|name| text::line(name)).collect(),
            rows: Vec::new(),
            absent: Vec::new(),
            footnotes: Vec::new(),
        };
        let mut rows: Vec<Row<'_>> = cells
            .rows
            .iter()
            .map(|name| row(name, &cells, record))
            .collect();
        rows.sort_by(|a, b| {
            order(a)
                .partial_cmp(&order(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        for mut row in rows {
            let mut there = row.cells.iter().filter_map(|cell| cell.case);
            if there.all(|case| case.status == Status::Unsupported) {
                let why = row.cells.iter().find_map(|cell| cell.text.why.clone());
                sheet.absent.push((row.name, why.unwrap_or_default()));
                continue;
            }
            for cell in &mut row.cells {
                cell.footnote = note(cell, &mut sheet.footnotes);
            }
            sheet.rows.push(row);
        }
        Some(sheet)
    }

    /// Whether its rows are about events of different kinds.
    pub fn floors_differ(&self) -> bool {
        self.rows
            .windows(2)
            .any(|pair| pair[0].floor != pair[1].floor)
    }

    /// What has no number, and why, one line each.
    pub fn notes(&self) -> Vec<String> {
        let footnotes = self.footnotes.iter().enumerate();
        let footnotes = footnotes.map(|(place, note)| format!("{} {note}", mark(Some(place))));
        absent::reasons(&self.absent)
            .into_iter()
            .chain(footnotes)
            .collect()
    }

    /// Where the rows run that can't run here.
    pub fn ways_out(&self) -> Vec<String> {
        absent::remedies(&self.absent)
    }

    /// Where the rows run that can't run here, and what to know to read the others.
    pub fn captions(&self) -> Vec<String> {
        let below = [
            target::unit_caption(self.record),
            words::session_caption(self.record),
            target::identity(self.record),
        ];
        self.ways_out()
            .into_iter()
            .chain([self.caption()])
            .chain(below.into_iter().flatten())
            .collect()
    }

    /// What the numbers are.
    pub fn caption(&self) -> String {
        let record = self.record;
        let mut caption = format!(
            "Every number is net, in {}: what an event costs with the program attached, less what it costs \
             without (its floor). Sorted by the first column.",
            record.unit
        );
        if self.floors_differ() {
            caption += " Rows with different floors are of different events: nets can be held against each \
                        other, but a program can't always choose its event.";
        }
        let any = |found: &dyn Fn(&CostText) -> bool| {
            let mut cells = self.rows.iter().flat_map(|row| &row.cells);
            cells.any(|cell| found(&cell.text))
        };
        if record.unit.is_counted() && any(&|text| !text.range.is_empty()) {
            caption += " a–b: the count goes by the load, from a to b.";
        }
        if !record.unit.is_counted() {
            caption += " ±: half of the 95\u{A0}% interval.";
        }
        if any(&|text| text.value.starts_with('≈')) {
            caption += " ≈ 0: not told from the event alone.";
        }
        caption
    }
}

fn row<'a>(name: &str, cells: &Cells<'a>, record: &'a Record) -> Row<'a> {
    let cell = |column: &&str| {
        let case = cells.at((name, column));
        Cell {
            case,
            cost: case.and_then(|case| record.cost(case)),
            text: case
                .map(|case| CostText::new(case, record))
                .unwrap_or_default(),
            footnote: None,
        }
    };
    let cells: Vec<Cell<'a>> = cells.columns.iter().map(cell).collect();
    let floor = cells
        .iter()
        .find_map(|cell| cell.case?.floor.as_deref())
        .unwrap_or_default();
    Row {
        name: text::line(name),
        floor: text::line(floor),
        cells,
    }
}

/// What a row sorts by: the first cell that has a cost.
fn order(row: &Row<'_>) -> (usize, f64) {
    let costs = row.cells.iter().map(|cell| cell.cost);
    let first = costs
        .enumerate()
        .find_map(|(place, cost)| Some((place, cost?.value)));
    first.unwrap_or((usize::MAX, 0.0))
}

fn note(cell: &Cell<'_>, footnotes: &mut Vec<String>) -> Option<usize> {
    let why = cell.text.why.as_deref()?;
    // The way out belongs to rows of which nothing runs.
    let why = match cell.text.tone {
        Tone::Quiet => absent::parted(why).0,
        _ => why,
    };
    let place = footnotes.iter().position(|note| note == why);
    Some(place.unwrap_or_else(|| {
        footnotes.push(why.to_owned());
        footnotes.len() - 1
    }))
}
