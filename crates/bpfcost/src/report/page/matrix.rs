//! What the page shows of an experiment on several targets, before each of them.

use serde::Serialize;

use super::tables::{self, Table};
use crate::report::{
    figure::heat,
    matrix::{Head, Matrix, changes, invalid_lines, sentence},
};

/// One experiment on several targets.
#[derive(Serialize)]
pub(crate) struct MatrixSection {
    id: String,
    title: String,
    summary: String,
    /// What got dearer and cheaper, by name.
    changes: Vec<String>,
    targets: Vec<TargetFact>,
    figures: Vec<String>,
    compares: bool,
    notes: Vec<String>,
    captions: Vec<String>,
    invalid: Vec<String>,
    table: Table,
}

#[derive(Serialize)]
struct TargetFact {
    label: String,
    kernel: String,
    numbers: String,
    against: String,
}

impl MatrixSection {
    /// The section of the matrix with this index.
    pub(crate) fn new((index, matrix): (usize, &Matrix<'_>)) -> Self {
        MatrixSection {
            id: format!("matrix-{}", index + 1),
            title: format!("{} on {} targets", matrix.experiment, matrix.heads.len()),
            summary: sentence(matrix),
            changes: changes(matrix),
            targets: matrix.heads.iter().map(|head| fact(head, matrix)).collect(),
            figures: figures(matrix)
                .iter()
                .map(|columns| heat::render(matrix, columns))
                .collect(),
            compares: matrix.heads.iter().any(|head| head.against.is_some()),
            notes: matrix.notes(true),
            captions: matrix.captions(),
            invalid: invalid_lines(matrix)
                .into_iter()
                .map(|(problem, _)| problem)
                .collect(),
            table: tables::matrix_table(matrix),
        }
    }
}

fn fact(head: &Head, matrix: &Matrix<'_>) -> TargetFact {
    let first = head.against.and_then(|first| matrix.heads.get(first));
    TargetFact {
        label: head.label.clone(),
        kernel: head.kernel.clone(),
        numbers: format!("{}, {}", head.unit, head.numbers),
        against: first.map_or_else(String::new, |first| first.label.clone()),
    }
}

/// The columns of each figure: as many as fit, with the target that they are compared with.
fn figures(matrix: &Matrix<'_>) -> Vec<Vec<usize>> {
    let mut figures: Vec<Vec<usize>> = Vec::new();
    for (column, head) in matrix.heads.iter().enumerate() {
        match figures.last_mut() {
            Some(figure) if figure.len() < heat::MOST => figure.push(column),
            _ => figures.push(head.against.into_iter().chain([column]).collect()),
        }
    }
    figures
}
