//! The costs of a grid: a cell per row and column, darker for higher costs. Costs differ by orders of magnitude, so
//! the shade is logarithmic.

use super::tiles::{self, Tile};
use crate::{
    absent::mark,
    view::grid::{GridCell, GridTable},
};

/// Shades, from the cheapest to the most expensive.
const SHADES: f64 = 6.0;

/// What its shades mean.
pub(crate) const KEY: &str = "<span class=\"key\"><i class=\"k-cost\"></i> stronger colour: higher cost, on a log scale</span>";

/// The figure.
pub(crate) fn render(grid_table: &GridTable<'_>) -> String {
    let below = |_| grid_table.record.unit.to_string();
    let heads: Vec<(String, String)> = grid_table
        .columns
        .iter()
        .map(|column| (column.clone(), below(column)))
        .collect();
    let mut out = tiles::heads(&heads);
    let ends = ends(grid_table);
    for row in &grid_table.rows {
        let tiles: Vec<Tile> = row
            .cells
            .iter()
            .zip(&grid_table.columns)
            .map(|(cell, column)| tile(cell, column, grid_table, ends))
            .collect();
        out.push_str(&tiles::row(&row.name, &tiles));
    }
    out + "</div>"
}

/// The logarithms of the cheapest and the most expensive cell.
fn ends(grid_table: &GridTable<'_>) -> (f64, f64) {
    let cells = grid_table.rows.iter().flat_map(|row| &row.cells);
    let costs = cells.filter_map(|cell| cell.cost.map(|cost| cost.value));
    let logs = costs.filter(|value| *value > 0.0).map(f64::ln);
    logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
        (low.min(log), high.max(log))
    })
}

fn tile(
    cell: &GridCell<'_>,
    column: &str,
    grid_table: &GridTable<'_>,
    (low, high): (f64, f64),
) -> Tile {
    let class = cell.cost.map_or("none".to_owned(), |cost| {
        let share = (cost.value.ln() - low) / (high - low);
        let shade = if share.is_finite() {
            (share * SHADES).floor().clamp(0.0, SHADES - 1.0)
        } else {
            0.0
        };
        format!("cost s{shade}")
    });
    let unit = grid_table.record.unit.to_string();
    let tile = Tile::of(column, &unit, &cell.text, class, &[&cell.text.note]);
    Tile {
        // Short enough for a phone.
        text: match cell.case {
            Some(_) => format!("{}{}", tile.text.to_lowercase(), mark(cell.footnote)),
            None => "·".to_owned(),
        },
        ..tile
    }
}
