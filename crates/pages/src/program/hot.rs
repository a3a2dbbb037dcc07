//! Tables of the lines and calls in which a run spends its instructions.

use super::HOT_SPOTS;
use bpfcost_model::{HotCall, HotLine, HotSpots};
use bpfcost_record::{CaseRecord, Record};
use bpfcost_report::{
    section::Detail,
    table::{Cell, Head, Table},
};
use bpfcost_text::{self, number};

/// Lines of a case that a terminal shows unless all are asked for.
const BRIEF: usize = 8;
const LINES: &str = "Instructions of one run, by the line of the source that they were compiled from; called: those of the \
    helpers and functions of the kernel that the line calls. One run was traced instruction by instruction; the loop \
    around it is not among them.";
const CALLS: &str =
    "Instructions of one run in what it calls in the kernel, and in what that calls.";

/// A case, and a line or a call of its run.
struct Row<'a, T> {
    case: &'a str,
    of: T,
    all: u64,
}

/// Case with the hot spots that were traced for it.
pub(super) type Spots<'a> = (&'a CaseRecord, HotSpots);

/// The cases whose hot spots were traced.
pub(super) fn traced(record: &Record) -> Vec<Spots<'_>> {
    record.cases.iter().filter_map(spots).collect()
}

/// The most lines of a case that are shown.
pub(super) fn most(detail: Detail) -> usize {
    match detail {
        Detail::Brief | Detail::Document => BRIEF,
        Detail::Full | Detail::Page => usize::MAX,
    }
}

fn spots(case: &CaseRecord) -> Option<Spots<'_>> {
    let spots = case.observed.as_ref()?.get(HOT_SPOTS)?;
    let spots = serde_json::from_value(spots.clone()).ok()?;
    Some((case, spots))
}

/// A row for each line.
pub(super) fn lines(spots: &[Spots<'_>], detail: Detail) -> Option<Table> {
    let most = most(detail);
    let mut rows: Vec<Row<'_, &HotLine>> = Vec::new();
    let mut hidden = 0;
    for (case, spots) in spots {
        hidden += spots.lines.len().saturating_sub(most);
        let row = |of| Row {
            case: &case.name,
            of,
            all: spots.instructions,
        };
        rows.extend(spots.lines.iter().take(most).map(row));
    }
    let mut captions = vec![LINES.to_owned()];
    if hidden > 0 {
        captions.push(format!("{hidden} more lines: --verbose."));
    }
    let columns = vec![
        Head::words("case")
            .cells(|row: &Row<'_, &HotLine>| Cell::words(bpfcost_text::line(row.case))),
        Head::number("insns").cells(|row: &Row<'_, &HotLine>| count(row.of.own + row.of.called)),
        Head::number("share")
            .cells(|row: &Row<'_, &HotLine>| share(row.of.own + row.of.called, row.all)),
        Head::number("called").cells(|row: &Row<'_, &HotLine>| match row.of.called {
            0 => Cell::default(),
            called => count(called),
        }),
        Head::words("line").cells(|row: &Row<'_, &HotLine>| Cell::words(place(row.of))),
        Head::words("source")
            .cells(|row: &Row<'_, &HotLine>| Cell::words(bpfcost_text::line(&row.of.text))),
    ];
    Some(Table {
        title: "Hot spots".to_owned(),
        captions,
        ..Table::new(columns, &rows).filled()?
    })
}

/// A row for each call.
pub(super) fn calls(spots: &[Spots<'_>]) -> Option<Table> {
    let mut rows: Vec<Row<'_, &HotCall>> = Vec::new();
    for (case, spots) in spots {
        let row = |of| Row {
            case: &case.name,
            of,
            all: spots.instructions,
        };
        rows.extend(spots.calls.iter().map(row));
    }
    let columns = vec![
        Head::words("case")
            .cells(|row: &Row<'_, &HotCall>| Cell::words(bpfcost_text::line(row.case))),
        Head::number("insns").cells(|row: &Row<'_, &HotCall>| count(row.of.instructions)),
        Head::number("share").cells(|row: &Row<'_, &HotCall>| share(row.of.instructions, row.all)),
        Head::words("called")
            .cells(|row: &Row<'_, &HotCall>| Cell::words(bpfcost_text::line(&row.of.name))),
    ];
    Some(Table {
        title: "Helpers and functions called".to_owned(),
        captions: vec![CALLS.to_owned()],
        ..Table::new(columns, &rows).filled()?
    })
}

pub(super) fn count(instructions: u64) -> Cell {
    Cell::number(number::count(instructions), instructions as f64)
}

fn share(part: u64, all: u64) -> Cell {
    let share = part as f64 / all.max(1) as f64;
    Cell::number(number::percent(share), share)
}

/// The file's name and the line's number.
pub(super) fn place(line: &HotLine) -> String {
    match line.line {
        0 => String::new(),
        number => {
            let file = line.file.rsplit('/').next().unwrap_or_default();
            format!("{}:{number}", bpfcost_text::line(file))
        }
    }
}
