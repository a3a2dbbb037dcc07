//! Small tables with their findings, as the template takes them.

use serde::Serialize;

use super::tables::{self, Table};
use crate::report::{block::Block, style::Tone};

/// A table with what is to know of it.
#[derive(Serialize)]
pub(super) struct BlockPart {
    table: Table,
    notes: Vec<Finding>,
    captions: Vec<String>,
}

#[derive(Serialize)]
struct Finding {
    text: String,
    /// Whether it stands out.
    open: bool,
}

impl BlockPart {
    pub(super) fn new(block: Block) -> Self {
        let finding = |note: &crate::report::block::Note| Finding {
            text: note.text.clone(),
            open: matches!(note.tone, Tone::Open | Tone::Alarm),
        };
        BlockPart {
            notes: block.notes.iter().map(finding).collect(),
            captions: block.captions.clone(),
            table: tables::block_table(block),
        }
    }
}
