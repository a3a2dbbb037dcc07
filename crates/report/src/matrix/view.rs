//! Several targets side by side as tables and a figure.

use super::{Matrix, changes, relative, sentence};
use crate::{
    case_table::{CaseCell, CellRow, cost_columns},
    cost,
    figure::heat,
    notes, rows,
    section::{Detail, Figures, ProblemText, Section, View, Warnings, shorten, table_sections},
    style::Tone,
    table::{Cell, Column, Head, Note, Table},
    target, verdict,
    view::flat,
    warnings,
};
use bpfcost_record::{CrossTargetColumn, Difference, Record, Reference, Status};
use bpfcost_text::line;

/// Returns the view of several targets side by side. Except in a short view, the records follow in full.
pub fn view(matrix: &Matrix<'_>, detail: Detail) -> View {
    let mut sections = vec![Section::Table(targets(matrix))];
    sections.extend(table_sections(changes(matrix)));
    if matches!(detail, Detail::Brief | Detail::Page) {
        sections.extend(problems(matrix));
    }
    if detail == Detail::Page {
        sections.push(Section::Figures(figures(matrix)));
    }
    sections.push(Section::Table(costs(matrix, detail)));
    if detail == Detail::Brief {
        sections.extend(judged(matrix));
        sections.push(disturbances(matrix, detail));
        shorten(&mut sections);
    }
    View {
        title: format!(
            "{} on {} targets",
            matrix.experiment,
            matrix.table.heads.len()
        ),
        summary: sentence(matrix),
        sections,
        ..View::default()
    }
}

