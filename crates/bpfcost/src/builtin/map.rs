//! `map`: what does an operation on a map cost, and which map should a program use?
//!
//! Ten kinds of map, with 1,000 and 1,000,000 entries and values of 16 and 256 bytes, each looked up, missed,
//! written and, where it can, with a key inserted and deleted again. What is in the number and what is not
//! stands at the head of `map.bpf.c`.
//!
//! A key is chosen by xorshift32 (Marsaglia 2003); each batch and CPU has its own seed. User space walks the same
//! keys, so it knows every value that a batch must have read, and what it must have left.

mod tables;
mod work;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bpfcost_bpf::{
    Feature,
    timing::{Observation, Request},
};

use self::{
    tables::{Tables, Walk},
    work::{Class, MapCase, MapKind, Size},
};

use super::{
    needs::needs,
    timed::{self, TimedCases, TimedEpoch},
};
use bpfcost_model::{
    Case, Description, Experiment, Fault, Grid, Layout, LoadedEpoch, Need, Overhead, Pair, Setup,
    Trial, differs, prove,
};

/// The experiment.
#[derive(Debug, Default)]
pub struct Maps {
    /// Some maps have programs that are wrong on purpose, for tests.
    pub faulty: bool,
}

impl Experiment for Maps {
    fn description(&self) -> Description {
        let factors = [
            ("map", "kind, entries and bytes of a value"),
            (
                "operation",
                "hit, miss, write (replace, push, submit) or insert-delete (both, of one key)",
            ),
            ("kind", "the kind of map; arena: a hash table in an arena"),
            ("entries", "resident keys: 1,000 or 1,000,000"),
            ("value", "bytes of a value: 16 or 256"),
        ];
        Description {
            layout: Layout::from(Grid {
                rows: "map".into(),
                columns: "operation".into(),
                net: "an operation on the map, minus the choice of its key (its floor)".into(),
                floors: "Floors differ in their key: none, an index, or 8 bytes on the stack."
                    .into(),
                note: None,
            }),
            overhead: Overhead {
                // Programs are verified, and a million keys put into each of the large tables.
                load_s: 3.0,
                // The keys are walked again, and looked at.
                trial_s: 0.002,
                // The warm-up, and the batch.
                batches: 1.2,
            },
            ..Description::new(
                "map",
                "operations on ten kinds of map, by size: hit, miss, write, insert and delete",
                &factors,
            )
        }
    }

    fn cases(&self) -> Vec<Case> {
        MapCase::all().map(MapCase::case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let pair = |case: String, baseline: String, about: String| Pair {
            case,
            baseline,
            about,
        };
        let kinds = [
            ("hash", "array", "hit"),
            ("percpu-array", "array", "hit"),
            ("percpu-hash", "hash", "hit"),
            ("lru-hash", "hash", "hit"),
            ("lru-hash", "hash", "insert-delete"),
            ("lpm-trie", "hash", "hit"),
            ("arena", "hash", "hit"),
            ("arena", "hash", "insert-delete"),
            ("bloom", "hash", "miss"),
        ];
        let small = |kind: &str, operation: &str| format!("{kind}-1k-16B/{operation}");
        let kinds = kinds.map(|(kind, other, operation)| {
            let about = format!("{kind} against {other}, {operation}");
            pair(small(kind, operation), small(other, operation), about)
        });
        let more = ["array", "hash", "lru-hash", "lpm-trie", "arena"].map(|kind| {
            let about = format!("{kind}, 1,000,000 entries against 1,000");
            pair(format!("{kind}-1M-16B/hit"), small(kind, "hit"), about)
        });
        let larger = ["array", "hash"].map(|kind| {
            let about = format!("{kind}, values of 256 bytes against 16");
            pair(format!("{kind}-1k-256B/write"), small(kind, "write"), about)
        });
        kinds.into_iter().chain(more).chain(larger).collect()
    }

    fn needs(&self, case: &Case) -> Vec<Need> {
        let mut features = timed::NEEDS.to_vec();
        match MapCase::from_case(case).map(|work| work.kind) {
            Ok(MapKind(_, Class::Arena, _)) => features.extend([Feature::Arena, Feature::CanLoop]),
            Ok(MapKind("lru-hash", ..)) => features.push(Feature::LruHash),
            Ok(MapKind(_, Class::Storage, _)) => features.push(Feature::RawTracepoint),
            Ok(MapKind(_, Class::Ring, _)) => features.push(Feature::RingBuffer),
            _ => {}
        }
        needs(features)
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        let lacking = self.missing(&self.needs(case))?;
        Ok(lacking.or(MapCase::from_case(case)?.size.lacks_memory()))
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        TimedEpoch::load(setup, || MapEpoch::load(setup, self.faulty))
    }
}

/// The tables of each size, filled.
struct MapEpoch {
    by_size: BTreeMap<Size, Tables>,
    seed: u64,
    /// Batches so far: gives each its own keys.
    batches: u64,
}

/// A batch, and the keys that it walked.
struct MapBatch {
    seen: Vec<Observation>,
    walks: Vec<Walk>,
    /// Part of what it wrote.
    salt: u64,
}

impl AsRef<[Observation]> for MapBatch {
    fn as_ref(&self) -> &[Observation] {
        &self.seen
    }
}

impl MapEpoch {
    fn load(setup: &Setup, faulty: bool) -> Result<Self> {
        let mut by_size: BTreeMap<Size, Vec<MapCase>> = BTreeMap::new();
        for case in &setup.cases {
            let work = MapCase::from_case(case)?;
            by_size.entry(work.size).or_default().push(work);
        }
        let tables = |(size, work): (Size, Vec<MapCase>)| {
            Ok((size, Tables::load(size, &work, setup, faulty)?))
        };
        // Each load walks the same keys if instructions are counted.
        let epoch = if setup.exact {
            0
        } else {
            setup.epoch as u64 + 1
        };
        Ok(MapEpoch {
            by_size: by_size.into_iter().map(tables).collect::<Result<_>>()?,
            seed: setup.seed ^ epoch,
            batches: 0,
        })
    }

