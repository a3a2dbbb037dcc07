//! An epoch of `stack`: the programs, and the stacks that they must take.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, slice};

use anyhow::Result;
use bpfcost_bpf::{
    attach::AttachMethod,
    stack::{Delivery, StackBatch, StackProgram, StackPrograms, StackTaker, WHOLE},
    timing::{Loop, Observation, Request},
    unwind::{KernelSymbols, RuleTable},
};

use super::{
    StackCase, attach,
    proof::{StackMatch, lost, problem},
};
use crate::builtin::{batch, timed::TimedCases};
use bpfcost_model::{Case, Fault, Problem, Setup, Slices, Trial, differs, prove};
use bpfcost_probe::{PrintedStacks, StackPrinter};

/// Maximum number of tries of a batch whose stack differs: the event can also come by another path, from a timer.
const ATTEMPTS: u32 = 5;

/// Returns whether the helper misses the caller of the function at whose entry a program is attached. It does where the
/// kernel keeps frame pointers, because that function has not set up its own yet.
fn misses_caller(method: AttachMethod, rules: &RuleTable) -> bool {
    !rules.is_orc() && !method.takes_tracepoints()
}

/// Loaded programs, of which one is attached at a time.
pub(super) struct StackEpoch {
    stacks: StackPrograms,
    printer: Rc<RefCell<StackPrinter>>,
    /// Ways to attach by which the helper misses a caller.
    missing: Vec<AttachMethod>,
    /// Whole stacks that the helper took, by the program's attach method.
    references: BTreeMap<&'static str, Vec<u64>>,
    exact: bool,
}

/// A batch of stacks, and what is known of them.
pub(super) struct ComparedBatch {
    taken: StackBatch,
    /// The stack that the last one must be.
    reference: Vec<u64>,
    compared: StackMatch,
    printed: PrintedStacks,
    /// Share of the whole stack's addresses that its stacks have.
    complete: f64,
}

impl AsRef<[Observation]> for ComparedBatch {
    fn as_ref(&self) -> &[Observation] {
        slice::from_ref(&self.taken.seen)
    }
}

impl StackEpoch {
    pub(super) fn load(setup: &Setup) -> Result<Self> {
        let [cpu] = setup.cpus[..] else {
            anyhow::bail!("stack runs on one CPU at a time: give one with --cpus");
        };
        let cases: Vec<StackCase> = setup
            .cases
            .iter()
            .map(StackCase::from_case)
            .collect::<Result<_>>()?;
        let rules = RuleTable::read(&KernelSymbols::read()?)?;
        let mut programs: Vec<StackProgram> = Vec::new();
        for case in cases {
            // Other ways must take the stack that the helper takes; see `StackEpoch::whole`.
            let of_helper = |method| (StackTaker::GetStack, method);
            let inner =
                misses_caller(case.program.1, &rules).then_some(of_helper(AttachMethod::RawTp));
            for program in [case.program, of_helper(case.program.1)]
                .into_iter()
                .chain(inner)
            {
                if !programs.contains(&program) {
                    programs.push(program);
                }
            }
        }
        let printer = Rc::new(RefCell::new(StackPrinter::open()?));
        let into = Rc::clone(&printer);
        let print = Box::new(move |addresses: &[u64]| into.borrow_mut().print(addresses));
        let missing = [AttachMethod::Kprobe, AttachMethod::Fentry]
            .map(|method| (method, misses_caller(method, &rules)));
        let missing = missing.into_iter().filter(|(_, misses)| *misses);
        let missing = missing.map(|(method, _)| method).collect();
        let stacks = StackPrograms::load(&programs, rules, Loop::probe()?, cpu, print)?;
        if programs
            .iter()
            .any(|(taker, _)| taker.delivery() == Delivery::Printed)
        {
            printer.borrow_mut().read_symbols()?;
        }
        Ok(StackEpoch {
            stacks,
            printer,
            missing,
            references: BTreeMap::new(),
            exact: setup.exact,
        })
    }

    /// The whole stack of the event, by the helper: the one that comes twice in a row.
    fn reference(&mut self, method: AttachMethod) -> Result<Vec<u64>, Fault> {
        if let Some(reference) = self.references.get(attach(method)) {
            return Ok(reference.clone());
        }
        self.stacks
            .attach((StackTaker::GetStack, method))
            .map_err(|error| refused(&error))?;
        let mut last = Vec::new();
        for _ in 0..ATTEMPTS {
            let taken = self.stacks.batch(WHOLE, 1, self.exact)?.addresses;
            if taken == last && !taken.is_empty() {
                self.references.insert(attach(method), taken.clone());
                return Ok(taken);
            }
            last = taken;
        }
        Err(Fault::Invalid(Problem {
            check: "stack".into(),
            expected: "the same stack at each event".into(),
            got: format!("another each time, in {ATTEMPTS} tries"),
            detail: "packets of this machine are received by another thread now and then".into(),
        }))
    }

