//! A flame graph, drawn by inferno.

use anyhow::{Context, Result};
use inferno::flamegraph::{self, Options};

use super::Profile;

impl Profile {
    /// An SVG file.
    ///
    /// # Errors
    ///
    /// Where there is no stack to draw.
    pub fn svg(&self) -> Result<Vec<u8>> {
        let folded = self.folded();
        let mut options = Options::default();
        options.title = format!("Kernel stacks of {}", self.input.events.join(", "));
        options.count_name = "events".to_owned();
        // The same picture of the same stacks.
        options.deterministic = true;
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, folded.iter().map(String::as_str), &mut svg)
            .context("cannot draw the flame graph")?;
        Ok(svg)
    }
}
