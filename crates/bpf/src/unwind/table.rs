//! The rule table: which rule holds at which instruction, as `unwind.bpf.h` looks it up. Pure.

use std::collections::HashMap;

use super::rule::Rule;

/// Bytes of text in a block of the index, as a shift; see `bpf/unwind_maps.bpf.h`.
const BLOCK_SHIFT: u32 = 8;

/// Which rule holds where.
#[derive(Clone, Debug, Default)]
pub struct RuleTable {
    /// The lowest address of any text.
    pub(super) base: u64,
    /// From here on, text may be generated.
    pub(super) generated: u64,
    /// `struct unwind_place`: an offset from the base, and the number of the rule from there on.
    pub(super) places: Vec<[u32; 2]>,
    /// For each block of each range, the place that holds at its beginning; one more behind a range's last block.
    pub(super) blocks: Vec<u32>,
    /// Distinct rules as words.
    pub(super) rules: Vec<u64>,
    /// `struct unwind_range`: start and end as offsets, the first block, and nothing.
    pub(super) ranges: Vec<[u32; 4]>,
    numbers: HashMap<Rule, u32>,
    /// True if the rules are ORC's, not those of frame pointers.
    pub(super) is_orc: bool,
}

impl RuleTable {
    /// An empty table of text from `base` on; from `generated` on, code may be generated.
    pub(super) fn new(base: u64, generated: u64) -> Self {
        RuleTable {
            base,
            generated,
            ..RuleTable::default()
        }
    }

    /// Adds text with its rules, sorted by address; those outside it are left out. Ranges are added in the order of
    /// addresses; one that overlaps the range before it, or is out of reach, is left out.
    pub(super) fn add(
        &mut self,
        start: u64,
        end: u64,
        rules: impl IntoIterator<Item = (u64, Rule)>,
    ) {
        let offset = |address: u64| {
            address
                .checked_sub(self.base)
                .and_then(|o| u32::try_from(o).ok())
        };
        let (Some(start), Some(end)) = (offset(start), offset(end)) else {
            return;
        };
        let behind = self.ranges.last().is_none_or(|last| last[1] <= start);
        if start >= end || !behind {
            return;
        }
        let first_place = self.places.len();
        // Until the first entry, nothing is known.
        let unknown = self.number(Rule::default());
        self.places.push([start, unknown]);
        for (address, rule) in rules {
            let Some(place) = address
                .checked_sub(self.base)
                .and_then(|offset| u32::try_from(offset).ok())
                .filter(|offset| (start..end).contains(offset))
            else {
                continue;
            };
            let number = self.number(rule);
            match self.places.last_mut() {
                Some(last) if last[0] == place => last[1] = number,
                _ => self.places.push([place, number]),
            }
        }
        let first_block = self.blocks.len() as u32;
        let mut at = first_place;
        let blocks = (end - start).div_ceil(1 << BLOCK_SHIFT);
        for block in 0..=blocks {
            let block_start = u64::from(start) + (u64::from(block) << BLOCK_SHIFT);
            while self
                .places
                .get(at + 1)
                .is_some_and(|next| u64::from(next[0]) <= block_start)
            {
                at += 1;
            }
            self.blocks.push(at as u32);
        }
        self.ranges.push([start, end, first_block, 0]);
    }

    /// Returns true if the kernel's own tables (ORC) say how to walk, not frame pointers.
    pub fn is_orc(&self) -> bool {
        self.is_orc
    }

    /// From this address on, text is not the kernel's own: modules and generated code.
    pub(crate) fn generated(&self) -> u64 {
        self.generated
    }

    /// Returns true if the address is in text that has rules.
    pub fn covers(&self, address: u64) -> bool {
        let offset = address
            .checked_sub(self.base)
            .and_then(|offset| u32::try_from(offset).ok());
        let inside = |offset: u32| {
            self.ranges
                .iter()
                .any(|one| (one[0]..one[1]).contains(&offset))
        };
        offset.is_some_and(inside)
    }

    fn number(&mut self, rule: Rule) -> u32 {
        let next = self.rules.len() as u32;
        *self.numbers.entry(rule).or_insert_with(|| {
            self.rules.push(rule.word());
            next
        })
    }

    /// The rule at an address as a word, found by the index as BPF does it.
    #[cfg(test)]
    fn at(&self, address: u64) -> Option<u64> {
        let offset = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let range = self
            .ranges
            .iter()
            .find(|one| (one[0]..one[1]).contains(&offset))?;
        let block = (range[2] + ((offset - range[0]) >> BLOCK_SHIFT)) as usize;
        let (first, last) = (self.blocks[block] as usize, self.blocks[block + 1] as usize);
        let places = &self.places[first..=last];
        let after = places.partition_point(|place| place[0] <= offset);
        Some(self.rules[places[after.checked_sub(1)?][1] as usize])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(sp_offset: i16) -> Rule {
        Rule {
            sp_offset,
            ..Rule::ENTRY
        }
    }

    #[test]
    fn a_range_begins_without_a_rule_and_rules_outside_it_are_left_out() {
        let mut table = RuleTable::new(0x1000, 0x9000);
        table.add(
            0x1000,
            0x1400,
            [(0x1010, rule(8)), (0x1300, rule(16)), (0x1400, rule(24))],
        );
        table.add(0x5000, 0x5010, [(0x4ff0, rule(32)), (0x5000, rule(40))]);
        assert_eq!(table.at(0x1000), Some(Rule::default().word()));
        assert_eq!(table.at(0x1010), Some(rule(8).word()));
        assert_eq!(table.at(0x12ff), Some(rule(8).word()));
        assert_eq!(table.at(0x13ff), Some(rule(16).word()));
        assert_eq!(table.at(0x1400), None);
        assert_eq!(table.at(0x500f), Some(rule(40).word()));
        // Behind it, before it, across it, out of reach: nothing is added.
        let ranges = table.ranges.len();
        table.add(0x2000, 0x2010, []);
        table.add(0x5008, 0x5020, []);
        table.add(0x10, 0x20, []);
        table.add(1 << 40, (1 << 40) + 16, []);
        assert_eq!(table.ranges.len(), ranges);
    }

    proptest! {
        #[test]
        fn each_address_has_the_rule_of_the_entry_before_it(
            gaps in proptest::collection::vec((1u64..700, 0i16..40), 1..400),
            length in 1u64..40_000,
        ) {
            let base = 0xffff_ffff_8100_0000;
            let mut address = base;
            let entries: Vec<(u64, Rule)> = gaps.iter().map(|(gap, offset)| {
                address += gap;
                (address, rule(*offset))
            }).collect();
            let mut table = RuleTable::new(base, u64::MAX);
            table.add(base, base + length, entries.iter().copied());
            for probe in (0..length).step_by(13) {
                let address = base + probe;
                let before = entries.iter().rev().find(|(at, _)| *at <= address);
                let expected = before.map_or(Rule::default(), |(_, rule)| *rule);
                prop_assert_eq!(table.at(address), Some(expected.word()));
            }
        }
    }
}
