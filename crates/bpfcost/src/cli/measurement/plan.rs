//! The options of a command line as plans, one for each target.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};

use super::Options;
use crate::cli::{exit::usage, place, select, session};
use bpfcost_measure::{COUNTING_GOAL_NS, Plan};
use bpfcost_model::{Experiment, Unit};
use bpfcost_target::{Host, Target, TargetError, parse_cpus};

/// A batch's length: long enough for a timer tick every 4 ms to be part of each, short enough for
/// hundreds of them a minute.
const BATCH_NS: f64 = 10e6;
/// A batch's length with `--quick`.
const QUICK_BATCH_NS: f64 = 2e6;
/// How long a run takes that is asked for neither a time nor a precision.
const DEFAULT_TIME: Duration = Duration::from_secs(60);
/// The precision at which such a run stops before.
const DEFAULT_PRECISION: f64 = 0.01;

/// The seed of a run that counts instructions, where none is given: the same packets every time, so that
/// runs of different days agree.
const EXACT_SEED: u64 = 1;

/// A plan for each target, complete before anything is measured. `experiment` makes the experiment afresh.
pub(in crate::cli) fn plans(
    options: &Options,
    experiment: impl Fn() -> Result<Box<dyn Experiment>>,
    budget: Option<f64>,
    host: &Host,
) -> Result<Vec<(Box<dyn Experiment>, Plan)>> {
    once(&options.on)?;
    let settings = settings(&options.set)?;
    let plan = |target: &String| {
        let named: Target = target
            .parse()
            .map_err(|error: TargetError| usage(error.to_string()))?;
        let experiment = experiment()?;
        let description = experiment.description();
        let name = &description.name;
        if named.is_exact() && !description.counts {
            let why = if description.every_cpu {
                "measures how CPUs contend, and an exact guest has one CPU"
            } else {
                "measures servers, and the clock of an exact guest jumps while they wait"
            };
            return Err(usage(format!(
                "{name} cannot run on {target}: it {why}\n  \
                 Run it on host or on vm:KERNEL"
            )));
        }
        // A missing kernel is an error before anything is measured.
        place::kernel(&named)?;
        let cpus = cpus(options.cpus.as_deref(), &named, host, description.every_cpu)?;
        let experiment = select::settle(experiment, &cpus, &settings)?;
        if let Some(most) = description.most_cpus
            && cpus.len() > most
        {
            return Err(usage(format!(
                "{name} runs on {most} CPU at a time, and --cpus names {}\n  Name one, or leave it out",
                cpus.len()
            )));
        }
        let (cases, pairs) = select::cases(&*experiment, &options.cases, options.quick)?;
        let is_compared = !pairs.is_empty();
        let default = options.time.is_none() && options.precision.is_none() && !options.quick;
        let time = options.time.or(default.then_some(DEFAULT_TIME));
        // The plan holds what the settings made of its subject: a guest and a resumed run have nothing else.
        let declared = Plan::new(experiment.description());
        let timed = Plan {
            target: target.clone(),
            settings: settings.clone(),
            seed: options.seed.unwrap_or_else(session::draw_seed),
            cases,
            pairs,
            cpus,
            precision: options.precision.or(default.then_some(DEFAULT_PRECISION)),
            seconds: time.map(|time| time.as_secs_f64()),
            patient: options.time.is_none(),
            quick: options.quick,
            goal_ns: if options.quick {
                QUICK_BATCH_NS
            } else {
                BATCH_NS
            },
            // Without pairs there is nothing to judge.
            budget: budget.filter(|_| !declared.layout.compares_nets() && is_compared),
            ..declared
        };
        let plan = if named.is_exact() {
            counted(timed, options.seed)
        } else {
            timed
        };
        Ok((experiment, plan))
    };
    options.on.iter().map(plan).collect()
}

/// A plan for a guest that counts instructions: its clock is not one of seconds, and nothing is left to
/// chance, not even the seed.
fn counted(plan: Plan, seed: Option<u64>) -> Plan {
    Plan {
        unit: Unit::InstructionsPerOp,
        seed: seed.unwrap_or(EXACT_SEED),
        precision: None,
        seconds: None,
        goal_ns: COUNTING_GOAL_NS,
        margin: 0.0,
        ..plan
    }
}

/// Refuses a name that is given twice: its second record would replace the first.
pub(in crate::cli) fn once(names: &[String]) -> Result<()> {
    let twice = |(index, name): (usize, &String)| names[..index].contains(name);
    match names.iter().enumerate().find(|one| twice(*one)) {
        Some((_, name)) => Err(usage(format!(
            "{name} is named twice, and a run measures each experiment once on each target\n  For \
             two sessions, run it twice, with two names for --out"
        ))),
        None => Ok(()),
    }
}

/// What `--set` gives, by factor.
fn settings(given: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    for (factor, values) in given {
        if settings.insert(factor.clone(), values.clone()).is_some() {
            return Err(usage(format!(
                "--set {factor} is given twice\n  Name all its values at once: --set {factor}=A,B"
            )));
        }
    }
    Ok(settings)
}

/// The CPUs to run on: those asked for; or every one allowed; or the last one, where interrupts are
/// rarest. For a guest, they are the guest's own.
fn cpus(list: Option<&str>, target: &Target, host: &Host, every: bool) -> Result<Vec<u32>> {
    let asked = list
        .map(parse_cpus)
        .transpose()
        .map_err(|error| usage(error.to_string()))?;
    if target != &Target::Host {
        let last = place::guest_cpus(target, &[]) - 1;
        let cpus = asked.unwrap_or_else(|| {
            if every {
                (0..=last).collect()
            } else {
                vec![last]
            }
        });
        return place::guest_has(target, &cpus).map(|()| cpus);
    }
    let cpus = match asked {
        Some(cpus) => cpus,
        None => {
            let allowed = bpfcost_bpf::allowed_cpus();
            let last = *allowed
                .last()
                .context("the kernel does not report on which CPUs this process may run")?;
            if every { allowed } else { vec![last] }
        }
    };
    host.usable_cpus(&cpus)
        .map_err(|error| usage(error.to_string()))?;
    Ok(cpus)
}
