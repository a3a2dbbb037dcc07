//! Records as each renderer shows them, with what their experiments show of their own.

use bpfcost_model::Role;
use bpfcost_record::{CaseRecord, Changes, Record};
use bpfcost_report::{
    compare, markdown as document,
    matrix::{self, Matrix},
    rate::EventLoad,
    section::Detail,
    style::Style,
    terminal,
};

pub fn table(record: &Record, style: Style) -> String {
    terminal::render(
        &bpfcost_pages::record_view(record, Detail::Brief, EventLoad::default()),
        style,
    )
}

pub fn verbose(record: &Record, style: Style) -> String {
    terminal::render(
        &bpfcost_pages::record_view(record, Detail::Full, EventLoad::default()),
        style,
    )
}

/// One case alone with its floors, in full.
pub fn alone(record: &Record, name: &str, style: Style) -> String {
    let mut record = record.clone();
    let own = |case: &CaseRecord| case.name == name || case.role == Role::Floor;
    record.cases.retain(own);
    record.comparisons.clear();
    verbose(&record, style)
}

pub fn markdown(record: &Record) -> String {
    document::render(&bpfcost_pages::record_view(
        record,
        Detail::Document,
        EventLoad::default(),
    ))
}

pub fn html(records: &[Record]) -> anyhow::Result<String> {
    bpfcost_pages::page(records, EventLoad::default())
}

pub fn csv(records: &[Record]) -> String {
    bpfcost_pages::csv(records, EventLoad::default()).expect("it renders")
}

pub fn atlas(records: &[Record]) -> String {
    bpfcost_pages::document(records, EventLoad::default())
}

pub fn across(matrix: &Matrix<'_>, style: Style, verbose: bool) -> String {
    let detail = if verbose { Detail::Full } else { Detail::Brief };
    terminal::render(&matrix::view(matrix, detail), style)
}

pub fn across_in_markdown(matrix: &Matrix<'_>) -> String {
    document::render(&matrix::view(matrix, Detail::Document))
}

pub fn comparison(changes: &Changes, style: Style) -> String {
    terminal::render(&compare::view(changes), style)
}

pub fn comparison_in_markdown(changes: &Changes) -> String {
    document::render(&compare::view(changes))
}
