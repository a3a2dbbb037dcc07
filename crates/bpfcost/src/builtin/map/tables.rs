//! The maps of one size: fills them, walks the same keys as a batch, and checks what a batch read and left.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use bpfcost_bpf::{
    timed::{MapOverrides, OpenObject, TimedObject},
    timing::{Loop, Request},
};

use super::work::{
    Class, MapCase, MapKind,
    Operation::{self, Hit, InsertDelete, Miss},
    RING_BYTES, Size,
};
use bpfcost_model::{Fault, Problem, Setup, differs, prove};

/// Room beside the resident entries: free elements that a CPU of an LRU map keeps for itself, twice over.
const ROOM: u64 = 256;
/// Keys that are never in a map begin here; behind them come each CPU's own (`ABSENT` in `map.bpf.c`).
const ABSENT: u64 = 1 << 20;
/// The most keys that are looked at after a batch, and the step between them, which divides no number of entries.
const CHECKED: u64 = 1000;
const CHECK_STEP: u64 = 997;
/// Keys that one run fills in.
const FILLED: u64 = 1 << 16;
/// Operations of a batch in which each must fail: a program that does not look would find them all right.
const MUST_FAIL: u64 = 16;
/// The part of keys never pushed that a bloom filter may take for pushed, with five hashes.
const FALSE_POSITIVES: f64 = 0.1;
/// And so many more, whatever the batch: of 50 there may be 6 by chance.
const BY_CHANCE: u64 = 10;

/// The tables of one size.
pub(super) struct Tables {
    pub(super) object: TimedObject,
    pub(super) cpus: Vec<u32>,
    pub(super) faulty: bool,
    /// Required first word of each resident value, by kind; one list for each CPU if CPUs have values of their own.
    values: BTreeMap<&'static str, Vec<Vec<u64>>>,
}

/// Operations that one CPU counted in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuCounts {
    done: u64,
    failed: u64,
    sum: u64,
}

impl Tables {
    pub(super) fn load(size: Size, work: &[MapCase], setup: &Setup, faulty: bool) -> Result<Self> {
        let cpus = setup.cpus.len() as u64;
        // The same for all that hash, so that they have as many buckets.
        let capacity = (size.0 + ROOM * cpus).next_power_of_two();
        let pages = (4 * capacity + (size.0 + cpus + 1) * (16 + size.1)).div_ceil(4096);
        let mut open = OpenObject::open("map", Loop::probe()?)?;
        open.set("entries", size.0)?;
        open.set("value_bytes", size.1)?;
        open.set("arena_buckets", capacity)?;
        open.set("arena_pages", pages)?;
        open.set("arena_value_bytes", size.1)?;
        let mut maps: BTreeMap<String, &MapKind> = BTreeMap::new();
        for &work in work {
            open.time(&work.program(faulty))?;
            maps.insert(work.map(), work.kind);
        }
        for (map, MapKind(name, class, _)) in &maps {
            let max_entries = match class {
                Class::Floor => continue,
                Class::Indexed | Class::Bloom => Some(size.0),
                Class::Hash | Class::Trie => Some(capacity),
                Class::Arena => Some(pages),
                Class::Ring => Some(RING_BYTES * cpus.next_power_of_two()),
                Class::Storage => None,
            };
            let valued = class.is_table() && *class != Class::Arena;
            let shape = MapOverrides {
                max_entries: max_entries.map(u32::try_from).transpose()?,
                value_bytes: valued.then_some(u32::try_from(size.1)?),
                zero_seed: setup.exact && matches!(class, Class::Hash | Class::Bloom),
            };
            open.map(map, shape)?;
            if class.is_table() {
                open.with(&format!("{map}_fill"))?;
                open.with(&format!("{map}_check"))?;
            }
            match *name {
                "task-storage" => {
                    open.map(&format!("no_{map}"), shape)?;
                    open.with(&format!("{map}_take"))?;
                }
                "arena" => open.with("arena_allocate")?,
                _ => {}
            }
        }
        let mut tables = Tables {
            object: open.load()?,
            cpus: setup.cpus.clone(),
            faulty,
            values: BTreeMap::new(),
        };
        // No key of a bloom filter can be taken out again: each hit must miss while there is none in it.
        let peeks = |work: &&MapCase| work.kind.1 == Class::Bloom && work.operation == Hit;
        if let Some(&work) = work.iter().find(peeks) {
            let walk = Walk::new(setup.seed, 0, tables.cpus[0], size.0);
            tables.all_fail(work, &walk, tables.cpus[0])?;
        }
        for (map, kind) in maps {
            tables.fill(&map, kind, size)?;
        }
        Ok(tables)
    }

