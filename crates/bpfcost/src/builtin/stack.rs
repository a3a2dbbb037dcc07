//! `stack`: what does it cost to take the kernel stack, by the kernel's helpers and by hand? Study 000 walked frame
//! pointers in BPF, because `bpf_get_stack` was the larger part of what its tracer cost redis. Here the walk goes by
//! the tables that kernels without frame pointers have (ORC), as `unwind.bpf.h` does it.
//!
//! The event is the receiving end of a TCP connection with itself: some 30 frames on two stacks. A program attached
//! there takes the same stack again and again, so the value is of the taking alone: not of the event, nor of how the
//! program is attached (`attach` has that). What is in the number stands at the head of `stack.bpf.c`. The deliveries
//! `+read` and `+print` have user space's time too: once a batch of records is there, the same thread reads or prints it.
//!
//! Every trial proves its stacks: the last one must be, address by address, the one that `bpf_get_stack` took of the
//! same event; counts and records must be as many as stacks, and no walk may have been lost.

mod proof;

use super::needs::needs;
use bpfcost_model::Need;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    attach::AttachMethod,
    stack::{Delivery, METHODS, StackBatch, StackProgram, StackPrograms, StackTaker, WHOLE},
    timing::Loop,
    unwind::{KernelSymbols, RuleTable},
};

use self::proof::{StackMatch, lost, problem};
use super::{batch, ladder};
use bpfcost_model::{
    Batch, Case, Description, Experiment, Fault, Grid, Layout, LoadedEpoch, Overhead, Pair,
    Problem, Role, Sentinel, Setup, Sizing, Slices, Trial, differs, prove,
};
use bpfcost_probe::{PrintedStacks, StackPrinter};

/// Addresses of a stack: the columns.
const DEPTHS: [(&str, u32); 4] = [("8", 8), ("16", 16), ("32", 32), ("whole", WHOLE)];

/// What the timed loop may run at most, on kernels before 6.15.
const MOST_OPS: u64 = 1 << 20;

/// How often a batch runs again where its stack was another one: the event can come by another way, from a timer.
const TRIES: u32 = 5;

/// The experiment.
#[derive(Debug, Default)]
pub struct Stacks;

/// What a case means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StackCase {
    program: StackProgram,
    depth: (&'static str, u32),
}

impl StackCase {
    fn all() -> impl Iterator<Item = StackCase> {
        METHODS.into_iter().flat_map(|(method, _)| {
            let takers = StackTaker::ALL
                .into_iter()
                .filter(move |taker| taker.runs_in(method));
            takers.flat_map(move |taker| {
                let depths = DEPTHS
                    .into_iter()
                    .filter(move |(_, depth)| *depth == WHOLE || taker.has_depth());
                let depths = depths
                    .filter(move |(_, depth)| *depth == WHOLE || taker != StackTaker::Nothing);
                depths.map(move |depth| StackCase {
                    program: (taker, method),
                    depth,
                })
            })
        })
    }

    fn of(case: &Case) -> Result<Self> {
        let named = |one: &StackCase| one.name() == case.name;
        StackCase::all()
            .find(named)
            .with_context(|| format!("stack has no case {}", case.name))
    }

    /// The taker, and how it is attached where that is not by a raw tracepoint.
    fn row(self) -> String {
        let (taker, method) = self.program;
        if method == AttachMethod::RawTp {
            taker.name().to_owned()
        } else {
            format!("{taker}@{}", attach(method))
        }
    }

    fn name(self) -> String {
        if self.is_floor() {
            return format!("none/{}", attach(self.program.1));
        }
        format!("{}/{}", self.row(), self.depth.0)
    }

    fn is_floor(self) -> bool {
        self.program.0 == StackTaker::Nothing
    }

    fn case(self) -> Case {
        let (taker, method) = self.program;
        let floor = StackCase {
            program: (StackTaker::Nothing, method),
            ..self
        };
        let mut factors = BTreeMap::from([("attach".to_owned(), attach(method).to_owned())]);
        if !self.is_floor() {
            factors.insert("taker".to_owned(), self.row());
            factors.insert("depth".to_owned(), self.depth.0.to_owned());
        }
        Case {
            name: self.name(),
            group: attach(method).to_owned(),
            factors,
            about: taker.about().to_owned(),
            role: if self.is_floor() {
                Role::Floor
            } else {
                Role::Case
            },
            floor: (!self.is_floor()).then(|| floor.name()),
            sizing: Sizing::Calibrated {
                most: Some(taker.most().unwrap_or(MOST_OPS)),
            },
            slow: (method != AttachMethod::RawTp && !self.is_floor()) || taker.has_reader(),
            ..Case::default()
        }
    }
}

