//! Differences between targets: a cell per case and target in the colour of the verdict, darker for larger
//! differences. The first target of a kind shows costs; those compared with it show differences.

use std::fmt::Write;

use super::{
    forest::looks,
    svg::escape,
    tiles::{self, Tile},
};
use crate::matrix::{CellText, Matrix, MatrixHead};
use bpfcost_record::VerdictRecord;

/// More targets than this make several figures, or a cell would not hold its words on a phone.
pub(crate) const MOST: usize = 5;
/// Shares beyond which a difference is shown darker.
const LEVELS: [f64; 3] = [0.01, 0.05, 0.20];

/// The figure of the targets in these columns.
pub(crate) fn render(matrix: &Matrix<'_>, columns: &[usize]) -> String {
    let heads = columns.iter().map(|at| {
        let head = &matrix.heads[*at];
        let below = match head.against {
            Some(first) => format!("against {}", matrix.heads[first].label),
            None => head.unit.clone(),
        };
        (head.label.clone(), below)
    });
    let mut out = tiles::heads(&heads.collect::<Vec<_>>());
    for group in matrix.shown(false) {
        let _ = write!(out, "<h3>{}</h3>", escape(&group.name));
        for row in &group.rows {
            let tiles = columns
                .iter()
                .map(|at| tile(&row.cells[*at], &matrix.heads[*at]));
            out.push_str(&tiles::row(&row.name, &tiles.collect::<Vec<_>>()));
        }
    }
    out + "</div>"
}

/// A cell: how it differs, where it is compared, else what it costs.
fn tile(cell: &CellText, head: &MatrixHead) -> Tile {
    let tile_of =
        |class: String, more: &[&str]| Tile::of(&head.label, &head.unit, &cell.text, class, more);
    let Some(compared) = &cell.difference else {
        return Tile {
            text: cell.marked(),
            ..tile_of("value".to_owned(), &[&cell.text.note])
        };
    };
    let verdict = compared.difference.verdict;
    let size = compared.difference.relative.abs();
    let level = LEVELS.iter().filter(|level| size > **level).count() + 1;
    let (class, sign) = looks(verdict);
    let class = match verdict {
        VerdictRecord::Slower | VerdictRecord::Faster => format!("{class} l{level}"),
        _ => class.to_owned(),
    };
    let difference = format!("{} {}", compared.relative, compared.interval);
    Tile {
        text: format!("{sign} {}", compared.relative),
        class: class.clone(),
        ..tile_of(
            class,
            &[&cell.text.note, difference.trim_end(), compared.verdict],
        )
    }
}
