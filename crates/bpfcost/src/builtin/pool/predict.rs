//! Runs the model of `bpfcost-pool` with the cost of cache lines on the machine of a record. Of its input, only
//! [`LineCosts`] is measured.
//!
//! Published machines do not depend on the record: they have the line costs of one machine, [`REFERENCE`], so that everyone
//! sees the same predictions of them.
//!
//! Time of a call outside the pool is taken from the one-thread point of each published curve; [`PublishedMachine`]
//! holds the model's input for a machine, and docs/evidence/pool-model.md states where that comes from, and which
//! points decided any of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
    thread,
};

use bpfcost_pool::{
    Error, Stride,
    model::{self, ModelMachine as Model, ModelPool},
};
use serde::Deserialize;

use bpfcost_record::{Raw, Record, Status};

/// Pools that are predicted, by the name that they have as cases.
const POOLS: [(&str, ModelPool); 4] = [
    ("freelist", ModelPool::Freelist),
    ("array", ModelPool::Array(Stride::Compact)),
    ("array-padded", ModelPool::Array(Stride::Padded)),
    ("percpu", ModelPool::PerCpu),
];

/// Pools of published curves, with what is simulated for each.
const SIMULATED: [(&str, ModelPool, &str); 3] = [
    ("freelist", ModelPool::Freelist, "this project's freelist"),
    (
        "array",
        ModelPool::StudyArray,
        "the study's array, rebuilt (two compare-and-exchanges a pair), not this project's",
    ),
    (
        "percpu",
        ModelPool::PerCpu,
        "this project's rings, one for each CPU",
    ),
];

/// Thread counts of this machine's curves, each thread on its own CPU.
pub(super) const THREADS: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192];
/// CPUs per socket of the larger machines that the curves extend to.
const SOCKET: u32 = 96;
/// Objects for each CPU: what the kernel's `maxactive` is by default where it can be preempted.
const OBJECTS: u32 = 2;

/// Cost of a transfer between sockets relative to one within a socket, used if it could not be measured. For the
/// two-socket Xeons and EPYCs with published figures, it is 2 to 3.
pub(super) const FAR: f64 = 2.5;
/// Throughput of a core with two threads relative to one thread: the usual range is 1.1 to 1.3.
const SMT: f64 = 1.2;
/// Bytes that stand for a line of 64 where slots are the kernel's pointers: ours are half as large.
const KERNEL_LINE: usize = 32;
/// Published tables count the operations of so many seconds.
const SECONDS: f64 = 10.0;
/// A prediction that is off by more than this counts as failed.
pub(super) const OFF: f64 = 2.0;

/// The tables that others published, oldest first.
static PUBLISHED: LazyLock<Vec<Published>> = LazyLock::new(|| {
    let tables: BTreeMap<String, Vec<Published>> =
        toml::from_str(include_str!("published.toml")).expect("tests read it");
    tables.into_values().flatten().collect()
});

/// A published table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    /// Title of the table: what was measured, and on which machine.
    pub(super) title: String,
    /// Citation of the publication.
    pub(super) source: String,
    /// Unit of the table's numbers, which are totals over all threads.
    pub(super) unit: String,
    machine: PublishedMachine,
    /// Reason why all points of the table are fitted, if they are; such points test nothing.
    fitted: Option<String>,
    /// Remarks on single points, by `series/threads`.
    #[serde(default)]
    notes: BTreeMap<String, String>,
    /// Points of each series: threads, and operations in [`SECONDS`].
    curves: BTreeMap<String, Vec<(u32, f64)>>,
}

/// The model's input for a machine of a published measurement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedMachine {
    sockets: u32,
    /// Cores of one socket.
    cores: u32,
    threads_per_core: u32,
    /// Cost of a transfer of a cache line on this machine, relative to the cost on [`REFERENCE`].
    transfers: f64,
}

/// Costs of moving a cache line, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineCosts {
    /// An atomic change of a line that this CPU owns.
    pub(super) own_ns: f64,
    /// The same, of a line that another CPU of the socket owned last.
    pub(super) near_ns: f64,
    /// The same, where that was a CPU of another socket.
    pub(super) far_ns: f64,
    /// True if `far_ns` was measured; otherwise it is [`FAR`] times `near_ns`.
    pub(super) far_measured: bool,
}

/// Costs of cache lines on the machine on which the model was written; used to predict published machines.
const REFERENCE: LineCosts = LineCosts {
    own_ns: 4.3,
    near_ns: 54.8,
    far_ns: FAR * 54.8,
    far_measured: false,
};

