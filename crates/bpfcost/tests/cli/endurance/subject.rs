//! Runs that are killed: every experiment of the program's own list, guests, programs that people bring, and every
//! form of `overhead`.

use bpfcost_model::{Experiment, Role};
use rand::{Rng, RngExt as _, seq::IndexedRandom as _};

use super::bystander::Bystander;
use crate::{object, program, tool::Tool};

/// Cases of an experiment in a run: an epoch of all of them takes minutes.
const CASES: usize = 2;

/// Makes system calls for a tenth of a second.
const LOAD: &str = "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done; sleep 0.1";

/// Probes of every kind.
const PROBES: [&str; 5] = [
    "calls.bpf.o",
    "user:ends.bpf.o",
    "builtin:stats",
    "bpftrace -e 'tracepoint:raw_syscalls:sys_enter { @ = count(); }'",
    // Changes a setting, and starts what leaves its session and its parents.
    "process:echo 1 >/proc/sys/kernel/bpf_stats_enabled; (setsid sh -c 'while :; do sleep 0.01; done' &); exec sleep 1234",
];

pub(crate) struct Subject {
    pub(crate) name: String,
    kind: Kind,
}

enum Kind {
    /// Some of these cases, on this machine.
    Experiment(Vec<String>),
    /// One of these experiments with all its cases, on this target.
    Guest(String, Vec<(String, Vec<String>)>),
    Program,
    Command,
    Workload,
    Watched,
}

/// All cases that may be chosen.
fn cases(experiment: &dyn Experiment) -> impl Iterator<Item = bpfcost_model::Case> {
    let cases = experiment.cases().into_iter();
    cases.filter(|case| case.role == Role::Case)
}

/// Every experiment that has a case for this kernel; of others, why not.
pub(crate) fn experiments() -> Vec<Result<Subject, String>> {
    let all = bpfcost::builtin::all().into_iter();
    let subjects = all.map(|experiment| {
        let name = experiment.description().name;
        let mut lacking = String::new();
        let mut able = Vec::new();
        for case in cases(&*experiment) {
            match experiment.unsupported(&case).expect("the kernel answers") {
                None => able.push(case.name),
                Some(why) => lacking = why,
            }
        }
        match able[..] {
            [] => Err(format!("{name}: {lacking}")),
            _ => Ok(Subject {
                name,
                kind: Kind::Experiment(able),
            }),
        }
    });
    subjects.collect()
}

/// Measurements that come from a command line alone.
pub(crate) fn others() -> Vec<Subject> {
    [
        ("program", Kind::Program),
        ("overhead of a command", Kind::Command),
        ("overhead of a workload", Kind::Workload),
        ("overhead of a service", Kind::Watched),
    ]
    .map(|(name, kind)| Subject {
        name: name.to_owned(),
        kind,
    })
    .into()
}

/// A guest that has time, and one that counts instructions. Servers are left out: in an emulated guest they may be too slow
/// to answer within a client's first window, which ends the run.
pub(crate) fn guests(kernel: &str) -> Vec<Subject> {
    let guests = ["vm", "exact"].map(|kind| {
        let all = bpfcost::builtin::all().into_iter();
        let able = all.filter(|one| {
            let described = one.description();
            !described.layout.times_windows() && (kind == "vm" || described.counts)
        });
        let able = able.map(|one| {
            let cases = cases(&*one).map(|case| case.name);
            (one.description().name, cases.collect())
        });
        let target = format!("{kind}:{kernel}");
        Subject {
            name: target.clone(),
            kind: Kind::Guest(target, able.collect()),
        }
    });
    guests.into()
}

impl Subject {
    pub(crate) fn is_guest(&self) -> bool {
        matches!(self.kind, Kind::Guest(..))
    }

    /// A call that measures it, in a home that is made ready for that. The record will be `x.json`.
    pub(crate) fn call(
        &self,
        tool: &Tool,
        random: &mut impl Rng,
        bystander: &Bystander,
    ) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |line: &[&str]| words.extend(line.iter().map(|word| (*word).to_owned()));
        let some = |cases: &[String], random: &mut _| -> Vec<String> {
            let chosen = cases.sample(random, CASES);
            chosen.cloned().collect()
        };
        let probe = *PROBES.choose(random).expect("probes");
        let seed = random.random_range(0..1_u64 << 53).to_string();
        let how = ["--quick", "--out", "x.json", "--seed", &seed];
        match &self.kind {
            Kind::Experiment(cases) => {
                add(&["run", &self.name]);
                add(&how);
                for case in some(cases, random) {
                    add(&["--case", &case]);
                }
            }
            Kind::Guest(target, experiments) => {
                let (name, cases) = experiments.choose(random).expect("experiments");
                add(&["run", name, "--on", target]);
                add(&how);
                for case in some(cases, random) {
                    add(&["--case", &case]);
                }
            }
            Kind::Program => {
                program::compile(tool, "x", program::SOURCE);
                add(&["program", "x.bpf.o", "--program", "counts"]);
                add(&how);
            }
            Kind::Command => {
                object::calls(tool);
                object::ends(tool);
                add(&["overhead", probe]);
                add(&how);
                add(&["--", "sh", "-c", LOAD]);
            }
            Kind::Workload => {
                object::calls(tool);
                object::ends(tool);
                add(&["overhead", probe, "--workload", "redis"]);
                add(&how);
            }
            Kind::Watched => {
                object::calls(tool);
                object::ends(tool);
                add(&["overhead", probe, "--watch", &bystander.id().to_string()]);
                add(&how);
            }
        }
        words
    }
}
