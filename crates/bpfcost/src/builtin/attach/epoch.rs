//! An epoch of `attach`: starts drivers and loads programs. One program is attached at a time, only for its own
//! trials.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use anyhow::{Context, Result, anyhow};
use bpfcost_bpf::{
    CpuPin,
    attach::{
        self, Attach, Attachment, BatchRequest, BatchResult, Body, BodyMaps, Driver, Events,
        PrintkOff, ProbeCounts, ProbePrograms, Trouble,
    },
    stats::{self, RunStats, StatsOn},
};

use super::{
    case::AttachCase,
    proof::{self, AttachProof},
};
use bpfcost_model::{Batch, Case, Fault, LoadedEpoch, Problem, Setup, Slices, Trial, prove};
use bpfcost_process::restore::RestoreGuard;

/// Events between attaching and the first batch that counts: the kernel may change how a probe works at
/// its first hits, and maps get their entries.
const FIRST_EVENTS: u64 = 64;

/// Description of the step, with advice for a kernel that has no room for the maps.
const MEMORY: &str = "creating the programs' maps, about 10 MiB of locked memory (if memory is short, free some; \
    before Linux 5.11, raise ulimit -l)";

/// Programs and drivers that could be loaded and started, or the error for each of the others: it affects only the
/// cases that need it.
type Probes = BTreeMap<Attach, bpfcost_bpf::Result<ProbePrograms>>;
type Drivers = BTreeMap<Driver, Result<Box<dyn Events>, Problem>>;

/// Everything that is loaded in an epoch. The attached case is the first field, and so the first to be dropped, because
/// it depends on the others.
pub(super) struct AttachEpoch {
    now: Option<ActiveCase>,
    probes: Probes,
    drivers: Drivers,
    maps: BodyMaps,
    cpu: u32,
    exact: bool,
    _pinned: CpuPin,
    /// Sysctls that attaching changes, where this process is killed before it has restored them.
    _settings: Vec<RestoreGuard>,
    /// Last, for the kernel switches it on with each program that prints.
    _printk: Option<PrintkOff>,
}

/// Case whose program is attached at present.
struct ActiveCase {
    way: AttachCase,
    attached: Option<Box<dyn Attachment>>,
    _stats: Option<StatsOn>,
}

impl AttachEpoch {
    pub(super) fn load(setup: &Setup) -> Result<Self> {
        let [cpu] = setup.cpus[..] else {
            anyhow::bail!("attach runs on one CPU at a time: give one with --cpus");
        };
        let pinned = CpuPin::to(cpu)?;
        let maps = BodyMaps::make(setup.exact).context(MEMORY)?;
        let mut bodies: BTreeMap<Attach, Vec<Body>> = BTreeMap::new();
        let mut drivers = Drivers::new();
        // Every line also goes to the trace buffer if any tool has printed before: a cost that is not the attached
        // program's.
        let mut ways = setup.cases.iter().filter_map(AttachCase::from_case);
        let prints = ways.any(|way| way.driver() == Driver::Printk);
        let printk = prints.then(PrintkOff::switch_off).flatten();
        for way in setup.cases.iter().filter_map(AttachCase::from_case) {
            if let Entry::Vacant(place) = drivers.entry(way.driver()) {
                place.insert(start(way.driver()));
            }
            if let AttachCase::Program { attach, body, .. } = way {
                let bodies = bodies.entry(attach).or_default();
                if !bodies.contains(&body) {
                    bodies.push(body);
                }
            }
        }
        let changed: BTreeSet<&str> = bodies
            .keys()
            .filter_map(|attach| attach.changes())
            .collect();
        let settings = RestoreGuard::of_settings(changed)?;
        let probes = bodies
            .into_iter()
            .map(|(attach, bodies)| (attach, ProbePrograms::load(attach, &bodies, &maps)))
            .collect();
        Ok(AttachEpoch {
            now: None,
            probes,
            drivers,
            maps,
            cpu,
            exact: setup.exact,
            _pinned: pinned,
            _settings: settings,
            _printk: printk,
        })
    }

