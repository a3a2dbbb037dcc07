//! Cases that span a grid as one table: the net cost of each, cheapest row first.

use std::{cmp::Ordering, collections::BTreeSet};

use crate::{
    absent::{self, mark},
    cost::{CostText, NOTHING},
    figure,
    section::{Detail, Figures, Section},
    style::Tone,
    table::{self, Head, Table},
    target, words,
};
use bpfcost_model::Grid;
use bpfcost_record::{CaseRecord, Cells, Cost, Record, Status};
use bpfcost_text::{self, number};

/// A record's cases as rows and columns, as text.
#[derive(Debug)]
pub struct GridTable<'a> {
    /// What the text was made from.
    pub record: &'a Record,
    /// What spans it.
    pub grid: &'a Grid,
    /// The headings of columns.
    pub columns: Vec<String>,
    /// The rows, cheapest first.
    pub rows: Vec<GridRow<'a>>,
    /// The rows of which nothing can run here, with the reason.
    pub absent: Vec<(String, String)>,
    /// Why cells have no number; each is marked where it holds.
    pub footnotes: Vec<String>,
}

/// One row.
#[derive(Debug)]
pub struct GridRow<'a> {
    /// Its name.
    pub name: String,
    /// The case that is taken off all its cells.
    pub floor: String,
    /// A cell a column.
    pub cells: Vec<GridCell<'a>>,
}

/// One cell.
#[derive(Debug)]
pub struct GridCell<'a> {
    /// What was measured; `None` where it was no part of the run.
    pub case: Option<&'a CaseRecord>,
    /// What it costs.
    pub cost: Option<Cost>,
    /// The same as text.
    pub text: CostText,
    /// The place of the footnote that says why there is no number.
    pub footnote: Option<usize>,
}

impl<'a> GridTable<'a> {
    /// The table of a record; `None` where its cases span none.
    pub fn new(record: &'a Record) -> Option<Self> {
        let cells = record.cells()?;
        let mut grid_table = GridTable {
            record,
            grid: cells.grid,
            columns: cells
                .columns
                .iter()
                .map(|name| bpfcost_text::line(name))
                .collect(),
            rows: Vec::new(),
            absent: Vec::new(),
            footnotes: Vec::new(),
        };
        let names = cells.rows.iter();
        let mut rows: Vec<GridRow<'_>> = names.map(|name| row(name, &cells, record)).collect();
        rows.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
        for mut row in rows {
            let mut there = row.cells.iter().filter_map(|cell| cell.case);
            if there.all(|case| case.status == Status::Unsupported) {
                let mut reasons = row
                    .cells
                    .iter()
                    .filter_map(|cell| cell.case?.reason.as_deref());
                let why = reasons.next().map(bpfcost_text::line).unwrap_or_default();
                grid_table.absent.push((row.name, why));
                continue;
            }
            for cell in &mut row.cells {
                let why = cell.text.why.as_deref();
                cell.footnote = why.map(|why| absent::footnote(&mut grid_table.footnotes, why));
            }
            grid_table.rows.push(row);
        }
        Some(grid_table)
    }

