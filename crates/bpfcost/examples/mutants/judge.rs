//! Judges: a few trials of an experiment, in a process of its own, with the object that `BPFCOST_MUTANT` names.

use std::{env, fs, path::Path, process::ExitCode};

use anyhow::{Context, Error, Result};
use bpfcost::builtin::{self, program::Programs, xdp_lb::XdpLb};
use bpfcost_bpf::{LIBBPF_HEADERS, program::ObjectFile, timing::Loop};
use bpfcost_compile::compile;
use bpfcost_model::{Batch, Case, Experiment, Fault, LoadedEpoch, Problem, Setup, Sizing};
use bpfcost_program::{OwnPrograms, inputs};
use wildmatch::WildMatch;

/// Operations of a batch, where the case does not fix them.
const OPS: u64 = 400;

/// Exit codes of a judge.
const VALID: u8 = 0;
const REFUSED: u8 = 10;
const INVALID: u8 = 11;
const UNPREPARED: u8 = 12;
const DISTURBED: u8 = 13;

/// Checks that fail if another program is at the same events, or keeps `bpf_stats` on: that says nothing of a mutant.
const OF_OTHERS: [&str; 2] = ["nothing else attached", "runs that bpf_stats counted"];

/// Some cases of an experiment, all of which a right program passes.
pub(crate) struct Judge {
    pub name: &'static str,
    /// The object of `bpf/` that it loads.
    pub object: &'static str,
    experiment: fn() -> Result<Box<dyn Experiment>>,
    cases: &'static [&'static str],
    /// Cases among these that it leaves out.
    without: &'static [&'static str],
    /// Trials of each case.
    trials: usize,
    /// True if its preparation opens what trials need; else it comes last.
    prepared: bool,
    /// CPUs beside the first one.
    more_cpus: u32,
    /// As on a target whose clock counts instructions.
    exact: bool,
    /// True if no other judge may run: its events are those of the whole machine.
    pub alone: bool,
}

impl Judge {
    /// Returns true if this program was compiled for the places of its object's variables; of the others it reads them
    /// from the object.
    pub(crate) fn object_is_typed(&self) -> bool {
        let by_name = ["map", "ladder", "stack"].contains(&self.object);
        !by_name && !self.object.starts_with("program_")
    }
}

const USUAL: Judge = Judge {
    name: "",
    object: "",
    experiment: || anyhow::bail!("a judge without an experiment"),
    cases: &["*"],
    without: &[],
    // The order of a batch and of the one with its reset done twice is random.
    trials: 2,
    prepared: false,
    more_cpus: 0,
    exact: false,
    alone: false,
};