    /// Attaches what a case means, and nothing else.
    fn turn_to(&mut self, way: AttachCase) -> Result<(), Fault> {
        if self.now.as_ref().is_some_and(|now| now.way == way) {
            return Ok(());
        }
        // Detach the previous program first: the two may share an event.
        self.now = None;
        let events = events(&mut self.drivers, way.driver())?;
        let mut now = ActiveCase {
            way,
            attached: None,
            _stats: None,
        };
        let taxed = matches!(way, AttachCase::Program { stats: true, .. });
        if !taxed && stats::enabled_by_sysctl() {
            return Err(Fault::Broken(anyhow!(
                "kernel.bpf_stats_enabled is on; every cost would include it\n  Turn it off: sysctl \
                 kernel.bpf_stats_enabled=0"
            )));
        }
        if let AttachCase::Alone(driver) = way {
            // Checked again and again: another process may attach meanwhile.
            nobody_else(driver).map_err(Fault::Invalid)?;
        }
        if let AttachCase::Program {
            attach,
            body,
            stats,
        } = way
        {
            let probe = probe(&mut self.probes, attach)?;
            if stats {
                let on = StatsOn::start();
                now._stats = Some(on.map_err(|error| invalid("bpf_stats", &error))?);
            }
            let attached = probe
                .attach_to(events, body)
                .map_err(|error| invalid("attached", &error))?;
            now.attached = Some(attached);
        }
        self.now = Some(now);
        self.events(way, FIRST_EVENTS)?;
        Ok(())
    }

    /// Has events made. Just after a tick where instructions are counted.
    fn events(&mut self, way: AttachCase, events: u64) -> Result<BatchResult, Fault> {
        let ask = BatchRequest {
            events,
            cpu: self.cpu,
            after_tick: self.exact,
        };
        let driven = self::events(&mut self.drivers, way.driver())?.batch(&ask);
        driven.map_err(|error| invalid("events", &error))
    }

    /// Returns what is wrong with the attachment of the active case, or `None`.
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        let attached = self.now.as_mut().and_then(|now| now.attached.as_mut());
        Ok(attached.map_or(Ok(None), |attached| attached.trouble())?)
    }

    fn missed(&mut self) -> Result<u64> {
        let attached = self.now.as_mut().and_then(|now| now.attached.as_mut());
        Ok(attached.map_or(Ok(0), |attached| attached.missed())?)
    }

    /// Lets all counts begin again, and says where those begin that can't.
    fn begin(&mut self, way: AttachCase) -> Result<CountsBefore, Fault> {
        if let Some(trouble) = self.trouble()? {
            return Err(Fault::Invalid(proof::trouble(&trouble)));
        }
        let AttachCase::Program { attach, body, .. } = way else {
            return Ok(CountsBefore::default());
        };
        self.maps.take(attach, body)?;
        let stats = probe(&mut self.probes, attach)?.run_stats(body);
        let before = CountsBefore {
            stats: stats?,
            missed: self.missed()?,
        };
        // Last, for it takes no system call, and those are events where all functions are.
        let probe = probe(&mut self.probes, attach)?;
        probe.forget().map_err(anyhow::Error::from)?;
        Ok(before)
    }

    /// The result of a batch.
    fn proof(
        &mut self,
        way: AttachCase,
        driven: BatchResult,
        before: CountsBefore,
    ) -> Result<AttachProof, Fault> {
        let mut proof = AttachProof {
            way,
            driven,
            seen: ProbeCounts::default(),
            left: 0,
            missed: 0,
            stats: RunStats::default(),
            placed: None,
        };
        if let AttachCase::Program { attach, body, .. } = way {
            let seen = probe(&mut self.probes, attach)?.seen();
            proof.seen = seen.map_err(anyhow::Error::from)?;
            proof.missed = self.missed()?.saturating_sub(before.missed);
            let attached = self.now.as_ref().and_then(|now| now.attached.as_ref());
            proof.placed = attached.and_then(|attached| attached.placed());
            let probe = probe(&mut self.probes, attach)?;
            let stats = probe.run_stats(body)?;
            proof.stats = stats.since(before.stats);
            proof.left = self.maps.take(attach, body)?;
        }
        Ok(proof)
    }
}