    fn cells(&self) -> impl Iterator<Item = &GridCell<'a>> {
        self.rows.iter().flat_map(|row| &row.cells)
    }

    /// Whether its rows are about events of different kinds.
    fn floors_differ(&self) -> bool {
        let mut pairs = self.rows.windows(2);
        pairs.any(|pair| pair[0].floor != pair[1].floor)
    }

    /// What has no number, and why, one line each.
    fn notes(&self) -> Vec<String> {
        let places = self.cells().filter_map(|cell| cell.footnote);
        absent::notes(&self.absent, &self.footnotes, places)
    }

    /// What leads a view.
    pub(crate) fn sections(&self, detail: Detail) -> Vec<Section> {
        let table = self.table(detail);
        let identity = [
            words::reading_caption(self.record),
            words::session_caption(self.record),
            target::identity(self.record),
        ];
        let identity = identity.into_iter().flatten();
        let remedies = absent::remedies(&self.absent);
        let caption = vec![self.caption()];
        if detail == Detail::Page {
            let below = self.notes().into_iter().chain(remedies).chain(identity);
            let figures = Figures {
                title: "Costs".to_owned(),
                key: figure::grid::KEY.to_owned(),
                caption: self.caption(),
                figures: vec![figure::grid::render(self).into()],
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
        let notes = remedies
            .into_iter()
            .map(|text| table::Note::new(Tone::Quiet, text));
        vec![Section::Table(Table {
            notes: table.notes.into_iter().chain(notes).collect(),
            captions: caption.into_iter().chain(unit).chain(identity).collect(),
            ..table
        })]
    }

    /// The table, with what has no number and why.
    pub fn table(&self, detail: Detail) -> Table {
        let quiet = |text: &str| table::Cell::words(text).toned(Tone::Quiet);
        let corner = Head::words(format!("net, {}", self.record.unit));
        let mut columns = vec![corner.of(|row: &GridRow<'_>| table::Cell::words(&row.name))];
        for (place, column) in self.columns.iter().enumerate() {
            let texts = move |row: &GridRow<'_>| row.cells[place].texts(self.record, detail);
            let spread = Head::words(words::spread_heading(self.record.unit)).joined();
            columns.push(Head::number(column.clone()).of(move |row: &GridRow<'_>| {
                let cell = &row.cells[place];
                let cost = cell.cost.map(|cost| cost.value);
                table::Cell::keyed(texts(row).0, cost).toned(cell.text.tone)
            }));
            columns.push(spread.of(move |row: &GridRow<'_>| {
                let low = row.cells[place].cost.and_then(|cost| Some(cost.ends?[0]));
                table::Cell::keyed(texts(row).1, low).toned(Tone::Quiet)
            }));
        }
        let note = self
            .grid
            .note
            .as_ref()
            .map_or("", |note| note.prefix.trim_end_matches('_'));
        columns.push(
            Head::words(bpfcost_text::line(note))
                .kept()
                .of(|row: &GridRow<'_>| quiet(&row.note())),
        );
        let floors = self.floors_differ() && detail != Detail::Brief;
        columns.push(
            Head::words("floor")
                .kept()
                .of(|row: &GridRow<'_>| quiet(&row.floor))
                .only(floors),
        );
        let notes = self.notes().into_iter();
        Table {
            title: match detail {
                Detail::Page => "All cells".to_owned(),
                _ => String::new(),
            },
            notes: notes
                .map(|note| table::Note::new(Tone::Quiet, note))
                .collect(),
            ..Table::of(columns, &self.rows)
        }
    }

    /// What the numbers are.
    pub fn caption(&self) -> String {
        let (record, grid) = (self.record, self.grid);
        let counted = record.unit.is_counted();
        let net = bpfcost_text::line(&grid.net);
        let any = |test: &dyn Fn(&CostText) -> bool| self.cells().any(|cell| test(&cell.text));
        let parts = [
            (
                true,
                format!(
                    "Costs are net, in {}: {net}. Sorted by the first column.",
                    record.unit
                ),
            ),
            (self.floors_differ(), bpfcost_text::line(&grid.floors)),
            (
                counted && any(&|text| !text.range.is_empty()),
                "a–b: the count differs between loads, from a to b.".to_owned(),
            ),
            (!counted, "±: half of the 95\u{A0}% interval.".to_owned()),
            (
                any(&|text| text.value == NOTHING),
                format!("{NOTHING}: not distinguishable from its floor."),
            ),
            (any(&|text| !text.note.is_empty()), note_caption(grid)),
        ];
        let parts = parts.into_iter().filter(|part| part.0).map(|part| part.1);
        parts.collect::<Vec<_>>().join(" ")
    }
}

/// What stands beside the costs of a row.
pub fn note_caption(grid: &Grid) -> String {
    let note = grid.note.as_ref();
    note.map_or_else(String::new, |note| {
        let heading = note.prefix.trim_end_matches('_');
        bpfcost_text::line(&format!("{heading}: {}.", note.about))
    })
}

impl GridRow<'_> {
    /// What its cells say beside their costs, each once.
    fn note(&self) -> String {
        let notes = self.cells.iter().map(|cell| cell.text.note.as_str());
        let notes: BTreeSet<&str> = notes.filter(|note| !note.is_empty()).collect();
        Vec::from_iter(notes).join(", ")
    }
}

impl GridCell<'_> {
    /// The number, and how far it is open: half the interval where there is little room, else both ends. A count has
    /// the range that it takes over loads; a document shows that in place of it.
    fn texts(&self, record: &Record, detail: Detail) -> (String, String) {
        let (text, counted) = (&self.text, record.unit.is_counted());
        let spread = if counted || matches!(detail, Detail::Full | Detail::Page) {
            &text.range
        } else {
            &text.width
        };
        if counted && detail == Detail::Document && !spread.is_empty() {
            (spread.clone(), String::new())
        } else {
            (
                format!("{}{}", text.value, mark(self.footnote)),
                spread.clone(),
            )
        }
    }
}

fn row<'a>(name: &str, cells: &Cells<'a>, record: &'a Record) -> GridRow<'a> {
    let cell = |column: &&str| {
        let case = cells.at((name, column));
        GridCell {
            case,
            cost: case.and_then(|case| record.cost(case)),
            text: case.map_or_else(CostText::default, |case| CostText::new(case, record)),
            footnote: None,
        }
    };
    let cells: Vec<GridCell<'a>> = cells.columns.iter().map(cell).collect();
    let floor = cells.iter().find_map(|cell| cell.case?.floor.as_deref());
    GridRow {
        name: bpfcost_text::line(name),
        floor: bpfcost_text::line(floor.unwrap_or_default()),
        cells,
    }
}

/// What a row sorts by: the first cell that has a cost.
fn order(row: &GridRow<'_>) -> (usize, f64) {
    let costs = row.cells.iter().map(|cell| cell.cost).enumerate();
    let mut costs = costs.filter_map(|(place, cost)| Some((place, cost?.value)));
    costs.next().unwrap_or((usize::MAX, 0.0))
}

/// The cheapest and the most expensive way, in a sentence without its full stop; `None` where no cell has a
/// number.
pub fn sentence(grid_table: &GridTable<'_>) -> Option<String> {
    let record = grid_table.record;
    let column = |at: usize| -> Vec<(&GridRow<'_>, Cost)> {
        let rows = grid_table.rows.iter();
        let mut costs: Vec<_> = rows
            .filter_map(|row| Some((row, row.cells[at].cost?)))
            .collect();
        costs.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
        costs
    };
    let at = (0..grid_table.columns.len()).find(|at| !column(*at).is_empty())?;
    let costs = column(at);
    let named = |(row, cost): &(&GridRow<'_>, Cost)| {
        if row.cells[at].text.value == NOTHING {
            return format!("{NOTHING} ({})", row.name);
        }
        let ci95 = cost.ends.filter(|_| !record.unit.is_counted());
        let decimals = words::decimals(cost.value, ci95, record.unit).min(1);
        let value = number::fixed(cost.value, decimals);
        format!("{value} {} ({})", record.unit, row.name)
    };
    let start = format!(
        "{} on {}: with {} {}",
        bpfcost_text::line(&record.experiment),
        target::label(record),
        bpfcost_text::line(&grid_table.grid.columns),
        grid_table.columns[at]
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
