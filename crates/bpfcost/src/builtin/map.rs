//! `map`: what does an operation on a map cost, and which map should a program use?
//!
//! Ten kinds of map, with 1,000 and 1,000,000 entries and values of 16 and 256 bytes, each looked up, missed,
//! written and, where it can, with a key inserted and deleted again. What is in the number and what is not
//! stands at the head of `map.bpf.c`.
//!
//! A key is chosen by xorshift32 (Marsaglia 2003), from a seed that each batch and CPU has of its own. User space
//! walks the same keys, and so knows every value that a batch must have read, and what it must have left.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    Feature, Pinned,
    timed::{OpenObject, Shape, TimedObject},
    timing::{Loop, Request, Seen},
};

use crate::builtin::{
    batch::{self, WARM_UP_SHARE},
    ladder,
    memory::{self, KernelMemory},
};
use crate::experiment::{
    Batch, Case, Description, Experiment, Fault, Grid, Layout, Loaded, Overhead, Pair, Problem,
    Role, Sentinel, Setup, Sizing, Trial, differs, missing, prove,
};

/// A batch of more would, with a search in each of its operations, use up what `can_loop` grants a program.
const MOST_OPS: u64 = 1 << 20;
/// Bytes of the ring buffer for each CPU, and what a record has beside its value: a batch must fit in it.
const RING_BYTES: u64 = 1 << 24;
const RECORD_HEAD: u64 = 8;
/// Room beside the resident entries: free elements that a CPU of an LRU map keeps for itself, twice over.
const ROOM: u64 = 256;
/// Keys that are never in a map begin here; behind them come each CPU's own (`ABSENT` in `map.bpf.c`).
const ABSENT: u64 = 1 << 20;
/// The most keys that are looked at after a batch.
const CHECKED: u64 = 1000;
/// The step between these, which divides no number of entries.
const CHECK_STEP: u64 = 997;
/// Keys that one run fills in.
const FILLED: u64 = 1 << 16;
/// The part of keys never pushed that a bloom filter may take for pushed, with five hashes.
const FALSE_POSITIVES: f64 = 0.1;

/// Sizes of tables: resident entries, bytes of a value.
const SIZES: [Size; 4] = [
    Size(1_000, 16),
    Size(1_000, 256),
    Size(1_000_000, 16),
    Size(1_000_000, 256),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Size(u64, u64);

impl Size {
    fn entries(self) -> &'static str {
        if self.0 == 1_000 { "1k" } else { "1M" }
    }

    fn large(self) -> bool {
        self.0 > 1_000
    }

    /// The memory that a machine should have free for all tables of this size, in MiB.
    fn memory_mib(self) -> u64 {
        match (self.large(), self.1) {
            (false, _) => 0,
            (true, 16) => 700,
            (true, _) => 2048,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Array,
    PercpuArray,
    Hash,
    PercpuHash,
    LruHash,
    LpmTrie,
    TaskStorage,
    Arena,
    RingBuffer,
    Bloom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Hit,
    Miss,
    Write,
    InsertDelete,
}

use Kind::{
    Arena, Array, Bloom, Hash, LpmTrie, LruHash, PercpuArray, PercpuHash, RingBuffer, TaskStorage,
};
use Operation::{Hit, InsertDelete, Miss, Write};

const KINDS: [Kind; 10] = [
    Array,
    PercpuArray,
    Hash,
    PercpuHash,
    LruHash,
    LpmTrie,
    TaskStorage,
    Arena,
    RingBuffer,
    Bloom,
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Array => "array",
            PercpuArray => "percpu-array",
            Hash => "hash",
            PercpuHash => "percpu-hash",
            LruHash => "lru-hash",
            LpmTrie => "lpm-trie",
            TaskStorage => "task-storage",
            Arena => "arena",
            RingBuffer => "ring-buffer",
            Bloom => "bloom",
        })
    }
}

