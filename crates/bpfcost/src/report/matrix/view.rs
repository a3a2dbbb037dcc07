//! Several targets side by side as tables and a figure.

use super::{Matrix, changes, sentence};
use crate::{
    record::Status,
    report::{
        block::{Block, Cell, Head},
        figure::heat,
        section::{Detail, Figure, Figures, Problem, Prose, Section, View, tables},
        style::Tone,
        summary, warnings, words,
    },
};

/// What the colours of the figure mean.
const KEY: &str = "<span class=\"key\"><i class=\"k-heat less\"></i> ▼ costs less</span> \
    <span class=\"key\"><i class=\"k-heat more\"></i> ▲ costs more</span> \
    <span class=\"key\"><i class=\"k-heat same\"></i> = the same</span> \
    <span class=\"key\"><i class=\"k-heat open\"></i> ? unresolved</span>";
/// How to read the figure.
const SHADES: &str = "Stronger beyond 1\u{A0}%, 5\u{A0}% and 20\u{A0}%. Targets that are not compared show \
                      what a case costs there.";

/// Several targets side by side. A terminal shows the records in a sentence each; elsewhere they follow in full.
pub fn view(matrix: &Matrix<'_>, detail: Detail) -> View {
    let mut sections = vec![Section::Table(targets(matrix))];
    sections.extend(tables(changes(matrix)));
    if matches!(detail, Detail::Brief | Detail::Page) {
        sections.extend(problems(matrix));
    }
    if detail == Detail::Page {
        sections.push(Section::Figures(figures(matrix)));
    }
    sections.push(Section::Table(costs(matrix, detail)));
    if detail == Detail::Brief {
        sections.extend(records(matrix));
    }
    View {
        title: format!("{} on {} targets", matrix.experiment, matrix.heads.len()),
        summary: sentence(matrix),
        sections,
        ..View::default()
    }
}

/// What each target is.
fn targets(matrix: &Matrix<'_>) -> Block {
    let row = |head: &super::Head| {
        let first = head.against.and_then(|first| matrix.heads.get(first));
        let first = first.map_or_else(String::new, |first| first.label.clone());
        [&head.label, &head.kernel, &first, &head.numbers]
            .map(Cell::words)
            .to_vec()
    };
    Block {
        title: "Targets".to_owned(),
        head: ["target", "kernel", "compared with", "costs are"]
            .map(Head::words)
            .to_vec(),
        rows: matrix.heads.iter().map(row).collect(),
        ..Block::default()
    }
}

/// Every case on every target: what it costs there, how far that is open, and how it differs.
fn costs(matrix: &Matrix<'_>, detail: Detail) -> Block {
    let all = detail != Detail::Brief;
    let mut block = Block {
        title: "Costs".to_owned(),
        head: vec![Head::words("case")],
        captions: matrix.notes(all),
        ..Block::default()
    };
    block.captions.extend(matrix.captions());
    for (head, column) in matrix.heads.iter().zip(&matrix.across.columns) {
        let spread = words::spread_heading(column.record.unit);
        block.head.extend([
            Head::number(format!("{}\n{}", head.label, head.unit)),
            Head::words(spread).joined(),
        ]);
        if let Some(first) = head.against.and_then(|first| matrix.heads.get(first)) {
            block.head.extend([
                Head::number(format!("against\n{}", first.label)).kept(),
                Head::words("95\u{A0}% interval").joined(),
                Head::words("verdict").joined(),
            ]);
        }
    }
    for group in matrix.shown(all) {
        block.groups.push((block.rows.len(), group.name.clone()));
        for row in &group.rows {
            let mut cells = vec![Cell::words(row.name.clone())];
            for column in 0..matrix.heads.len() {
                cells.extend(cell(matrix, row, column, detail));
            }
            block.rows.push(cells);
        }
    }
    block
}

/// One case on one target, in as many columns as the target has.
fn cell(matrix: &Matrix<'_>, row: &super::Row, column: usize, detail: Detail) -> Vec<Cell> {
    let cell = &row.cells[column];
    let record = matrix.across.columns[column].record;
    let case = matrix.across.rows[row.index].cells[column].case;
    let cost = case.and_then(|case| record.cost(case));
    let spread = match detail {
        Detail::Brief | Detail::Document => &cell.text.width,
        Detail::Full => &cell.text.range,
        Detail::Page => &cell.text.spread,
    };
    let keyed = |key: Option<f64>, text: String| Cell {
        key,
        ..Cell::words(text)
    };
    let mut cells = vec![
        keyed(cost.map(|cost| cost.value), cell.marked()).toned(cell.text.tone),
        keyed(cost.and_then(|cost| Some(cost.ends?[0])), spread.clone()).toned(Tone::Quiet),
    ];
    if matrix.heads[column].against.is_some() {
        let found = cell.difference.as_ref();
        let low = found.and_then(|found| Some(found.difference.relative_ci95?[0]));
        cells.extend(found.map_or_else(Default::default, |found| {
            [
                Cell::number(found.relative.clone(), found.difference.relative),
                keyed(low, found.interval.clone()),
                Cell::words(found.verdict).toned(found.tone),
            ]
        }));
    }
    cells
}

/// The cases that are invalid on any target.
fn problems(matrix: &Matrix<'_>) -> Vec<Section> {
    let mut sections = Vec::new();
    for (column, head) in matrix.across.columns.iter().zip(&matrix.heads) {
        let cases = column.record.cases.iter();
        let invalid = cases.filter(|case| case.status == Status::Invalid);
        for (problem, details) in invalid.flat_map(|case| words::invalid_lines(case, column.record))
        {
            let problem = format!("{}: {problem}", head.label);
            sections.push(Section::Problem(Problem { problem, details }));
        }
    }
    sections
}

/// Where targets differ: as many columns a figure as fit, with the target that they are compared with.
fn figures(matrix: &Matrix<'_>) -> Figures {
    let mut figures: Vec<Vec<usize>> = Vec::new();
    for (column, head) in matrix.heads.iter().enumerate() {
        match figures.last_mut() {
            Some(figure) if figure.len() < heat::MOST => figure.push(column),
            _ => figures.push(head.against.into_iter().chain([column]).collect()),
        }
    }
    let compares = matrix.heads.iter().any(|head| head.against.is_some());
    let told = |words: &str| if compares { words } else { "" }.to_owned();
    let figure = |columns: &Vec<usize>| Figure {
        markup: heat::render(matrix, columns),
        ..Figure::default()
    };
    Figures {
        title: "Where they differ".to_owned(),
        key: told(KEY),
        caption: told(SHADES),
        figures: figures.iter().map(figure).collect(),
        ..Figures::default()
    }
}

/// What the tables of the targets would say, where they don't follow.
fn records(matrix: &Matrix<'_>) -> Vec<Section> {
    let columns = || matrix.across.columns.iter().zip(&matrix.heads);
    let sentences = columns().map(|(column, _)| summary::sentence(column.record));
    let more = match matrix.shown(false).len() < matrix.groups.len() {
        true => "Everything else, each target's own tables too",
        false => "Each target's own table, with net and the comparisons within it",
    };
    let more = format!("{more}: --verbose, or `bpfcost report` of the records.");
    let warnings = columns().flat_map(|(column, head)| {
        let lines = warnings::lines(column.record).into_iter();
        lines.map(|warning| format!("{}: {warning}", head.label))
    });
    vec![
        Section::Prose(Prose {
            paragraphs: sentences.chain([more]).collect(),
            ..Prose::default()
        }),
        Section::Warnings(warnings.collect()),
    ]
}
