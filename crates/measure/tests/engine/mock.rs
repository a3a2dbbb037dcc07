//! An experiment whose costs, noise and failures are scripted, on a clock that it moves itself.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, anyhow};
use bpfcost_measure::{COUNTING_GOAL_NS, Clock, Error, Event, Measurements, Plan, measure};
use bpfcost_model::{
    Batch, Case, Description, Experiment, Fault, LoadedEpoch, Observed, Overhead, Pair, Problem,
    Role, Sentinel, SentinelTrial, Setup, Sizing, Trial, Unit, Waivers,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Seconds that each part takes beside the timed batches.
pub(crate) const LOAD_S: f64 = 0.05;
pub(crate) const TRIAL_S: f64 = 0.01;

/// Costs of the mock's own sentinel and of the usual one.
pub(crate) const OWN_NS: f64 = 20.0;
pub(crate) const USUAL_NS: f64 = 30.0;

/// The request for a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ask {
    /// Number of the epoch that is loaded.
    pub(crate) epoch: usize,
    /// Index of the case.
    pub(crate) case: usize,
    pub(crate) batch: u64,
    /// Trials of this case before, in this epoch.
    pub(crate) before: usize,
    /// Trials of all cases before, over all epochs.
    pub(crate) total: usize,
}

/// The log and the clock of the scripted experiment.
#[derive(Default)]
pub(crate) struct Lab {
    now_ns: Cell<f64>,
    pub(crate) interrupt: AtomicBool,
    pub(crate) asks: RefCell<Vec<Ask>>,
    /// Case names of each load.
    pub(crate) loads: RefCell<Vec<Vec<String>>>,
    pub(crate) prepared: RefCell<Vec<(usize, String)>>,
    pub(crate) unloads: Cell<usize>,
    /// Epochs that are loaded now.
    pub(crate) held: Cell<isize>,
    /// Ticks in the trial under way; a script may set it.
    pub(crate) ticks: Cell<u64>,
    /// The same of sleeps.
    pub(crate) waits: Cell<u64>,
}

impl Lab {
    pub(crate) fn pass_s(&self, seconds: f64) {
        self.now_ns.set(self.now_ns.get() + seconds * 1e9);
    }

    pub(crate) fn interrupt(&self) {
        self.interrupt.store(true, Ordering::Relaxed);
    }
}

impl Clock for Lab {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.now_ns.get() / 1e9)
    }
}

type Script<A, T> = Rc<dyn Fn(&Lab, A) -> T>;

pub(crate) struct Mock {
    pub(crate) cases: Vec<Case>,
    pub(crate) lab: Rc<Lab>,
    /// The number of the first epoch: that of a resumed run.
    pub(crate) first_epoch: usize,
    /// The nanoseconds of a trial.
    pub(crate) elapsed: Script<Ask, Result<f64, Fault>>,
    pub(crate) prepare: Script<(usize, usize), Result<(), Fault>>,
    pub(crate) load: Script<usize, Result<()>>,
    pub(crate) unload: Script<usize, Result<()>>,
    /// The facts and warnings from preparing a case.
    pub(crate) observed: Script<(usize, usize), Result<Observed, Fault>>,
    /// The proof of a case after the rounds.
    pub(crate) conclude: Script<(usize, usize), Result<(), Fault>>,
    /// Whether it brings a sentinel, else it takes the usual one.
    pub(crate) sentinel: bool,
    pub(crate) waivers: Waivers,
    pub(crate) unsupported: Option<usize>,
}

impl Mock {
    /// Cases that cost this much, in nanoseconds, without noise.
    pub(crate) fn new(costs: &[f64]) -> Self {
        let ns = costs.to_vec();
        Mock::with(costs.len(), move |_, ask| {
            Ok(ns[ask.case] * ask.batch as f64)
        })
    }

