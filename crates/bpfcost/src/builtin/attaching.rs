//! `attaching`: what does it cost to switch probes on and off, and how long does it stop other threads? People ask before
//! they trace a production machine; no figures are published.
//!
//! A trial loads the program of a mechanism, attaches it to so many sites, and detaches it. Each of the three is timed as a
//! whole, by the clock of user space; the value is nanoseconds of attaching per site. Beside it: the kernel memory that is
//! in use while it is attached, and the longest stop of a thread that reads the clock on another CPU, which is also
//! watched through an idle time of the same length. The trial makes events at sites, and reads the kernel's lists, before,
//! between and after: all sites were attached, and none is left.

mod epoch;
mod proof;
mod stop;

use super::needs::needs;
use bpfcost_model::Need;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};
use bpfcost_bpf::attach::Mechanism;

use self::epoch::AttachingEpoch;
use super::factor::{list, within};
use bpfcost_pages::attaching::{DETACH_NS, EXTRA_INTERRUPTION_US, KERNEL_BYTES, LOAD_NS};

use bpfcost_model::{
    Case, Description, Experiment, LoadedEpoch, Metric, Overhead, Pair, Setup, Sizing,
};

/// Sites that can be asked for. Some mechanisms are not tried with as many.
const SITES: RangeInclusive<usize> = 1..=200_000;

/// Sites by default, for mechanisms with a link for each and with one for all. To close a link takes some 100 ms, and a
/// hundred are closed one after the other. Debian's Linux 6.12 has 42,020 functions that fit.
const WITH_LINKS: [usize; 2] = [1, 10];
const WITH_ONE_LINK: [usize; 4] = [1, 10, 1_000, 40_000];

/// Numbers of sites that `--quick` measures, out of those defaults.
const QUICK: [usize; 2] = [1, 1_000];

/// Most sites where instructions are emulated, unless more are asked for: one step with 40,000 took Linux 7.2 more than the
/// 180 s after which a silent guest counts as hung.
const MAX_EMULATED: usize = 1_000;

/// The relative difference below which two ways count as the same: a change of a kernel list takes as long as that.
const MARGIN: f64 = 0.05;

/// Ways that do the same: with one link, and with many; and by a trampoline, and by a kprobe.
const RIVALS: [(Mechanism, Mechanism); 4] = [
    (Mechanism::KprobeMulti, Mechanism::Kprobe),
    (Mechanism::FentryMulti, Mechanism::Fentry),
    (Mechanism::UprobeMulti, Mechanism::Uprobe),
    (Mechanism::Fentry, Mechanism::Kprobe),
];

/// The experiment.
#[derive(Clone, Debug, Default)]
pub struct Attaching {
    /// Sites as they were asked for.
    sites: Option<Vec<usize>>,
    /// A planted fault.
    faulty: bool,
}

/// Parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttachingCase {
    mechanism: Mechanism,
    sites: usize,
}

impl AttachingCase {
    fn name(self) -> String {
        format!("{}/{}", self.mechanism, self.sites)
    }

    fn case(self) -> Case {
        let factors = [
            ("mechanism", self.mechanism.name().to_owned()),
            ("sites", self.sites.to_string()),
        ];
        Case {
            name: self.name(),
            group: self.mechanism.about().to_owned(),
            factors: factors.map(|(name, value)| (name.to_owned(), value)).into(),
            about: match self.sites {
                1 => "1 site".to_owned(),
                more => format!("{more} sites"),
            },
            sizing: Sizing::Fixed(self.sites as u64),
            slow: !QUICK.contains(&self.sites),
            ..Case::default()
        }
    }
}

impl Attaching {
    /// The same, where the last site is not attached: for tests of the checks.
    #[doc(hidden)]
    pub fn faulty() -> Self {
        Attaching {
            faulty: true,
            ..Attaching::default()
        }
    }

    fn all(&self) -> Vec<AttachingCase> {
        let of = |mechanism: Mechanism| {
            let usual: &[usize] = if mechanism.has_one_link() {
                &WITH_ONE_LINK
            } else {
                &WITH_LINKS
            };
            let asked = self.sites.as_deref();
            let sites = asked.unwrap_or(usual).iter().copied();
            let sites = sites.filter(move |&sites| asked.is_some() || sites <= mechanism.most());
            sites.map(move |sites| AttachingCase { mechanism, sites })
        };
        Mechanism::ALL.into_iter().flat_map(of).collect()
    }

    fn find(&self, case: &Case) -> Result<AttachingCase> {
        let mut all = self.all().into_iter();
        let found = all.find(|one| one.name() == case.name);
        found.with_context(|| format!("attaching has no case {}", case.name))
    }
}

impl Experiment for Attaching {
    fn description(&self) -> Description {
        let metric = |name: &str, about: &str| Metric {
            name: name.to_owned(),
            about: about.to_owned(),
            unit: "ns/site".to_owned(),
            more_is_better: Some(false),
            margin: MARGIN,
        };
        Description {
            metrics: vec![
                metric(LOAD_NS, "loading, per site"),
                metric(DETACH_NS, "detaching, per site"),
            ],
            margin: MARGIN,
            every_cpu: true,
            counts: false,
            rounds: Some(1),
            overhead: Overhead {
                load_s: 0.5,
                trial_s: 0.3,
                batches: 1.0,
            },
            ..Description::new(
                "attaching",
                "switching probes on and off: load, attach, detach, memory, and interruptions of other CPUs",
                &[
                    ("mechanism", "how programs are attached: see attach"),
                    (
                        "sites",
                        "functions, tracepoints or interfaces that are attached to at once",
                    ),
                ],
            )
        }
    }

