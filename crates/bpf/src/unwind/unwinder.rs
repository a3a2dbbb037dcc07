//! The maps of an object that includes `unwind.bpf.h`: sized before it is loaded, filled after, and read.

#![allow(unsafe_code)]

use std::{
    ptr,
    sync::atomic::{Ordering, fence},
};

use libbpf_rs::{Map, MapCore as _, Object, OpenObject};
use memmap2::MmapMut;

use super::{rule::Rule, table::RuleTable};
use crate::{
    error::{Result, lacks, map_failed},
    mapping,
    plain::{Plain, bytes_of, read},
    shared::{unwind_node, unwind_stack, unwind_state},
};

/// Bytes of a node; see `bpf/unwind_maps.bpf.h`.
const NODE_BYTES: usize = size_of::<unwind_node>();
/// rbp's value goes with the walk.
const BP_KEPT: i32 = i32::MIN;

/// Roots: `enum unwind_root` for each time that the rules were written. Node 0 is none, so they begin behind it.
const MAX_ROOTS: usize = 2048;
const ROOTS: usize = 4;
/// In `enum unwind_root`: added where stacks are stale.
const STALE: usize = 2;

/// Spare room in a map of the table beyond its contents, for modules that are loaded later: this many times the
/// contents, and this many entries.
const SPARE_SHARE: f64 = 0.25;
const SPARE: u32 = 1 << 16;

/// Walks that did not go as they should, since the object was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwindLosses {
    /// Ended at an address without a rule, or with one that can't be followed.
    pub lost: u64,
    /// Counted at a frame before their end, because no node was left.
    pub full: u64,
    /// Walked while modules came or went, so that rules may have been others'.
    pub stale: u64,
}

impl UnwindLosses {
    /// Returns what was added since `before`.
    pub fn since(self, before: Self) -> Self {
        UnwindLosses {
            lost: self.lost.saturating_sub(before.lost),
            full: self.full.saturating_sub(before.full),
            stale: self.stale.saturating_sub(before.stale),
        }
    }
}

/// When a stack was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation {
    /// Times that the rules had been written anew.
    pub rules: usize,
    /// True if modules had come or gone since, so that its addresses in modules may be of others.
    pub is_stale: bool,
}

/// A stack that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedStack {
    /// Leaf of the stack, to be asked for its addresses.
    pub leaf: u32,
    /// Times that it was counted.
    pub count: u64,
    /// Stacks of these that went on where no node was left.
    pub cut: u64,
}

/// The filled maps of a loaded object.
#[derive(Debug)]
pub struct Unwinder {
    state: MmapMut,
    nodes: MmapMut,
    places: MmapMut,
    blocks: MmapMut,
    rules: MmapMut,
    ranges: MmapMut,
    /// Times that the rules were written.
    written: usize,
}

impl Unwinder {
    /// The maps of `unwind.bpf.h`.
    pub const MAPS: [&'static str; 7] = [
        "unwind_nodes",
        "unwind_children",
        "unwind_states",
        "unwind_places",
        "unwind_blocks",
        "unwind_rules",
        "unwind_ranges",
    ];

    /// Makes the maps of an open object as large as the rules need.
    ///
    /// # Errors
    ///
    /// Where the object does not include `unwind.bpf.h`.
    pub fn size(object: &mut OpenObject, rules: &RuleTable) -> Result<()> {
        let roomy = |entries: usize| entries as u32 + (entries as f64 * SPARE_SHARE) as u32 + SPARE;
        let sizes = [
            ("unwind_places", roomy(rules.places.len())),
            ("unwind_blocks", roomy(rules.blocks.len())),
        ];
        for (name, entries) in sizes {
            let map = object.maps_mut().find(|map| map.name() == name);
            let mut map = map.ok_or_else(|| lacks("the object", &format!("map {name}")))?;
            map.set_max_entries(entries)
                .map_err(map_failed(name, "sizing it"))?;
        }
        Ok(())
    }

