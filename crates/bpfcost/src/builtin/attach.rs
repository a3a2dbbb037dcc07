//! `attach`: what does each way to attach a program cost, event by event? Study 003 asked it of
//! tracepoints, kprobes and trampolines under iperf3, where the network hid the answer.
//!
//! Each driver makes one kind of event, as fast as it can. The driver alone is the floor of its family;
//! what a case costs is the same events with a program attached, less that. Costs are compared within a
//! family, and split: the mechanism with a program that only counts its runs, what a body adds, and the
//! tax of `bpf_stats`.
//!
//! Not covered: struct_ops, socket programs (sk_skb, sk_msg, sk_lookup, sockops, reuseport), iterators,
//! lightweight tunnels, flow dissectors, sysctl and device programs of control groups.

mod case;
mod epoch;
mod proof;

pub use proof::SITE;

use super::needs::needs;
use anyhow::Result;
use bpfcost_model::Need;

use bpfcost_model::{Case, Description, Experiment, Grid, LoadedEpoch, Overhead, Pair, Setup};
use bpfcost_pages::attach::NAME;
use case::AttachCase;

/// The experiment.
#[derive(Debug, Default)]
pub struct AttachTypes;

impl Experiment for AttachTypes {
    fn description(&self) -> Description {
        Description {
            layout: Grid::of_events("attach", "body").into(),
            most_cpus: Some(1),
            overhead: Overhead {
                // Measured on a shared virtual machine, all cases that a host without kprobes has.
                load_s: 0.3,
                trial_s: 0.03,
                batches: 1.1,
            },
            ..Description::new(
                NAME,
                "cost per event of every way to attach a program: mechanism, body, bpf_stats",
                &[
                    ("attach", "how the program is attached"),
                    (
                        "body",
                        "what the program does besides counting its runs: empty, map, hash, ringbuf, \
                         ringbuf-wakeup, stack",
                    ),
                    ("stats", "whether the kernel measures run times (bpf_stats)"),
                    (
                        "driver",
                        "what makes the events; none/DRIVER is the same without a program",
                    ),
                ],
            )
        }
    }

    fn cases(&self) -> Vec<Case> {
        case::all().map(case::case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        case::all().filter_map(case::pair).collect()
    }

    fn needs(&self, case: &Case) -> Vec<Need> {
        AttachCase::from_case(case).map_or_else(Vec::new, |one| needs(one.needs()))
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        let never = AttachCase::from_case(case).and_then(AttachCase::never);
        match never {
            Some(reason) => Ok(Some(reason.to_owned())),
            None => self.missing(&self.needs(case)),
        }
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        Ok(Box::new(epoch::AttachEpoch::load(setup)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpfcost_model::Role;

    #[test]
    fn every_case_has_its_driver_as_floor() {
        for case in AttachTypes.cases() {
            let driver = format!("none/{}", case.factors["driver"]);
            let floor = (case.role == Role::Case).then_some(driver);
            assert_eq!(case.floor, floor, "{}", case.name);
        }
    }

    #[test]
    fn names_lead_back_to_what_they_mean() {
        let cases = AttachTypes.cases();
        for (way, case) in case::all().zip(&cases) {
            assert_eq!(AttachCase::from_case(case), Some(way), "{}", case.name);
        }
        let name = |at: usize| cases[at].name.as_str();
        assert_eq!(
            [name(0), name(1), name(2)],
            ["kprobe/empty", "kprobe/empty/stats", "kprobe/map"]
        );
    }

    #[test]
    fn packets_have_no_stack() {
        let cases = AttachTypes.cases();
        let tcx = cases.iter().find(|case| case.name == "tcx/stack").unwrap();
        let reason = AttachTypes.unsupported(tcx).unwrap().unwrap();
        assert!(reason.contains("packets"), "{reason}");
    }
}