impl Kind {
    fn operations(self) -> &'static [Operation] {
        match self {
            Array | PercpuArray | Bloom => &[Hit, Miss, Write],
            Hash | PercpuHash | LruHash | LpmTrie | Arena => &[Hit, Miss, Write, InsertDelete],
            TaskStorage => &[Hit, Miss, InsertDelete],
            RingBuffer => &[Write],
        }
    }

    /// Whether it has a number of entries that is worth changing.
    fn sized(self) -> bool {
        !matches!(self, TaskStorage | RingBuffer)
    }

    /// Each CPU has values of its own, or a million entries are many allocations: large values would take
    /// more memory than they tell.
    fn heavy(self) -> bool {
        matches!(self, PercpuArray | PercpuHash | LpmTrie)
    }

    fn percpu(self) -> bool {
        matches!(self, PercpuArray | PercpuHash)
    }

    /// Whether user space can count its keys.
    fn counted(self) -> bool {
        matches!(self, Hash | PercpuHash | LruHash | LpmTrie)
    }

    fn floor(self) -> &'static str {
        match self {
            TaskStorage => "floor/none",
            Array | PercpuArray | RingBuffer | Bloom => "floor/index",
            Hash | PercpuHash | LruHash | LpmTrie | Arena => "floor/key",
        }
    }
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Hit => "hit",
            Miss => "miss",
            Write => "write",
            InsertDelete => "insert-delete",
        }
    }
}

/// What a case does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// Nothing but what goes with every operation; its name.
    Floor(&'static str),
    On(Kind, Size, Operation),
}

const FLOORS: [(&str, &str); 3] = [
    ("floor/none", "the loop and this CPU's counters"),
    ("floor/index", "the same, and the choice of an index"),
    ("floor/key", "the same, and a key of 8 bytes on the stack"),
];

impl Work {
    /// All of them, in the order of tables.
    fn all() -> Vec<Work> {
        let floors = FLOORS.map(|(name, _)| Work::Floor(name));
        let rows = KINDS.into_iter().flat_map(|kind| {
            let fits = move |size: &Size| match (kind.sized(), size.large()) {
                (false, large) => !large,
                (true, large) => !(large && size.1 > 16 && kind.heavy()),
            };
            SIZES.into_iter().filter(fits).map(move |size| (kind, size))
        });
        let on = |(kind, size): (Kind, Size)| {
            let operations = kind.operations().iter();
            operations.map(move |&operation| Work::On(kind, size, operation))
        };
        rows.flat_map(on).chain(floors).collect()
    }

    fn of(case: &Case) -> Option<Work> {
        Work::all()
            .into_iter()
            .find(|work| work.name() == case.name)
    }

    fn name(self) -> String {
        match self {
            Work::Floor(name) => name.to_owned(),
            Work::On(kind, size, operation) => format!("{}/{}", row(kind, size), operation.name()),
        }
    }

    /// The size of the tables in its object.
    fn size(self) -> Size {
        match self {
            Work::Floor(_) => SIZES[0],
            Work::On(_, size, _) => size,
        }
    }

    /// The timed program.
    fn program(self) -> String {
        match self {
            Work::Floor(name) => name.replace('/', "_"),
            Work::On(kind, size, operation) => {
                format!("{}_{}", prefix(kind, size), operation.name()).replace('-', "_")
            }
        }
    }

    fn about(self) -> String {
        let (kind, operation) = match self {
            Work::Floor(name) => {
                let about = FLOORS.into_iter().find(|(own, _)| *own == name);
                return about.map_or_else(String::new, |(_, about)| about.to_owned());
            }
            Work::On(kind, _, operation) => (kind, operation),
        };
        match (kind, operation) {
            (TaskStorage, Hit) => "the storage of the current task is there",
            (TaskStorage, Miss) => "the current task has no storage",
            (TaskStorage, _) => "storage is made for the current task, and deleted",
            (RingBuffer, _) => "a record is reserved, its first word written, and submitted",
            (Bloom, Hit) => "a value that was pushed is peeked at",
            (Bloom, Miss) => "a value that was not pushed is peeked at",
            (Bloom, _) => "a value is pushed",
            (Array | PercpuArray, Miss) => "an index beyond the end is looked up",
            (_, Hit) => "a key that is there is looked up, and a word of its value read",
            (_, Miss) => "a key that is not there is looked up",
            (_, Write) => "the value of a key that is there is replaced",
            (_, InsertDelete) => "a key that is not there is inserted, and deleted",
        }
        .to_owned()
    }
}

