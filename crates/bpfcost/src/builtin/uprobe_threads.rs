//! `uprobe-threads`: what does a probed function cost when many threads call it at once? Whether uprobes scale is asked
//! again and again; the kernel's own benchmark for it prints a rate, and no table of it is published.
//!
//! Threads of another process, on their CPUs in turn, call one function as fast as they can, all beginning together. The
//! value is the time until the last is done by the calls of one thread: ns per call and thread. Floors are the same
//! calls without a probe. The program counts its runs, so each trial proves that every call was probed.

use super::needs::needs;
use bpfcost_model::Need;
use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bpfcost_bpf::attach::{Attach, Driver, SharedCalls};

use bpfcost_model::{
    Batch, Case, Description, Experiment, Fault, Layout, LoadedEpoch, Overhead, Pair, Role,
    Scaling, Setup, Sizing, Trial, differs, prove,
};
use bpfcost_threads::may_pin;

/// The ways that are compared; the kernel's in a `nop` of five bytes is its fastest on Linux 6.18, that of ten on 7.2.
const WAYS: [Attach; 8] = [
    Attach::UprobeNop,
    Attach::UprobeNop5,
    Attach::UprobeNop10,
    Attach::UretprobeNop,
    Attach::UretprobeTail,
    Attach::UserUprobeNop,
    Attach::UserUretprobeNop,
    Attach::UserUretprobeTail,
];
/// Pairs that are compared: each mechanism in user space with those of the kernel.
const AGAINST: [(Attach, Attach); 4] = [
    (Attach::UserUprobeNop, Attach::UprobeNop),
    (Attach::UserUprobeNop, Attach::UprobeNop5),
    (Attach::UserUretprobeNop, Attach::UretprobeNop),
    (Attach::UserUretprobeTail, Attach::UretprobeTail),
];

/// Threads per CPU, at most.
const MAX_PER_CPU: usize = 4;
/// Fewer calls of a thread would measure the threads' start.
const MIN_CALLS: u64 = 64;
/// A batch's length where each thread has a CPU, and for each thread of a CPU that has several: as in `pool`.
const BATCH_NS: f64 = 2e6;
const CROWDED_NS: f64 = 8e6;

/// The rate of all threads together.
const CALLS_PER_S: &str = "calls_per_s";

/// The experiment.
#[derive(Clone, Debug)]
pub struct UprobeThreads {
    cpus: Vec<u32>,
}

impl Default for UprobeThreads {
    /// On all CPUs that this process may run on.
    fn default() -> Self {
        UprobeThreads {
            cpus: bpfcost_bpf::allowed_cpus(),
        }
    }
}

/// Parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadsCase {
    calls: Calls,
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Probed(Attach),
    Alone(Driver),
}

impl ThreadsCase {
    fn name(self) -> String {
        match self.calls {
            Calls::Probed(attach) => format!("{attach}/{}", self.threads),
            Calls::Alone(driver) => format!("none/{driver}/{}", self.threads),
        }
    }

    /// A batch's length in nanoseconds.
    fn batch_ns(self, cpus: usize) -> f64 {
        match self.threads.div_ceil(cpus.max(1)) {
            0 | 1 => BATCH_NS,
            each => each as f64 * CROWDED_NS,
        }
    }

    fn case(self, cpus: usize) -> Case {
        let mut factors = BTreeMap::from([("threads".to_owned(), self.threads.to_string())]);
        let (role, group, floor) = match self.calls {
            Calls::Probed(attach) => {
                factors.insert("probe".to_owned(), attach.name().to_owned());
                let floor = ThreadsCase {
                    calls: Calls::Alone(attach.driver()),
                    ..self
                };
                (Role::Case, "a probe at the function", Some(floor.name()))
            }
            Calls::Alone(driver) => {
                factors.insert("function".to_owned(), driver.name().to_owned());
                (Role::Floor, "nothing attached", None)
            }
        };
        Case {
            name: self.name(),
            group: group.to_owned(),
            factors,
            about: match self.threads {
                1 => "1 thread".to_owned(),
                more => format!("{more} threads"),
            },
            role,
            floor,
            sizing: Sizing::Calibrated { most: None },
            batch_ns: Some(self.batch_ns(cpus)),
            ..Case::default()
        }
    }
}

impl UprobeThreads {
    /// One, and 1 to 4 for each CPU.
    fn threads(&self) -> Vec<usize> {
        let cpus = self.cpus.len().max(1);
        let mut counts = vec![1];
        counts.extend((1..=MAX_PER_CPU).map(|each| each * cpus));
        counts.dedup();
        counts
    }

    fn all(&self) -> Vec<ThreadsCase> {
        let mut drivers: Vec<Driver> = WAYS.map(Attach::driver).into();
        drivers.sort();
        drivers.dedup();
        let probed = WAYS.into_iter().map(Calls::Probed);
        let calls = probed.chain(drivers.into_iter().map(Calls::Alone));
        let threads = self.threads();
        calls
            .flat_map(|calls| {
                threads
                    .iter()
                    .map(move |&threads| ThreadsCase { calls, threads })
            })
            .collect()
    }