    /// Puts in all resident keys; on each CPU, where these have values of their own.
    fn fill(&mut self, map: &str, kind: &'static MapKind, size: Size) -> Result<()> {
        let mut values = (0..size.0).map(value_of).collect();
        if kind.1 == Class::Storage {
            self.object
                .set_members("task_value", 0, &[("first", value_of(0))])?;
            values = vec![value_of(0)];
        }
        if kind.1 == Class::Arena {
            let ran = self.object.run("arena_allocate", self.cpus[0], &[])?;
            ensure!(ran.code == 0, "the kernel has no pages for the arena");
        }
        let cpus = self.own_cpus(kind);
        for &cpu in cpus.iter().filter(|_| kind.1.is_table()) {
            for first in (0..size.0).step_by(FILLED as usize) {
                let count = FILLED.min(size.0 - first);
                let filled = self.over(&format!("{map}_fill"), 0, [first, 1, count], cpu)?;
                ensure!(
                    filled.done == count,
                    "{} of {count} keys were put into {map}",
                    filled.done
                );
            }
        }
        self.values.insert(kind.0, vec![values; cpus.len()]);
        Ok(())
    }

    /// The CPUs that have values of their own; the first where all share them.
    fn own_cpus(&self, kind: &MapKind) -> Vec<u32> {
        let count = if kind.is_percpu() { self.cpus.len() } else { 1 };
        self.cpus[..count].to_vec()
    }

    /// Runs an untimed program over a range: its first key, its step and its length.
    fn over(&mut self, program: &str, base: u64, range: [u64; 3], cpu: u32) -> Result<CpuCounts> {
        self.object.set_variable("range_base", base)?;
        for (name, value) in ["range_first", "range_step", "range_count"]
            .into_iter()
            .zip(range)
        {
            self.object.set_variable(name, value)?;
        }
        let counters = [("done", 0), ("failed", 0), ("sum", 0), ("salt", 0)];
        self.object.set_members("walks", cpu, &counters)?;
        self.object.run(program, cpu, &[0; 64])?;
        self.counts(cpu)
    }

    /// Sets a CPU at the beginning of its walk.
    pub(super) fn begin(&mut self, walk: &Walk, cpu: u32, slot: u64, salt: u64) -> Result<()> {
        let members = [
            ("state", u64::from(walk.state)),
            ("own", own_key(slot)),
            ("salt", salt),
            ("spare", walk.entries + 1 + slot),
            ("done", 0),
            ("failed", 0),
            ("sum", 0),
        ];
        Ok(self.object.set_members("walks", cpu, &members)?)
    }

    /// Runs a few operations on a CPU, none of which may succeed, and returns their counts.
    fn run_to_fail(&mut self, work: MapCase, walk: &Walk, cpu: u32) -> Result<CpuCounts> {
        self.begin(walk, cpu, 0, 0)?;
        let request = Request {
            ops: MUST_FAIL,
            resets: 1,
            cpus: &[cpu],
            after_tick: false,
        };
        let program = work.program(self.faulty);
        self.object.batch(&program, &request, &[work.packet()])?;
        self.counts(cpu)
    }

    /// Fails where a bloom filter with nothing in it is said to have something.
    fn all_fail(&mut self, work: MapCase, walk: &Walk, cpu: u32) -> Result<()> {
        let got = self.run_to_fail(work, walk, cpu)?;
        ensure!(
            (got.done, got.failed) == (0, MUST_FAIL),
            "{}: of {MUST_FAIL} peeks at a bloom filter with nothing in it {} hit",
            work.name(),
            got.done
        );
        Ok(())
    }

    /// Proves that misses look: with storage of the task, the same program must not miss. After a timed batch, because
    /// the kernel frees that storage a while later.
    pub(super) fn check_misses(&mut self, work: MapCase, seed: u64) -> Result<(), Fault> {
        if (work.kind.1, work.operation) != (Class::Storage, Miss) {
            return Ok(());
        }
        for cpu in self.cpus.clone() {
            let walk = Walk::new(seed, 0, cpu, work.size.0);
            self.object.set_variable("task_given", 1)?;
            let got = self.run_to_fail(work, &walk, cpu);
            self.object.set_variable("task_given", 0)?;
            // Gone again: with the last of its storage, a task looks for some in a shorter way.
            self.object.run(&format!("{}_take", work.map()), cpu, &[])?;
            let detail = "the program does not look at the task's storage";
            prove(differs("misses with storage", 0, got?.done, detail))?;
        }
        Ok(())
    }

    pub(super) fn counts(&self, cpu: u32) -> Result<CpuCounts> {
        let [done, failed, sum] = self
            .object
            .members("walks", cpu, ["done", "failed", "sum"])?;
        Ok(CpuCounts { done, failed, sum })
    }