    /// Fills the maps of a loaded object.
    ///
    /// # Errors
    ///
    /// Where the object does not include `unwind.bpf.h`, or the rules are more than it has room for.
    pub fn fill(object: &Object, rules: &RuleTable) -> Result<Self> {
        let mapped = |name: &'static str| {
            let map = object.maps().find(|map: &Map<'_>| map.name() == name);
            let map = map.ok_or_else(|| lacks("the object", &format!("map {name}")))?;
            mapping::map(&map, name)
        };
        let mut unwinder = Unwinder {
            state: mapped("unwind_states")?,
            nodes: mapped("unwind_nodes")?,
            places: mapped("unwind_places")?,
            blocks: mapped("unwind_blocks")?,
            rules: mapped("unwind_rules")?,
            ranges: mapped("unwind_ranges")?,
            written: 0,
        };
        unwinder.clear();
        unwinder.write(rules, 0)?;
        Ok(unwinder)
    }

    /// Forgets all stacks. No program may run meanwhile.
    fn clear(&mut self) {
        // An address that no memory has: what `next` names where nothing came yet must equal none.
        let cookie = random() | 1 << 63;
        let none = unwind_node {
            ip: cookie,
            ..unwind_node::default()
        };
        self.put_node(0, &none);
        let state = unwind_state {
            used: MAX_ROOTS as u64,
            ..unwind_state::default()
        };
        put(&mut self.state, 0, &state);
    }

    /// Puts other rules in the place of those that were: modules came or went. Stacks from now on are counted in a
    /// tree apart, whose nodes know the new rules. `changes` is what [`changes`](Self::changes) said before the rules were
    /// read.
    ///
    /// # Errors
    ///
    /// Where there is no room for the rules, or they were written too often.
    pub fn write(&mut self, rules: &RuleTable, changes: u32) -> Result<()> {
        let first_root = 1 + ROOTS * self.written;
        if first_root + ROOTS > MAX_ROOTS {
            return Err(crate::Error::Refused(
                "modules came and went too often; start again".to_owned(),
            ));
        }
        let fits = |map: &MmapMut, bytes: usize| bytes <= map.len();
        let fit = fits(&self.places, rules.places.len() * 8)
            && fits(&self.blocks, rules.blocks.len() * 8)
            && fits(&self.rules, rules.rules.len() * 8)
            && fits(&self.ranges, rules.ranges.len() * 16);
        if !fit {
            return Err(crate::Error::Refused(
                "modules that were loaded have more unwind tables than there is room for; start again".to_owned(),
            ));
        }
        write_all(&mut self.places, &rules.places);
        write_all(&mut self.blocks, &rules.blocks);
        write_all(&mut self.rules, &rules.rules);
        write_all(&mut self.ranges, &rules.ranges);
        for stale in [0, STALE] {
            self.put_node(
                first_root + stale,
                &unwind_node {
                    step: 8,
                    bp_place: BP_KEPT,
                    ..root(Rule::ABOVE_FRAME)
                },
            );
            self.put_node(first_root + stale + 1, &root(Rule::REGISTERS));
        }
        let mut state = self.state();
        state.base = rules.base;
        state.generated = rules.generated;
        state.ranges = rules.ranges.len() as u32;
        state.keeps_frames = u32::from(!rules.is_orc());
        // Only what user space owns: programs count behind it meanwhile. From the last word on, walks are not stale.
        let last = std::mem::offset_of!(unwind_state, known);
        self.state[..last].copy_from_slice(&bytes_of(&state)[..last]);
        fence(Ordering::SeqCst);
        let roots = (first_root * NODE_BYTES) as u64;
        put_word(&mut self.state, last, u64::from(changes) | roots << 32);
        self.written += 1;
        Ok(())
    }

    /// Walks that did not go as they should.
    pub fn losses(&self) -> UnwindLosses {
        let state = self.state();
        UnwindLosses {
            lost: state.lost,
            full: state.full,
            stale: state.stale,
        }
    }

    /// Returns the number of times that modules came or went, as programs of the object noted it
    /// (`unwind_module_changed()`); `None` where the rules are of that time.
    pub fn changes(&self) -> Option<u32> {
        let state = self.state();
        (state.changes != state.known).then_some(state.changes)
    }

    /// Nodes in use.
    pub fn nodes_used(&self) -> u64 {
        self.state()
            .used
            .min((self.nodes.len() / NODE_BYTES) as u64)
    }

    /// Stacks that were counted, in no order.
    pub fn stacks(&self) -> Vec<CountedStack> {
        let leaves = 0..self.nodes_used() as usize;
        let counted = leaves.filter_map(|index| {
            let node = self.node(index);
            (node.count > 0).then_some(CountedStack {
                leaf: (index * NODE_BYTES) as u32,
                count: node.count,
                cut: node.cut,
            })
        });
        counted.collect()
    }