#[derive(Debug)]
pub(super) struct Prediction {
    /// The model's inputs.
    pub(super) lines: LineCosts,
    /// This machine's curves, extended to more CPUs. Empty where the cost of the loop alone was not measured.
    pub(super) curves: Vec<PredictedCurve>,
}

/// A pool, and its pairs per second of so many [`THREADS`].
pub(super) type PredictedCurve = (&'static str, [f64; THREADS.len()]);
/// A published table, and its points beside what the model says of its machine.
pub(super) type PublishedTable = (&'static Published, Vec<PublishedPoint>);

#[derive(Clone, Debug)]
pub(super) struct PublishedPoint {
    /// `freelist`, `array`, …
    pub(super) series: &'static str,
    pub(super) threads: u32,
    /// As published.
    pub(super) published: f64,
    /// As the model says, in the same unit.
    pub(super) predicted: f64,
    /// True if the point decided a parameter of the model, and so tests nothing.
    pub(super) fitted: bool,
    /// Remark on the point ("probably a misprint").
    pub(super) note: Option<&'static str>,
}

impl PublishedPoint {
    /// Returns the factor by which the prediction is off, at least 1; NaN if the two figures have no ratio.
    pub(super) fn factor(&self) -> f64 {
        let ratio = self.predicted / self.published;
        ratio.max(1.0 / ratio)
    }
}

impl Prediction {
    /// Runs the model for a record; returns `None` unless the record has the costs of cache lines, measured in real
    /// time.
    ///
    /// # Errors
    ///
    /// Fails if there is too little memory for the pools, or for the threads of the simulation.
    pub(super) fn from_record(record: &Record) -> Result<Option<Arc<Prediction>>, Error> {
        // Cache-line costs of an emulator say nothing about a real machine.
        let timed = !record.unit.is_counted() && !record.machine.emulates_time();
        let Some(lines) = LineCosts::from_record(record).filter(|_| timed) else {
            return Ok(None);
        };
        // Time of the measured loop outside the pool; it cannot be guessed.
        let work_ns = raw(record, "none/1").map(|raw| raw.value);
        let inputs = (lines, work_ns.filter(plausible));
        // The model takes seconds to run, and views are made of one record again and again.
        type PredictionCache = Vec<((LineCosts, Option<f64>), Arc<Prediction>)>;
        static CACHE: Mutex<PredictionCache> = Mutex::new(Vec::new());
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, prediction)) = cache.iter().find(|(key, _)| *key == inputs) {
            return Ok(Some(Arc::clone(prediction)));
        }
        let prediction = Arc::new(Prediction::simulate(lines, inputs.1)?);
        cache.push((inputs, Arc::clone(&prediction)));
        Ok(Some(prediction))
    }

    fn simulate(lines: LineCosts, work_ns: Option<f64>) -> Result<Prediction, Error> {
        let pools = work_ns
            .iter()
            .flat_map(|work| POOLS.map(|pool| (pool, *work)));
        let curve = |((name, kind), work)| Ok((name, curve(kind, &lines, work)?));
        Ok(Prediction {
            curves: at_once(pools, curve)?,
            lines,
        })
    }

    /// Published tables, each beside what the model says of its machine, whatever was measured here.
    ///
    /// # Errors
    ///
    /// As [`from_record`](Self::from_record).
    pub(super) fn tables() -> Result<&'static [PublishedTable], Error> {
        static TABLES: OnceLock<Vec<PublishedTable>> = OnceLock::new();
        if TABLES.get().is_none() {
            let beside = |table: &'static Published| Ok((table, table.rows()?));
            let _ = TABLES.set(at_once(PUBLISHED.iter(), beside)?);
        }
        Ok(TABLES.get().map_or(&[], Vec::as_slice))
    }

    /// Returns the predicted operations per second of a pool with so many threads on this machine.
    pub(super) fn rate(&self, series: &str, threads: u32) -> Option<f64> {
        let (_, rates) = self.curves.iter().find(|curve| curve.0 == series)?;
        Some(rates[THREADS.iter().position(|count| *count == threads)?])
    }

    /// Returns whether a parameter of the model was fitted to this point, on the machine on which the model was
    /// written: how long a core keeps a cache line that another core has asked for. Such a point tests little.
    pub(super) fn fitted(series: &str, threads: u32) -> bool {
        (series, threads) == ("freelist", 2)
    }
}

/// Maps each item, each on its own thread.
fn at_once<T: Send, M: Send>(
    all: impl Iterator<Item = T>,
    make: impl Fn(T) -> Result<M, Error> + Sync,
) -> Result<Vec<M>, Error> {
    thread::scope(|scope| {
        let make = &make;
        let running: Vec<_> = all.map(|one| scope.spawn(move || make(one))).collect();
        let made = running.into_iter().map(|thread| thread.join());
        made.map(|made| made.expect("no simulation panics"))
            .collect()
    })
}