fn row(kind: Kind, size: Size) -> String {
    if kind.sized() {
        format!("{kind}-{}-{}B", size.entries(), size.1)
    } else {
        format!("{kind}-{}B", size.1)
    }
}

/// What programs and maps of a kind are called.
fn prefix(kind: Kind, size: Size) -> String {
    match kind {
        TaskStorage => format!("task_storage_{}", size.1),
        kind => kind.to_string().replace('-', "_"),
    }
}

/// The experiment.
#[derive(Debug, Default)]
pub struct Maps {
    faulty: bool,
}

impl Maps {
    /// With programs for hash maps that are wrong on purpose.
    pub fn with_faults() -> Self {
        Maps { faulty: true }
    }
}

impl Experiment for Maps {
    fn description(&self) -> Description {
        Description {
            layout: Layout::Grid(Grid {
                rows: "map".into(),
                columns: "operation".into(),
                net: "what an operation on the map costs, less what choosing its key costs (its floor)".into(),
                floors: "Floors differ in the key that they choose: none, an index, or 8 bytes on the stack."
                    .into(),
                note: None,
            }),
            overhead: Overhead {
                // Programs are verified, and a million keys put into each of the large tables.
                load_s: 3.0,
                // The keys are walked again, and looked at.
                trial_s: 0.002,
                // An eighth to warm up, and the batch.
                batches: 1.2,
            },
            ..Description::new(
                "map",
                "operations on ten kinds of map, by size: hit, miss, write, insert and delete",
                &[
                    ("map", "kind, entries and bytes of a value"),
                    (
                        "operation",
                        "hit, miss, write (replace, push, submit) or insert-delete (both, of one key)",
                    ),
                    ("kind", "the kind of map; arena: a hash table of one's own"),
                    ("entries", "resident keys: 1,000 or 1,000,000"),
                    ("value", "bytes of a value: 16 or 256"),
                ],
            )
        }
    }

