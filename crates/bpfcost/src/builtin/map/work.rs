//! The cases of `map`: kinds of map, sizes, operations.

use std::fs;

use anyhow::{Context, Result};

use bpfcost_model::{Case, Role, Sizing};

/// With a search in each operation, a larger batch would use up the iterations that `can_loop` grants a program.
const MAX_OPS: u64 = 1 << 20;
/// Bytes of the ring buffer for each CPU, and what a record has beside its value: a batch must fit in it.
pub(super) const RING_BYTES: u64 = 1 << 24;
const RECORD_HEAD: u64 = 8;

/// A kind of map: its name, its class, and how many of [`SIZES`] it is measured in. Programs and maps of
/// `map.bpf.c` are called by the name.
#[derive(Debug)]
pub(super) struct MapKind(pub(super) &'static str, pub(super) Class, pub(super) usize);

const KINDS: [MapKind; 11] = [
    MapKind("array", Class::Indexed, 4),
    // Each CPU has its own values, or a million entries are a million allocations: large values would take
    // much memory and show little.
    MapKind("percpu-array", Class::Indexed, 3),
    MapKind("hash", Class::Hash, 4),
    MapKind("percpu-hash", Class::Hash, 3),
    MapKind("lru-hash", Class::Hash, 4),
    MapKind("lpm-trie", Class::Trie, 3),
    MapKind("task-storage", Class::Storage, 2),
    MapKind("arena", Class::Arena, 4),
    MapKind("ring-buffer", Class::Ring, 2),
    MapKind("bloom", Class::Bloom, 4),
    MapKind("floor", Class::Floor, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Indexed,
    Hash,
    Trie,
    Storage,
    Arena,
    Ring,
    Bloom,
    /// No map: what goes with every operation.
    Floor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Hit,
    Miss,
    Write,
    InsertDelete,
    // Operations of floors: the choice of nothing, of an index, or of a key.
    None,
    Index,
    Key,
}

use Operation::{Hit, InsertDelete, Miss, Write};

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Hit => "hit",
            Miss => "miss",
            Write => "write",
            InsertDelete => "insert-delete",
            Operation::None => "none",
            Operation::Index => "index",
            Operation::Key => "key",
        }
    }
}

impl Class {
    fn operations(self) -> &'static [Operation] {
        match self {
            Class::Indexed | Class::Bloom => &[Hit, Miss, Write],
            Class::Hash | Class::Trie | Class::Arena => &[Hit, Miss, Write, InsertDelete],
            Class::Storage => &[Hit, Miss, InsertDelete],
            Class::Ring => &[Write],
            Class::Floor => &[Operation::None, Operation::Index, Operation::Key],
        }
    }

    fn about(self, operation: Operation) -> &'static str {
        match (self, operation) {
            (_, Operation::None) => "the loop and this CPU's counters",
            (_, Operation::Index) => "the same, and choosing an index",
            (_, Operation::Key) => "the same, and a key of 8 bytes on the stack",
            (Class::Storage, Hit) => "get the current task's storage, which exists",
            (Class::Storage, Miss) => "get the current task's storage, which does not exist",
            (Class::Storage, _) => "create and delete the current task's storage",
            (Class::Ring, _) => "reserve a record, write its first word, submit it",
            (Class::Bloom, Hit) => "peek at a value that was pushed",
            (Class::Bloom, Miss) => "peek at a value that was not pushed",
            (Class::Bloom, _) => "push a value",
            (Class::Indexed, Miss) => "look up an index beyond the end",
            (_, Hit) => "look up a present key, read a word of its value",
            (_, Miss) => "look up an absent key",
            (_, Write) => "replace the value of a present key",
            (_, InsertDelete) => "insert an absent key, delete it",
        }
    }

    fn floor(self) -> Option<&'static str> {
        match self {
            Class::Floor => None,
            Class::Storage => Some("floor/none"),
            Class::Indexed | Class::Ring | Class::Bloom => Some("floor/index"),
            Class::Hash | Class::Trie | Class::Arena => Some("floor/key"),
        }
    }

    /// Returns whether a map of this class holds the resident keys.
    pub(super) fn is_table(self) -> bool {
        !matches!(self, Class::Storage | Class::Ring | Class::Floor)
    }
}

impl MapKind {
    /// Returns whether each CPU has values of its own.
    pub(super) fn is_percpu(&self) -> bool {
        self.0.starts_with("percpu")
    }
}