/// All judges.
pub(crate) const JUDGES: &[Judge] = &[
    Judge {
        name: "xdp-lb",
        object: "xdp_lb",
        experiment: || built_in("xdp-lb"),
        ..USUAL
    },
    Judge {
        name: "xdp-lb, bpf_loop",
        object: "xdp_lb",
        experiment: || Ok(Box::new(XdpLb::with_loop(Loop::BpfLoop))),
        cases: &["tcp-v4-lru-hit", "tcp-v4-ch-diverse", "floor/*"],
        ..USUAL
    },
    Judge {
        name: "xdp-lb, 2 CPUs",
        object: "xdp_lb",
        experiment: || built_in("xdp-lb"),
        cases: &["tcp-v4-lru-hit", "tcp-v4-ch-diverse"],
        more_cpus: 1,
        ..USUAL
    },
    Judge {
        name: "ladder",
        object: "ladder",
        experiment: || built_in("ladder"),
        ..USUAL
    },
    Judge {
        name: "ladder, exact",
        object: "ladder",
        experiment: || built_in("ladder"),
        exact: true,
        ..USUAL
    },
    Judge {
        name: "map",
        object: "map",
        experiment: || built_in("map"),
        cases: &["*-1k-*", "task-*", "ring-*", "floor/*"],
        ..USUAL
    },
    Judge {
        name: "map, 2 CPUs",
        object: "map",
        experiment: || built_in("map"),
        cases: &["hash-1k-16B/hit"],
        more_cpus: 1,
        ..USUAL
    },
    Judge {
        name: "program, xdp",
        object: "program_xdp",
        experiment: || {
            let programs = [
                "pass",
                "push",
                "pop",
                "grow",
                "shrink",
                "describe",
                "flip_first",
                "flip_63",
                "flip_later",
            ];
            own_programs("xdp.bpf.c", &programs, &["builtin:udp", "builtin:tcp"])
        },
        ..USUAL
    },
    Judge {
        name: "program, skb",
        object: "program_skb",
        experiment: || {
            let programs = [
                "ok",
                "mark",
                "push_vlan",
                "encapsulate",
                "lengthen",
                "write_byte",
                "allow_ingress",
                "keep_half",
            ];
            own_programs("skb.bpf.c", &programs, &["builtin:udp", "builtin:tcp"])
        },
        ..USUAL
    },
    Judge {
        name: "program, windows",
        object: "program_xdp",
        experiment: || own_programs("slots.bpf.c", &["drops", "calls_push"], &["builtin:udp"]),
        ..USUAL
    },
    Judge {
        name: "program, context",
        object: "program_syscall",
        experiment: || own_programs("context.bpf.c", &["compare", "sum"], &[TERMS]),
        ..USUAL
    },
    // A program of each kind that this kernel can attach; what they share, once.
    Judge {
        name: "attach",
        object: "probe",
        experiment: || built_in("attach"),
        cases: &[
            "raw_tp/*",
            "tracepoint/empty",
            "uprobe-nop/empty",
            "uprobe-nop/stack",
            "usdt-nop/empty",
            "perf_event/empty",
            "cgroup_skb/empty",
            "tcx/map",
            "netfilter/empty",
            "xdp-native/empty",
        ],
        alone: true,
        ..USUAL
    },
    Judge {
        name: "attach, drivers",
        object: "driver",
        experiment: || built_in("attach"),
        cases: &["none/*", "raw_tp/empty", "raw_tp-printk/empty"],
        alone: true,
        ..USUAL
    },
    Judge {
        name: "attach, veth",
        object: "feeder",
        experiment: || built_in("attach"),
        cases: &["none/frames", "xdp-*/empty"],
        alone: true,
        ..USUAL
    },
    Judge {
        name: "redis",
        object: "counter",
        experiment: || built_in("redis"),
        cases: &["tracepoint/null", "tracepoint/map", "raw_tp/null"],
        trials: 1,
        prepared: true,
        ..USUAL
    },
    Judge {
        name: "redis, stacks",
        object: "stack_tracer",
        experiment: || built_in("redis"),
        cases: &["stack-raw_tp/*"],
        trials: 1,
        prepared: true,
        ..USUAL
    },
    Judge {
        name: "stack",
        object: "stack",
        experiment: || built_in("stack"),
        cases: &["none/raw_tp", "*/8", "*/whole"],
        trials: 1,
        // A second program at the tracepoint has the kernel call both by another function, which is in the stack.
        alone: true,
        ..USUAL
    },
    Judge {
        name: "stack-places",
        object: "unwind_truth",
        experiment: || built_in("stack-places"),
        // On a busy machine no CPU is idle.
        without: &["*cpu_idle*"],
        trials: 1,
        alone: true,
        ..USUAL
    },
    Judge {
        name: "busy",
        object: "counter",
        experiment: || built_in("busy"),
        cases: &["syscall/500"],
        trials: 1,
        prepared: true,
        ..USUAL
    },
    Judge {
        name: "syscount",
        object: "syscount",
        experiment: || built_in("syscount"),
        cases: &["kernel/traced", "user/traced", "all/traced"],
        trials: 1,
        prepared: true,
        ..USUAL
    },
    Judge {
        name: "nginx-ssl",
        object: "sslsniff",
        experiment: || built_in("nginx-ssl"),
        cases: &["breakpoints/1", "sslsniff/2", "sslsniff/16"],
        trials: 1,
        prepared: true,
        ..USUAL
    },
    Judge {
        name: "l7-go",
        object: "l7",
        experiment: || built_in("l7-go"),
        cases: &["kernel/http/1", "uprobe/https/1", "goroutine/https/16"],
        trials: 1,
        prepared: true,
        ..USUAL
    },
];

fn built_in(name: &str) -> Result<Box<dyn Experiment>> {
    let mut all = builtin::all().into_iter();
    let found = all.find(|experiment| experiment.description().name == name);
    found.with_context(|| format!("there is no experiment {name}"))
}

/// Programs of a source of crates/bpf's tests, on these packets.
fn own_programs(source: &str, programs: &[&str], packets: &[&str]) -> Result<Box<dyn Experiment>> {
    let object = tempfile::NamedTempFile::new()?;
    let from = Path::new(OWN_SOURCES).join(source);
    compile(&from, object.path(), Path::new(LIBBPF_HEADERS), &[]).map_err(Error::msg)?;
    let owned = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    Ok(Box::new(Programs::new(OwnPrograms {
        objects: vec![ObjectFile::new(Path::new(source), fs::read(object.path())?)],
        programs: owned(programs),
        inputs: inputs(&owned(packets))?,
        mix: packets.len() > 1,
        ..OwnPrograms::default()
    })?))
}

/// Three words of 8 bytes, none of them 0.
const TERMS: &str = "030000000000000004000000000000000500000000000000";