    fn cases(&self) -> Vec<Case> {
        Work::all().into_iter().map(case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let small = SIZES[0];
        let against = |kind, other, operation, about: &str| Pair {
            case: Work::On(kind, small, operation).name(),
            baseline: Work::On(other, small, operation).name(),
            about: about.to_owned(),
        };
        let mut pairs = vec![
            against(Hash, Array, Hit, "hash against array"),
            against(PercpuArray, Array, Hit, "per-CPU array against array"),
            against(PercpuHash, Hash, Hit, "per-CPU hash against hash"),
            against(LruHash, Hash, Hit, "LRU against hash"),
            against(LruHash, Hash, InsertDelete, "LRU against hash, insertion"),
            against(LpmTrie, Hash, Hit, "LPM trie against hash"),
            against(TaskStorage, Hash, Hit, "task storage against hash"),
            against(Arena, Hash, Hit, "a hash table in an arena against hash"),
            against(Arena, Hash, InsertDelete, "the same, insertion"),
            against(Bloom, Hash, Miss, "bloom filter against hash, missed"),
            against(RingBuffer, Array, Write, "ring buffer against array"),
        ];
        for kind in [Array, Hash, LruHash, LpmTrie, Arena] {
            pairs.push(Pair {
                case: Work::On(kind, SIZES[2], Hit).name(),
                baseline: Work::On(kind, small, Hit).name(),
                about: format!("{kind}, 1,000,000 entries against 1,000"),
            });
        }
        for kind in [Array, Hash] {
            pairs.push(Pair {
                case: Work::On(kind, SIZES[1], Write).name(),
                baseline: Work::On(kind, small, Write).name(),
                about: format!("{kind}, values of 256 bytes against 16"),
            });
        }
        pairs
    }

    fn needs(&self, case: &Case) -> Vec<Feature> {
        // The loop is can_loop where there is one.
        let mut needs = vec![Feature::Btf, Feature::XdpTestRun, Feature::BpfLoop];
        match Work::of(case) {
            Some(Work::On(Arena, ..)) => needs.extend([Feature::Arena, Feature::CanLoop]),
            Some(Work::On(LruHash, ..)) => needs.push(Feature::LruHash),
            Some(Work::On(TaskStorage, ..)) => needs.push(Feature::RawTracepoint),
            Some(Work::On(RingBuffer, ..)) => needs.push(Feature::RingBuffer),
            _ => {}
        }
        needs
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        let lacking = missing(&self.needs(case))?;
        let needed = Work::of(case).map_or(0, |work| work.size().memory_mib());
        Ok(lacking.or_else(|| memory::lacking("tables of this size", needed)))
    }

    fn programs(&self) -> Result<Option<String>> {
        ladder::programs(Loop::probe()?).map(Some)
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn Loaded>> {
        Ok(Box::new(Epoch::load(setup, self.faulty)?))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        ladder::sentinel(setup)
    }
}

fn case(work: Work) -> Case {
    let mut factors = BTreeMap::new();
    let mut factor = |name: &str, value: String| factors.insert(name.to_owned(), value);
    let mut most = MOST_OPS;
    let (role, group, floor) = match work {
        Work::Floor(_) => (Role::Floor, "floors".to_owned(), None),
        Work::On(kind, size, operation) => {
            factor("map", row(kind, size));
            factor("operation", operation.name().to_owned());
            factor("kind", kind.to_string());
            factor("value", size.1.to_string());
            if kind.sized() {
                factor("entries", size.0.to_string());
            }
            if kind == RingBuffer {
                most = RING_BYTES / (size.1 + RECORD_HEAD) - 1;
            }
            (Role::Case, kind.to_string(), Some(kind.floor().to_owned()))
        }
    };
    Case {
        name: work.name(),
        group,
        factors,
        about: work.about(),
        role,
        floor,
        sizing: Sizing::Calibrated { most: Some(most) },
        slow: work.size().large(),
        ..Case::default()
    }
}

/// The tables of each size, filled.
struct Epoch {
    objects: BTreeMap<Size, Tables>,
    cpus: Vec<u32>,
    seed: u64,
    exact: bool,
    faulty: bool,
    /// Batches so far: gives each keys of its own.
    batches: u64,
    memory_before: KernelMemory,
    _pinned: Pinned,
}

/// The tables of one size.
struct Tables {
    object: TimedObject,
    /// What the first word of each resident value must be.
    values: BTreeMap<Kind, Vec<Vec<u64>>>,
}

/// What one CPU counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    done: u64,
    failed: u64,
    sum: u64,
}

impl Epoch {
    fn load(setup: &Setup, faulty: bool) -> Result<Self> {
        let first = *setup.cpus.first().context("no CPU was chosen")?;
        let (memory_before, pinned) = (KernelMemory::now(), Pinned::to(first)?);
        let mut work: BTreeMap<Size, Vec<Work>> = BTreeMap::new();
        for case in &setup.cases {
            let own = Work::of(case).with_context(|| format!("map has no case {}", case.name))?;
            work.entry(own.size()).or_default().push(own);
        }
        let mut objects = BTreeMap::new();
        for (size, work) in work {
            objects.insert(size, Tables::load(size, &work, setup, faulty)?);
        }
        Ok(Epoch {
            objects,
            cpus: setup.cpus.clone(),
            // Where instructions are counted, each load walks the same keys.
            seed: setup.seed
                ^ if setup.exact {
                    0
                } else {
                    setup.epoch as u64 + 1
                },
            exact: setup.exact,
            faulty,
            batches: 0,
            memory_before,
            _pinned: pinned,
        })
    }

