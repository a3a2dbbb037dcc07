//! Numbers that look random and are the same each time.

use core::cell::Cell;

/// SplitMix64 (Steele, Lea and Flood, 2014): a few lines, and enough to keep threads out of step.
#[derive(Debug)]
pub(super) struct Random(Cell<u64>);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(Cell::new(seed))
    }

    /// From 0 to 1, evenly.
    pub(super) fn unit(&self) -> f64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A factor around 1, at most `spread` from it.
    pub(super) fn around_one(&self, spread: f64) -> f64 {
        1.0 + spread * (2.0 * self.unit() - 1.0)
    }
}
