//! Where a run takes place: in this process, or in a guest that reports its events. Both end in the same
//! [`Observer`].

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use bpfcost_bpf::{LoadedProgram, timing::Loop};

use super::{
    exit::{interrupted, lacking, usage},
    output::note,
    outside,
};
use crate::builtin::safeguards;
use bpfcost_measure::{self, Event, Measurements, Monotonic, Plan, Stop, Warning};
use bpfcost_model::Experiment;
use bpfcost_record::{Disturbance, FeatureRecord, Journal, Machine};
use bpfcost_target::{
    CheckState, Host, Target,
    guest::{
        Acceleration, Arch, Failure, Guest, GuestError, GuestSpec, Hooks, Job, KvmSupport, Message,
        PortForward, Rescue, Tools,
    },
    kernel::{Kernel, Store},
};
use bpfcost_workload::outside::{END, free_port};

/// Longest time between two looks at what a guest says: rare enough to leave the CPUs to one whose time is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Wall time that a guest has to end the trial under way once it is asked to. A slow one loses that trial: a person
/// waits for the prompt.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Default CPUs of a guest: one to measure on, one for everything else.
const GUEST_CPUS: u32 = 2;

/// Receives the events of a run.
pub(super) trait Observer {
    fn event(&mut self, event: &Event) -> Result<()>;
    /// What disturbed the run so far.
    fn disturbed(&mut self, disturbance: &Disturbance) -> Result<()>;
}

/// The result of measuring.
pub(super) struct Outcome {
    pub(super) measured: Measurements,
    pub(super) disturbance: Disturbance,
    /// BPF programs of others that were loaded.
    pub(super) others: Vec<String>,
    pub(super) warnings: Vec<Warning>,
}

/// Where a run takes place, ready to measure.
pub(super) enum Place {
    /// In this process.
    Here(Host),
    /// In a guest that has booted.
    Guest(Box<Guest>),
}

