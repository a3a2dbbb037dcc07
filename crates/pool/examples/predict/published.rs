//! Tables that others published, each beside what the model says of its machine. The machines have the line costs of one
//! machine, [`REFERENCE`]; the time of a call outside the pool is that of each curve's point with one thread.
//! docs/evidence/pool-model.md states where the inputs come from, and which points decided any of them.

use std::collections::BTreeMap;

use bpfcost_pool::{
    Error, Stride,
    model::{self, ModelMachine, ModelPool},
};
use serde::Deserialize;

/// Pools that are predicted, by the name that they have as cases of bpfcost.
pub(crate) const POOLS: [(&str, ModelPool); 4] = [
    ("freelist", ModelPool::Freelist),
    ("array", ModelPool::Array(Stride::Compact)),
    ("array-padded", ModelPool::Array(Stride::Padded)),
    ("percpu", ModelPool::PerCpu),
];

/// Pools of published curves, with what is simulated for each.
const SIMULATED: [(&str, ModelPool); 3] = [
    ("freelist", ModelPool::Freelist),
    // The study's array, rebuilt (two compare-and-exchanges a pair), not this project's.
    ("array", ModelPool::StudyArray),
    ("percpu", ModelPool::PerCpu),
];

/// Objects for each CPU: what the kernel's `maxactive` is by default where it can be preempted.
const OBJECTS: u32 = 2;
/// Throughput of a core with two threads relative to one thread: the usual range is 1.1 to 1.3.
const SMT: f64 = 1.2;
/// Bytes that stand for a line of 64 where slots are the kernel's pointers: ours are half as large.
const KERNEL_LINE: usize = 32;
/// Published tables count the operations of so many seconds.
const SECONDS: f64 = 10.0;

/// Costs of moving a cache line, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineCosts {
    /// An atomic change of a line that this CPU owns.
    pub(crate) own_ns: f64,
    /// The same, of a line that another CPU of the socket owned last.
    pub(crate) near_ns: f64,
    /// The same, where that was a CPU of another socket.
    pub(crate) far_ns: f64,
}

/// Costs of cache lines on the machine on which the model was written. A transfer between sockets was not measured
/// there; on the two-socket Xeons and EPYCs with published figures, it takes 2 to 3 times as long as one within a socket.
const REFERENCE: LineCosts = LineCosts {
    own_ns: 4.3,
    near_ns: 54.8,
    far_ns: 2.5 * 54.8,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    /// Title of the table: what was measured, and on which machine.
    pub(crate) title: String,
    /// Citation of the publication.
    pub(crate) source: String,
    /// Unit of the table's numbers, which are totals over all threads.
    pub(crate) unit: String,
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

/// A point of a published table.
#[derive(Debug)]
pub(crate) struct PublishedPoint<'a> {
    /// `freelist`, `array`, …
    pub(crate) series: &'a str,
    pub(crate) threads: u32,
    /// As published.
    pub(crate) published: f64,
    /// As the model says, in the same unit.
    pub(crate) predicted: f64,
    /// True if the point decided a parameter of the model, and so tests nothing.
    pub(crate) fitted: bool,
    /// Remark on the point ("probably a misprint").
    pub(crate) note: Option<&'a str>,
}

/// Returns the tables, oldest first.
pub(crate) fn tables() -> Result<Vec<Published>, toml::de::Error> {
    let tables: BTreeMap<String, Vec<Published>> = toml::from_str(include_str!("published.toml"))?;
    Ok(tables.into_values().flatten().collect())
}

/// Returns the pairs per second of all threads.
pub(crate) fn rate(
    kind: ModelPool,
    machine: &ModelMachine,
    threads: u32,
    work_ns: f64,
) -> Result<f64, Error> {
    let objects = (OBJECTS * machine.cpus()) as usize;
    model::predict(kind, machine, threads, objects, work_ns)
}

impl Published {
    /// Returns the table's points, each with the model's prediction.
    pub(crate) fn points(&self) -> Result<Vec<PublishedPoint<'_>>, Error> {
        let machine = self.machine.model();
        let mut rows = Vec::new();
        for (series, points) in &self.curves {
            let (_, kind) = SIMULATED
                .into_iter()
                .find(|one| one.0 == series)
                .expect("tests simulate every published curve");
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
                    note: note.or(self.fitted.as_ref()).map(String::as_str),
                });
            }
        }
        Ok(rows)
    }
}

impl PublishedMachine {
    fn model(&self) -> ModelMachine {
        let (near, far) = (
            REFERENCE.near_ns * self.transfers,
            REFERENCE.far_ns * self.transfers,
        );
        ModelMachine {
            threads_per_core: self.threads_per_core,
            smt: SMT,
            line_bytes: KERNEL_LINE,
            ..ModelMachine::new(self.sockets, self.cores, REFERENCE.own_ns, near, far)
        }
    }
}
