//! Cases whose programs time themselves (`timing.bpf.h`). An experiment loads them, runs a batch and checks what only it
//! knows. [`TimedEpoch`] does the rest, the same for all: it pins the thread to the CPU, warms up, checks each batch, times
//! the reset, and waits until the kernel has freed the memory.

use anyhow::{Context, Result};
use bpfcost_bpf::{
    CpuPin, Feature,
    timing::{Observation, Request},
};
use bpfcost_model::{Batch, Case, Fault, LoadedEpoch, Observed, Setup, Trial, prove};

use super::{
    batch::{self, mix},
    memory::KernelMemory,
};

/// Features that every timed program needs, an XDP program at least. The loop is `can_loop` where there is one.
pub const NEEDS: [Feature; 3] = [Feature::Btf, Feature::XdpTestRun, Feature::BpfLoop];

/// The part of a batch that runs before it and does not count, an eighth: so that a trial meets the caches and
/// predictors that its own case makes, not those that another case left behind.
const WARM_UP_SHARE: u64 = 8;

/// Operations of the batch that prepares a case.
const PREPARED_OPS: u64 = 16;

/// Cases whose programs time themselves, loaded for an epoch. Dropping them frees everything.
pub trait TimedCases: Sized {
    /// A batch that ran, with what its check needs; often `Vec<Observation>`.
    type Batch: AsRef<[Observation]>;

    /// Runs a batch of a case. The request has its operations and CPUs.
    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<Self::Batch, Fault>;

    /// Proves that a batch did what its case is about. It ran whole, on all CPUs, by a clock that moved: that is proved
    /// for every batch.
    fn check(
        &mut self,
        case: &Case,
        request: &Request<'_>,
        batch: &Self::Batch,
    ) -> Result<(), Fault>;

    /// Returns whether the program's reset does anything between two operations. If it does, each trial also times
    /// operations with the reset done twice, from which the report computes net. Always false for a floor, which
    /// consists of nothing but the reset.
    fn has_reset(&self, case: &Case) -> bool;

    /// True if a batch must run before the one that counts. Not needed if an operation touches next to no memory.
    const WARMS_UP: bool = true;

    /// Brings a case into the state that is measured and proves it once, in a small batch.
    fn prepare(&mut self, case: &Case, request: &Request<'_>) -> Result<(), Fault> {
        proved(self, case, request).map(drop)
    }

    /// Returns the facts and warnings from the preparation of a case.
    fn observed(&mut self, _case: &Case) -> Result<Observed, Fault> {
        Ok(Observed::default())
    }

    /// Rounds a number of operations up to what a case can run.
    fn whole(&self, _case: &Case, ops: u64) -> u64 {
        ops
    }

    /// Adds further values to the trial of a proved batch, and proves what can be proved only after it.
    fn complete(
        &mut self,
        _case: &Case,
        _batch: &Self::Batch,
        _trial: &mut Trial,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// Kernel memory of the programs' maps, in bytes, where known.
    fn kernel_bytes(&self) -> Option<u64> {
        None
    }
}

/// Runs a batch and proves it.
pub fn proved<C: TimedCases>(
    cases: &mut C,
    case: &Case,
    request: &Request<'_>,
) -> Result<C::Batch, Fault> {
    let request = Request {
        ops: cases.whole(case, request.ops),
        ..*request
    };
    let batch = cases.batch(case, &request)?;
    prove(batch::problem(request.cpus, batch.as_ref(), request.ops))?;
    cases.check(case, &request, &batch)?;
    Ok(batch)
}

/// An epoch of timed cases.
pub struct TimedEpoch<C> {
    // Dropped first, on the CPU on which it was loaded.
    cases: C,
    cpus: Vec<u32>,
    exact: bool,
    /// Decides which of two batches comes first; another one in each epoch.
    seed: u64,
    trials: u64,
    memory_before: KernelMemory,
    _pinned: CpuPin,
}

impl<C: TimedCases + 'static> TimedEpoch<C> {
    /// Loads an epoch on the first CPU, where its thread stays.
    pub fn load(setup: &Setup, load: impl FnOnce() -> Result<C>) -> Result<Box<dyn LoadedEpoch>> {
        let first = *setup.cpus.first().context("no CPU was chosen")?;
        let (memory_before, pinned) = (KernelMemory::now(), CpuPin::to(first)?);
        Ok(Box::new(TimedEpoch {
            cases: load()?,
            cpus: setup.cpus.clone(),
            exact: setup.exact,
            seed: mix(setup.seed ^ mix(setup.epoch as u64)),
            trials: 0,
            memory_before,
            _pinned: pinned,
        }))
    }
}

impl<C: TimedCases> TimedEpoch<C> {
    /// The cases, and a request of so many operations with the reset done so often between them.
    fn request(&mut self, ops: u64, resets: u64) -> (&mut C, Request<'_>) {
        let request = Request {
            ops,
            resets,
            cpus: &self.cpus,
            after_tick: self.exact,
        };
        (&mut self.cases, request)
    }

    /// A proved batch; on several CPUs, one in which they overlapped.
    fn batch(&mut self, case: &Case, ops: u64, resets: u64) -> Result<C::Batch, Fault> {
        let (cases, request) = self.request(ops, resets);
        batch::overlapping(|| proved(cases, case, &request), AsRef::as_ref)
    }

    fn finish(&mut self, case: &Case, batch: &C::Batch) -> Result<Trial, Fault> {
        let seen = batch.as_ref();
        let ops = seen.first().map_or(0, |seen| seen.ops);
        let mut trial = batch::trial(seen, Batch(ops));
        self.cases.complete(case, batch, &mut trial)?;
        Ok(trial)
    }
}

impl<C: TimedCases> LoadedEpoch for TimedEpoch<C> {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let (cases, request) = self.request(PREPARED_OPS, 1);
        cases.prepare(case, &request)
    }

    fn observed(&mut self, case: &Case) -> Result<Observed, Fault> {
        self.cases.observed(case)
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let ops = self.cases.whole(case, batch.0);
        if self.exact {
            // No cache is counted, and every operation leaves its trace in the tables.
            let once = self.batch(case, ops, 1)?;
            return self.finish(case, &once);
        }
        if C::WARMS_UP {
            let warm_up = (ops / WARM_UP_SHARE).max(1);
            // One of the two batches has an even number of operations, so that a state that flips with each one shows.
            let (cases, request) = self.request(warm_up + u64::from(warm_up % 2 == ops % 2), 1);
            proved(cases, case, &request)?;
        }
        self.trials += 1;
        let twice = self.cases.has_reset(case);
        // Caches differ for the first and the second batch, so chance decides on the order.
        let twice_first = mix(self.seed ^ self.trials) & 1 == 1;
        let mut doubled = None;
        if twice && twice_first {
            doubled = Some(self.batch(case, ops, 2)?);
        }
        let once = self.batch(case, ops, 1)?;
        if twice && !twice_first {
            doubled = Some(self.batch(case, ops, 2)?);
        }
        let mut trial = self.finish(case, &once)?;
        if let Some(doubled) = &doubled {
            batch::add_reset_twice(&mut trial, doubled.as_ref());
        }
        Ok(trial)
    }

    fn kernel_bytes(&self) -> Option<u64> {
        self.cases.kernel_bytes()
    }

    fn unload(self: Box<Self>) -> Result<()> {
        let before = self.memory_before;
        drop(self);
        before.wait_until_freed();
        Ok(())
    }
}