impl Place {
    /// Prepares the target, and returns which machine it is. `journal` holds the run's earlier parts.
    pub(super) fn ready(
        experiment: &dyn Experiment,
        plan: &Plan,
        journal: Option<&Path>,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<(Place, Machine)> {
        let target: Target = plan
            .target
            .parse()
            .map_err(|error: bpfcost_target::TargetError| usage(error.to_string()))?;
        let Some(kernel) = kernel(&target)? else {
            let host = Host::default();
            able(&host, experiment)?;
            let machine = fingerprint(&host, experiment)?;
            return Ok((Place::Here(host), machine));
        };
        let (guest, machine) = boot(experiment, &target, kernel, plan, journal, interrupt)?;
        Ok((Place::Guest(Box::new(guest)), machine))
    }

    /// What is done where this process is killed before it has written all that a guest sent.
    pub(super) fn rescue(&self, journal: &Journal) -> Result<Option<Rescue>> {
        match self {
            Place::Here(_) => Ok(None),
            Place::Guest(guest) => guest.rescue(journal).map(Some),
        }
    }

    /// Measures to the end.
    pub(super) fn measure(
        &mut self,
        experiment: &dyn Experiment,
        plan: &Plan,
        resumed: Measurements,
        interrupt: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome> {
        match self {
            Place::Here(host) => measure_here(host, experiment, plan, resumed, interrupt, observer),
            Place::Guest(guest) => measure_there(guest, plan, resumed, interrupt, observer),
        }
    }
}

/// Refuses where the machine lacks what every run of BPF programs needs.
pub(super) fn able(host: &Host, experiment: &dyn Experiment) -> Result<()> {
    let description = experiment.description();
    if !description.privileged {
        return Ok(());
    }
    let (mut missing, mut purpose) = (host.missing_capabilities(), "load BPF programs");
    let mut granted = "cap_bpf,cap_net_admin,cap_perfmon".to_owned();
    if description.observes_others {
        purpose = "load BPF programs, and to count how often those of a probe run";
        granted += ",cap_sys_admin";
        missing.extend((!host.sees_other_programs()).then_some("CAP_SYS_ADMIN"));
    }
    if !missing.is_empty() {
        return Err(lacking(format!(
            "this process lacks {}, which the kernel requires to {purpose}\n  Run it as root: sudo bpfcost …, or grant \
             the capabilities: sudo setcap {granted}+ep $(command -v bpfcost)\n  See everything that is missing: bpfcost \
             check",
            missing.join(", ")
        )));
    }
    let checks = host.checks();
    if let Some(check) = checks
        .iter()
        .find(|check| check.state == CheckState::Missing)
    {
        return Err(lacking(format!(
            "{}: {}\n  {}\n  See everything that is missing: bpfcost check",
            check.name, check.text, check.advice
        )));
    }
    // Files don't show everything: a user namespace or a container may still forbid it.
    Loop::probe().map(|_| ()).map_err(|error| {
        lacking(format!(
            "{error}\n  Containers and user namespaces often forbid loading BPF programs: run \
             outside of them, as root of the machine\n  See everything that is missing: bpfcost \
             check"
        ))
    })
}

/// The machine, and what an experiment runs on it.
pub(super) fn fingerprint(host: &Host, experiment: &dyn Experiment) -> Result<Machine> {
    Ok(Machine {
        programs: safeguards::programs(experiment)?,
        features: if experiment.description().privileged {
            features()?
        } else {
            Vec::new()
        },
        ..host.machine()
    })
}

/// What of BPF the kernel of this process has and lacks.
pub(super) fn features() -> Result<Vec<FeatureRecord>> {
    let entry = |feature: bpfcost_bpf::Feature| {
        Ok(FeatureRecord {
            name: feature.to_string(),
            missing: feature.missing()?.map(|missing| missing.to_string()),
        })
    };
    bpfcost_bpf::Feature::ALL.into_iter().map(entry).collect()
}

/// The kernel that a target's guest is to have; `None` for the host.
pub(super) fn kernel(target: &Target) -> Result<Option<Kernel>> {
    let Some(name) = target.kernel() else {
        return Ok(None);
    };
    Ok(Some(Store::of_user()?.find(name)?))
}

/// How many CPUs a guest has, to run on these.
pub(super) fn guest_cpus(target: &Target, asked: &[u32]) -> u32 {
    let needed = asked.iter().max().map_or(1, |cpu| cpu.saturating_add(1));
    if target.is_exact() {
        1
    } else {
        needed.max(GUEST_CPUS.min(here()))
    }
}

/// Refuses CPUs that a guest can't have.
pub(super) fn guest_has(target: &Target, cpus: &[u32]) -> Result<()> {
    let most = cpus.iter().max().copied().unwrap_or(0);
    if target.is_exact() && most > 0 {
        return Err(usage(format!(
            "{target} has one CPU, CPU 0: it counts instructions one after the other\n  Omit \
             --cpus, or run on host or vm:KERNEL"
        )));
    }
    if !target.is_exact() && most >= here() {
        return Err(usage(format!(
            "a guest cannot have CPU {most} here: it has at most as many CPUs as this process may \
             use, {}\n  Choose from the guest's CPUs with --cpus: 0 to {}",
            here(),
            here() - 1
        )));
    }
    Ok(())
}

/// The most CPUs that a guest can have.
pub(super) fn here() -> u32 {
    u32::try_from(bpfcost_bpf::allowed_cpus().len().max(1)).unwrap_or(u32::MAX)
}

/// Measures in this process.
pub(super) fn measure_here(
    host: &Host,
    experiment: &dyn Experiment,
    plan: &Plan,
    resumed: Measurements,
    interrupt: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let name = |one: LoadedProgram| format!("{} {} ({})", one.kind, one.name, one.id);
    let others = bpfcost_bpf::loaded_programs()
        .into_iter()
        .map(name)
        .collect();
    let mut watch = host.watch(&plan.cpus);
    let clock = Monotonic::start();
    let mut observe = |event: &Event| {
        observer.event(event)?;
        match event {
            Event::EpochFinished { .. } => observer.disturbed(&watch.look()),
            _ => Ok(()),
        }
    };
    let measured = bpfcost_measure::measure(
        experiment,
        &safeguards::sentinel,
        plan,
        &clock,
        interrupt,
        resumed,
        &mut observe,
    )?;
    let unseen = Warning::new(
        "others-unseen",
        "other BPF programs may have run during the measurement: the kernel lists them only for \
         CAP_SYS_ADMIN. Check as root with bpftool prog list, or measure as root",
    );
    Ok(Outcome {
        measured,
        disturbance: watch.look(),
        others,
        warnings: (experiment.description().privileged && !host.sees_other_programs())
            .then_some(unseen)
            .into_iter()
            .collect(),
    })
}

/// Boots a guest that is ready to measure.
fn boot(
    experiment: &dyn Experiment,
    target: &Target,
    kernel: Kernel,
    plan: &Plan,
    journal: Option<&Path>,
    interrupt: &Arc<AtomicBool>,
) -> Result<(Guest, Machine)> {
    let tools = Tools::find()?;
    let job = Job {
        plan: plan.clone(),
        resumed: journal.is_some(),
    };
    let hooks = Hooks::of_environment()?;
    let forward = match outside::wanted(plan)? {
        Some(_) => Some(PortForward {
            port: free_port()?,
            mac: END.mac,
            address: END.address,
            inside: END.port,
        }),
        None => None,
    };
    let mut spec = GuestSpec {
        arch: Arch::here()
            .ok_or_else(|| lacking("there are no guests of this machine's architecture"))?,
        cpus: guest_cpus(target, &plan.cpus),
        exact: target.is_exact(),
        host_files: experiment.description().host_files || hooks.before.is_some(),
        traced: experiment.description().traces,
        forward,
        kernel,
        acceleration: Acceleration::Emulated,
        memory_mib: hooks.memory_mib,
        kernel_words: hooks.kernel.clone(),
    };
    let kvm = if spec.exact {
        // Only QEMU itself counts instructions.
        KvmSupport::Unusable(String::new())
    } else {
        KvmSupport::here(&tools)
    };
    let mut why = None;
    if !matches!(kvm, KvmSupport::Unusable(_)) {
        spec.acceleration = Acceleration::Kvm;
        note!("booting {} in QEMU, with KVM…", spec.kernel.release);
        match start(&tools, &spec, &hooks, &job, journal, interrupt) {
            Ok(started) => {
                KvmSupport::Usable.keep(&tools);
                return Ok(started);
            }
            Err(error) if matches!(error.downcast_ref(), Some(GuestError::Dead(_))) => {
                let first = error.to_string();
                let first = first.lines().next().unwrap_or_default().to_owned();
                note!("KVM is present but cannot boot a guest ({first}); emulating instead");
                why = Some(first);
            }
            Err(error) => return Err(error),
        }
        spec.acceleration = Acceleration::Emulated;
    }
    match (&kvm, &why) {
        (KvmSupport::Unusable(known), None) if !known.is_empty() => {
            note!(
                "booting {} in QEMU, emulated: KVM does not work here ({known})…",
                spec.kernel.release
            );
        }
        _ => note!("booting {} in QEMU, emulated…", spec.kernel.release),
    }
    let started = start(&tools, &spec, &hooks, &job, journal, interrupt)?;
    // Where emulation fails too, it was not KVM's fault.
    if let Some(why) = why {
        KvmSupport::Unusable(why).keep(&tools);
    }
    Ok(started)
}

/// Starts a guest and waits until it has reported its machine.
fn start(
    tools: &Tools,
    spec: &GuestSpec,
    hooks: &Hooks,
    job: &Job,
    journal: Option<&Path>,
    interrupt: &Arc<AtomicBool>,
) -> Result<(Guest, Machine)> {
    let mut guest = Guest::start(tools, spec, hooks, job, journal, interrupt)?;
    loop {
        match guest.listen()? {
            Some(Message::Machine(machine)) => {
                let emulator = Some(guest.emulator().to_owned());
                return Ok((
                    guest,
                    Machine {
                        emulator,
                        ..*machine
                    },
                ));
            }
            Some(Message::Failed(failure)) => {
                return Err(inside(&job.plan.target, failure));
            }
            _ => guest.wait(POLL_INTERVAL),
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(interrupted(
                "ended while the guest was booting; nothing was measured",
            ));
        }
    }
}

/// What the program in a guest failed with, said by this one.
fn inside(target: &str, failure: Failure) -> anyhow::Error {
    anyhow::Error::new(failure).context(format!("in the guest {target}"))
}

/// Times the epochs of a guest whose clock counts instructions, and jumps while the guest waits.
struct Stopwatch(Instant);

impl Stopwatch {
    /// Replaces the guest's seconds with this machine's.
    fn retime(&mut self, event: &mut Event) {
        let passed = self.0.elapsed().as_secs_f64();
        match event {
            Event::EpochStarted { load_s, .. } => *load_s = passed,
            Event::EpochFinished {
                seconds, rounds_s, ..
            } => {
                (*seconds, *rounds_s) = (passed, rounds_s.min(passed));
                self.0 = Instant::now();
            }
            _ => {}
        }
    }
}

/// Listens to a guest that measures.
fn measure_there(
    guest: &mut Guest,
    plan: &Plan,
    mut measured: Measurements,
    interrupt: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let clients = outside::Clients::new(plan, guest.port())?;
    let mut asked: Option<Instant> = None;
    let mut stopwatch = Stopwatch(Instant::now());
    let mut seen = Disturbance::default();
    measured.reopen();
    loop {
        let message = match guest.listen() {
            Ok(message) => message,
            Err(error) if asked.is_none() => return Err(error.into()),
            Err(_) => break,
        };
        match message {
            Some(Message::Event(mut event)) => {
                if plan.counts() {
                    stopwatch.retime(&mut event);
                }
                observer.event(&event)?;
                measured.apply(&event);
            }
            Some(Message::Disturbed(disturbance)) => {
                observer.disturbed(&disturbance)?;
                seen = disturbance;
            }
            Some(Message::Load { number, order }) => {
                guest.answer(number, &clients.answer(&order))?;
            }
            Some(Message::Trace { number, order }) => {
                let recorded = guest.record(order);
                guest.answer(number, &recorded)?;
            }
            Some(Message::Ended {
                disturbance,
                others,
                warnings,
            }) => {
                return Ok(Outcome {
                    measured,
                    disturbance,
                    others,
                    warnings,
                });
            }
            Some(Message::Failed(failure)) => return Err(inside(&plan.target, failure)),
            Some(Message::Machine(_) | Message::Gone(_)) => {}
            None => guest.wait(POLL_INTERVAL),
        }
        match asked {
            None if interrupt.load(Ordering::Relaxed) => {
                guest.stop()?;
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > STOP_TIMEOUT => break,
            _ => {}
        }
    }
    // It was asked to end and did not: what it reported until then counts.
    let stopped = Event::Stopped {
        stop: Stop::Interrupted,
    };
    observer.event(&stopped)?;
    measured.apply(&stopped);
    Ok(Outcome {
        measured,
        disturbance: seen,
        others: Vec::new(),
        warnings: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