/// Returns whether a real machine may need this time for a transfer. With other numbers, a simulation might never end.
fn plausible(ns: &f64) -> bool {
    (0.1..1e5).contains(ns)
}

fn raw<'a>(record: &'a Record, name: &str) -> Option<&'a Raw> {
    let case = record.case(name)?;
    case.raw.as_ref().filter(|_| case.status == Status::Ok)
}

impl LineCosts {
    /// Reads the costs of cache lines from a record: its smallest trials, because any disturbance makes a ping-pong
    /// longer.
    fn from_record(record: &Record) -> Option<LineCosts> {
        let cost = |name| Some(raw(record, name)?.min).filter(plausible);
        let (own_ns, near_ns) = (cost("line/own")?, cost("line/near")?);
        let far = cost("line/far");
        Some(LineCosts {
            own_ns,
            near_ns,
            far_ns: far.unwrap_or(FAR * near_ns),
            far_measured: far.is_some(),
        })
    }
}

fn curve(kind: ModelPool, lines: &LineCosts, work_ns: f64) -> Result<[f64; THREADS.len()], Error> {
    let mut rates = [0.0; THREADS.len()];
    for (threads, slot) in THREADS.into_iter().zip(&mut rates) {
        let sockets = threads.div_ceil(SOCKET);
        let cores = threads.div_ceil(sockets);
        let machine = Model::new(sockets, cores, lines.own_ns, lines.near_ns, lines.far_ns);
        *slot = rate(kind, &machine, threads, work_ns)?;
    }
    Ok(rates)
}

/// Pairs per second of all threads.
fn rate(kind: ModelPool, machine: &Model, threads: u32, work_ns: f64) -> Result<f64, Error> {
    let objects = (OBJECTS * machine.cpus()) as usize;
    model::predict(kind, machine, threads, objects, work_ns)
}

impl Published {
    /// Returns the table's points, each with the model's prediction.
    fn rows(&'static self) -> Result<Vec<PublishedPoint>, Error> {
        let machine = self.machine.model();
        let mut rows = Vec::new();
        for (series, points) in &self.curves {
            let (_, kind, _) = simulated(series);
            // Time of a call with one thread, less the pool's part.
            let alone = SECONDS * 1e9 / points[0].1;
            let work_ns = alone - 1e9 / rate(kind, &machine, 1, 0.0)?;
            for &(threads, published) in points {
                let note = self.notes.get(&format!("{series}/{threads}"));
                rows.push(PublishedPoint {
                    series,
                    threads,
                    published,
                    predicted: SECONDS * rate(kind, &machine, threads, work_ns.max(0.0))?,
                    fitted: threads == 1 || self.fitted.is_some(),
                    note: note.map(String::as_str),
                });
            }
        }
        Ok(rows)
    }

    /// The model's inputs for the machine, with all assumptions, and what was simulated on it.
    pub(super) fn inputs(&self) -> String {
        let PublishedMachine {
            sockets,
            cores,
            threads_per_core,
            transfers,
        } = self.machine;
        let smt = match threads_per_core {
            1 => String::new(),
            _ => format!(", which together do {SMT} times as much as one alone"),
        };
        let chosen = match transfers {
            1.0 => "",
            _ => " (chosen to suit the study's table)",
        };
        let names: Vec<&str> = self.curves.keys().map(|name| simulated(name).2).collect();
        let fitted = self.fitted.iter().map(|reason| format!("; {reason}"));
        format!(
            "sockets: {sockets}; cores of each: {cores}; threads of a core: {threads_per_core}{smt}; threads take \
             one core after another; a transfer of a cache line takes {} ns{chosen}; \
             {OBJECTS} objects a CPU; the rest of a call is fitted at one thread; simulated: {}{}",
            transfers * REFERENCE.near_ns,
            names.join(" and "),
            fitted.collect::<String>()
        )
    }
}

impl PublishedMachine {
    fn model(&self) -> Model {
        let LineCosts {
            own_ns,
            near_ns: near,
            far_ns: far,
            ..
        } = REFERENCE;
        let (near, far) = (near * self.transfers, far * self.transfers);
        Model {
            threads_per_core: self.threads_per_core,
            smt: SMT,
            line_bytes: KERNEL_LINE,
            ..Model::new(self.sockets, self.cores, own_ns, near, far)
        }
    }
}

/// Returns the model's pool that simulates a curve of a published table.
fn simulated(series: &str) -> (&'static str, ModelPool, &'static str) {
    let model = SIMULATED.into_iter().find(|one| one.0 == series);
    model.expect("tests simulate every published curve")
}

#[cfg(test)]
mod tests;
