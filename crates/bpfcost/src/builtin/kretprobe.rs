//! `kretprobe`: what does a probe on a function's return cost when many threads are in the function at once,
//! and which calls does it miss? Study 001 replaced the list from which a kretprobe takes the record of a call that
//! has not returned (Linux 6.1 still has it) by an array; Linux 6.7 put a ring for each CPU there
//! (lib/objpool.c). The same run on both kernels is the study's before and after.
//!
//! Threads on their CPUs make a system call again and again, all beginning together, with nothing on it, a
//! kprobe, a kretprobe, an fprobe or a trampoline. The value is the time until the last is done by the calls
//! of one thread: ns per call and thread. A kretprobe has `maxactive` instances; a call that finds none is
//! missed. Each trial proves that what the program saw and what the kernel says it missed are all the calls.
//!
//! All allowed CPUs are used by default, with up to four threads on each. A batch of some milliseconds holds few time
//! slices; where there are more threads than CPUs, the value therefore describes CPUs that are never idle and threads
//! that mostly take turns.

mod case;
mod epoch;
mod proof;

use super::needs::needs;
use anyhow::Result;
use bpfcost_model::Need;

use self::{case::KretprobeCase, epoch::KretprobeEpoch};
use bpfcost_model::{
    Case, Description, Experiment, Layout, LoadedEpoch, Overhead, Pair, Scaling, Setup,
};

/// The experiment.
#[derive(Clone, Debug)]
pub struct Kretprobes {
    /// Number of CPUs that the threads run on.
    cpus: usize,
}

impl Default for Kretprobes {
    /// On all CPUs that this process may run on.
    fn default() -> Self {
        Kretprobes {
            cpus: bpfcost_bpf::allowed_cpus().len(),
        }
    }
}

impl Experiment for Kretprobes {
    fn description(&self) -> Description {
        Description {
            layout: Layout::from(Scaling {
                over: "threads".into(),
                series: "probe".into(),
                rate: proof::CALLS_PER_S.into(),
            }),
            margin: 0.03,
            every_cpu: true,
            counts: false,
            contends: true,
            overhead: Overhead {
                // Measured in an emulated guest with two CPUs: what attaching takes, above all.
                load_s: 0.05,
                trial_s: 0.15,
                batches: 1.1,
            },
            ..Description::new(
                "kretprobe",
                "cost and missed calls of probes on a contended system call",
                &[
                    ("probe", "none, kprobe, kretprobe, kretprobe.multi, fexit"),
                    (
                        "threads",
                        "threads that make the call, spread over the CPUs",
                    ),
                    (
                        "call",
                        "flock returns at once; in sleep all threads wait in the call together",
                    ),
                    (
                        "maxactive",
                        "instances of the kretprobe per CPU: 1x, 4x; default: 2x",
                    ),
                ],
            )
        }
    }

    fn on_cpus(&mut self, cpus: &[u32]) {
        self.cpus = cpus.len();
    }

    fn cases(&self) -> Vec<Case> {
        case::all(self.cpus)
            .into_iter()
            .map(KretprobeCase::case)
            .collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        case::all(self.cpus)
            .into_iter()
            .flat_map(KretprobeCase::pairs)
            .collect()
    }

    fn needs(&self, case: &Case) -> Vec<Need> {
        KretprobeCase::from_case(case).map_or_else(Vec::new, |one| needs(one.needs()))
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        Ok(Box::new(KretprobeEpoch::load(setup)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_what_they_mean() {
        for cpus in [1, 2, 16] {
            let cases = Kretprobes { cpus }.cases();
            for (way, case) in case::all(cpus).into_iter().zip(&cases) {
                assert_eq!(KretprobeCase::from_case(case), Some(way), "{}", case.name);
            }
        }
    }

    #[test]
    fn threads_go_from_one_to_four_on_each_cpu() {
        let names: Vec<String> = Kretprobes { cpus: 2 }
            .cases()
            .into_iter()
            .map(|case| case.name)
            .collect();
        for name in [
            "none/1",
            "kretprobe/2",
            "kretprobe/8/maxactive-1x",
            "kretprobe/8/sleep",
            "kretprobe/8/sleep/maxactive-4x",
            "kretprobe.multi/8/sleep",
        ] {
            assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
        }
        assert_eq!(names.len(), 26);
    }
}
