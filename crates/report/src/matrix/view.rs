//! Several targets side by side as tables and a figure.

use super::{DifferenceText, Matrix, MatrixRow, changes, sentence};
use crate::{
    figure::heat,
    section::{Detail, Figures, ProblemText, Section, View, Warnings, shorten, table_sections},
    style::Tone,
    table::{Cell, Head, Note, Table},
    target, warnings, words,
};
use bpfcost_record::{CrossTargetColumn, Record, Reference, Status};

/// What the colours of the figure mean.
const KEY: &str = "<span class=\"key\"><i class=\"k-heat less\"></i> ▼ costs less</span> \
    <span class=\"key\"><i class=\"k-heat more\"></i> ▲ costs more</span> \
    <span class=\"key\"><i class=\"k-heat same\"></i> = the same</span> \
    <span class=\"key\"><i class=\"k-heat open\"></i> ? unresolved</span>";
/// How to read the figure.
const SHADES: &str = "Stronger colours beyond 1\u{A0}%, 5\u{A0}% and 20\u{A0}%. Targets without a comparison show \
    the cost.";

/// Several targets side by side. Except in a short view, the records follow in full.
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
        sections.push(disturbed(matrix, detail));
    }
    if detail == Detail::Brief {
        shorten(&mut sections);
    }
    View {
        title: format!("{} on {} targets", matrix.experiment, matrix.heads.len()),
        summary: sentence(matrix),
        sections,
        ..View::default()
    }
}

/// What each target is.
fn targets(matrix: &Matrix<'_>) -> Table {
    let first = |standing: &CrossTargetColumn<'_>| match standing.against {
        Reference::Column(first) => matrix.heads[first].label.clone(),
        Reference::First | Reference::Nothing(_) => String::new(),
    };
    let numbers = |record: &Record| {
        let (machine, counted) = (&record.machine, record.unit.is_counted());
        let emulator = machine.emulator.as_deref().map(bpfcost_text::line);
        let cpu = (!counted && !target::is_emulated(record))
            .then(|| format!("on {}", bpfcost_text::line(&machine.cpu)));
        let emulator = emulator.map(|emulator| format!("in {emulator}"));
        let how = if counted { "counted" } else { "timed" }.to_owned();
        let parts = [Some(how), cpu, emulator];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    let columns = vec![
        Head::words("target")
            .of(|one: &CrossTargetColumn<'_>| Cell::words(target::label(one.record))),
        Head::words("kernel")
            .of(|one: &CrossTargetColumn<'_>| Cell::words(target::kernel(one.record))),
        Head::words("compared with").of(|one: &CrossTargetColumn<'_>| Cell::words(first(one))),
        Head::words("costs are").of(|one: &CrossTargetColumn<'_>| Cell::words(numbers(one.record))),
    ];
    Table {
        title: "Targets".to_owned(),
        ..Table::of(columns, &matrix.cross_target.columns)
    }
}

/// Every case on every target: what it costs there, how far that is open, and how it differs.
fn costs(matrix: &Matrix<'_>, detail: Detail) -> Table {
    let all = detail != Detail::Brief;
    let mut columns = vec![Head::words("case").of(|row: &MatrixRow| Cell::words(&row.name))];
    for (at, (head, standing)) in matrix
        .heads
        .iter()
        .zip(&matrix.cross_target.columns)
        .enumerate()
    {
        let record = standing.record;
        let cost = move |row: &MatrixRow| {
            record.cost(
                matrix.cross_target.rows[row.index].cells[at]
                    .case
                    .as_deref()?,
            )
        };
        let spread = move |row: &MatrixRow| {
            let text = &row.cells[at].text;
            let spread = match detail {
                Detail::Brief | Detail::Document => &text.width,
                Detail::Full => &text.range,
                Detail::Page => &text.spread,
            };
            let low = cost(row).and_then(|cost| Some(cost.ends?[0]));
            Cell::keyed(spread, low).toned(Tone::Quiet)
        };
        columns.extend([
            Head::number(format!("{}\n{}", head.label, head.unit)).of(move |row: &MatrixRow| {
                let cell = &row.cells[at];
                let value = cost(row).map(|cost| cost.value);
                Cell::keyed(cell.marked(), value).toned(cell.text.tone)
            }),
            Head::words(words::spread_heading(record.unit))
                .joined()
                .of(spread),
            Head::words("note").joined().of(move |row: &MatrixRow| {
                Cell::words(&row.cells[at].text.note).toned(Tone::Quiet)
            }),
        ]);
        let Some(first) = head.against.and_then(|first| matrix.heads.get(first)) else {
            continue;
        };
        let difference_cell = move |row: &MatrixRow, cell: fn(&DifferenceText) -> Cell| {
            let difference = row.cells[at].difference.as_ref();
            difference.map_or_else(Cell::default, cell)
        };
        columns.extend([
            Head::number(format!("against\n{}", first.label))
                .kept()
                .of(move |row: &MatrixRow| {
                    difference_cell(row, |text| {
                        Cell::number(&text.relative, text.difference.relative)
                    })
                }),
            Head::words("95\u{A0}% interval")
                .joined()
                .of(move |row: &MatrixRow| {
                    difference_cell(row, |text| {
                        let ends = text.difference.relative_ci95;
                        Cell::keyed(&text.interval, ends.map(|ends| ends[0]))
                    })
                }),
            Head::words("verdict").joined().of(move |row: &MatrixRow| {
                difference_cell(row, |text| Cell::words(text.verdict).toned(text.tone))
            }),
        ]);
    }
    let groups = matrix.shown(all).iter();
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

/// The cases that are invalid on any target.
fn problems(matrix: &Matrix<'_>) -> Vec<Section> {
    let mut sections = Vec::new();
    for (column, head) in matrix.cross_target.columns.iter().zip(&matrix.heads) {
        let cases = column.record.cases.iter();
        let invalid = cases.filter(|case| case.status == Status::Invalid);
        for (problem, details) in invalid.flat_map(|case| words::invalid_lines(case, column.record))
        {
            let problem = format!("{}: {problem}", head.label);
            sections.push(Section::Problem(ProblemText { problem, details }));
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
    let if_compared = |words: &str| if compares { words } else { "" }.to_owned();
    let figure = |columns: &Vec<usize>| heat::render(matrix, columns).into();
    Figures {
        title: "Where they differ".to_owned(),
        key: if_compared(KEY),
        caption: if_compared(SHADES),
        figures: figures.iter().map(figure).collect(),
        ..Figures::default()
    }
}

/// What disturbed the records, where they don't follow.
fn disturbed(matrix: &Matrix<'_>, detail: Detail) -> Section {
    let columns = matrix.cross_target.columns.iter().zip(&matrix.heads);
    let labelled = columns.map(|(column, head)| {
        let mut warnings = warnings::of(column.record, detail);
        for line in &mut warnings.lines {
            *line = format!("{}: {line}", head.label);
        }
        warnings
    });
    let mut all = Warnings::default();
    for one in labelled {
        all.lines.extend(one.lines);
        all.more += one.more;
    }
    Section::Warnings(all)
}
