//! Records as they are shown: the views of [`report`], with the sections that experiments have of their own.

use anyhow::Result;

use crate::{
    record::Record,
    report::{
        html,
        matrix::{self, Part},
        page::MatrixSection,
        parts,
        rate::{self, Load},
        scaling,
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
    let mut sections = scaling::predicted(record, detail);
    sections.extend(tables(parts::blocks(record)));
    sections.extend(tables(rate::blocks(record, load)));
    sections
}

/// Records as one page.
pub fn page(records: &[Record], load: Load) -> Result<String> {
    let parts = matrix::parts(records);
    let matrices = parts.iter().filter_map(|part| match part {
        Part::Matrix(matrix, _) => Some(&**matrix),
        Part::Alone(_) => None,
    });
    let matrices: Vec<MatrixSection> = matrices.enumerate().map(MatrixSection::new).collect();
    let views = records.iter().map(|record| of(record, Detail::Page, load));
    html::render(&matrices, &views.collect::<Vec<View>>())
}