/// A row for each target: its kernel, its reference, and the origin of its numbers.
fn targets(matrix: &Matrix<'_>) -> Table {
    type Target<'a> = CrossTargetColumn<'a>;
    let first = |one: &Target<'_>| match one.against {
        Reference::Column(first) => matrix.table.heads[first].label.clone(),
        Reference::First | Reference::Nothing(_) => String::new(),
    };
    let columns = vec![
        Head::words("target").cells(|one: &Target<'_>| Cell::words(target::label(one.record))),
        Head::words("kernel").cells(|one: &Target<'_>| Cell::words(target::kernel(one.record))),
        Head::words("compared with").cells(|one: &Target<'_>| Cell::words(first(one))),
        Head::words("costs are").cells(|one: &Target<'_>| Cell::words(origin(one.record))),
    ];
    Table {
        title: "Targets".to_owned(),
        ..Table::new(columns, &matrix.columns)
    }
}

/// `counted in QEMU 10.0`, `timed on AMD EPYC 9004`.
fn origin(record: &Record) -> String {
    let (machine, counted) = (&record.machine, record.unit.is_counted());
    let mut origin = if counted { "counted" } else { "timed" }.to_owned();
    if !counted && !target::is_emulated(record) {
        origin += &format!(" on {}", line(&machine.cpu));
    }
    if let Some(emulator) = &machine.emulator {
        origin += &format!(" in {}", line(emulator));
    }
    origin
}

/// A row for each case, and columns for each target: cost, spread, remark, and difference from another target.
fn costs(matrix: &Matrix<'_>, detail: Detail) -> Table {
    let all = detail != Detail::Brief;
    let mut columns = vec![Head::words("case").cells(|row: &CellRow<'_>| Cell::words(&row.name))];
    for (at, (head, target)) in matrix.table.heads.iter().zip(&matrix.columns).enumerate() {
        let texts = move |cell: &CaseCell<'_>| {
            let spread = match detail {
                Detail::Brief | Detail::Document => &cell.text.width,
                Detail::Full => &cell.text.range,
                Detail::Page => &cell.text.spread,
            };
            (cell.marked(), spread.clone())
        };
        let heads = [
            Head::number(format!("{}\n{}", head.label, head.unit)),
            Head::words(cost::spread_heading(target.record.unit)),
        ];
        columns.extend(cost_columns(at, heads, texts));
        columns.push(
            Head::words("note")
                .joined()
                .cells(move |row: &CellRow<'_>| {
                    Cell::words(&row.cells[at].text.note).toned(Tone::Quiet)
                }),
        );
        if let Some(first) = head.against {
            columns.extend(difference_columns(at, &matrix.table.heads[first].label));
        }
    }
    let groups = matrix.groups(all).iter();
    let notes = matrix.notes(all).into_iter();
    Table {
        title: "Costs".to_owned(),
        notes: notes.map(|note| Note::new(Tone::Quiet, note)).collect(),
        captions: matrix.captions(),
        ..Table::by_group(
            columns,
            groups.map(|group| (group.name.clone(), &group.rows)),
        )
    }
}

/// The relative difference, its interval, and the verdict, for the column of cells at `at`.
fn difference_columns<'a>(at: usize, first: &str) -> [Column<'static, CellRow<'a>>; 3] {
    let column = move |head: Head, cell: fn(&Difference) -> Cell| {
        head.cells(move |row: &CellRow<'_>| {
            let difference = row.cells[at].difference.as_ref();
            difference.map_or_else(Cell::default, cell)
        })
    };
    let against = Head::number(format!("against\n{first}")).adjacent();
    [
        column(against, |one| Cell::number(relative(one).0, one.relative)),
        column(Head::words("95\u{A0}% interval").joined(), |one| {
            Cell::keyed(relative(one).1, one.relative_ci95.map(|ends| ends[0]))
        }),
        column(Head::words("verdict").joined(), |one| {
            let (word, tone) = verdict::word(one.verdict);
            Cell::words(word).toned(tone)
        }),
    ]
}

/// The comparisons that a budget judged, on each target, where the records do not follow.
fn judged(matrix: &Matrix<'_>) -> Vec<Section> {
    let columns = matrix.columns.iter().zip(&matrix.table.heads);
    let tables = columns.filter_map(|(column, head)| {
        let record = column.record;
        record.asked.budget?;
        let table = flat::pairs(&rows::pairs(record), record, Detail::Brief)?;
        Some(Table {
            title: format!("Comparisons on {}", head.label),
            ..table
        })
    });
    let mut tables: Vec<Table> = tables.collect();
    // They are read alike.
    for table in tables.iter_mut().rev().skip(1) {
        table.captions.clear();
    }
    tables.into_iter().map(Section::Table).collect()
}

/// The cases that are invalid on any target.
fn problems(matrix: &Matrix<'_>) -> Vec<Section> {
    let mut sections = Vec::new();
    for (column, head) in matrix.columns.iter().zip(&matrix.table.heads) {
        let cases = column.record.cases.iter();
        let invalid = cases.filter(|case| case.status == Status::Invalid);
        for (problem, details) in invalid.flat_map(|case| notes::problems(case, column.record)) {
            let problem = format!("{}: {problem}", head.label);
            sections.push(Section::Problem(ProblemText { problem, details }));
        }
    }
    sections
}

/// Figures of the differences: as many columns a figure as fit, with the target that they are compared with.
fn figures(matrix: &Matrix<'_>) -> Figures {
    let mut figures: Vec<Vec<usize>> = Vec::new();
    for (column, head) in matrix.table.heads.iter().enumerate() {
        match figures.last_mut() {
            Some(figure) if figure.len() < heat::MAX_COLUMNS => figure.push(column),
            _ => figures.push(head.against.into_iter().chain([column]).collect()),
        }
    }
    let compares = matrix.table.heads.iter().any(|head| head.against.is_some());
    let if_compared = |words: &str| if compares { words } else { "" }.to_owned();
    let figure = |columns: &Vec<usize>| heat::differences(matrix, columns).into();
    Figures {
        title: "Where they differ".to_owned(),
        key: if_compared(heat::DIFFERENCES_KEY),
        caption: if_compared(heat::DIFFERENCES_CAPTION),
        figures: figures.iter().map(figure).collect(),
        ..Figures::default()
    }
}

/// The warnings of the records, where these do not follow.
fn disturbances(matrix: &Matrix<'_>, detail: Detail) -> Section {
    let mut all = Warnings::default();
    for (column, head) in matrix.columns.iter().zip(&matrix.table.heads) {
        let warnings = warnings::warnings(column.record, detail);
        let lines = warnings.lines.into_iter();
        all.lines
            .extend(lines.map(|warning| format!("{}: {warning}", head.label)));
        all.more += warnings.more;
    }
    Section::Warnings(all)
}
