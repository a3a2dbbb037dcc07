//! What a program costs beside its time, in a table.

use bpfcost_stats::sample::median;

use crate::{
    builtin::Extras,
    experiment::Role,
    record::{CaseRecord, Record},
    report::{
        number,
        section::{Detail, Section, table_sections},
        table::{Cell, Head, Table},
        text,
    },
};

/// What programs show of their own.
pub(in crate::builtin) const OWN: Extras = Extras {
    sections,
    ..Extras::NOTHING
};

/// What values of trials begin with.
const PREFIX: &str = "verified_";
const CAPTION: &str = "Verified instructions are those that the kernel's verifier went through on all paths; its limit \
    is 1,000,000. Stack: of the program and of each function that it calls. A time is the median over loads.";

/// A row for each program and version; nothing of records without such values.
fn sections(record: &Record, _: Detail) -> Vec<Section> {
    let mut rows: Vec<(String, &CaseRecord)> = Vec::new();
    let cases = record.cases.iter().filter(|case| case.role == Role::Case);
    for case in cases.filter(|case| value(case, "instructions").is_some()) {
        let factor = |name: &str| case.factors.get(name).map_or("", String::as_str);
        let name = match factor("version") {
            "old" => format!("{}, old", factor("program")),
            _ => factor("program").to_owned(),
        };
        if !rows.iter().any(|(row, _)| *row == name) {
            rows.push((name, case));
        }
    }
    let count = |name: &'static str| {
        move |row: &(String, &CaseRecord)| {
            Cell::of(value(row.1, name), |value| number::count(value as u64))
        }
    };
    let columns = vec![
        Head::words("program").of(|row: &(String, &CaseRecord)| Cell::words(text::line(&row.0))),
        Head::number("verified\ninsns").of(count("instructions")),
        Head::number("states").of(count("states")),
        Head::number("verified\nin, µs").of(count("us")),
        Head::number("stack,\nB").of(|row: &(String, &CaseRecord)| stack(row.1)),
        Head::number("insns,\nB").of(count("xlated_bytes")),
        Head::number("JITed,\nB").of(count("jited_bytes")),
        Head::number("maps").of(|row: &(String, &CaseRecord)| {
            Cell::of(value(row.1, "map_bytes"), |bytes| {
                number::bytes(bytes as u64)
            })
        }),
    ];
    let table = Table::of(columns, &rows).filled().map(|table| Table {
        title: "Verification and memory".to_owned(),
        captions: vec![CAPTION.to_owned()],
        ..table
    });
    table_sections(table)
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
