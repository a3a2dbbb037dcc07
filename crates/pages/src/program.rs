//! Table of a program's costs other than the time of a run, such as verified instructions and stack.

mod change;
mod hot;
mod maps;

use bpfcost_model::Role;
use bpfcost_record::{CaseRecord, Record};
use bpfcost_report::{
    section::{Detail, Section, table_sections},
    table::{Cell, Head, Table},
    target,
};
use bpfcost_stats::sample::median;
use bpfcost_text::{self, number};

use super::Extras;

/// The version of a program that the new one is compared with.
pub const OLD: &str = "old";
/// The key of hot spots among what is observed of a case.
pub const HOT_SPOTS: &str = "hot_spots";

pub(super) const EXTRAS: Extras = Extras {
    sections,
    across,
    ..Extras::NOTHING
};

/// Prefix of the names of the trials' values on verification.
const PREFIX: &str = "verified_";
const CAPTION: &str = "Verified instructions are those that the kernel's verifier went through on all paths; its limit \
    is 1,000,000. Stack: of the program and of each function that it calls. A time is the median over loads.";

/// A program on a target.
struct Row<'a> {
    program: String,
    target: String,
    case: &'a CaseRecord,
}

/// A row for each program and version; nothing of records without such values. Then what runs change in maps.
fn sections(record: &Record, detail: Detail) -> Vec<Section> {
    let rows: Vec<Row<'_>> = programs(record)
        .map(|(program, case)| Row {
            program,
            target: String::new(),
            case,
        })
        .collect();
    let mut sections = table_sections(table(&rows));
    sections.extend(table_sections(maps::table(record, detail)));
    let traced = hot::traced(record);
    let tables = [
        hot::lines(&traced, detail),
        change::table(&traced, detail),
        hot::calls(&traced),
    ];
    for table in tables {
        sections.extend(table_sections(table));
    }
    sections
}

/// The same of several targets, each program's rows together.
fn across(records: &[&Record]) -> Vec<Section> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for record in records {
        for (program, case) in programs(record) {
            let row = Row {
                target: target::label(record),
                case,
                program,
            };
            let last = rows.iter().rposition(|one| one.program == row.program);
            rows.insert(last.map_or(rows.len(), |last| last + 1), row);
        }
    }
    table_sections(table(&rows))
}

/// Programs and versions, each with one of its cases.
fn programs(record: &Record) -> impl Iterator<Item = (String, &CaseRecord)> {
    let mut known = Vec::new();
    let cases = record.cases.iter().filter(|case| case.role == Role::Case);
    let cases = cases.filter(|case| value(case, "instructions").is_some());
    cases.filter_map(move |case| {
        let name = program(case);
        let is_new = !known.contains(&name);
        known.push(name.clone());
        is_new.then_some((name, case))
    })
}

/// The program of a case, and its version if it is the old one.
pub(super) fn program(case: &CaseRecord) -> String {
    let factor = |name: &str| case.factors.get(name).map_or("", String::as_str);
    match factor("version") {
        OLD => format!("{}, old", factor("program")),
        _ => factor("program").to_owned(),
    }
}

fn table(rows: &[Row<'_>]) -> Option<Table> {
    let count = |name: &'static str| {
        move |row: &Row<'_>| {
            Cell::number_or_empty(value(row.case, name), |value| number::count(value as u64))
        }
    };
    let columns = vec![
        Head::words("program").cells(|row: &Row<'_>| Cell::words(bpfcost_text::line(&row.program))),
        Head::words("target").cells(|row: &Row<'_>| Cell::words(&row.target)),
        Head::number("verified\ninsns").cells(count("instructions")),
        Head::number("states").cells(count("states")),
        Head::number("verified\nin, µs").cells(count("us")),
        Head::number("stack,\nB").cells(|row: &Row<'_>| stack(row.case)),
        Head::number("insns,\nB").cells(count("xlated_bytes")),
        Head::number("JITed,\nB").cells(count("jited_bytes")),
        Head::number("maps").cells(|row: &Row<'_>| {
            let bytes = |bytes| number::bytes(bytes as u64);
            Cell::number_or_empty(value(row.case, "map_bytes"), bytes)
        }),
    ];
    Some(Table {
        title: "Verification and memory".to_owned(),
        captions: vec![CAPTION.to_owned()],
        ..Table::new(columns, rows).filled()?
    })
}

/// The median over trials.
fn value(case: &CaseRecord, name: &str) -> Option<f64> {
    let trials = case.secondary.get(&format!("{PREFIX}{name}"))?;
    let trials: Vec<f64> = trials.iter().flatten().copied().collect();
    median(&trials)
}

/// The stack of each function.
fn stack(case: &CaseRecord) -> Cell {
    let stacks = case.secondary.keys();
    let stacks = stacks.filter_map(|name| name.strip_prefix(PREFIX));
    let stacks = stacks.filter(|name| name.starts_with("stack_"));
    let stacks: Vec<f64> = stacks.filter_map(|name| value(case, name)).collect();
    let words: Vec<String> = stacks.iter().map(|bytes| format!("{bytes:.0}")).collect();
    Cell::number(words.join("+"), stacks.iter().sum())
}