    fn set(&mut self, factor: &str, values: &str) -> Result<()> {
        if factor != "sites" {
            bail!("attaching has no factor {factor} that can be set\n  This can: sites");
        }
        self.sites = Some(list(values, |text| within(text, &SITES))?);
        Ok(())
    }

    fn cases(&self) -> Vec<Case> {
        let case = |one: AttachingCase| {
            let case = one.case();
            // Cases whose sites were asked for are measured, even slow ones.
            let slow = case.slow && self.sites.is_none();
            Case { slow, ..case }
        };
        self.all().into_iter().map(case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let all = self.all();
        let pair = |case: &AttachingCase| {
            let rivals = RIVALS.into_iter().filter(|(one, _)| *one == case.mechanism);
            let baselines = rivals.map(|(_, mechanism)| AttachingCase { mechanism, ..*case });
            let there = baselines.filter(|baseline| all.contains(baseline));
            let pairs = there.map(|baseline| Pair {
                case: case.name(),
                baseline: baseline.name(),
                about: format!("{} against {}", case.mechanism, baseline.mechanism),
            });
            pairs.collect::<Vec<_>>()
        };
        all.iter().flat_map(pair).collect()
    }

    fn needs(&self, case: &Case) -> Vec<Need> {
        let found = self.find(case);
        found.map_or_else(|_| Vec::new(), |one| needs(one.mechanism.needs().to_vec()))
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        let one = self.find(case)?;
        if one.sites > one.mechanism.most() {
            let why = if one.mechanism.has_one_link() {
                "which functions the kernel takes has to be tried one by one"
            } else {
                "a process has no room for so many links, one for each site"
            };
            return Ok(Some(format!(
                "not measured: {why}; choose up to {} sites with --set sites=…",
                one.mechanism.most()
            )));
        }
        if self.sites.is_none() && one.sites > MAX_EMULATED && bpfcost_target::is_emulated() {
            return Ok(Some(format!(
                "not measured: every instruction of this machine is emulated, and so many sites may take minutes; choose \
                 them with --set sites={}",
                one.sites
            )));
        }
        let lacking = self.missing(&self.needs(case))?;
        Ok(lacking.or_else(|| one.mechanism.lacks(one.sites)))
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        Ok(Box::new(AttachingEpoch::load(self.clone(), setup)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(experiment: &Attaching, wanted: impl Fn(&Case) -> bool) -> Vec<String> {
        let cases = experiment.cases().into_iter().filter(wanted);
        cases.map(|case| case.name).collect()
    }

    #[test]
    fn few_cases_are_quick_and_those_that_were_asked_for_are() {
        let mut experiment = Attaching::default();
        let quick = names(&experiment, |case| !case.slow);
        assert_eq!(quick.len(), 6 + 3 * 2, "{quick:?}");
        assert!(quick.contains(&"uprobe.multi/1000".to_owned()));
        assert_eq!(names(&experiment, |_| true).len(), 6 * 2 + 2 * 4 + 3);
        experiment.set("sites", "7, 300").expect("it can be set");
        assert_eq!(names(&experiment, |case| !case.slow).len(), 9 * 2);
    }

    #[test]
    fn ways_that_do_the_same_are_compared() {
        let mut experiment = Attaching::default();
        let pairs = |experiment: &Attaching| {
            let pairs = experiment.pairs().into_iter();
            let pairs = pairs.map(|pair| format!("{} {}", pair.case, pair.baseline));
            pairs.collect::<Vec<_>>()
        };
        let usual = pairs(&experiment);
        assert_eq!(usual.len(), 4 * 2, "{usual:?}");
        assert!(usual.contains(&"uprobe.multi/10 uprobe/10".to_owned()));
        experiment.set("sites", "500").expect("it can be set");
        assert_eq!(
            pairs(&experiment),
            [
                "kprobe.multi/500 kprobe/500",
                "fentry/500 kprobe/500",
                "fentry.multi/500 fentry/500",
                "uprobe.multi/500 uprobe/500",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (factor, values, words) in [
            ("site", "1", "no factor site"),
            ("mechanism", "kprobe", "This can: sites"),
            ("sites", "0", "0 is not a number from 1 to 200000"),
            ("sites", "200001", "from 1 to 200000"),
            ("sites", "1,1", "1 is named twice"),
            ("sites", "", "nothing is not"),
        ] {
            let error = Attaching::default().set(factor, values).expect_err(values);
            let error = format!("{error:#}");
            assert!(error.contains(words), "{factor}={values}: {error}");
        }
    }

    /// There is no room for so many links, nor time to try each function.
    #[test]
    fn too_many_sites_are_not_tried() {
        let mut experiment = Attaching::default();
        experiment.set("sites", "50000").expect("it can be set");
        for case in experiment.cases() {
            let reason = experiment.unsupported(&case).expect("an answer");
            let not_tried = reason.is_some_and(|reason| reason.contains("not measured"));
            let most = ["kprobe.multi", "uprobe.multi"];
            let many = most.contains(&case.factors["mechanism"].as_str());
            assert_eq!(not_tried, !many, "{}", case.name);
        }
    }
}