fn attach(method: AttachMethod) -> &'static str {
    let named = METHODS.iter().find(|(one, _)| *one == method);
    named.map_or("", |(_, name)| name)
}

impl Experiment for Stacks {
    fn description(&self) -> Description {
        let factors = [
            (
                "taker",
                "what takes the stack, and where it goes: a buffer, a counter, the ring buffer, its reader",
            ),
            ("depth", "addresses of the stack: 8, 16, 32 or all of it"),
            ("attach", "raw_tp, tp_btf, kprobe or fentry"),
        ];
        Description {
            layout: Layout::Grid(Grid {
                rows: "taker".into(),
                columns: "depth".into(),
                net: "taking a stack of so many addresses once more (with +read and +print, also reading its record), \
                      minus the loop (its floor)"
                    .into(),
                floors: "Floors differ in how the program is attached, which is not in the cost."
                    .into(),
                note: None,
            }),
            most_cpus: Some(1),
            overhead: Overhead {
                // Tables of the kernel are read, and programs verified.
                load_s: 1.5,
                trial_s: 0.002,
                batches: 1.0,
            },
            ..Description::new(
                "stack",
                "taking the kernel stack: the kernel's helpers, and by hand",
                &factors,
            )
        }
    }

    fn cases(&self) -> Vec<Case> {
        StackCase::all().map(StackCase::case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let rivals = [
            (StackTaker::Count, StackTaker::GetStack),
            (StackTaker::Frames, StackTaker::GetStack),
            (StackTaker::CountRing, StackTaker::GetStackRing),
            (StackTaker::FramesRing, StackTaker::GetStackRing),
            (StackTaker::CountRead, StackTaker::GetStackRead),
            (StackTaker::FramesRead, StackTaker::GetStackRead),
            (StackTaker::CountPrint, StackTaker::GetStackPrint),
            (StackTaker::FramesPrint, StackTaker::GetStackPrint),
            (StackTaker::Count, StackTaker::GetStackidCount),
            (StackTaker::GetTaskStack, StackTaker::GetStack),
        ];
        let all: Vec<StackCase> = StackCase::all().collect();
        let rivals = rivals.into_iter().flat_map(|(taker, other)| {
            let cases = all.iter().filter(move |case| case.program.0 == taker);
            cases.map(move |case| {
                let baseline = StackCase {
                    program: (other, case.program.1),
                    ..*case
                };
                (*case, baseline)
            })
        });
        let there = rivals.filter(|(_, baseline)| all.contains(baseline));
        let pair = |(case, baseline): (StackCase, StackCase)| Pair {
            case: case.name(),
            baseline: baseline.name(),
            about: format!(
                "{} against {}, {}",
                case.row(),
                baseline.row(),
                case.depth.0
            ),
        };
        there.map(pair).collect()
    }

    fn needs(&self, case: &Case) -> Vec<Need> {
        StackCase::of(case).map_or_else(
            |_| Vec::new(),
            |case| needs(StackPrograms::needs(case.program.1)),
        )
    }

    fn programs(&self) -> Result<Option<String>> {
        ladder::programs(Loop::probe()?).map(Some)
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let [cpu] = setup.cpus[..] else {
            anyhow::bail!("stack runs on one CPU at a time: give one with --cpus");
        };
        let cases: Vec<StackCase> = setup
            .cases
            .iter()
            .map(StackCase::of)
            .collect::<Result<_>>()?;
        let rules = RuleTable::read(&KernelSymbols::read()?)?;
        let mut programs: Vec<StackProgram> = Vec::new();
        for case in cases {
            // What the helper takes is what the others must take; see `StackEpoch::whole`.
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
        Ok(Box::new(StackEpoch {
            stacks,
            printer,
            missing,
            references: BTreeMap::new(),
            cpu,
            exact: setup.exact,
        }))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        ladder::sentinel(setup)
    }
}

/// Whether the helper misses the caller of the function at whose entry a program is attached: where the kernel keeps
/// frame pointers, that function has none yet.
fn misses_caller(method: AttachMethod, rules: &RuleTable) -> bool {
    !rules.is_orc() && !method.takes_tracepoints()
}

/// The programs, and the stacks that they must take.
struct StackEpoch {
    stacks: StackPrograms,
    printer: Rc<RefCell<StackPrinter>>,
    /// Ways to attach by which the helper misses a caller.
    missing: Vec<AttachMethod>,
    /// By how the program is attached: the whole stack, by the helper.
    references: BTreeMap<&'static str, Vec<u64>>,
    cpu: u32,
    exact: bool,
}

impl StackEpoch {
    /// The whole stack of the event, by the helper: the one that comes twice in a row.
    fn reference(&mut self, method: AttachMethod) -> Result<Vec<u64>, Fault> {
        if let Some(reference) = self.references.get(attach(method)) {
            return Ok(reference.clone());
        }
        self.stacks
            .attach((StackTaker::GetStack, method))
            .map_err(|error| refused(&error))?;
        let mut last = Vec::new();
        for _ in 0..TRIES {
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
            got: format!("another each time, in {TRIES} tries"),
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

    /// A batch that was proved, and the share of the whole stack's addresses that its stacks have.
    fn batch(&mut self, case: StackCase, ops: u64) -> Result<(StackBatch, f64), Fault> {
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
            let taken = self.stacks.batch(case.depth.1, ops, self.exact)?;
            let seen = std::slice::from_ref(&taken.seen);
            prove(batch::problem(&[self.cpu], seen, ops))?;
            let printed = self.printer.borrow_mut().take_counts()?;
            let compared = StackMatch::of(&taken, &reference);
            let problem = problem(&taken, case, ops)
                .or_else(|| self.printed(&taken, taker, printed, ops))
                .or_else(|| compared.problem(&taken, case, &reference));
            tries += 1;
            let another = problem.as_ref().is_some_and(|one| one.check == "stack");
            if another && tries < TRIES {
                continue;
            }
            prove(problem)?;
            return Ok((taken, compared.same as f64 / whole.len() as f64));
        }
    }

    /// What is wrong with what was printed.
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

/// What the kernel refused, though it has what the case needs.
fn refused(error: &bpfcost_bpf::Error) -> Fault {
    Fault::Invalid(Problem {
        check: "attached".into(),
        expected: "no error".into(),
        got: error.to_string(),
        detail: String::new(),
    })
}

impl LoadedEpoch for StackEpoch {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        self.batch(StackCase::of(case)?, 16).map(drop)
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let case = StackCase::of(case)?;
        let (taken, complete) = self.batch(case, batch.0)?;
        let lost = lost(&taken);
        let mut trial = batch::trial(&[taken.seen], batch);
        if let Some(read) = taken.read.filter(|_| case.program.0.has_reader()) {
            trial.elapsed_ns += read.time.ns;
            trial.value += read.time.ns / batch.0 as f64;
            // They lack the reader's part.
            trial.slices = Slices::default();
            trial.ticks += read.time.ticks;
            trial.waits += read.time.waits;
            let reading = read.time.ns / batch.0 as f64;
            trial.secondary.insert("read_ns".into(), reading);
        }
        if !case.is_floor() {
            let values = [
                ("frames", taken.depth as f64),
                ("completeness", complete),
                ("lost", lost as f64),
            ];
            let named = values.map(|(name, value)| (name.to_owned(), value));
            trial.secondary.extend(named);
        }
        Ok(trial)
    }

    fn kernel_bytes(&self) -> Option<u64> {
        Some(self.stacks.kernel_bytes())
    }

    fn unload(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_what_they_mean() {
        for (case, made) in StackCase::all().zip(Stacks.cases()) {
            assert_eq!(StackCase::of(&made).unwrap(), case, "{}", made.name);
        }
        let names: Vec<String> = Stacks.cases().into_iter().map(|case| case.name).collect();
        for name in [
            "none/raw_tp",
            "count/8",
            "frames+ring/whole",
            "count+read/8",
            "get_stack+print/32",
            "get_stackid/whole",
            "count@kprobe/32",
        ] {
            assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
        }
    }
}
