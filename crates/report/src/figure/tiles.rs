//! Rows of tiles under column heads, shared by figures with many cells.

use std::fmt::Write;

use super::svg::{Svg, escape};
use crate::{cost::CostText, style::Tone};

/// Pixels of a row.
const HEIGHT: f64 = 26.0;
/// Free between cells, in percent of the width and in pixels.
const GAP: (f64, f64) = (0.5, 2.0);

/// A tile.
pub(crate) struct Tile {
    /// Its classes.
    pub(crate) class: String,
    /// What stands in it.
    pub(crate) text: String,
    /// The same in words.
    pub(crate) title: String,
}

impl Tile {
    /// A cost below a head, in a class where it has a number; `more` is shown beside it.
    pub(crate) fn of(
        head: &str,
        unit: &str,
        cost: &CostText,
        class: String,
        more: &[&str],
    ) -> Self {
        let title = match cost.tone {
            Tone::Plain => format!("{head}: {} {unit}", cost.value),
            _ => format!("{head}: {}", cost.value),
        };
        let parts = [
            title.as_str(),
            &cost.spread,
            cost.why.as_deref().unwrap_or_default(),
        ];
        let parts = parts.iter().chain(more).filter(|part| !part.is_empty());
        Tile {
            class: match cost.tone {
                Tone::Alarm => "none alarm".to_owned(),
                Tone::Quiet => "none".to_owned(),
                _ => class,
            },
            text: cost.value.clone(),
            title: parts.copied().collect::<Vec<_>>().join(", "),
        }
    }
}

/// The beginning of a figure: a head and what stands below it for each column.
pub(crate) fn heads(heads: &[(String, String)]) -> String {
    let mut out = String::from(
        "<div class=\"rows heat\"><div class=\"row head\"><div class=\"label\"></div><div class=\"heads\">",
    );
    for (head, below) in heads {
        let _ = write!(
            out,
            "<div><b>{}</b> <span class=\"muted\">{}</span></div>",
            escape(head),
            escape(below)
        );
    }
    out + "</div></div>"
}

/// A row of tiles.
pub(crate) fn row(name: &str, tiles: &[Tile]) -> String {
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