    /// Returns the counts that a CPU, the `at`th of the run, must have after a batch.
    pub(super) fn expected(&self, work: MapCase, walk: &Walk, ops: u64, at: usize) -> CpuCounts {
        let indexes = walk.indexes(ops);
        let sum = match (work.kind.1, work.operation) {
            (_, Operation::None) | (Class::Bloom, Miss) => 0,
            (Class::Storage, Miss | InsertDelete) => 0,
            (Class::Bloom, Hit) => indexes.sum(),
            (_, Operation::Key) => indexes.map(key_of).sum(),
            (_, Hit) => {
                let values = self.values.get(work.kind.0);
                let values = values.and_then(|values| values.get(at).or(values.first()));
                let values = values.map_or(&[][..], |values| values);
                let read = |index| values[index as usize % values.len()];
                indexes.map(read).fold(0, u64::wrapping_add)
            }
            _ => indexes.sum(),
        };
        CpuCounts {
            done: ops,
            failed: 0,
            sum,
        }
    }

    /// Proves what a batch left: values that were written, keys that are there and keys that are not.
    pub(super) fn check_left(
        &mut self,
        work: MapCase,
        walks: &[Walk],
        ops: u64,
        salt: u64,
    ) -> Result<(), Fault> {
        let written = |index| value_of(index).wrapping_add(salt);
        match (work.kind.1, work.operation) {
            (Class::Ring, _) => {
                let (records, sum) = self.object.take_records()?;
                let all = walks.iter().flat_map(|walk| walk.indexes(ops)).map(written);
                let expected = all.fold(0, u64::wrapping_add);
                let detail = "the records in the ring buffer are not those of the batch";
                prove(differs(
                    "records",
                    ops * walks.len() as u64,
                    records,
                    detail,
                ))?;
                prove(differs("sum of records", expected, sum, detail))
            }
            (Class::Storage | Class::Floor, _) | (_, Hit | Miss) => Ok(()),
            (_, InsertDelete) => {
                for (slot, cpu) in (0..).zip(self.cpus.clone()) {
                    let range = [0, CHECK_STEP, CHECKED.min(work.size.0)];
                    let check = format!("{}_check", work.map());
                    let left = self.over(&check, own_key(slot), range, cpu)?;
                    let detail = "keys that were deleted are still there";
                    prove(differs("entries left", 0, left.done, detail))?;
                }
                self.check_residents(work, salt)
            }
            _ => {
                let values = self.values.entry(work.kind.0).or_default();
                for (at, walk) in walks.iter().enumerate() {
                    let at = at.min(values.len() - 1);
                    for index in walk.indexes(ops) {
                        values[at][index as usize] = written(index);
                    }
                }
                self.check_residents(work, salt)
            }
        }
    }

    /// Proves that resident keys are there, with the values that they must have: all, or a part that moves on.
    pub(super) fn check_residents(&mut self, work: MapCase, salt: u64) -> Result<(), Fault> {
        let (entries, count) = (work.size.0, CHECKED.min(work.size.0));
        let first = salt.wrapping_mul(count) % entries;
        for (at, cpu) in self.own_cpus(work.kind).into_iter().enumerate() {
            let range = [first, CHECK_STEP, count];
            let got = self.over(&format!("{}_check", work.map()), 0, range, cpu)?;
            let values = &self.values.get(work.kind.0).context("it was not filled")?[at];
            let value = |turn: u64| values[((first + turn * CHECK_STEP) % entries) as usize];
            let sum = match work.kind.1 {
                Class::Bloom => 0,
                _ => (0..count).map(value).fold(0, u64::wrapping_add),
            };
            let detail = "the map does not hold the expected entries";
            prove(differs("entries", count, got.done, detail))?;
            prove(differs("sum of values", sum, got.sum, detail))?;
        }
        Ok(())
    }
}

impl CpuCounts {
    /// Compares the counts of a CPU with these expected ones; returns the first difference that is a problem.
    pub(super) fn problem(self, work: MapCase, got: CpuCounts) -> Option<Problem> {
        let detail = "the batch did not do its operations";
        let check = match work.operation {
            Hit => "hits",
            Miss => "misses",
            _ => "operations that succeeded",
        };
        let taken_for_hits = (FALSE_POSITIVES * self.done as f64) as u64 + BY_CHANCE;
        let sum = match (work.kind.1, work.operation) {
            // A miss may be taken for a hit; the sum is how many were.
            (Class::Bloom, Miss) => got.sum.min(taken_for_hits),
            _ => self.sum,
        };
        differs(check, self.done, got.done, detail)
            .or_else(|| differs("operations that failed", 0, got.failed, detail))
            .or_else(|| differs("sum of values", sum, got.sum, detail))
    }
}

/// The first of the keys that a CPU, the `slot`th of the run, inserts and deletes.
fn own_key(slot: u64) -> u64 {
    (2 + slot) * ABSENT
}

/// The initial first word of a resident value.
fn value_of(index: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The key of an index, as `map.bpf.c` makes it.
fn key_of(index: u64) -> u64 {
    u64::from((index as u32).wrapping_mul(0x9e37_79b1))
}

/// One CPU's way through the keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    state: u32,
    entries: u64,
}

impl Walk {
    pub(super) fn new(seed: u64, run: u64, cpu: u32, entries: u64) -> Self {
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
