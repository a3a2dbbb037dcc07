//! What the atlas says, in sentences.

use super::Atlas;
use crate::{
    record::Record,
    report::{
        matrix::{self, Matrix},
        number, target, text,
        view::grid::{self, Sheet},
        words,
    },
};

impl Atlas<'_> {
    /// Cheapest and dearest, what changed from kernel to kernel, what bodies add.
    pub(super) fn says(&self) -> Vec<String> {
        let mut says: Vec<String> = self
            .kernels
            .iter()
            .filter_map(|record| cheapest(record))
            .collect();
        for pair in self.kernels.windows(2) {
            says.extend(Matrix::new(pair).iter().flat_map(matrix::changes));
        }
        says.extend(self.kernels.last().and_then(|record| bodies(record)));
        says.extend(self.clocks.iter().filter_map(|record| cheapest(record)));
        says
    }
}

fn cheapest(record: &Record) -> Option<String> {
    let sentence = grid::sentence(&Sheet::new(record)?)?;
    Some(format!("{sentence}."))
}

/// What the other columns cost beyond the first, in the median of rows.
fn bodies(record: &Record) -> Option<String> {
    let sheet = Sheet::new(record)?;
    let added = |column: usize| {
        let rows = sheet.rows.iter().filter_map(|row| {
            let [first, own] = [0, column].map(|column| row.cells.get(column)?.cost);
            Some(own?.value - first?.value)
        });
        let median = bpfcost_stats::sample::median(&rows.collect::<Vec<f64>>())?;
        // Hundreds of instructions need no fractions here; the tables have them.
        let median = match median.abs() >= 100.0 {
            true => number::fixed(median, 0),
            false => words::value(median, None, record.unit),
        };
        Some(format!("{} {median}", sheet.columns[column]))
    };
    let added: Vec<String> = (1..sheet.columns.len()).filter_map(added).collect();
    if added.is_empty() {
        return None;
    }
    Some(format!(
        "What another {} than {} adds on {}, in the median of all ways that have both: {} {}.",
        text::line(&sheet.record.grid.as_ref()?.columns),
        sheet.columns[0],
        target::label(record),
        added.join(", "),
        record.unit
    ))
}
