//! Tables of what an event of a program at its hook consists of.

use super::{Extras, program::program};
use bpfcost_model::{Elsewhere, EventFacts, HotCall, OtherWay, Role};
use bpfcost_record::{CaseRecord, Record};
use bpfcost_report::{
    csv::{self, CsvColumns},
    section::{Detail, Section, table_sections},
    table::{Cell, Head, Table},
    target,
};
use bpfcost_stats::sample::median;
use bpfcost_text::number;

/// Instructions from the hook to the program and back.
pub const DISPATCH: &str = "dispatch";
/// Instructions of the program.
pub const BODY: &str = "body";
/// Instructions of what the program calls.
pub const HELPERS: &str = "helpers";
/// Events of a trial.
pub const EVENTS: &str = "events";
/// Events in which the task slept, and which are not measured.
pub const SLEPT: &str = "slept";
/// Instructions of the cheapest event.
pub const LEAST: &str = "least";
/// Instructions of the dearest event.
pub const MOST: &str = "most";

/// The name by which records are known.
const NAME: &str = "hook";
/// Functions of an event that a terminal shows unless all are asked for.
const BRIEF: usize = 6;

const EVENT: &str = "Instructions of an event, from the first of the hook to the last: dispatch, the program itself (body), \
    and what it calls (helpers). They are of the event in the middle; least and most are of others. Interrupts, faults and other programs at \
    the hook are not among them. Slept: events in which the task slept, which are not measured. Lines: of the source, that events reached, and the first that none did.";
const OTHER_WAYS: &str = "Other stimuli, which reach lines of the program that those before them do not: the dearest event \
    of one trace. To measure such ways as cases, name the stimuli: --stimulus A --stimulus B.";
const ELSEWHERE: &str = "Instructions of one operation of the stimulus that these programs cost outside of their events: with \
    them attached, minus without them, minus their events. Where two such traces differ, there is no row.";
const FUNCTIONS: &str = "Instructions of one event: in each function of the kernel that leads to the program, and in \
    each that the program calls, with all that it calls.";

pub(super) const EXTRAS: Extras = Extras {
    sections,
    across,
    columns,
    ..Extras::NOTHING
};

/// A program on a target.
struct Row<'a> {
    target: String,
    case: &'a CaseRecord,
    facts: EventFacts,
}

/// A function of a program's event.
struct FunctionRow<'a> {
    case: &'a CaseRecord,
    part: &'static str,
    function: &'a HotCall,
}

fn rows<'a>(record: &'a Record, target: &str) -> Vec<Row<'a>> {
    let cases = record.cases.iter();
    let measured = cases.filter(|case| {
        record.experiment == NAME && case.role == Role::Case && case.secondary.contains_key(BODY)
    });
    let row = |case: &'a CaseRecord| Row {
        target: target.to_owned(),
        facts: facts(case),
        case,
    };
    let mut rows: Vec<Row<'_>> = Vec::new();
    for row in measured.map(row) {
        insert(&mut rows, row);
    }
    rows
}

/// Puts a row behind the others of its program.
fn insert<'a>(rows: &mut Vec<Row<'a>>, row: Row<'a>) {
    let name = |row: &Row<'_>| row.case.factors.get("program").cloned();
    let last = rows.iter().rposition(|one| name(one) == name(&row));
    rows.insert(last.map_or(rows.len(), |last| last + 1), row);
}

fn hook(case: &CaseRecord) -> String {
    case.factors.get("hook").cloned().unwrap_or_default()
}

fn facts(case: &CaseRecord) -> EventFacts {
    let observed = case.observed.clone();
    let facts = observed.and_then(|facts| serde_json::from_value(facts).ok());
    facts.unwrap_or_default()
}

fn sections(record: &Record, detail: Detail) -> Vec<Section> {
    let rows = rows(record, "");
    let tables = [
        events(&rows),
        other_ways(&rows),
        elsewhere(&rows),
        functions(&rows, detail),
    ];
    tables.into_iter().flat_map(table_sections).collect()
}

/// Columns of CSV: the hook, the stimulus, and the numbers of an event.
fn columns(record: &Record) -> Option<CsvColumns<'_>> {
    const NUMBERS: [&str; 7] = [DISPATCH, BODY, HELPERS, LEAST, MOST, EVENTS, SLEPT];
    if record.experiment != NAME {
        return None;
    }
    Some(Box::new(|case| {
        let words = [("hook", hook(case)), ("stimulus", facts(case).stimulus)];
        let words = words.map(|(name, text)| (name, bpfcost_text::line(&text)));
        let number = |name| (name, csv::plain(value(case, name)));
        let cells = words.into_iter().chain(NUMBERS.map(number));
        cells.map(|(name, text)| (name.to_owned(), text)).collect()
    }))
}

/// The same of several targets, each program's rows together.
fn across(records: &[&Record]) -> Vec<Section> {
    let mut all: Vec<Row<'_>> = Vec::new();
    for record in records {
        for row in rows(record, &target::label(record)) {
            insert(&mut all, row);
        }
    }
    table_sections(events(&all))
}

