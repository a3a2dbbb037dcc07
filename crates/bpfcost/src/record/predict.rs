//! What the model of `bpfcost-pool` says, told what cache lines cost on the machine of a record.
//!
//! Of each published curve, the point of one thread says how long all else takes that a call does; [`Told`]
//! holds what the model is told of a machine, and METHODOLOGY.md says where that comes from, and which points
//! decided any of it.

use bpfcost_pool::{
    Error, Stride,
    model::{self, Kind, Machine as Model},
};

use super::{
    CaseRecord, Lines, PredictedCurve, PredictedPoint, Prediction, PublishedRow, PublishedTable,
    Status,
    published::{Published, SECONDS, TABLES},
};

/// Pools that are predicted, by the name that they have as cases.
const POOLS: [(&str, Kind); 4] = [
    ("freelist", Kind::Freelist),
    ("array", Kind::Array(Stride::Compact)),
    ("array-padded", Kind::Array(Stride::Padded)),
    ("percpu", Kind::PerCpu),
];

/// Threads of this machine's curves, each with a CPU of its own.
const THREADS: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192];
/// CPUs of a socket of the machines that this one grows to.
const SOCKET: u32 = 96;
/// Objects for each CPU: what the kernel's `maxactive` is by default where it can be preempted.
const OBJECTS: u32 = 2;

/// What a transfer between sockets takes, in transfers within one, where it could not be measured. Between
/// the two-socket Xeons and EPYCs that figures are published of, it is 2 to 3.
const FAR: f64 = 2.5;
/// What a core gets done with two threads, in what it does with one: the usual 1.1 to 1.3.
const SMT: f64 = 1.2;
/// Bytes that stand for a line of 64 where slots are the kernel's pointers: ours are half as large.
const KERNEL_LINE: usize = 32;

/// What the model is told of a machine that others measured.
pub(super) struct Told {
    pub(super) sockets: u32,
    /// Of a socket.
    pub(super) cores: u32,
    pub(super) threads_per_core: u32,
    /// What a transfer of a line takes there, in what it takes here.
    pub(super) transfers: f64,
}

impl Prediction {
    /// What the model says, where a record knows what cache lines cost.
    ///
    /// # Errors
    ///
    /// Where there is no memory for the pools, or for the threads of the simulation.
    pub(super) fn of(cases: &[CaseRecord]) -> Result<Option<Prediction>, Error> {
        let Some(lines) = lines(cases) else {
            return Ok(None);
        };
        // What the measured loop does beside the pool; nobody can guess it.
        let work_ns = case(cases, "none/1").map(|raw| raw.value);
        let curves = match work_ns.filter(|ns| *ns > 0.0) {
            None => Vec::new(),
            Some(work_ns) => POOLS
                .iter()
                .map(|(name, kind)| curve(name, *kind, &lines, work_ns))
                .collect::<Result<_, _>>()?,
        };
        let tables = TABLES.iter().map(|table| beside(table, &lines));
        Ok(Some(Prediction {
            curves,
            tables: tables.collect::<Result<_, _>>()?,
            lines,
        }))
    }
}

fn case<'a>(cases: &'a [CaseRecord], name: &str) -> Option<&'a super::Raw> {
    let found = cases.iter().find(|case| case.name == name)?;
    found.raw.as_ref().filter(|_| found.status == Status::Ok)
}

/// What lines cost here: the smallest trials, for whatever disturbs a ping-pong only makes it longer.
fn lines(cases: &[CaseRecord]) -> Option<Lines> {
    let cost = |name| Some(case(cases, name)?.min).filter(|ns| *ns > 0.0);
    let (own_ns, near_ns) = (cost("line/own")?, cost("line/near")?);
    let measured = cost("line/far");
    let assumed = match measured {
        Some(_) => Vec::new(),
        None => vec![format!(
            "far: {FAR} times near, as this machine has no second socket to measure it with"
        )],
    };
    Some(Lines {
        own_ns,
        near_ns,
        far_ns: measured.unwrap_or(FAR * near_ns),
        assumed,
    })
}

