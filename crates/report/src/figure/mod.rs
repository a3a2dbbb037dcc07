//! Figures: a record's numbers as HTML rows with inline SVG.
//!
//! Plots take the width that they get: x is in percent, y in pixels, so text is never scaled and a
//! figure reads as well on a phone as on a desk. Colours are classes, so figures follow the page's
//! scheme. Every SVG says in words what it shows (`title`, `desc`).

mod axis;
pub(crate) mod curve;
pub(crate) mod forest;
pub(crate) mod heat;
pub(crate) mod interval;
pub mod picture;
pub(crate) mod stack;
mod svg;
mod tiles;
pub(crate) mod trials;
