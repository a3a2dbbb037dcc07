//! Cases that span a grid as one table: what each way costs by itself, cheapest first.

use crate::{
    experiment::Grid,
    record::{CaseRecord, Cells, Cost, Record, Status},
    report::{
        absent,
        block::{self, Block, Head},
        cost::CostText,
        figure,
        matrix::mark,
        number,
        section::{Detail, Figure, Figures, Section},
        style::Tone,
        target, text, words,
    },
};

/// Where the rest is, of a record of which one table shows a part.
pub(in crate::report) const EVERY_CASE: &str = "Every case as measured, floors included, and what differs from what: --verbose, or `bpfcost report`.";

/// A record's cases as rows and columns, as text.
#[derive(Debug)]
pub struct Sheet<'a> {
    /// What the text was made from.
    pub record: &'a Record,
    /// What spans it.
    grid: &'a Grid,
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
            grid: cells.grid,
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

    /// What leads a view.
    pub(super) fn sections(&self, detail: Detail) -> Vec<Section> {
        let mut block = self.block(detail);
        if detail == Detail::Page {
            block.notes.clear();
            block.captions = vec![self.caption()];
            return vec![self.figures(), Section::Table(block)];
        }
        block.captions = absent::remedies(&self.absent);
        block.captions.push(self.caption());
        block.captions.extend(target::unit_caption(self.record));
        block.captions.extend(self.known());
        let more = (detail == Detail::Brief).then(|| EVERY_CASE.to_owned());
        block.captions.extend(more);
        vec![Section::Table(block)]
    }

    /// How far its numbers hold.
    fn known(&self) -> impl Iterator<Item = String> {
        let known = [
            words::session_caption(self.record),
            target::identity(self.record),
        ];
        known.into_iter().flatten()
    }

    /// All cells at one look.
    fn figures(&self) -> Section {
        let below = self
            .notes()
            .into_iter()
            .chain(absent::remedies(&self.absent));
        Section::Figures(Figures {
            title: "What each way costs".to_owned(),
            key: figure::sheet::KEY.to_owned(),
            caption: self.caption(),
            figures: vec![Figure {
                markup: figure::sheet::render(self),
                ..Figure::default()
            }],
            below: below.chain(self.known()).collect(),
            ..Figures::default()
        })
    }

    /// The table, with what has no number and why.
    pub fn block(&self, detail: Detail) -> Block {
        let counted = self.record.unit.is_counted();
        let spread = || Head::words(words::spread_heading(self.record.unit)).joined();
        let columns = self.columns.iter();
        let columns = columns.flat_map(|column| [Head::number(column.clone()), spread()]);
        let floors = self.floors_differ().then(|| Head::words("floor").spare());
        let row = |row: &Row<'_>| {
            let cells = row
                .cells
                .iter()
                .flat_map(|cell| cell.texts(counted, detail));
            let floor = block::Cell::words(row.floor.clone()).toned(Tone::Quiet);
            std::iter::once(block::Cell::words(row.name.clone()))
                .chain(cells)
                .chain(floors.as_ref().map(|_| floor))
                .collect()
        };
        let quiet = |note| block::Note::new(Tone::Quiet, note);
        Block {
            title: match detail {
                Detail::Page => "All cells".to_owned(),
                _ => String::new(),
            },
            rows: self.rows.iter().map(row).collect(),
            head: std::iter::once(Head::words(self.corner.clone()))
                .chain(columns)
                .chain(floors)
                .collect(),
            notes: self.notes().into_iter().map(quiet).collect(),
            ..Block::default()
        }
    }

    /// What the numbers are.
    pub fn caption(&self) -> String {
        let record = self.record;
        let grid = self.grid;
        let mut caption = format!(
            "Every number is net, in {}: {}. Sorted by the first column.",
            record.unit,
            text::line(&grid.net)
        );
        if self.floors_differ() {
            caption += &format!(" {}", text::line(&grid.floors));
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
            caption += " ≈ 0: not told from its floor.";
        }
        caption
    }
}

impl Cell<'_> {
    /// The number, and how far it is open: half the interval where there is little room, else both ends. A count has
    /// the range that it takes over loads; a document shows that in place of it.
    fn texts(&self, counted: bool, detail: Detail) -> [block::Cell; 2] {
        let text = &self.text;
        let spread = match counted || matches!(detail, Detail::Full | Detail::Page) {
            true => &text.range,
            false => &text.width,
        };
        let (value, spread) = match counted && detail == Detail::Document && !spread.is_empty() {
            true => (spread.clone(), String::new()),
            false => (
                format!("{}{}", text.value, mark(self.footnote)),
                spread.clone(),
            ),
        };
        let cell = |text, key, tone| block::Cell { text, key, tone };
        [
            cell(value, self.cost.map(|cost| cost.value), text.tone),
            cell(
                spread,
                self.cost.and_then(|cost| Some(cost.ends?[0])),
                Tone::Quiet,
            ),
        ]
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

/// Which way is the cheapest and which the dearest, in a sentence without its end; `None` where no cell has a
/// number.
pub fn sentence(sheet: &Sheet<'_>) -> Option<String> {
    let record = sheet.record;
    let column = |at: usize| -> Vec<(&Row<'_>, Cost)> {
        let rows = sheet.rows.iter();
        rows.filter_map(|row| Some((row, row.cells.get(at)?.cost?)))
            .collect()
    };
    let at = (0..sheet.columns.len()).find(|at| !column(*at).is_empty())?;
    let mut costs = column(at);
    costs.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let (first, last) = (costs.first()?, costs.last()?);
    let named = |(row, cost): &(&Row<'_>, Cost)| {
        let ci95 = cost.ends.filter(|_| !record.unit.is_counted());
        let decimals = words::decimals(cost.value, ci95, record.unit).min(1);
        let value = number::fixed(cost.value, decimals);
        format!("{}, {value} {}", row.name, record.unit)
    };
    let start = format!(
        "{} on {}: with {} {}",
        text::line(&record.experiment),
        target::label(record),
        text::line(&record.cells()?.grid.columns),
        sheet.columns[at]
    );
    let alike = |other: &&(&Row<'_>, Cost)| match (first.1.ends, other.1.ends) {
        (Some([_, high]), Some([low, _])) => low <= high,
        _ => false,
    };
    let times = last.1.value / first.1.value;
    let times = match times.is_finite() && times >= 1.5 && first.1.value > 0.0 {
        true => format!(
            ", {} times as much",
            number::fixed(times, usize::from(times < 9.95))
        ),
        false => String::new(),
    };
    let cheapest = match costs[1..].iter().take_while(alike).count() {
        0 if costs.len() == 1 => return Some(format!("{start} {}", named(first))),
        0 => format!("the cheapest of {} is {}", costs.len(), named(first)),
        more => format!(
            "the cheapest of {} are {} that are not told apart ({})",
            costs.len(),
            more + 1,
            named(first)
        ),
    };
    Some(match alike(&last) {
        true => format!("{start} {cheapest}"),
        false => format!("{start} {cheapest}; the dearest is {}{times}", named(last)),
    })
}