    /// Cases whose trials take what `elapsed` says.
    pub(crate) fn with(
        cases: usize,
        elapsed: impl Fn(&Lab, Ask) -> Result<f64, Fault> + 'static,
    ) -> Self {
        Mock {
            cases: (0..cases).map(case).collect(),
            lab: Rc::default(),
            first_epoch: 0,
            elapsed: Rc::new(elapsed),
            prepare: Rc::new(|_, _| Ok(())),
            load: Rc::new(|_, _| Ok(())),
            unload: Rc::new(|_, _| Ok(())),
            observed: Rc::new(|_, _| Ok(Observed::default())),
            conclude: Rc::new(|_, _| Ok(())),
            sentinel: true,
            waivers: Waivers::default(),
            unsupported: None,
        }
    }

    /// A plan without any limit: three rounds an epoch, all cases against the first.
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            experiment: "mock".to_owned(),
            target: "test".to_owned(),
            settings: BTreeMap::new(),
            unit: Unit::NanosPerOp,
            seed: 7,
            cases: self.cases.clone(),
            pairs: self.pairs(),
            cpus: vec![0],
            precision: None,
            seconds: None,
            patient: false,
            quick: false,
            rounds: Some(3),
            goal_ns: 1e7,
            margin: 0.01,
            budget: None,
            ..Plan::default()
        }
    }

    /// The same where instructions are counted.
    pub(crate) fn counting_plan(&self) -> Plan {
        Plan {
            unit: Unit::InstructionsPerOp,
            rounds: None,
            goal_ns: COUNTING_GOAL_NS,
            margin: 0.0,
            ..self.plan()
        }
    }

    /// Runs it; returns all events too.
    pub(crate) fn run(&self, plan: &Plan) -> (Result<Measurements, Error>, Vec<Event>) {
        self.resume(plan, Measurements::new(plan))
    }

    pub(crate) fn resume(
        &self,
        plan: &Plan,
        resumed: Measurements,
    ) -> (Result<Measurements, Error>, Vec<Event>) {
        let mut events = Vec::new();
        let lab = &self.lab;
        let observe = &mut |event: &Event| {
            events.push(event.clone());
            Ok(())
        };
        let outcome = measure(self, &usual, plan, &**lab, &lab.interrupt, resumed, observe);
        (outcome, events)
    }
}

pub(crate) fn case(index: usize) -> Case {
    Case {
        name: format!("c{index}"),
        group: "mock".to_owned(),
        factors: BTreeMap::new(),
        about: "scripted".to_owned(),
        role: Role::Case,
        floor: None,
        sizing: Sizing::Calibrated { most: None },
        ..Case::default()
    }
}

pub(crate) fn invalid() -> Fault {
    Fault::Invalid(Problem {
        check: "hits".to_owned(),
        expected: "8".to_owned(),
        got: "7".to_owned(),
        detail: String::new(),
    })
}

