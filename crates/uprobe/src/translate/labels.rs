//! Labels that jumps of the assembler lead to.

/// A place that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(pub(crate) usize);

#[derive(Debug)]
pub(super) struct Fixup {
    /// Offset of the displacement.
    pub(super) position: usize,
    pub(super) is_short: bool,
    pub(super) label: Label,
}

pub(super) const UNBOUND: u32 = u32::MAX;

/// Offsets of labels. The first pass takes near jumps everywhere; code only shrinks in the second one, so that each jump
/// that was short enough after the first is short in the second.
#[derive(Debug)]
pub(super) struct Labels {
    /// Offsets in this pass.
    pub(super) offsets: Vec<u32>,
    /// Offsets in the pass before. Empty in the first.
    pub(super) previous: Vec<u32>,
    /// The jumps' ends in the pass before, and in this one, in the order of writing.
    pub(super) previous_ends: Vec<u32>,
    pub(super) ends: Vec<u32>,
    pub(super) fixups: Vec<Fixup>,
}

impl Labels {
    pub(super) fn new(count: usize) -> Self {
        Labels {
            offsets: vec![UNBOUND; count],
            previous: Vec::new(),
            previous_ends: Vec::new(),
            ends: Vec::new(),
            fixups: Vec::new(),
        }
    }
}