/// The size of tables: resident entries, and bytes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size(pub(super) u64, pub(super) u64);

const SIZES: [Size; 4] = [
    Size(1_000, 16),
    Size(1_000, 256),
    Size(1_000_000, 16),
    Size(1_000_000, 256),
];

impl Size {
    /// Returns the reason if this machine has too little memory for all tables of this size; `None` if it has enough,
    /// or if the kernel does not report its memory.
    pub(super) fn lacks_memory(self) -> Option<String> {
        let needed = match self {
            Size(1_000, _) => 0,
            Size(_, 16) => 700,
            _ => 2048,
        };
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let mut entries = text.lines().filter_map(|line| line.split_once(':'));
        let (_, kib) = entries.find(|(name, _)| *name == "MemAvailable")?;
        let available = kib.split_whitespace().next()?.parse::<u64>().ok()? / 1024;
        (available < needed).then(|| {
            format!(
                "tables of this size need {needed} MiB of memory, and {available} MiB are available"
            )
        })
    }
}

/// Map, size and operation of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapCase {
    pub(super) kind: &'static MapKind,
    pub(super) size: Size,
    pub(super) operation: Operation,
}

impl MapCase {
    /// All of them, in the order of tables.
    pub(super) fn all() -> impl Iterator<Item = MapCase> {
        KINDS.iter().flat_map(|kind| {
            SIZES[..kind.2].iter().flat_map(move |&size| {
                let operations = kind.1.operations().iter();
                operations.map(move |&operation| MapCase {
                    kind,
                    size,
                    operation,
                })
            })
        })
    }

    pub(super) fn from_case(case: &Case) -> Result<MapCase> {
        let matching = MapCase::all().find(|work| work.name() == case.name);
        matching.with_context(|| format!("map has no case {}", case.name))
    }

    fn row(self) -> String {
        let (MapKind(name, class, _), Size(entries, bytes)) = (self.kind, self.size);
        match (class, entries) {
            (Class::Floor, _) => (*name).to_owned(),
            (Class::Storage | Class::Ring, _) => format!("{name}-{bytes}B"),
            (_, 1_000) => format!("{name}-1k-{bytes}B"),
            _ => format!("{name}-1M-{bytes}B"),
        }
    }

    pub(super) fn name(self) -> String {
        format!("{}/{}", self.row(), self.operation.name())
    }

    /// Returns the name of the case's map, which is also the prefix of its programs' names.
    pub(super) fn map(self) -> String {
        let name = self.kind.0.replace('-', "_");
        match self.kind.1 {
            Class::Storage => format!("{name}_{}", self.size.1),
            _ => name,
        }
    }

    /// The timed program; in tests, one that is wrong.
    pub(super) fn program(self, faulty: bool) -> String {
        let map = match (faulty, self.kind.0) {
            (true, "hash") => "wrong".to_owned(),
            (true, "bloom") => "wrong_bloom".to_owned(),
            (true, "task-storage") => "wrong_task".to_owned(),
            (true, "floor") => "wrong_floor".to_owned(),
            _ => self.map(),
        };
        format!("{map}_{}", self.operation.name().replace('-', "_"))
    }

    /// Returns the packet that the case's program runs on; empty for storage maps, whose raw tracepoint takes no
    /// packet.
    pub(super) fn packet(self) -> Vec<u8> {
        vec![0; if self.kind.1 == Class::Storage { 0 } else { 64 }]
    }

    pub(super) fn case(self) -> Case {
        let MapCase {
            kind: &MapKind(kind, class, _),
            size: Size(entries, bytes),
            operation,
        } = self;
        let mut factors = vec![
            ("map", self.row()),
            ("operation", operation.name().to_owned()),
            ("kind", kind.to_owned()),
            ("value", bytes.to_string()),
        ];
        if class.is_table() {
            factors.push(("entries", entries.to_string()));
        }
        let floor = class.floor();
        factors.retain(|_| floor.is_some());
        let most = match class {
            Class::Ring => RING_BYTES / (bytes + RECORD_HEAD) - 1,
            _ => MAX_OPS,
        };
        Case {
            name: self.name(),
            group: floor.map_or("floors", |_| kind).to_owned(),
            factors: factors
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect(),
            about: class.about(operation).to_owned(),
            role: floor.map_or(Role::Floor, |_| Role::Case),
            floor: floor.map(str::to_owned),
            sizing: Sizing::Calibrated { most: Some(most) },
            slow: entries > 1_000,
            ..Case::default()
        }
    }
}