/// A standard normal draw that depends on `key` alone.
pub(crate) fn normal(key: [u64; 4]) -> f64 {
    let mut generator = key
        .into_iter()
        .fold(Pcg64::seed_from_u64(1), |mut g, word| {
            Pcg64::seed_from_u64(g.next_u64() ^ word)
        });
    let mut unit = || (generator.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    (-2.0 * (1.0 - unit()).ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
}

/// Trials of 50 ns/op that scatter between epochs and within them, by relative standard deviations.
pub(crate) fn noisy(
    seed: u64,
    epoch_sd: f64,
    trial_sd: f64,
) -> impl Fn(&Lab, Ask) -> Result<f64, Fault> + 'static {
    move |_, ask| {
        let (epoch, case) = (ask.epoch as u64, ask.case as u64);
        let shared = epoch_sd * normal([seed, epoch, case, u64::MAX]);
        let own = trial_sd * normal([seed, epoch, case, ask.before as u64]);
        Ok(50.0 * (shared + own).exp() * ask.batch as f64)
    }
}

impl Experiment for Mock {
    fn description(&self) -> Description {
        Description {
            overhead: Overhead {
                load_s: LOAD_S,
                trial_s: TRIAL_S,
                batches: 1.0,
            },
            waivers: self.waivers.clone(),
            ..Description::new("mock", "scripted", &[])
        }
    }

    fn cases(&self) -> Vec<Case> {
        self.cases.clone()
    }

    fn pairs(&self) -> Vec<Pair> {
        let [baseline, others @ ..] = self.cases.as_slice() else {
            return vec![];
        };
        others
            .iter()
            .map(|case| Pair {
                case: case.name.clone(),
                baseline: baseline.name.clone(),
                about: String::new(),
            })
            .collect()
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        let index = self.cases.iter().position(|known| known == case);
        Ok((self.unsupported.is_some() && index == self.unsupported)
            .then(|| "needs Linux 9".to_owned()))
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let lab = &self.lab;
        lab.pass_s(LOAD_S);
        let epoch = self.first_epoch + lab.loads.borrow().len();
        let names = setup.cases.iter().map(|case| case.name.clone()).collect();
        lab.loads.borrow_mut().push(names);
        (self.load)(lab, epoch)?;
        lab.held.set(lab.held.get() + 1);
        Ok(Box::new(Held {
            lab: lab.clone(),
            cases: self.cases.clone(),
            epoch,
            before: vec![0; self.cases.len()],
            elapsed: self.elapsed.clone(),
            prepare: self.prepare.clone(),
            unload: self.unload.clone(),
            observed: self.observed.clone(),
            conclude: self.conclude.clone(),
        }))
    }

    fn sentinel(&self, _: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        Ok(self
            .sentinel
            .then(|| Box::new(Steady(OWN_NS)) as Box<dyn Sentinel>))
    }
}

struct Steady(f64);

/// The sentinel of experiments that have none of their own.
pub(crate) fn usual(_: &Setup) -> Result<Box<dyn Sentinel>> {
    Ok(Box::new(Steady(USUAL_NS)))
}

impl Sentinel for Steady {
    fn trial(&mut self) -> Result<SentinelTrial> {
        Ok(SentinelTrial {
            value: self.0,
            ..SentinelTrial::default()
        })
    }
}

struct Held {
    lab: Rc<Lab>,
    cases: Vec<Case>,
    epoch: usize,
    before: Vec<usize>,
    elapsed: Script<Ask, Result<f64, Fault>>,
    prepare: Script<(usize, usize), Result<(), Fault>>,
    unload: Script<usize, Result<()>>,
    observed: Script<(usize, usize), Result<Observed, Fault>>,
    conclude: Script<(usize, usize), Result<(), Fault>>,
}

impl Held {
    fn index(&self, case: &Case) -> Result<usize> {
        let index = self.cases.iter().position(|known| known == case);
        index.ok_or_else(|| anyhow!("a case that was not loaded: {}", case.name))
    }
}

impl LoadedEpoch for Held {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let prepared = (self.epoch, case.name.clone());
        self.lab.prepared.borrow_mut().push(prepared);
        (self.prepare)(&self.lab, (self.epoch, self.index(case)?))
    }

    fn observed(&mut self, case: &Case) -> Result<Observed, Fault> {
        let index = self.index(case)?;
        (self.observed)(&self.lab, (self.epoch, index))
    }

    fn conclude(&mut self, case: &Case) -> Result<(), Fault> {
        let index = self.index(case)?;
        (self.conclude)(&self.lab, (self.epoch, index))
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let index = self.index(case)?;
        let ask = Ask {
            epoch: self.epoch,
            case: index,
            batch: batch.0,
            before: self.before[index],
            total: self.lab.asks.borrow().len(),
        };
        self.lab.asks.borrow_mut().push(ask);
        self.before[index] += 1;
        self.lab.pass_s(TRIAL_S);
        let elapsed_ns = (self.elapsed)(&self.lab, ask)?;
        self.lab.pass_s(elapsed_ns.max(0.0) / 1e9);
        Ok(Trial {
            value: elapsed_ns / batch.0 as f64,
            ops: batch.0,
            elapsed_ns,
            ticks: self.lab.ticks.take(),
            waits: self.lab.waits.take(),
            ..Trial::default()
        })
    }

    fn unload(self: Box<Self>) -> Result<()> {
        self.lab.unloads.set(self.lab.unloads.get() + 1);
        (self.unload)(&self.lab, self.epoch)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lab.held.set(self.lab.held.get() - 1);
    }
}
