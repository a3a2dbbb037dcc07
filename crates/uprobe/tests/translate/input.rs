//! Random numbers, and inputs made of them.

use crate::trial::{CONSTANT_BYTES, CONTEXT_BYTES, ENTRIES, ENTRY_BYTES, Input, VALUE_BYTES};

/// SplitMix64 (Steele, Lea, Flood 2014): a number for each seed, far from that of the next.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// A number, mostly one at a limit of something.
    pub(crate) fn value(&mut self) -> u64 {
        let limit = self.choose(&[
            0,
            1,
            2,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            1 << 31,
            (1 << 31) - 1,
            u32::MAX.into(),
            0xffff_ffff_8000_0000,
            1 << 32,
            0x80,
            0x7fff,
            0x8000,
        ]);
        match self.below(4) {
            0 => limit,
            1 => limit.wrapping_add(self.below(9)).wrapping_sub(4),
            2 => self.below(256),
            _ => self.next(),
        }
    }

    pub(crate) fn immediate(&mut self) -> i32 {
        (self.value() as u32).cast_signed()
    }
}

/// An input: all memory random.
pub(crate) fn input(random: &mut Random) -> Input {
    let mut bytes = |length: usize| -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| random.value().to_le_bytes());
        words.take(length).collect()
    };
    Input {
        context: bytes(CONTEXT_BYTES),
        value: bytes(VALUE_BYTES as usize),
        entries: bytes((ENTRY_BYTES * ENTRIES) as usize),
    }
}

/// Constants: zeros, as options have that are not set; then numbers at limits.
pub(crate) fn constants() -> Vec<u8> {
    let mut random = Random::new(0);
    let words = (0..CONSTANT_BYTES / 8).flat_map(|word| match word {
        0..8 => [0; 8],
        8..12 => [1, 0, 0, 0, 1, 0, 0, 0],
        _ => random.value().to_le_bytes(),
    });
    words.collect()
}