    fn find(&self, case: &Case) -> Option<ThreadsCase> {
        self.all().into_iter().find(|one| one.name() == case.name)
    }
}

impl Experiment for UprobeThreads {
    fn description(&self) -> Description {
        Description {
            layout: Layout::from(Scaling {
                over: "threads".into(),
                series: "probe".into(),
                rate: CALLS_PER_S.into(),
            }),
            margin: 0.03,
            every_cpu: true,
            counts: false,
            contends: true,
            overhead: Overhead {
                // Measured on a shared virtual machine with two CPUs.
                load_s: 0.3,
                trial_s: 0.02,
                batches: 1.2,
            },
            ..Description::new(
                "uprobe-threads",
                "a function that many threads call at once, with a uprobe or a probe in user space",
                &[
                    ("probe", "how the program is attached: see attach"),
                    (
                        "threads",
                        "threads that call the function, spread over the CPUs",
                    ),
                    (
                        "function",
                        "what the function begins with, where nothing is attached",
                    ),
                ],
            )
        }
    }

    fn on_cpus(&mut self, cpus: &[u32]) {
        cpus.clone_into(&mut self.cpus);
    }

    fn cases(&self) -> Vec<Case> {
        let all = self.all().into_iter();
        all.map(|one| one.case(self.cpus.len())).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let threads = self.threads().into_iter();
        let pair = |threads: usize| {
            AGAINST.map(|(case, baseline)| Pair {
                case: format!("{case}/{threads}"),
                baseline: format!("{baseline}/{threads}"),
                about: format!("{case} against {baseline}"),
            })
        };
        threads.flat_map(pair).collect()
    }

    fn needs(&self, case: &Case) -> Vec<Need> {
        match self.find(case).map(|one| one.calls) {
            Some(Calls::Probed(attach)) => needs(attach.needs()),
            Some(Calls::Alone(driver)) => needs(driver.needs().to_vec()),
            None => Vec::new(),
        }
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        may_pin(&setup.cpus)?;
        Ok(Box::new(ThreadsEpoch {
            experiment: self.clone(),
            cpus: setup.cpus.clone(),
            now: None,
        }))
    }
}

/// An epoch: what is called just now. One program is attached at a time, for the threads of its trials.
struct ThreadsEpoch {
    experiment: UprobeThreads,
    cpus: Vec<u32>,
    now: Option<(Calls, SharedCalls)>,
}

impl ThreadsEpoch {
    fn turn_to(&mut self, calls: Calls) -> Result<&mut SharedCalls> {
        if self.now.as_ref().is_none_or(|(now, _)| *now != calls) {
            self.now = None;
            let shared = match calls {
                Calls::Probed(attach) => SharedCalls::probed(attach)?,
                Calls::Alone(driver) => SharedCalls::alone(driver)?,
            };
            self.now = Some((calls, shared));
        }
        let (_, shared) = self.now.as_mut().context("it was just made")?;
        Ok(shared)
    }
}

impl LoadedEpoch for ThreadsEpoch {
    /// Nothing: each trial attaches what it is about, and proves itself.
    fn prepare(&mut self, _case: &Case) -> Result<(), Fault> {
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let one = self.experiment.find(case);
        let one = one.with_context(|| format!("uprobe-threads has no case {}", case.name))?;
        let calls = batch.0.max(MIN_CALLS);
        let cpus: Vec<u32> = self
            .cpus
            .iter()
            .copied()
            .cycle()
            .take(one.threads)
            .collect();
        let shared = self.turn_to(one.calls)?;
        let seen = shared.call(calls, &cpus).map_err(anyhow::Error::from)?;
        let runs = match one.calls {
            Calls::Probed(_) => seen.made,
            Calls::Alone(_) => 0,
        };
        prove(
            differs(
                "missed calls",
                0,
                seen.missed,
                "the probe says that it missed calls",
            )
            .or_else(|| {
                let detail = "the program did not run exactly once for each call of each thread";
                differs("hits", runs, seen.hits, detail)
            })
            .or_else(|| {
                let moved = seen.elapsed_ns > 0;
                let detail = "the clock did not advance during the batch";
                differs("clock moved", true, moved, detail)
            }),
        )?;
        let elapsed_ns = seen.elapsed_ns as f64;
        let together = calls as f64 * one.threads as f64;
        Ok(Trial {
            value: elapsed_ns / calls as f64,
            ops: calls,
            elapsed_ns,
            secondary: BTreeMap::from([(CALLS_PER_S.to_owned(), together / elapsed_ns * 1e9)]),
            ..Trial::default()
        })
    }

    fn unload(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
