//! Tables of cases as figures: rows of tiles under column heads.

use std::fmt::Write;

use super::svg::{Svg, escape};
use crate::{
    case_table::{CaseCell, CaseTable, CellRow, ColumnHead},
    rows::RowGroup,
    style::Tone,
};

/// Pixels of a row.
const HEIGHT: f64 = 26.0;
/// Gap between cells, in percent of the width and in pixels.
const GAP: (f64, f64) = (0.5, 2.0);

pub(super) struct Tile {
    pub(super) class: String,
    pub(super) text: String,
    /// Text for those who cannot see the colour.
    pub(super) title: String,
}

impl Tile {
    /// A cost, in `class` if there is a number; `more` is added to the title.
    pub(super) fn new(
        head: &ColumnHead,
        cell: &CaseCell<'_>,
        class: String,
        more: &[&str],
    ) -> Self {
        let (text, label) = (&cell.text, &head.label);
        let title = match text.tone {
            Tone::Plain => format!("{label}: {} {}", text.value, head.unit),
            _ => format!("{label}: {}", text.value),
        };
        let why = text.why.as_deref().unwrap_or_default();
        let parts = [title.as_str(), &text.spread, why, &text.note];
        let parts = parts.iter().chain(more).filter(|part| !part.is_empty());
        Tile {
            class: match text.tone {
                Tone::Alarm => "none alarm".to_owned(),
                Tone::Quiet => "none".to_owned(),
                _ => class,
            },
            text: text.value.clone(),
            title: parts.copied().collect::<Vec<_>>().join(", "),
        }
    }
}

/// Returns the figure of some columns of a table, each cell drawn by `tile`.
pub(super) fn figure(
    table: &CaseTable<'_>,
    groups: &[RowGroup<CellRow<'_>>],
    columns: &[usize],
    tile: impl Fn(&CaseCell<'_>, &ColumnHead) -> Tile,
) -> String {
    let mut out = String::from(
        "<div class=\"rows heat\"><div class=\"row head\"><div class=\"label\"></div><div class=\"heads\">",
    );
    for head in columns.iter().map(|at| &table.heads[*at]) {
        let below = match head.against {
            Some(first) => format!("against {}", table.heads[first].label),
            None => head.unit.clone(),
        };
        let _ = write!(
            out,
            "<div><b>{}</b> <span class=\"muted\">{}</span></div>",
            escape(&head.label),
            escape(&below)
        );
    }
    out += "</div></div>";
    for group in groups {
        if !group.name.is_empty() {
            let _ = write!(out, "<h3>{}</h3>", escape(&group.name));
        }
        for cells in &group.rows {
            let tiles = columns
                .iter()
                .map(|at| tile(&cells.cells[*at], &table.heads[*at]));
            out += &row(&cells.name, &tiles.collect::<Vec<_>>());
        }
    }
    out + "</div>"
}

fn row(name: &str, tiles: &[Tile]) -> String {
    let titles: Vec<&str> = tiles.iter().map(|tile| tile.title.as_str()).collect();
    let title = format!("{name}: {}", titles.join("; "));
    let mut svg = Svg::new("heat", HEIGHT, &title, "");
    let width = 100.0 / tiles.len().max(1) as f64;
    for (place, tile) in tiles.iter().enumerate() {
        let left = place as f64 * width;
        svg.raw(&format!(
            "<g class=\"{}\"><title>{}</title>",
            tile.class,
            escape(&tile.title)
        ));
        let ends = (left + GAP.0 / 2.0, left + width - GAP.0 / 2.0);
        svg.band("tile", ends, GAP.1 / 2.0, HEIGHT - GAP.1);
        svg.text(
            "middle",
            (left + width / 2.0, HEIGHT / 2.0 + 4.5),
            &tile.text,
        );
        svg.raw("</g>");
    }
    format!(
        "<div class=\"row\"><div class=\"label\"><code>{}</code></div><div>{}</div></div>",
        escape(name),
        svg.finish()
    )
}
