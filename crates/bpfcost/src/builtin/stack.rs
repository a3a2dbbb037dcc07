//! `stack`: what does it cost to take the kernel stack, by the kernel's helpers and by hand? Study 000 walked frame
//! pointers in BPF, because `bpf_get_stack` was the larger part of what its tracer cost redis. Here the walk goes by
//! the tables that kernels without frame pointers have (ORC), as `unwind.bpf.h` does it.
//!
//! The event is the receiving end of a TCP connection with itself: some 30 frames on two stacks. A program attached
//! there takes the same stack again and again, so the value is of the taking alone: not of the event, nor of how the
//! program is attached (`attach` has that). What is in the number stands at the head of `stack.bpf.c`.
//!
//! Every trial proves its stacks: the last one must be, address by address, the one that `bpf_get_stack` took of the
//! same event; counts and records must be as many as stacks, and no walk may have been lost.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bpfcost_bpf::{
    Feature,
    attach::AttachMethod,
    stack::{METHODS, StackBatch, StackProgram, StackPrograms, StackTaker, WHOLE},
    timing::Loop,
    unwind::{KernelSymbols, RuleTable},
};

use super::{batch, ladder};
use crate::experiment::{
    Batch, Case, Description, Experiment, Fault, Grid, Layout, LoadedEpoch, Overhead, Pair,
    Problem, Role, Sentinel, Setup, Sizing, Trial, differs, prove,
};

/// Addresses of a stack: the columns.
const DEPTHS: [(&str, u32); 4] = [("8", 8), ("16", 16), ("32", 32), ("whole", WHOLE)];

/// What the timed loop may run at most, on kernels before 6.15.
const MOST_OPS: u64 = 1 << 20;

/// How often a batch runs again where its stack was another one: the event can come by another way, from a timer.
const TRIES: u32 = 5;

/// What the helper also takes: frames of the program itself.
const MOST_OWN: usize = 8;

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
            slow: method != AttachMethod::RawTp && !self.is_floor(),
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
                "what takes the stack, and where it goes: a buffer, a counter, the ring buffer",
            ),
            ("depth", "addresses of the stack: 8, 16, 32 or all of it"),
            ("attach", "raw_tp, tp_btf, kprobe or fentry"),
        ];
        Description {
            layout: Layout::Grid(Grid {
                rows: "taker".into(),
                columns: "depth".into(),
                net: "taking a stack of so many addresses once more, minus the loop (its floor)"
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

    fn needs(&self, case: &Case) -> Vec<Feature> {
        StackCase::of(case).map_or_else(|_| Vec::new(), |case| StackPrograms::needs(case.program.1))
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
        let mut programs: Vec<StackProgram> = Vec::new();
        for case in cases {
            // What the helper takes is what the others must take.
            for program in [case.program, (StackTaker::GetStack, case.program.1)] {
                if !programs.contains(&program) {
                    programs.push(program);
                }
            }
        }
        let rules = RuleTable::read(&KernelSymbols::read()?)?;
        Ok(Box::new(StackEpoch {
            stacks: StackPrograms::load(&programs, rules, Loop::probe()?, cpu)?,
            references: BTreeMap::new(),
            cpu,
            exact: setup.exact,
        }))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        ladder::sentinel(setup)
    }
}

/// The programs, and the stacks that they must take.
struct StackEpoch {
    stacks: StackPrograms,
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

    fn batch(&mut self, case: StackCase, ops: u64) -> Result<StackBatch, Fault> {
        let (taker, method) = case.program;
        let reference = self.reference(method)?;
        let attached = self.stacks.attach(case.program);
        attached.map_err(|error| refused(&error))?;
        let mut tries = 0;
        loop {
            let taken = self.stacks.batch(case.depth.1, ops, self.exact)?;
            let seen = std::slice::from_ref(&taken.seen);
            prove(batch::problem(&[self.cpu], seen, ops, self.exact))?;
            let problem = problem(&taken, case, &reference, ops);
            tries += 1;
            let another = problem.as_ref().is_some_and(|one| one.check == "stack");
            if another && tries < TRIES {
                continue;
            }
            prove(problem)?;
            debug_assert!(taker == StackTaker::Nothing || taken.depth > 0 || taker.has_records());
            return Ok(taken);
        }
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

/// What is wrong with a batch of stacks, if anything is.
fn problem(taken: &StackBatch, case: StackCase, reference: &[u64], ops: u64) -> Option<Problem> {
    let taker = case.program.0;
    let failures = differs(
        "failures",
        0,
        taken.failures,
        "a stack was not taken, or a record had no room",
    );
    let losses = taken.losses;
    let lost = losses.lost + losses.full + losses.stale;
    let lost = differs("lost", 0, lost, "the walk did not reach the end of a stack");
    let counted = taken.counted.unwrap_or(ops);
    let counted = differs(
        "counted",
        ops,
        counted,
        "stacks that were counted, of those taken",
    );
    let records = if taker.has_records() { ops } else { 0 };
    let records = differs(
        "records",
        records,
        taken.records,
        "records in the ring buffer",
    );
    failures
        .or(lost)
        .or(counted)
        .or(records)
        .or_else(|| stack(taken, case, reference))
}

/// Whether the last stack was the one of the event.
fn stack(taken: &StackBatch, case: StackCase, reference: &[u64]) -> Option<Problem> {
    let (taker, asked) = (case.program.0, case.depth.1 as usize);
    // Addresses in the helper's records are not read: `get_stack` takes the same into a buffer.
    if matches!(taker, StackTaker::Nothing | StackTaker::GetStackRing) {
        return None;
    }
    // Helpers also take frames of their own, or of the program.
    let first = |address: &u64| Some(address) == reference.first();
    let own = taken.addresses.iter().position(first).unwrap_or(0);
    let addresses = &taken.addresses[own..];
    let same = addresses
        .iter()
        .zip(reference)
        .take_while(|(one, other)| one == other);
    let same = same.count();
    let is_whole = same == reference.len();
    let is_right = same == addresses.len()
        && (own == 0 || (!taker.is_manual() && own <= MOST_OWN))
        && (is_whole || taken.depth == asked);
    let next = |addresses: &[u64]| match addresses.get(same) {
        Some(address) => format!("{same} addresses, then {address:#x}"),
        None => format!("{same} addresses"),
    };
    (!is_right).then(|| Problem {
        check: "stack".into(),
        expected: next(&reference[..asked.min(reference.len())]),
        got: next(addresses),
        detail: "the last stack is not the one that bpf_get_stack() took of such an event".into(),
    })
}

impl LoadedEpoch for StackEpoch {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        self.batch(StackCase::of(case)?, 16).map(drop)
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let case = StackCase::of(case)?;
        let taken = self.batch(case, batch.0)?;
        let mut trial = batch::trial(&[taken.seen], batch);
        if !case.is_floor() {
            let frames = taken.depth as f64;
            trial.secondary.insert("frames".into(), frames);
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
            "get_stackid/whole",
            "count@kprobe/32",
        ] {
            assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
        }
    }
}
