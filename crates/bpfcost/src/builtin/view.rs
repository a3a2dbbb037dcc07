//! Records as they are shown: the views of [`report`], with the sections that experiments have of their own.

use anyhow::Result;

use super::{
    attach::{self, AttachTypes},
    pool, workload,
};
use crate::{
    experiment::Experiment,
    record::Record,
    report::{
        self, csv, html,
        matrix::{self, Part},
        rate::{self, Load},
        section::{Detail, Section, View, tables},
        view,
    },
};

/// A record as it is shown; of attach types with what they cost at a rate, where `load` asks for it.
pub fn of(record: &Record, detail: Detail, load: Load) -> View {
    view::of(record, detail, own(record, detail, load))
}

/// What experiments show of their own.
fn own(record: &Record, detail: Detail, load: Load) -> Vec<Section> {
    let mut sections = pool::predicted::sections(record, detail);
    sections.extend(workload::shown::sections(record, detail));
    sections.extend(tables(attach::shown::blocks(record)));
    sections.extend(tables(rate::blocks(record, load)));
    sections
}

/// Records as one page.
pub fn page(records: &[Record], load: Load) -> Result<String> {
    let parts = matrix::parts(records);
    let across = parts.iter().filter_map(|part| match part {
        Part::Matrix(matrix, _) => Some(matrix::view(matrix, Detail::Page)),
        Part::Alone(_) => None,
    });
    let views = records.iter().map(|record| of(record, Detail::Page, load));
    html::render(
        &across.collect::<Vec<View>>(),
        &views.collect::<Vec<View>>(),
    )
}

/// Records as CSV, a line for each case.
pub fn csv(records: &[Record], load: Load) -> Result<String> {
    let own = |record| {
        let own = [
            attach::shown::columns(record),
            pool::predicted::columns(record),
        ];
        own.into_iter().flatten().collect()
    };
    csv::render(records, load, own)
}

/// Records as Markdown: side by side where there are several targets, then each.
pub fn markdown(records: &[Record], load: Load) -> String {
    let parts = matrix::parts(records);
    parts.iter().map(|part| part_markdown(part, load)).collect()
}

/// Records as one Markdown document: as [`markdown()`], or what their experiment writes of its own.
pub fn document(records: &[Record], load: Load) -> String {
    let parts = matrix::parts(records);
    let document = |part: &Part<'_>| {
        let (Part::Matrix(_, records) | Part::Alone(records)) = part;
        let rates = || records.iter().map(|record| rate::markdown(record, load));
        let own = own_document(records).map(|own| own + &rates().collect::<String>());
        own.unwrap_or_else(|| part_markdown(part, load))
    };
    parts.iter().map(document).collect()
}

fn part_markdown(part: &Part<'_>, load: Load) -> String {
    let (across, records) = match part {
        Part::Matrix(matrix, records) => (Some(matrix), records),
        Part::Alone(records) => (None, records),
    };
    let across = across.map(|matrix| matrix::view(matrix, Detail::Document));
    let records = records
        .iter()
        .map(|record| of(record, Detail::Document, load));
    let views = across.into_iter().chain(records);
    views.map(|view| report::markdown::render(&view)).collect()
}

/// The document that the experiment of these records has of its own.
fn own_document(records: &[&Record]) -> Option<String> {
    let of_attach = records.first()?.experiment == AttachTypes.description().name;
    of_attach.then(|| attach::atlas::render(records))?
}
