//! Where targets differ: a cell for each case and target, in the colour of the verdict, darker for
//! more. The first target of a kind shows what it costs, those compared with it how much they differ.

use std::fmt::Write;

use super::{
    forest::{class, sign},
    svg::escape,
    tiles::{self, Tile},
};
use crate::{
    record::Verdict,
    report::{
        matrix::{CellText, Head, Matrix, Row},
        style::Tone,
    },
};

/// More targets than this make several figures, or a cell would not hold its words on a phone.
pub(crate) const MOST: usize = 5;
/// Shares beyond which a difference is shown darker.
const LEVELS: [f64; 3] = [0.01, 0.05, 0.20];

/// The figure of the targets in these columns.
pub(crate) fn render(matrix: &Matrix<'_>, columns: &[usize]) -> String {
    let heads = columns
        .iter()
        .filter_map(|column| matrix.heads.get(*column));
    let heads = heads.map(|head| {
        let below = match head.against.and_then(|first| matrix.heads.get(first)) {
            Some(first) => format!("against {}", first.label),
            None => head.unit.clone(),
        };
        (head.label.clone(), below)
    });
    let mut out = tiles::heads(&heads.collect::<Vec<_>>());
    for group in matrix.shown(false) {
        let _ = write!(out, "<h3>{}</h3>", escape(&group.name));
        for row in &group.rows {
            out.push_str(&tiles::row(&row.name, &cells(row, matrix, columns)));
        }
    }
    out + "</div>"
}

fn cells(row: &Row, matrix: &Matrix<'_>, columns: &[usize]) -> Vec<Tile> {
    let shown = columns
        .iter()
        .filter_map(|column| Some((row.cells.get(*column)?, matrix.heads.get(*column)?)));
    let tile = |(cell, head): (&CellText, &Head)| Tile {
        class: classes(cell),
        text: text(cell),
        title: words(cell, head, matrix),
    };
    shown.map(tile).collect()
}

/// What stands in a cell.
fn text(cell: &CellText) -> String {
    match &cell.difference {
        Some(found) => format!("{} {}", sign(found.difference.verdict), found.relative),
        None => cell.marked(),
    }
}

/// A cell in words.
fn words(cell: &CellText, head: &Head, matrix: &Matrix<'_>) -> String {
    let mut words = format!("{}: {}", head.label, cell.text.value);
    if cell.text.tone == Tone::Plain {
        let _ = write!(words, " {}", head.unit);
    }
    if !cell.text.spread.is_empty() {
        let _ = write!(words, ", {}", cell.text.spread);
    }
    if let Some(note) = cell.footnote.and_then(|note| matrix.footnotes.get(note)) {
        let _ = write!(words, ", {note}");
    }
    if let Some(found) = &cell.difference {
        let difference = format!("{} {}", found.relative, found.interval);
        let _ = write!(words, ", {}, {}", difference.trim_end(), found.verdict);
    }
    words
}

fn classes(cell: &CellText) -> String {
    let Some(found) = &cell.difference else {
        return match cell.text.tone {
            Tone::Alarm => "none alarm",
            Tone::Quiet => "none",
            _ => "value",
        }
        .to_owned();
    };
    let difference = found.difference;
    let size = difference.relative.abs();
    let level = LEVELS.iter().filter(|level| size > **level).count() + 1;
    match difference.verdict {
        Verdict::Slower | Verdict::Faster => format!("{} l{level}", class(difference.verdict)),
        verdict => class(verdict).to_owned(),
    }
}
