//! The checks of a trial of `attaching`: every site was attached, ran the program, and is free again.

use std::{collections::BTreeMap, time::Duration};

use bpfcost_bpf::attach::SiteCounts;

use super::{
    AttachingCase, DETACH_NS, EXTRA_INTERRUPTION_US, KERNEL_BYTES, LOAD_NS, stop::LongestStop,
};
use bpfcost_model::{Problem, Trial, differs};

/// Duration of a step, in nanoseconds, and the longest stops of the other thread meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) ns: f64,
    pub(super) stop: Option<LongestStop>,
}

/// All that was seen in a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttachingProof {
    pub(super) one: AttachingCase,
    /// Before it was attached, while it was, and afterwards.
    pub(super) before: SiteCounts,
    pub(super) between: SiteCounts,
    pub(super) after: SiteCounts,
    pub(super) load_ns: f64,
    pub(super) attach: Step,
    pub(super) detach: Step,
    pub(super) idle: Step,
    /// Bytes of the kernel's memory that loading and attaching took.
    pub(super) memory: Option<f64>,
}

impl AttachingProof {
    /// Returns the first problem of a trial, or `None` if all sites were attached and none is left.
    pub(super) fn problem(&self) -> Option<Problem> {
        let sites = self.one.sites as u64;
        let links = if self.one.mechanism.has_one_link() {
            1
        } else {
            sites
        };
        let (before, between, after) = (self.before, self.between, self.after);
        let moved = self.attach.ns > 0.0 && self.detach.ns > 0.0;
        let checks = [
            (
                "sites attached before",
                0,
                before.shown,
                "something else is attached to these sites; it would be part of every cost",
            ),
            (
                "runs before",
                0,
                before.hits,
                "the program ran before it was attached",
            ),
            (
                "sites attached",
                sites,
                between.shown,
                "not every site was attached",
            ),
            (
                "links",
                links,
                between.links,
                "some links are missing, or there are too many",
            ),
            (
                "events at sites",
                1,
                u64::from(between.events > 0),
                "no event was made, so nothing shows that the program runs",
            ),
            (
                "events before",
                between.events,
                before.events,
                "not every event was made, so nothing shows that the program did not run yet",
            ),
            (
                "events afterwards",
                between.events,
                after.events,
                "not every event was made, so nothing shows that the program runs no more",
            ),
            (
                "runs",
                between.events,
                between.hits,
                "the program did not run exactly once for each event at a site",
            ),
            ("sites left", 0, after.shown, "some sites were not detached"),
            (
                "links left",
                0,
                after.links,
                "some links outlived their end",
            ),
            (
                "runs afterwards",
                0,
                after.hits,
                "the program ran after it was detached",
            ),
            (
                "clock moved",
                1,
                u64::from(moved),
                "the clock did not advance meanwhile",
            ),
        ];
        let mut checks = checks.into_iter();
        checks.find_map(|(check, expected, got, why)| differs(check, expected, got, why))
    }