    fn tables(&mut self, size: Size) -> Result<&mut Tables> {
        let tables = self.by_size.get_mut(&size);
        tables.context("tables of this size were not loaded")
    }
}

impl TimedCases for MapEpoch {
    type Batch = MapBatch;

    /// All that user space can count is counted, and looked at.
    fn prepare(&mut self, case: &Case, _: &Request<'_>) -> Result<(), Fault> {
        let work = MapCase::from_case(case)?;
        let MapCase { kind, size, .. } = work;
        let tables = self.tables(size)?;
        if matches!(kind.1, Class::Hash | Class::Trie) && size.0 == 1_000 {
            let entries = tables.object.entries(&work.map());
            let entries = entries?;
            prove(differs("keys", size.0, entries, "user space counted them"))?;
        }
        if kind.1.is_table() {
            tables.check_residents(work, 0)
        } else {
            Ok(())
        }
    }

    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<MapBatch, Fault> {
        let work = MapCase::from_case(case)?;
        self.batches += 1;
        let (salt, seed) = (self.batches, self.seed);
        // Batches that count instructions repeat the same keys, whatever ran before them.
        let run = if request.after_tick { 0 } else { salt };
        let tables = self.tables(work.size)?;
        let walk = |&cpu: &u32| Walk::new(seed, run, cpu, work.size.0);
        let walks: Vec<Walk> = request.cpus.iter().map(walk).collect();
        for ((walk, &cpu), slot) in walks.iter().zip(request.cpus).zip(0..) {
            tables.begin(walk, cpu, slot, salt)?;
        }
        let program = work.program(tables.faulty);
        let packets = vec![work.packet(); request.cpus.len()];
        let seen = tables.object.batch(&program, request, &packets)?;
        Ok(MapBatch { seen, walks, salt })
    }

    fn check(&mut self, case: &Case, request: &Request<'_>, batch: &MapBatch) -> Result<(), Fault> {
        let work = MapCase::from_case(case)?;
        let (ops, MapBatch { seen, walks, salt }) = (request.ops, batch);
        let tables = self.tables(work.size)?;
        for (at, (walk, &cpu)) in walks.iter().zip(request.cpus).enumerate() {
            let expected = tables.expected(work, walk, ops, at);
            prove(expected.problem(work, tables.counts(cpu)?))?;
        }
        if let Some(code) = seen.iter().map(|seen| seen.code).find(|&code| code != 0) {
            prove(differs("return code", 0, code, "the last operation failed"))?;
        }
        tables.check_left(work, walks, ops, *salt)
    }

    fn has_reset(&self, _: &Case) -> bool {
        false
    }

    fn complete(&mut self, case: &Case, _: &MapBatch, _: &mut Trial) -> Result<(), Fault> {
        let (work, seed) = (MapCase::from_case(case)?, self.seed);
        self.tables(work.size)?.check_misses(work, seed)
    }

    fn kernel_bytes(&self) -> Option<u64> {
        let tables = self.by_size.values();
        Some(tables.map(|tables| tables.object.kernel_bytes()).sum())
    }
}
