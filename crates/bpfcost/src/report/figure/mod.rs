//! Figures: a record's numbers as HTML rows with inline SVG.
//!
//! Plots take the width that they get: x is in percent, y in pixels, so text is never scaled and a
//! figure reads as well on a phone as on a desk. Colours are classes, so figures follow the page's
//! scheme. Every SVG says in words what it shows (`title`, `desc`).

mod axis;
pub(crate) mod curve;
pub(super) mod forest;
pub(super) mod grid;
pub(super) mod heat;
pub(super) mod interval;
pub(crate) mod picture;
pub(super) mod stack;
mod svg;
mod tiles;
pub(super) mod trials;
