//! Where targets differ: a cell for each case and target, in the colour of the verdict, darker for
//! more. The first target of a kind shows what it costs, those compared with it how much they differ.

use std::fmt::Write;

use super::{
    forest::{class, sign},
    svg::{Svg, escape},
};
use crate::{
    record::Verdict,
    report::{
        matrix::{CellText, Head, Matrix, Row, mark},
        style::Tone,
    },
};

/// Pixels of a row.
const HEIGHT: f64 = 26.0;
/// Free between cells, in percent of the width and in pixels.
const GAP: (f64, f64) = (0.5, 2.0);
/// More targets than this make several figures, or a cell would not hold its words on a phone.
pub(crate) const MOST: usize = 5;
/// Shares beyond which a difference is shown darker.
const LEVELS: [f64; 3] = [0.01, 0.05, 0.20];

/// The figure of the targets in these columns.
pub(crate) fn render(matrix: &Matrix<'_>, columns: &[usize]) -> String {
    let mut out = String::from(
        "<div class=\"rows heat\"><div class=\"row head\"><div class=\"label\"></div><div class=\"heads\">",
    );
    for head in columns
        .iter()
        .filter_map(|column| matrix.heads.get(*column))
    {
        let below = match head.against.and_then(|first| matrix.heads.get(first)) {
            Some(first) => format!("against {}", first.label),
            None => head.unit.clone(),
        };
        let _ = write!(
            out,
            "<div><b>{}</b> <span class=\"muted\">{}</span></div>",
            escape(&head.label),
            escape(&below)
        );
    }
    out.push_str("</div></div>");
    for group in &matrix.groups {
        let _ = write!(out, "<h3>{}</h3>", escape(&group.name));
        for row in &group.rows {
            let _ = write!(
                out,
                "<div class=\"row\"><div class=\"label\"><code>{}</code></div><div>{}</div></div>",
                escape(&row.name),
                cells(row, matrix, columns)
            );
        }
    }
    out + "</div>"
}

fn cells(row: &Row, matrix: &Matrix<'_>, columns: &[usize]) -> String {
    let shown: Vec<(&CellText, &Head)> = columns
        .iter()
        .filter_map(|column| Some((row.cells.get(*column)?, matrix.heads.get(*column)?)))
        .collect();
    let told: Vec<String> = shown
        .iter()
        .map(|(cell, head)| words(cell, head, matrix))
        .collect();
    let title = format!("{}: {}", row.name, told.join("; "));
    let mut svg = Svg::new("heat", HEIGHT, &title, "");
    let width = 100.0 / shown.len().max(1) as f64;
    for (place, ((cell, _), told)) in shown.iter().zip(&told).enumerate() {
        let left = place as f64 * width;
        svg.raw(&format!(
            "<g class=\"{}\"><title>{}</title>",
            classes(cell),
            escape(told)
        ));
        let ends = (left + GAP.0 / 2.0, left + width - GAP.0 / 2.0);
        svg.band("tile", ends, GAP.1 / 2.0, HEIGHT - GAP.1);
        svg.text(
            "middle",
            (left + width / 2.0, HEIGHT / 2.0 + 4.5),
            &text(cell),
        );
        svg.raw("</g>");
    }
    svg.finish()
}

/// What stands in a cell.
fn text(cell: &CellText) -> String {
    match &cell.difference {
        Some(found) => format!("{} {}", sign(found.difference.verdict), found.relative),
        None => format!("{}{}", cell.value, mark(cell.footnote)),
    }
}

/// A cell in words.
fn words(cell: &CellText, head: &Head, matrix: &Matrix<'_>) -> String {
    let mut words = format!("{}: {}", head.label, cell.value);
    if cell.tone == Tone::Plain {
        let _ = write!(words, " {}", head.unit);
    }
    if !cell.spread.is_empty() {
        let _ = write!(words, ", {}", cell.spread);
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
        return match cell.tone {
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
