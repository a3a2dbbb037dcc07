//! An epoch of `attaching`: the sites of its cases. Each trial loads, attaches, detaches and frees a program of its own.

use std::{
    collections::BTreeMap,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bpfcost_bpf::{CpuPin, attach::Sites};

use super::{
    Attaching, AttachingCase,
    proof::{AttachingProof, Step},
    stop,
};
use crate::builtin::memory::{self, KernelMemory};
use bpfcost_model::{Batch, Case, Fault, LoadedEpoch, Problem, Setup, Trial, prove};
use bpfcost_process::allow_files;

/// The sites of each case.
pub(super) struct AttachingEpoch {
    experiment: Attaching,
    sites: BTreeMap<String, Sites>,
    /// The CPU on which another thread is watched, where there is another one.
    other: Option<u32>,
    _pinned: CpuPin,
}

impl AttachingEpoch {
    pub(super) fn load(experiment: Attaching, setup: &Setup) -> Result<Self> {
        // A link for each site is one, and its event another.
        allow_files()?;
        let first = *setup.cpus.first().context("no CPU was chosen")?;
        Ok(AttachingEpoch {
            experiment,
            sites: BTreeMap::new(),
            other: setup.cpus.iter().copied().find(|&cpu| cpu != first),
            _pinned: CpuPin::to(first)?,
        })
    }

    /// Does `work`, timed and watched.
    fn step<T>(&self, work: impl FnOnce() -> T) -> Result<(T, Step)> {
        let timed = || {
            let begun = Instant::now();
            let done = work();
            (done, begun.elapsed().as_nanos() as f64)
        };
        let ((done, ns), stop) = match self.other {
            Some(cpu) => {
                let (timed, longest) = stop::longest_during(cpu, timed)?;
                (timed, Some(longest))
            }
            None => (timed(), None),
        };
        Ok((done, Step { ns, stop }))
    }

    fn run(&self, one: AttachingCase) -> Result<AttachingProof, Fault> {
        let sites = self.sites.get(&one.name());
        let sites = sites.with_context(|| format!("{} was not prepared", one.name()))?;
        let freed = KernelMemory::now();
        let memory_before = memory::steady_kernel_bytes();
        let begun = Instant::now();
        let mut loaded = sites.load().map_err(|error| refused("loaded", &error))?;
        let load_ns = begun.elapsed().as_nanos() as f64;
        let before = loaded.look()?;
        let (attached, attach) = self.step(|| loaded.attach())?;
        attached.map_err(|error| refused("attached", &error))?;
        let memory_between = memory::kernel_bytes();
        if self.experiment.faulty {
            loaded.detach_last();
        }
        let between = loaded.look()?;
        let ((), detach) = self.step(|| loaded.detach())?;
        let after = loaded.look()?;
        drop(loaded);
        let idle = Duration::from_nanos((attach.ns + detach.ns) as u64);
        let ((), idle) = self.step(|| sleep(idle))?;
        freed.wait_until_freed();
        let memory = memory_between.zip(memory_before);
        Ok(AttachingProof {
            one,
            before,
            between,
            after,
            load_ns,
            attach,
            detach,
            idle,
            memory: memory.map(|(between, before)| between as f64 - before as f64),
        })
    }
}

/// Fault of a step that the kernel rejected although it has what the case needs.
fn refused(check: &str, error: &bpfcost_bpf::Error) -> Fault {
    Fault::Invalid(Problem {
        check: check.to_owned(),
        expected: "no error".to_owned(),
        got: error.to_string(),
        detail: String::new(),
    })
}

impl LoadedEpoch for AttachingEpoch {
    /// Lists or makes the sites.
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let one = self.experiment.find(case)?;
        let sites = Sites::find(one.mechanism, one.sites);
        let sites = sites.map_err(|error| refused("sites", &error))?;
        self.sites.insert(one.name(), sites);
        Ok(())
    }

    fn trial(&mut self, case: &Case, _: Batch) -> Result<Trial, Fault> {
        let proof = self.run(self.experiment.find(case)?)?;
        prove(proof.problem())?;
        Ok(proof.trial())
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.sites.clear();
        Ok(())
    }
}
