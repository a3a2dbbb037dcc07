//! Lists by name which cases cost more and which cost less on one target than on another.

use std::collections::HashSet;

use super::Matrix;
use crate::{
    case_table::{CaseCell, ColumnHead},
    table::{Cell, Head, Table},
};
use bpfcost_model::Grid;
use bpfcost_record::{Difference, VerdictRecord};
use bpfcost_text::{line, number};

/// Changes beyond this share are named.
const NAMED: f64 = 0.10;
const MAX_ROWS: usize = 30;

/// A table for each target that is compared, where cases span a grid: the largest increase first.
pub fn changes(matrix: &Matrix<'_>) -> Vec<Table> {
    let Some(grid) = &matrix.grid else {
        return Vec::new();
    };
    let heads = matrix.table.heads.iter().enumerate();
    let pairs = heads.filter_map(|(here, head)| Some([head.against?, here]));
    pairs.map(|pair| table(matrix, grid, pair)).collect()
}

struct CaseChange<'a> {
    row: &'a str,
    column: &'a str,
    /// Costs on the other target and on this one.
    costs: [&'a CaseCell<'a>; 2],
    difference: Difference,
}

impl CaseChange<'_> {
    fn name(&self) -> String {
        line(self.costs[1].case.as_deref().map_or("", |case| &case.name))
    }

    fn is_large(&self) -> bool {
        let differs = matches!(
            self.difference.verdict,
            VerdictRecord::Slower | VerdictRecord::Faster
        );
        differs && self.difference.relative.abs() > NAMED
    }
}

fn table(matrix: &Matrix<'_>, grid: &Grid, columns: [usize; 2]) -> Table {
    let [there, here] = columns.map(|column| &matrix.table.heads[column]);
    let over = number::round_percent(NAMED);
    let changes = matrix.table.rows().filter_map(|row| {
        let costs = columns.map(|column| &row.cells[column]);
        let (row, column) = costs[1].case.as_deref()?.cell(grid)?;
        Some(CaseChange {
            row,
            column,
            costs,
            difference: costs[1].difference?,
        })
    });
    let all: Vec<CaseChange<'_>> = changes.collect();
    let first = all.first().map_or("", |one| one.column);
    // A row that changes in its first column is named by that alone.
    let firsts = all
        .iter()
        .filter(|one| one.column == first && one.is_large());
    let rows: HashSet<&str> = firsts.map(|one| one.row).collect();
    let named = |one: &&CaseChange<'_>| one.column == first || !rows.contains(one.row);
    let large = all.iter().filter(|one| one.is_large()).filter(named);
    let mut large: Vec<&CaseChange<'_>> = large.collect();
    let size = |one: &CaseChange<'_>| one.difference.relative.abs();
    large.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let named = large.len().min(MAX_ROWS);
    let caption = match large.len() - named {
        0 if named == 0 => format!("No case changed by over {over}."),
        0 => format!(
            "Each value of {} that changed with {} {} is listed once.",
            line(&grid.rows),
            line(&grid.columns),
            line(first)
        ),
        more => format!("{more} more changed less."),
    };
    large.truncate(named);
    large.sort_by(|a, b| b.difference.relative.total_cmp(&a.difference.relative));
    let cost = |at: usize, head: &ColumnHead| {
        Head::number(format!("{}\n{}", head.label, head.unit))
            .cells(move |change: &&CaseChange<'_>| Cell::words(&change.costs[at].text.value))
    };
    let relative = |change: &&CaseChange<'_>| {
        let relative = change.difference.relative;
        let percent = number::signed(relative * 100.0, 0);
        Cell::number(format!("{percent}{}%", number::HOLD), relative)
    };
    let columns = vec![
        Head::words("case").cells(|change: &&CaseChange<'_>| Cell::words(change.name())),
        cost(0, there),
        cost(1, here),
        Head::number("change").cells(relative),
    ];
    Table {
        title: format!(
            "{} against {}: changes over {over}",
            here.label, there.label
        ),
        captions: vec![caption],
        ..Table::new(columns, &large)
    }
}
