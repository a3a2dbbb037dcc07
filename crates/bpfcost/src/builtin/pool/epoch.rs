//! An epoch of `pool`: each pool is created afresh when it is first needed.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};

use bpfcost_threads::{
    CpuLocation, Floor, PoolKind, ThreadGroup, TimedObjects, UsePattern, WAIT_TIMEOUT, line,
    may_pin,
};

use super::{
    case::{PoolCase, all},
    load::PoolLoad,
    space::Space,
};
use bpfcost_model::{Batch, Case, Fault, LoadedEpoch, Setup, Trial, prove};

/// Minimum pairs per thread: fewer would measure the threads' start.
const MIN_PAIRS: u64 = 64;

/// Number of clock reads; the fastest gives the cost of one.
const CLOCK_LOOKS: u32 = 1000;

/// Key of the objects that cases can share: a pool with this many objects, or this many objects without a pool.
type Key = (Option<PoolKind>, usize);

/// Pools, made as they are needed.
pub(super) struct PoolEpoch {
    ways: HashMap<String, PoolCase>,
    cpus: Vec<u32>,
    seats: Vec<CpuLocation>,
    fixtures: BTreeMap<Key, Box<dyn TimedObjects>>,
    clock_ns: f64,
}

impl PoolEpoch {
    pub(super) fn load(setup: &Setup, space: &Space) -> Result<Self> {
        may_pin(&setup.cpus)?;
        Ok(PoolEpoch {
            ways: all(space)
                .into_iter()
                .map(|way| (way.name(), way))
                .collect(),
            cpus: setup.cpus.clone(),
            seats: setup.cpus.iter().copied().map(CpuLocation::read).collect(),
            fixtures: BTreeMap::new(),
            clock_ns: clock_ns(),
        })
    }

    fn pool(
        &mut self,
        kind: Option<PoolKind>,
        point: PoolLoad,
        batch: Batch,
    ) -> Result<Trial, Fault> {
        let cpus = self.cpus.len();
        let count = match kind {
            Some(_) => point.objects.count(cpus, point.bulk),
            None => point.threads,
        };
        let fixture = match self.fixtures.entry((kind, count)) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => {
                let fixture = match kind {
                    Some(kind) => kind.fixture(count, cpus),
                    None => Floor::boxed(count),
                };
                place.insert(fixture.map_err(|error| {
                    anyhow!(
                        "{error}\n  Ask for fewer with --set objects=…, or give this process more memory"
                    )
                })?)
            }
        };
        let group = ThreadGroup {
            cpus: &self.cpus,
            threads: point.threads,
            timeout: WAIT_TIMEOUT,
        };
        let each = UsePattern {
            pairs: batch.0,
            hold: point.hold,
            bulk: point.bulk,
        };
        let outcome = fixture
            .time(group, each)
            .and_then(|seen| prove(seen.problem(batch)).map(|()| seen.trial(batch, self.clock_ns)));
        if outcome.is_err() {
            // The pool's state is unknown: remove it, so that other cases with such a pool get a new one.
            self.fixtures.remove(&(kind, count));
        }
        outcome
    }
}

impl LoadedEpoch for PoolEpoch {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        self.trial(case, Batch(MIN_PAIRS)).map(drop)
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let batch = Batch(batch.0.max(MIN_PAIRS));
        let way = self.ways.get(&case.name);
        let way = way.with_context(|| format!("pool has no case {}", case.name))?;
        match *way {
            PoolCase::Pool(kind, point) => self.pool(Some(kind), point, batch),
            PoolCase::Alone(point) => self.pool(None, point, batch),
            PoolCase::Line(line) => {
                let players = line::players(line, &self.seats).map_err(anyhow::Error::msg)?;
                line::trial(&players, batch)
            }
        }
    }

    fn unload(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Measures the shortest reading of the clock, in nanoseconds.
fn clock_ns() -> f64 {
    let look = |_| Instant::now().elapsed().as_nanos() as f64;
    (0..CLOCK_LOOKS).map(look).fold(f64::INFINITY, f64::min)
}