/// Folder of those sources.
const OWN_SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/tests/program");

/// Outcome of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The object is that of the source.
    SameCode,
    /// The mutant does not compile.
    Compiler,
    /// The verifier or the loader refused it.
    Verifier,
    /// The check of a timed batch failed.
    Trial,
    /// Only what runs once per load, before anything is timed, failed.
    Preparation,
    /// The judge hung, or its process died.
    Stopped,
    /// The variables have other places than this program was compiled for: a build of it would tell more.
    Unjudged,
    /// Nothing noticed.
    Survived,
}

impl Verdict {
    /// The verdict in a judge's exit status; nothing where another program disturbed it.
    pub(crate) fn from_code(code: Option<i32>) -> Option<Self> {
        let code = code.and_then(|code| u8::try_from(code).ok());
        match code {
            Some(VALID) => Some(Verdict::Survived),
            Some(REFUSED) => Some(Verdict::Verifier),
            Some(INVALID) => Some(Verdict::Trial),
            Some(UNPREPARED) => Some(Verdict::Preparation),
            Some(DISTURBED) => None,
            _ => Some(Verdict::Stopped),
        }
    }
}

/// Runs a judge on a CPU.
pub(crate) fn run(name: &str, cpu: u32) -> Result<ExitCode> {
    let judge = JUDGES.iter().find(|judge| judge.name == name);
    let judge = judge.with_context(|| format!("there is no judge {name}"))?;
    let experiment = (judge.experiment)()?;
    let mut cases = Vec::new();
    for case in experiment.cases() {
        let any = |names: &[&str]| {
            let mut names = names.iter();
            names.any(|one| WildMatch::new(one).matches(&case.name))
        };
        if any(judge.cases)
            && !any(judge.without)
            && !case.name.ends_with("/stats")
            // Of a person's program, the kernel refuses the driver: loading it shows that.
            && (judge.object.starts_with("program_") || experiment.unsupported(&case)?.is_none())
        {
            cases.push(case);
        }
    }
    let setup = Setup {
        cases,
        cpus: (0..=judge.more_cpus)
            .map(|more| (cpu + more) % cpus())
            .collect(),
        seed: 7,
        epoch: 0,
        exact: judge.exact,
    };
    println!("{} cases", setup.cases.len());
    Ok(ExitCode::from(verdict(judge, &*experiment, &setup)))
}

fn cpus() -> u32 {
    u32::try_from(bpfcost_bpf::allowed_cpus().len()).unwrap_or(1)
}

fn verdict(judge: &Judge, experiment: &dyn Experiment, setup: &Setup) -> u8 {
    let mut epoch = match experiment.load(setup) {
        Ok(epoch) => epoch,
        Err(error) => {
            println!("load: {error:#}");
            return REFUSED;
        }
    };
    let trials = |epoch: &mut dyn LoadedEpoch| {
        let mut cases = (0..judge.trials).flat_map(|_| &setup.cases);
        cases.find_map(|case| Some(report(case, epoch.trial(case, batch(case)).err()?, INVALID)))
    };
    let prepare = |epoch: &mut dyn LoadedEpoch| {
        let mut cases = setup.cases.iter();
        cases.find_map(|case| Some(report(case, epoch.prepare(case).err()?, UNPREPARED)))
    };
    let found = if judge.prepared {
        prepare(&mut *epoch).or_else(|| trials(&mut *epoch))
    } else {
        trials(&mut *epoch).or_else(|| prepare(&mut *epoch))
    };
    found.unwrap_or(VALID)
}

fn batch(case: &Case) -> Batch {
    match case.sizing {
        Sizing::Fixed(ops) | Sizing::Window(ops) => Batch(ops),
        Sizing::Calibrated { most } => Batch(most.unwrap_or(OPS).min(OPS)),
    }
}

fn report(case: &Case, fault: Fault, code: u8) -> u8 {
    println!("{}: {}", case.name, describe(&fault));
    match fault {
        Fault::Invalid(problem) if OF_OTHERS.contains(&&*problem.check) => DISTURBED,
        // What experiments say of a program that the kernel refused.
        Fault::Invalid(problem) if problem.got.starts_with("the kernel rejected") => REFUSED,
        Fault::Broken(error) if format!("{error:#}").contains("libbpf") => REFUSED,
        _ => code,
    }
}

fn describe(fault: &Fault) -> String {
    match fault {
        Fault::Invalid(Problem {
            check,
            expected,
            got,
            ..
        }) => format!("{check}: expected {expected}, got {got}"),
        Fault::Broken(error) => format!("{error:#}"),
        Fault::Enough { text, .. } => text.clone(),
    }
}