    /// The whole stack of the event. The caller that the helper misses at a function's entry it does not miss at the
    /// tracepoint within that function, behind the same frames.
    fn whole(&mut self, method: AttachMethod) -> Result<Vec<u64>, Fault> {
        let mut whole = self.reference(method)?;
        if self.missing.contains(&method) {
            let inner = self.reference(AttachMethod::RawTp)?;
            let place = whole.len().min(1);
            let behind = inner.iter().position(|one| Some(one) == whole.get(place));
            let caller = behind.and_then(|at| inner.get(at.checked_sub(1)?));
            whole.splice(place..place, caller.copied());
        }
        Ok(whole)
    }

    /// A batch, compared with the stack that it must take.
    fn compared(
        &mut self,
        case: StackCase,
        reference: &[u64],
        whole: usize,
        ops: u64,
    ) -> Result<ComparedBatch> {
        let taken = self.stacks.batch(case.depth.1, ops, self.exact)?;
        let compared = StackMatch::new(&taken, reference);
        Ok(ComparedBatch {
            printed: self.printer.borrow_mut().take_counts()?,
            complete: compared.same as f64 / whole as f64,
            reference: reference.to_vec(),
            compared,
            taken,
        })
    }

    /// Returns the first problem of a batch, or `None`.
    fn problem(&self, case: StackCase, ops: u64, batch: &ComparedBatch) -> Option<Problem> {
        let taken = &batch.taken;
        problem(taken, case, ops)
            .or_else(|| self.printed(taken, case.program.0, batch.printed, ops))
            .or_else(|| batch.compared.problem(taken, case, &batch.reference))
    }

    /// Returns the first problem of the printed stacks, or `None`.
    fn printed(
        &self,
        taken: &StackBatch,
        taker: StackTaker,
        printed: PrintedStacks,
        ops: u64,
    ) -> Option<Problem> {
        let prints = taker.delivery() == Delivery::Printed;
        let read = taken.read.as_ref().filter(|_| prints);
        let stacks = if prints { ops } else { 0 };
        let bytes = read.map_or(0, |read| {
            ops * self.printer.borrow().text_bytes(read.last())
        });
        differs(
            "printed",
            stacks,
            printed.stacks,
            "stacks that were printed",
        )
        .or_else(|| {
            let detail =
                "bytes that were printed, of the names of the last stack's functions each time";
            differs("printed bytes", bytes, printed.bytes, detail)
        })
    }
}

/// Fault of a case that the kernel rejected although it has what the case needs.
fn refused(error: &bpfcost_bpf::Error) -> Fault {
    Fault::Invalid(Problem {
        check: "attached".into(),
        expected: "no error".into(),
        got: error.to_string(),
        detail: String::new(),
    })
}

impl TimedCases for StackEpoch {
    type Batch = ComparedBatch;

    /// All stacks are of one event, and no table is larger than a cache.
    const WARMS_UP: bool = false;

    /// Runs it again where its stack was another one: the event can come by another way, from a timer.
    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<ComparedBatch, Fault> {
        let case = StackCase::from_case(case)?;
        let (taker, method) = case.program;
        let whole = self.whole(method)?;
        let reference = if taker.is_manual() {
            whole.clone()
        } else {
            self.reference(method)?
        };
        let attached = self.stacks.attach(case.program);
        attached.map_err(|error| refused(&error))?;
        let mut tries = 0;
        loop {
            let batch = self.compared(case, &reference, whole.len(), request.ops)?;
            let problem = batch::problem(request.cpus, batch.as_ref(), request.ops)
                .or_else(|| self.problem(case, request.ops, &batch));
            tries += 1;
            if tries == ATTEMPTS || problem.is_none_or(|one| one.check != "stack") {
                return Ok(batch);
            }
        }
    }

    fn check(
        &mut self,
        case: &Case,
        request: &Request<'_>,
        batch: &ComparedBatch,
    ) -> Result<(), Fault> {
        prove(self.problem(StackCase::from_case(case)?, request.ops, batch))
    }

    fn has_reset(&self, _: &Case) -> bool {
        false
    }

    fn complete(
        &mut self,
        case: &Case,
        batch: &ComparedBatch,
        trial: &mut Trial,
    ) -> Result<(), Fault> {
        let (case, taken) = (StackCase::from_case(case)?, &batch.taken);
        let read = taken.read.as_ref();
        if let Some(read) = read.filter(|_| case.program.0.has_reader()) {
            let reading = read.time.ns / trial.ops as f64;
            trial.elapsed_ns += read.time.ns;
            trial.value += reading;
            // They lack the reader's part.
            trial.slices = Slices::default();
            trial.ticks += read.time.ticks;
            trial.waits += read.time.waits;
            trial.secondary.insert("read_ns".into(), reading);
        }
        if !case.is_floor() {
            let values = [
                ("frames", taken.depth as f64),
                ("completeness", batch.complete),
                ("lost", lost(taken) as f64),
            ];
            let named = values.map(|(name, value)| (name.to_owned(), value));
            trial.secondary.extend(named);
        }
        Ok(())
    }

    fn kernel_bytes(&self) -> Option<u64> {
        Some(self.stacks.kernel_bytes())
    }
}