fn events(rows: &[Row<'_>]) -> Option<Table> {
    let count = |name: &'static str| {
        move |row: &Row<'_>| {
            Cell::number_or_empty(value(row.case, name), |value| number::count(value as u64))
        }
    };
    let columns = vec![
        Head::words("program")
            .cells(|row: &Row<'_>| Cell::words(bpfcost_text::line(&program(row.case)))),
        Head::words("hook").cells(|row: &Row<'_>| Cell::words(bpfcost_text::line(&hook(row.case)))),
        Head::words("target").cells(|row: &Row<'_>| Cell::words(&row.target)),
        Head::words("stimulus")
            .cells(|row: &Row<'_>| Cell::words(bpfcost_text::line(&row.facts.stimulus))),
        Head::number("dispatch").cells(count(DISPATCH)),
        Head::number("body").cells(count(BODY)),
        Head::number("helpers").cells(count(HELPERS)),
        Head::number("least").cells(count(LEAST)),
        Head::number("most").cells(count(MOST)),
        Head::number("events").cells(count(EVENTS)),
        Head::number("slept").cells(|row: &Row<'_>| {
            let slept = value(row.case, SLEPT).filter(|slept| *slept > 0.0);
            Cell::number_or_empty(slept, |slept| number::count(slept as u64))
        }),
        Head::words("lines").cells(|row: &Row<'_>| lines(&row.facts)),
    ];
    Some(Table {
        title: "Events".to_owned(),
        captions: vec![EVENT.to_owned()],
        ..Table::new(columns, rows).filled()?
    })
}

/// The share of lines that events reached, and the first that none did.
fn lines(facts: &EventFacts) -> Cell {
    let Some(lines) = &facts.reached else {
        return Cell::words("");
    };
    let missed = lines.first_missed.iter();
    let missed: String = missed.map(|line| format!(", not {line}")).collect();
    let words = format!("{} of {}{missed}", lines.reached, lines.all);
    Cell::words(bpfcost_text::line(&words))
}

/// A row for each way, with the program.
fn other_ways(rows: &[Row<'_>]) -> Option<Table> {
    let of_row = |row: &Row<'_>| {
        let program = program(row.case);
        let ways = row.facts.other_ways.clone().into_iter();
        ways.map(move |way| (program.clone(), way))
            .collect::<Vec<_>>()
    };
    let all: Vec<(String, OtherWay)> = rows.iter().flat_map(of_row).collect();
    let count = |value: u64| Cell::number(number::count(value), value as f64);
    let columns = vec![
        Head::words("program")
            .cells(|(program, _): &(String, OtherWay)| Cell::words(bpfcost_text::line(program))),
        Head::words("stimulus")
            .cells(|(_, way): &(String, OtherWay)| Cell::words(bpfcost_text::line(&way.stimulus))),
        Head::number("dispatch").cells(move |(_, way): &(String, OtherWay)| count(way.dispatch)),
        Head::number("body").cells(move |(_, way): &(String, OtherWay)| count(way.body)),
        Head::number("helpers").cells(move |(_, way): &(String, OtherWay)| count(way.helpers)),
        Head::number("more lines")
            .cells(move |(_, way): &(String, OtherWay)| count(way.lines as u64)),
    ];
    Some(Table {
        title: "Other ways".to_owned(),
        captions: vec![OTHER_WAYS.to_owned()],
        ..Table::new(columns, &all).filled()?
    })
}

/// A row for each stimulus, with the programs that were attached.
fn elsewhere(rows: &[Row<'_>]) -> Option<Table> {
    let mut all: Vec<(&str, &Elsewhere)> = Vec::new();
    for row in rows {
        if let Some(elsewhere) = &row.facts.elsewhere
            && !all.contains(&(&*row.facts.stimulus, elsewhere))
        {
            all.push((&row.facts.stimulus, elsewhere));
        }
    }
    let columns = vec![
        Head::words("stimulus")
            .cells(|(stimulus, _): &(&str, &Elsewhere)| Cell::words(bpfcost_text::line(stimulus))),
        Head::number("insns").cells(|(_, elsewhere): &(&str, &Elsewhere)| {
            Cell::number(
                number::fixed(
                    elsewhere.instructions,
                    number::counted_decimals(elsewhere.instructions),
                ),
                elsewhere.instructions,
            )
        }),
        Head::words("attached").cells(|(_, elsewhere): &(&str, &Elsewhere)| {
            Cell::words(bpfcost_text::line(&elsewhere.programs.join(", ")))
        }),
    ];
    Some(Table {
        title: "Paid by other events".to_owned(),
        captions: vec![ELSEWHERE.to_owned()],
        ..Table::new(columns, &all).filled()?
    })
}

/// A row for each function.
fn functions(rows: &[Row<'_>], detail: Detail) -> Option<Table> {
    let most = match detail {
        Detail::Brief | Detail::Document => BRIEF,
        Detail::Full | Detail::Page => usize::MAX,
    };
    let mut all = Vec::new();
    for row in rows {
        let parts = [
            (DISPATCH, &row.facts.dispatch),
            (HELPERS, &row.facts.helpers),
        ];
        for (part, functions) in parts {
            all.extend(functions.iter().take(most).map(|function| FunctionRow {
                case: row.case,
                part,
                function,
            }));
        }
    }
    let columns = vec![
        Head::words("program")
            .cells(|row: &FunctionRow<'_>| Cell::words(bpfcost_text::line(&program(row.case)))),
        Head::words("part").cells(|row: &FunctionRow<'_>| Cell::words(row.part)),
        Head::number("insns").cells(|row: &FunctionRow<'_>| {
            Cell::number(
                number::count(row.function.instructions),
                row.function.instructions as f64,
            )
        }),
        Head::words("function")
            .cells(|row: &FunctionRow<'_>| Cell::words(bpfcost_text::line(&row.function.name))),
    ];
    Some(Table {
        title: "Functions".to_owned(),
        captions: vec![FUNCTIONS.to_owned()],
        ..Table::new(columns, &all).filled()?
    })
}

/// The median over trials.
fn value(case: &CaseRecord, name: &str) -> Option<f64> {
    let trials = case.secondary.get(name)?;
    let trials: Vec<f64> = trials.iter().flatten().copied().collect();
    median(&trials)
}