fn curve(series: &str, kind: Kind, lines: &Lines, work_ns: f64) -> Result<PredictedCurve, Error> {
    let point = |threads: u32| {
        let sockets = threads.div_ceil(SOCKET);
        let cores = threads.div_ceil(sockets);
        let machine = Model::new(sockets, cores, lines.own_ns, lines.near_ns, lines.far_ns);
        let rate = rate(kind, &machine, threads, work_ns)?;
        Ok(PredictedPoint { threads, rate })
    };
    let points = THREADS.into_iter().map(point);
    Ok(PredictedCurve {
        series: series.to_owned(),
        points: points.collect::<Result<_, _>>()?,
    })
}

/// Pairs per second of all threads.
fn rate(kind: Kind, machine: &Model, threads: u32, work_ns: f64) -> Result<f64, Error> {
    let objects = (OBJECTS * machine.cpus()) as usize;
    model::predict(kind, machine, threads, objects, work_ns)
}

impl Told {
    fn model(&self, lines: &Lines) -> Model {
        let (near, far) = (lines.near_ns, lines.far_ns);
        Model {
            threads_per_core: self.threads_per_core,
            smt: SMT,
            line_bytes: KERNEL_LINE,
            ..Model::new(
                self.sockets,
                self.cores,
                lines.own_ns,
                near * self.transfers,
                far * self.transfers,
            )
        }
    }

    /// In a line, with all that is assumed.
    fn words(&self) -> String {
        let sockets = match self.sockets {
            1 => "one socket".to_owned(),
            several => format!("{several} sockets"),
        };
        let threads = match self.threads_per_core {
            1 => String::new(),
            several => format!(
                " with {several} threads each, which together do {SMT} times as much as one alone"
            ),
        };
        let transfers = match self.transfers {
            1.0 => "as long as here".to_owned(),
            longer => format!("{longer} times as long as here (chosen to suit the study's table)"),
        };
        format!(
            "{sockets} of {} cores{threads}; threads take one core after another; a transfer of a cache line \
             takes {transfers}; {OBJECTS} objects a CPU; what else a call does is fitted at one thread",
            self.cores
        )
    }
}

/// A published table beside what the model says.
fn beside(table: &Published, lines: &Lines) -> Result<PublishedTable, Error> {
    let machine = table.machine.model(lines);
    let mut rows = Vec::new();
    for (series, points) in table.rows {
        let (kind, _) = simulated(series);
        let alone = points.iter().find(|(threads, _)| *threads == 1);
        let (_, alone) = *alone.expect("each curve begins with one thread");
        // What a call takes alone, less the pool's part.
        let work_ns = SECONDS * 1e9 / alone - 1e9 / rate(kind, &machine, 1, 0.0)?;
        for &(threads, published) in *points {
            rows.push(PublishedRow {
                series: (*series).to_owned(),
                threads,
                published,
                predicted: SECONDS * rate(kind, &machine, threads, work_ns.max(0.0))?,
                fitted: threads == 1 || table.fitted.is_some(),
                note: note(table, series, threads),
            });
        }
    }
    let simulated: Vec<&str> = table.rows.iter().map(|row| simulated(row.0).1).collect();
    let fitted = table
        .fitted
        .map_or_else(String::new, |reason| format!("; {reason}"));
    Ok(PublishedTable {
        title: table.title.to_owned(),
        source: table.source.to_owned(),
        machine: format!(
            "{}; simulated was {}{fitted}",
            table.machine.words(),
            simulated.join(" and ")
        ),
        unit: table.unit.to_owned(),
        rows,
    })
}

/// What is simulated for a curve of a published table, and its name.
fn simulated(series: &str) -> (Kind, &'static str) {
    match series {
        "freelist" => (Kind::Freelist, "this project's freelist"),
        "array" => (
            Kind::StudyArray,
            "the study's array, rebuilt (two compare-and-exchanges a pair), not this project's",
        ),
        "percpu" => (Kind::PerCpu, "this project's rings, one for each CPU"),
        other => unreachable!("no published table has a curve {other}"),
    }
}

fn note(table: &Published, series: &str, threads: u32) -> Option<String> {
    let mut notes = table.notes.iter();
    let found = notes.find(|(named, at, _)| *named == series && *at == threads);
    found.map(|(_, _, note)| (*note).to_owned())
}