    /// The trial, once it is proved.
    pub(super) fn trial(&self) -> Trial {
        let sites = self.one.sites as f64;
        let mut secondary = BTreeMap::from([
            (LOAD_NS.to_owned(), self.load_ns / sites),
            (DETACH_NS.to_owned(), self.detach.ns / sites),
        ]);
        let us = |stop: Duration| stop.as_nanos() as f64 / 1e3;
        for (name, step) in [
            ("attach", self.attach),
            ("detach", self.detach),
            ("idle", self.idle),
        ] {
            if let Some(stop) = step.stop {
                secondary.insert(format!("{name}_stop_us"), us(stop.any));
                secondary.insert(format!("{name}_interrupt_us"), us(stop.interrupted));
            }
        }
        let stops = self.attach.stop.zip(self.detach.stop);
        if let Some(((attach, detach), idle)) = stops.zip(self.idle.stop) {
            let longer = us(attach.interrupted.max(detach.interrupted));
            secondary.insert(
                EXTRA_INTERRUPTION_US.to_owned(),
                longer - us(idle.interrupted),
            );
        }
        if let Some(bytes) = self.memory {
            secondary.insert(KERNEL_BYTES.to_owned(), bytes / sites);
        }
        Trial {
            value: self.attach.ns / sites,
            ops: self.one.sites as u64,
            elapsed_ns: self.attach.ns,
            secondary,
            ..Trial::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use bpfcost_bpf::attach::Mechanism;

    use super::{super::stop::LongestStop, *};

    fn good(mechanism: Mechanism) -> AttachingProof {
        let step = |ns, any, interrupted| Step {
            ns,
            stop: Some(LongestStop {
                any: Duration::from_micros(any),
                interrupted: Duration::from_micros(interrupted),
            }),
        };
        let idle = SiteCounts {
            events: 16,
            ..SiteCounts::default()
        };
        let one = AttachingCase {
            mechanism,
            sites: 10,
        };
        AttachingProof {
            one,
            before: idle,
            between: SiteCounts {
                shown: 10,
                links: if mechanism.has_one_link() { 1 } else { 10 },
                events: 16,
                hits: 16,
            },
            after: idle,
            load_ns: 500.0,
            attach: step(1000.0, 90, 7),
            detach: step(2000.0, 80, 9),
            idle: step(3000.0, 70, 4),
            memory: Some(20480.0),
        }
    }

    #[test]
    fn a_trial_is_what_its_steps_took_per_site() {
        for mechanism in [Mechanism::Kprobe, Mechanism::KprobeMulti] {
            assert_eq!(good(mechanism).problem(), None);
        }
        let trial = good(Mechanism::Kprobe).trial();
        assert_eq!(
            (trial.value, trial.ops, trial.elapsed_ns),
            (100.0, 10, 1000.0)
        );
        let value = |name: &str| trial.secondary[name];
        assert_eq!([LOAD_NS, DETACH_NS].map(value), [50.0, 200.0]);
        let of = |kind: &str| {
            ["attach", "detach", "idle"].map(|step| value(&format!("{step}_{kind}_us")))
        };
        assert_eq!(of("stop"), [90.0, 80.0, 70.0]);
        assert_eq!(of("interrupt"), [7.0, 9.0, 4.0]);
        assert_eq!(value(EXTRA_INTERRUPTION_US), 5.0);
        assert_eq!(value(KERNEL_BYTES), 2048.0);
    }

    #[test]
    fn without_another_cpu_there_is_no_stop() {
        let mut proof = good(Mechanism::Kprobe);
        for step in [&mut proof.attach, &mut proof.detach, &mut proof.idle] {
            step.stop = None;
        }
        proof.memory = None;
        let names: Vec<String> = proof.trial().secondary.into_keys().collect();
        assert_eq!(names, [DETACH_NS, LOAD_NS]);
    }

    /// Each check fails for its own reason: one value that is not as it should be.
    #[test]
    fn each_fault_is_found() {
        let check = |spoil: fn(&mut AttachingProof)| {
            let mut proof = good(Mechanism::Kprobe);
            spoil(&mut proof);
            proof
                .problem()
                .map(|problem| problem.check)
                .unwrap_or_default()
        };
        assert_eq!(check(|one| one.before.shown = 1), "sites attached before");
        assert_eq!(check(|one| one.before.hits = 1), "runs before");
        assert_eq!(check(|one| one.between.shown = 9), "sites attached");
        assert_eq!(check(|one| one.between.links = 1), "links");
        assert_eq!(check(|one| one.between.hits = 15), "runs");
        assert_eq!(check(|one| one.between.hits = 17), "runs");
        let none = |one: &mut AttachingProof| {
            one.between.events = 0;
            one.between.hits = 0;
        };
        assert_eq!(check(none), "events at sites");
        assert_eq!(check(|one| one.before.events = 0), "events before");
        assert_eq!(check(|one| one.after.events = 15), "events afterwards");
        assert_eq!(check(|one| one.after.shown = 1), "sites left");
        assert_eq!(check(|one| one.after.links = 1), "links left");
        assert_eq!(check(|one| one.after.hits = 1), "runs afterwards");
        assert_eq!(check(|one| one.detach.ns = 0.0), "clock moved");
        let mut many = good(Mechanism::KprobeMulti);
        many.between.links = 10;
        assert_eq!(
            many.problem().map(|one| one.check).as_deref(),
            Some("links")
        );
    }
}
