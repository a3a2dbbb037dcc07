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

mod epoch;
mod proof;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bpfcost_bpf::{
    attach::AttachMethod,
    stack::{METHODS, StackProgram, StackPrograms, StackTaker, WHOLE},
};

use self::epoch::StackEpoch;
use super::{needs::needs, timed::TimedEpoch};
use bpfcost_model::{
    Case, Description, Experiment, Grid, Layout, LoadedEpoch, Need, Overhead, Pair, Role, Setup,
    Sizing,
};

/// Addresses of a stack: the columns.
const DEPTHS: [(&str, u32); 4] = [("8", 8), ("16", 16), ("32", 32), ("whole", WHOLE)];

/// Maximum operations of a batch in the timed loop, on kernels before 6.15.
const MAX_OPS: u64 = 1 << 20;

/// The experiment.
#[derive(Debug, Default)]
pub struct Stacks;

/// Parameters of a case.
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

    fn from_case(case: &Case) -> Result<Self> {
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
                most: Some(taker.most().unwrap_or(MAX_OPS)),
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
            layout: Layout::from(Grid {
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
        StackCase::from_case(case).map_or_else(
            |_| Vec::new(),
            |case| needs(StackPrograms::needs(case.program.1)),
        )
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        TimedEpoch::load(setup, || StackEpoch::load(setup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_what_they_mean() {
        for (case, made) in StackCase::all().zip(Stacks.cases()) {
            assert_eq!(StackCase::from_case(&made).unwrap(), case, "{}", made.name);
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
