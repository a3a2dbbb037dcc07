//! Records as people read them: the views of [`bpfcost_report`], with the sections and columns that experiments add. It
//! needs records alone: no kernel, no BPF.
#![forbid(unsafe_code)]

pub mod attach;
pub mod attaching;
pub mod hook;
pub mod program;
mod workload;

use anyhow::Result;
use bpfcost_record::Record;
use bpfcost_report::{
    csv::{self, CsvColumns},
    figure::picture,
    html,
    matrix::{self, Matrix, ReportPart},
    rate::{self, EventLoad},
    section::{Detail, Section, View, table_sections},
    view,
};

/// Sections and columns that an experiment adds to reports, beside those of its layout.
struct Extras {
    /// Sections of a record; none where it is of another experiment.
    sections: fn(&Record, Detail) -> Vec<Section>,
    /// Sections of records of one experiment on several targets; none where they are of another one.
    across: fn(&[&Record]) -> Vec<Section>,
    /// Columns of CSV for a record's cases; `None` where it is of another experiment.
    columns: for<'a> fn(&'a Record) -> Option<CsvColumns<'a>>,
    /// The one Markdown document of records on several targets; `None` where they are of another experiment.
    document: fn(&[&Record]) -> Option<String>,
}

impl Extras {
    const NOTHING: Extras = Extras {
        sections: |_, _| Vec::new(),
        across: |_| Vec::new(),
        columns: |_| None,
        document: |_| None,
    };
}

/// Of the experiments that add some.
const EXTRAS: [Extras; 5] = [
    attach::EXTRAS,
    attaching::EXTRAS,
    workload::EXTRAS,
    hook::EXTRAS,
    program::EXTRAS,
];

/// The view of a record; with `load`, also what its cases cost at that rate.
pub fn record_view(record: &Record, detail: Detail, load: EventLoad) -> View {
    let own = EXTRAS
        .iter()
        .map(|extras| (extras.sections)(record, detail));
    let mut sections: Vec<Section> = own.flatten().collect();
    sections.extend(table_sections(rate::tables(record, load)));
    view::record_view(record, detail, sections)
}

/// The view of several targets side by side.
pub fn across(matrix: &Matrix<'_>, records: &[&Record], detail: Detail) -> View {
    let mut view = matrix::view(matrix, detail);
    let own = EXTRAS.iter().flat_map(|extras| (extras.across)(records));
    // Warnings stay at the end.
    let is_warnings = |section: &Section| matches!(section, Section::Warnings(_));
    let end = view.sections.iter().rposition(is_warnings);
    let end = end.unwrap_or(view.sections.len());
    view.sections.splice(end..end, own);
    view
}

/// Records as one page.
pub fn page(records: &[Record], load: EventLoad) -> Result<String> {
    let parts = matrix::parts(records);
    let matrices = parts.iter().filter_map(|part| match part {
        ReportPart::Matrix(matrix, records) => Some(across(matrix, records, Detail::Page)),
        ReportPart::Alone(_) => None,
    });
    let matrices: Vec<View> = matrices.collect();
    let views = records
        .iter()
        .map(|record| record_view(record, Detail::Page, load));
    html::render(&matrices, &views.collect::<Vec<View>>())
}

/// A record as a picture; `None` where none of its cases has a cost, or too many have.
pub fn picture(record: &Record) -> Option<String> {
    picture::render(
        record,
        &record_view(record, Detail::Page, EventLoad::default()),
    )
}

/// Records as CSV, a line for each case.
pub fn csv(records: &[Record], load: EventLoad) -> Result<String> {
    let extra_columns = |record| {
        let columns = EXTRAS.iter().map(|extras| (extras.columns)(record));
        columns.flatten().collect()
    };
    csv::render(records, load, extra_columns)
}

/// Records as Markdown: side by side where there are several targets, then each.
pub fn markdown(records: &[Record], load: EventLoad) -> String {
    let parts = matrix::parts(records);
    parts.iter().map(|part| part_markdown(part, load)).collect()
}

/// Records as one Markdown document: as [`markdown()`], or in the experiment's own format.
pub fn document(records: &[Record], load: EventLoad) -> String {
    let parts = matrix::parts(records);
    let document = |part: &ReportPart<'_>| {
        let (ReportPart::Matrix(_, records) | ReportPart::Alone(records)) = part;
        let rates = || records.iter().map(|record| rate::markdown(record, load));
        let mut documents = EXTRAS
            .iter()
            .filter_map(|extras| (extras.document)(records));
        let document = documents
            .next()
            .map(|document| document + &rates().collect::<String>());
        document.unwrap_or_else(|| part_markdown(part, load))
    };
    parts.iter().map(document).collect()
}

fn part_markdown(part: &ReportPart<'_>, load: EventLoad) -> String {
    let (matrix, records) = match part {
        ReportPart::Matrix(matrix, records) => (Some(matrix), records),
        ReportPart::Alone(records) => (None, records),
    };
    let matrix = matrix.map(|matrix| across(matrix, records, Detail::Document));
    let records = records
        .iter()
        .map(|record| record_view(record, Detail::Document, load));
    let views = matrix.into_iter().chain(records);
    views
        .map(|view| bpfcost_report::markdown::render(&view))
        .collect()
}