    /// One batch, proved.
    fn batch(&mut self, work: Work, ops: u64) -> Result<Vec<Seen>, Fault> {
        // Batches that count instructions repeat the same keys, whatever ran before them.
        self.batches += 1;
        let run = if self.exact { 0 } else { self.batches };
        let tables = self.objects.get_mut(&work.size());
        let tables = tables.context("tables of this size were not loaded")?;
        let walks: Vec<Walk> = self
            .cpus
            .iter()
            .map(|&cpu| Walk::new(self.seed, run, cpu, work.size().0))
            .collect();
        let salt = self.batches;
        for ((walk, &cpu), slot) in walks.iter().zip(&self.cpus).zip(0..) {
            tables.begin(walk, cpu, slot, salt)?;
        }
        let raw = matches!(work, Work::On(TaskStorage, ..));
        let packet = vec![0; if raw { 0 } else { 64 }];
        let request = Request {
            ops,
            resets: 1,
            cpus: &self.cpus,
            after_tick: self.exact,
        };
        let program = program(work, self.faulty);
        let packets = vec![packet; self.cpus.len()];
        let seen = tables.object.batch(&program, &request, &packets);
        let seen = seen?;
        prove(batch::problem(&self.cpus, &seen, ops, self.exact))?;
        for ((walk, &cpu), at) in walks.iter().zip(&self.cpus).zip(0..) {
            let expected = tables.expected(work, walk, ops, at);
            prove(counts_problem(work, expected, tables.counts(cpu)?))?;
        }
        if let Some(code) = seen.iter().map(|seen| seen.code).find(|&code| code != 0) {
            prove(differs("return code", 0, code, "the last operation failed"))?;
        }
        tables.left(work, &walks, ops, salt, &self.cpus)?;
        Ok(seen)
    }
}

/// The timed program of a case; or the wrong one, in tests.
fn program(work: Work, faulty: bool) -> String {
    match work {
        Work::On(Hash, _, Hit | Write | InsertDelete) if faulty => {
            work.program().replace("hash", "wrong")
        }
        _ => work.program(),
    }
}

impl Tables {
    fn load(size: Size, work: &[Work], setup: &Setup, faulty: bool) -> Result<Self> {
        let cpus = setup.cpus.len() as u64;
        // The same for all that hash, so that they have as many buckets.
        let capacity = (size.0 + ROOM * cpus).next_power_of_two();
        let node = 16 + size.1;
        let pages = (4 * capacity + (size.0 + cpus + 1) * node).div_ceil(4096);
        let mut open = OpenObject::open("map", Loop::probe()?)?;
        let constants = [
            ("entries", size.0),
            ("value_bytes", size.1),
            ("buckets", capacity),
            ("pages", pages),
        ];
        for (name, value) in constants {
            open.set(name, value)?;
        }
        let mut kinds: Vec<Kind> = Vec::new();
        for &work in work {
            open.time(&program(work, faulty))?;
            if let Work::On(kind, ..) = work {
                kinds.push(kind);
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        for &kind in &kinds {
            let prefix = prefix(kind, size);
            let max_entries = match kind {
                Array | PercpuArray | Bloom => Some(size.0),
                Hash | PercpuHash | LruHash | LpmTrie => Some(capacity),
                TaskStorage => None,
                Arena => Some(pages),
                RingBuffer => Some(RING_BYTES * cpus.next_power_of_two()),
            };
            let valued = !matches!(kind, TaskStorage | Arena | RingBuffer);
            let hashed = matches!(kind, Hash | PercpuHash | LruHash | Bloom);
            let shape = Shape {
                max_entries: max_entries.map(u32::try_from).transpose()?,
                value_bytes: valued.then_some(u32::try_from(size.1)?),
                zero_seed: setup.exact && hashed,
            };
            open.map(&prefix, shape)?;
            match kind {
                TaskStorage => open.map(&format!("no_{prefix}"), shape)?,
                RingBuffer => {}
                _ => {
                    open.with(&format!("{prefix}_fill"))?;
                    open.with(&format!("{prefix}_check"))?;
                }
            }
            if kind == Arena {
                open.with("arena_allocate")?;
            }
        }
        let mut tables = Tables {
            object: open.load()?,
            values: BTreeMap::new(),
        };
        for kind in kinds {
            tables.fill(kind, size, &setup.cpus)?;
        }
        Ok(tables)
    }

    /// Puts in all resident keys; on each CPU, where these have values of their own.
    fn fill(&mut self, kind: Kind, size: Size, cpus: &[u32]) -> Result<()> {
        match kind {
            TaskStorage => {
                let first = [("first", value_of(0))];
                return Ok(self.object.set_members("task_value", 0, &first)?);
            }
            RingBuffer => return Ok(()),
            _ => {}
        }
        if kind == Arena {
            let ran = self.object.run("arena_allocate", cpus[0], &[])?;
            anyhow::ensure!(ran.code == 0, "the kernel has no pages for the arena");
        }
        let own = if kind.percpu() { cpus } else { &cpus[..1] };
        for &cpu in own {
            let mut first = 0;
            while first < size.0 {
                let count = FILLED.min(size.0 - first);
                let range = [first, 1, count];
                let counts = self.over(&format!("{}_fill", prefix(kind, size)), 0, range, cpu)?;
                anyhow::ensure!(
                    counts.done == count,
                    "{} of {count} keys were put into the {kind}",
                    counts.done
                );
                first += count;
            }
        }
        let values: Vec<u64> = (0..size.0).map(value_of).collect();
        self.values.insert(kind, vec![values; own.len()]);
        Ok(())
    }

    /// Runs an untimed program over a range: its first key, its step and its length.
    fn over(&mut self, program: &str, base: u64, range: [u64; 3], cpu: u32) -> Result<Counts> {
        let [first, step, count] = range;
        let words = [
            ("range_base", base),
            ("range_first", first),
            ("range_step", step),
            ("range_count", count),
        ];
        for (name, value) in words {
            self.object.set_variable(name, value)?;
        }
        let counters = [("done", 0), ("failed", 0), ("sum", 0), ("salt", 0)];
        self.object.set_members("walks", cpu, &counters)?;
        self.object.run(program, cpu, &[0; 64])?;
        self.counts(cpu)
    }

    /// Sets a CPU at the beginning of its walk.
    fn begin(&mut self, walk: &Walk, cpu: u32, slot: u64, salt: u64) -> Result<()> {
        let members = [
            ("state", u64::from(walk.state)),
            ("own", own(slot)),
            ("salt", salt),
            ("spare", walk.entries + 1 + slot),
            ("done", 0),
            ("failed", 0),
            ("sum", 0),
        ];
        Ok(self.object.set_members("walks", cpu, &members)?)
    }

    fn counts(&self, cpu: u32) -> Result<Counts> {
        let [done, failed, sum] = self
            .object
            .members("walks", cpu, ["done", "failed", "sum"])?;
        Ok(Counts { done, failed, sum })
    }

    /// What a CPU, the `at`th of the run, must count in a batch.
    fn expected(&self, work: Work, walk: &Walk, ops: u64, at: usize) -> Counts {
        let indexes = walk.indexes(ops);
        let sum = match work {
            Work::Floor("floor/none") => ops.wrapping_mul(value_of(0)),
            Work::Floor(_) => indexes.map(value_of).fold(0, u64::wrapping_add),
            Work::On(TaskStorage, _, Hit) => ops.wrapping_mul(value_of(0)),
            Work::On(TaskStorage, ..) | Work::On(Bloom, _, Miss) => 0,
            Work::On(Bloom, ..) => indexes.sum(),
            Work::On(kind, _, Hit) => {
                let values = self.values.get(&kind);
                let values = values.and_then(|values| values.get(at).or(values.first()));
                let values = values.map_or(&[][..], |values| values);
                let read = |index| values.get(index as usize).copied().unwrap_or_default();
                indexes.map(read).fold(0, u64::wrapping_add)
            }
            Work::On(..) => indexes.sum(),
        };
        Counts {
            done: ops,
            failed: 0,
            sum,
        }
    }

    /// Proves what a batch left: values that were written, keys that are there and keys that are not.
    fn left(
        &mut self,
        work: Work,
        walks: &[Walk],
        ops: u64,
        salt: u64,
        cpus: &[u32],
    ) -> Result<(), Fault> {
        let Work::On(kind, size, operation) = work else {
            return Ok(());
        };
        let written = |index| value_of(index).wrapping_add(salt);
        match (kind, operation) {
            (RingBuffer, _) => {
                let taken = self.object.take_records()?;
                let all = walks.iter().flat_map(|walk| walk.indexes(ops));
                let sum = all.map(written).fold(0, u64::wrapping_add);
                let detail = "the records in the ring buffer are not those of the batch";
                prove(differs(
                    "records",
                    ops * walks.len() as u64,
                    taken.0,
                    detail,
                ))?;
                return prove(differs("sum of records", sum, taken.1, detail));
            }
            (TaskStorage, _) | (_, Hit | Miss) => return Ok(()),
            (Bloom, Write) => {}
            (_, Write) => {
                let values = self.values.entry(kind).or_default();
                for (at, walk) in walks.iter().enumerate() {
                    let own = if kind.percpu() { at } else { 0 };
                    let Some(values) = values.get_mut(own) else {
                        continue;
                    };
                    for index in walk.indexes(ops) {
                        values[index as usize] = written(index);
                    }
                }
            }
            (_, InsertDelete) => {
                let check = format!("{}_check", prefix(kind, size));
                for (slot, &cpu) in (0..).zip(cpus) {
                    let range = [0, CHECK_STEP, CHECKED.min(size.0)];
                    let counts = self.over(&check, own(slot), range, cpu)?;
                    let detail = "keys that were deleted are still there";
                    prove(differs("entries left", 0, counts.done, detail))?;
                }
            }
        }
        self.residents(kind, size, salt, cpus)
    }

    /// Proves that resident keys are there, with the values that they must have: all, or a part that moves on.
    fn residents(&mut self, kind: Kind, size: Size, salt: u64, cpus: &[u32]) -> Result<(), Fault> {
        let count = CHECKED.min(size.0);
        let first = salt.wrapping_mul(count) % size.0;
        let program = format!("{}_check", prefix(kind, size));
        let own = if kind.percpu() { cpus } else { &cpus[..1] };
        for (at, &cpu) in own.iter().enumerate() {
            let got = self.over(&program, 0, [first, CHECK_STEP, count], cpu)?;
            let values = &self.values.get(&kind).context("it was not filled")?[at];
            let value = |turn: u64| values[((first + turn * CHECK_STEP) % size.0) as usize];
            let sum = match kind {
                Bloom => 0,
                _ => (0..count).map(value).fold(0, u64::wrapping_add),
            };
            let detail = "the map does not hold what it should";
            prove(differs("entries", count, got.done, detail))?;
            prove(differs("sum of values", sum, got.sum, detail))?;
        }
        Ok(())
    }
}

/// The first of the keys that a CPU, the `slot`th of the run, inserts and deletes.
fn own(slot: u64) -> u64 {
    (2 + slot) * ABSENT
}

/// The first word of a resident value as it is filled in.
fn value_of(index: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What is wrong with the counts of a CPU.
fn counts_problem(work: Work, expected: Counts, got: Counts) -> Option<Problem> {
    let detail = "the operations did not do what their number would stand for";
    let check = match work {
        Work::On(_, _, Hit) => "hits",
        Work::On(_, _, Miss) => "misses",
        _ => "operations that succeeded",
    };
    let sum = match work {
        // A miss may be taken for a hit; the sum is how many were.
        Work::On(Bloom, _, Miss) => got.sum as f64 <= FALSE_POSITIVES * expected.done as f64,
        _ => expected.sum == got.sum,
    };
    differs(check, expected.done, got.done, detail)
        .or_else(|| differs("operations that failed", 0, got.failed, detail))
        .or_else(|| {
            (!sum).then(|| Problem {
                check: "sum of values".to_owned(),
                expected: expected.sum.to_string(),
                got: got.sum.to_string(),
                detail: detail.to_owned(),
            })
        })
}

/// One CPU's way through the keys.
#[derive(Clone, Copy, Debug)]
struct Walk {
    state: u32,
    entries: u64,
}

impl Walk {
    fn new(seed: u64, run: u64, cpu: u32, entries: u64) -> Self {
        // SplitMix64's finaliser (Steele et al. 2014) spreads them over all bits.
        let mut mixed = seed ^ run.rotate_left(24) ^ u64::from(cpu).rotate_left(48);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Walk {
            state: (mixed >> 32) as u32 | 1,
            entries,
        }
    }

    /// The indexes that `map.bpf.c` chooses.
    fn indexes(self, ops: u64) -> impl Iterator<Item = u64> {
        let mut state = self.state;
        (0..ops).map(move |_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (u64::from(state) * self.entries) >> 32
        })
    }
}

impl Loaded for Epoch {
    /// All that user space can count is counted, and looked at.
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let Some(Work::On(kind, size, _)) = Work::of(case) else {
            return Ok(());
        };
        let tables = self.objects.get_mut(&size);
        let tables = tables.context("tables of this size were not loaded")?;
        if kind.counted() && !size.large() {
            let entries = tables.object.entries(&prefix(kind, size));
            let entries = entries?;
            prove(differs("keys", size.0, entries, "user space counted them"))?;
        }
        match kind {
            TaskStorage | RingBuffer => Ok(()),
            _ => tables.residents(kind, size, 0, &self.cpus),
        }
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let work = Work::of(case).with_context(|| format!("map has no case {}", case.name))?;
        if !self.exact {
            self.batch(work, (batch.0 / WARM_UP_SHARE).max(1))?;
        }
        let seen = batch::overlapping(|| self.batch(work, batch.0), |seen| seen)?;
        Ok(batch::trial(&seen, batch))
    }

    fn kernel_bytes(&self) -> Option<u64> {
        let objects = self.objects.values();
        Some(objects.map(|tables| tables.object.kernel_bytes()).sum())
    }

    fn unload(self: Box<Self>) -> Result<()> {
        let before = self.memory_before;
        drop(self);
        before.wait_until_freed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_lead_back_to_what_they_mean() {
        let cases = Maps::default().cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for (work, case) in Work::all().into_iter().zip(&cases) {
            assert_eq!(Work::of(case), Some(work));
            let floor = case.floor.as_deref();
            assert!(floor.is_none_or(|floor| names.contains(floor)), "{floor:?}");
        }
        for pair in Maps::default().pairs() {
            assert!(names.contains(&*pair.case), "{}", pair.case);
            assert!(names.contains(&*pair.baseline), "{}", pair.baseline);
        }
    }

    #[test]
    fn a_walk_stays_within_its_keys_and_differs_by_cpu() {
        let walk = |cpu| Walk::new(7, 1, cpu, 1000);
        let seen: BTreeSet<u64> = walk(0).indexes(20_000).collect();
        assert_eq!((seen.len(), seen.last()), (1000, Some(&999)));
        let (one, other) = (walk(0).indexes(8), walk(1).indexes(8));
        assert!(one.ne(other));
    }
}