    /// The addresses of a stack, the innermost first.
    pub fn addresses(&self, leaf: u32) -> Vec<u64> {
        self.path(leaf).0
    }

    /// When a stack was taken.
    pub fn generation(&self, leaf: u32) -> Generation {
        self.path(leaf).1
    }

    /// The addresses of a leaf, and the generation of its root.
    fn path(&self, leaf: u32) -> (Vec<u64>, Generation) {
        let mut addresses = Vec::new();
        let mut index = leaf as usize / NODE_BYTES;
        // Roots have no address. Parents have smaller numbers, so it ends.
        while index >= MAX_ROOTS && index < self.nodes.len() / NODE_BYTES {
            let node = self.node(index);
            addresses.push(node.ip);
            let parent = node.parent as usize / NODE_BYTES;
            if parent >= index {
                break;
            }
            index = parent;
        }
        addresses.reverse();
        let root = index.saturating_sub(1);
        let generation = Generation {
            rules: root / ROOTS,
            is_stale: root % ROOTS >= STALE,
        };
        (addresses, generation)
    }

    /// Returns the number of times that the stack of a leaf was counted.
    pub fn count(&self, leaf: u32) -> u64 {
        self.node(leaf as usize / NODE_BYTES).count
    }

    fn node(&self, index: usize) -> unwind_node {
        fetch(&self.nodes, index * NODE_BYTES)
    }

    fn put_node(&mut self, index: usize, node: &unwind_node) {
        put(&mut self.nodes, index * NODE_BYTES, node);
    }

    fn state(&self) -> unwind_state {
        fetch(&self.state, 0)
    }
}

/// The addresses of a record that is a `struct unwind_stack`, into a buffer.
pub(crate) fn read_addresses(record: &[u8], addresses: &mut Vec<u64>) {
    addresses.clear();
    let depth: u32 = read(record).unwrap_or_default();
    let words = record.get(std::mem::offset_of!(unwind_stack, ip)..);
    let words = words.unwrap_or_default().chunks_exact(8);
    addresses.extend(words.take(depth as usize).filter_map(read::<u64>));
}

/// A root whose children are found by that rule.
fn root(rule: Rule) -> unwind_node {
    let mut node = unwind_node {
        bp_place: BP_KEPT,
        ..unwind_node::default()
    };
    if let Some(read) = read(&rule.word().to_le_bytes()) {
        node.rule = read;
    }
    node
}

/// Entries of an array from the first on.
fn write_all<T: Plain>(map: &mut MmapMut, values: &[T]) {
    let stride = size_of::<T>().next_multiple_of(8);
    for (entry, value) in map.chunks_exact_mut(stride).zip(values) {
        entry[..size_of::<T>()].copy_from_slice(bytes_of(value));
    }
}

fn put<T: Plain>(map: &mut MmapMut, offset: usize, value: &T) {
    if let Some(bytes) = map.get_mut(offset..offset + size_of::<T>()) {
        bytes.copy_from_slice(bytes_of(value));
    }
}

/// Writes a word that programs read meanwhile: at once.
fn put_word(map: &mut MmapMut, offset: usize, word: u64) {
    if let Some(bytes) = map.get_mut(offset..offset + size_of::<u64>()) {
        debug_assert_eq!(offset % size_of::<u64>(), 0);
        // SAFETY: a valid, aligned word of the mapping (its start is a page's, and the offset a multiple of 8), which
        // nothing else in this process refers to.
        unsafe { ptr::write_volatile(bytes.as_mut_ptr().cast::<u64>(), word) };
    }
}

/// Reads what programs write meanwhile: word by word, so each word is one that was there.
fn fetch<T: Plain + Default>(map: &MmapMut, offset: usize) -> T {
    let Some(bytes) = map.get(offset..offset + size_of::<T>()) else {
        return T::default();
    };
    let words: Vec<u8> = (bytes.chunks_exact(8))
        .flat_map(|word| {
            // SAFETY: a valid, aligned word of the mapping (its offsets and sizes are multiples of 8); the kernel's
            // programs write to it, so it is read once and not kept.
            unsafe { ptr::read_volatile(word.as_ptr().cast::<u64>()) }.to_ne_bytes()
        })
        .collect();
    read(&words).unwrap_or_default()
}

/// A number that nothing in the kernel can guess.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    match read {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => std::process::id().into(),
    }
}