/// Counts that begin somewhere.
#[derive(Default)]
struct CountsBefore {
    missed: u64,
    stats: RunStats,
}

/// Starts a driver, unless another process is attached to its events.
fn start(driver: Driver) -> Result<Box<dyn Events>, Problem> {
    nobody_else(driver)?;
    driver.start().map_err(|error| problem("driver", &error))
}

/// Checks that no other process is attached to a driver's events: it would be part of every cost.
fn nobody_else(driver: Driver) -> Result<(), Problem> {
    match attach::others(driver).map_err(|error| problem("driver", &error))? {
        None => Ok(()),
        Some(who) => Err(Problem {
            check: "nothing else attached".to_owned(),
            expected: "no other program".to_owned(),
            got: who,
            detail: format!(
                "other programs see the events of {driver} too; every cost would include them"
            ),
        }),
    }
}

fn events(drivers: &mut Drivers, driver: Driver) -> Result<&mut dyn Events, Fault> {
    match drivers.get_mut(&driver) {
        Some(Ok(events)) => Ok(&mut **events),
        Some(Err(problem)) => Err(Fault::Invalid(problem.clone())),
        None => Err(Fault::Broken(anyhow!(
            "the driver {driver} was not started"
        ))),
    }
}

fn probe(probes: &mut Probes, attach: Attach) -> Result<&mut ProbePrograms, Fault> {
    match probes.get_mut(&attach) {
        Some(Ok(probe)) => Ok(probe),
        Some(Err(error)) => Err(invalid("program", error)),
        None => Err(Fault::Broken(anyhow!(
            "programs for {attach} were not loaded"
        ))),
    }
}

/// Problem of a case that the kernel rejected although it has what the case needs.
fn problem(check: &str, error: &bpfcost_bpf::Error) -> Problem {
    let text = error.to_string();
    let (got, detail) = text.split_once('\n').unwrap_or((&text, ""));
    Problem {
        check: check.to_owned(),
        expected: "no error".to_owned(),
        got: got.to_owned(),
        detail: detail.to_owned(),
    }
}

fn invalid(check: &str, error: &bpfcost_bpf::Error) -> Fault {
    Fault::Invalid(problem(check, error))
}

impl LoadedEpoch for AttachEpoch {
    /// Nothing: each trial attaches what it is about, and proves itself.
    fn prepare(&mut self, _case: &Case) -> Result<(), Fault> {
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let way = AttachCase::from_case(case)
            .with_context(|| format!("attach has no case {}", case.name))?;
        self.turn_to(way)?;
        let before = self.begin(way)?;
        let driven = self.events(way, batch.0)?;
        let proof = self.proof(way, driven, before)?;
        prove(self.problem(batch, &proof)?)?;
        let driven = &proof.driven;
        Ok(Trial {
            value: driven.elapsed_ns / driven.events as f64,
            ops: driven.events,
            elapsed_ns: driven.elapsed_ns,
            ticks: driven.ticks,
            waits: driven.waits,
            secondary: proof.secondary(),
            slices: Slices::new(&driven.slices),
            ..Trial::default()
        })
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.now = None;
        Ok(())
    }
}

impl AttachEpoch {
    fn problem(&mut self, batch: Batch, proof: &AttachProof) -> Result<Option<Problem>> {
        let trouble = self.trouble()?;
        Ok(trouble
            .as_ref()
            .map(proof::trouble)
            .or_else(|| proof.problem(batch)))
    }
}
