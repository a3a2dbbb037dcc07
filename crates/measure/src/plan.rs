//! The plan: everything that decides a run before it starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::count;
use bpfcost_model::{Case, Description, Layout, Metric, Pair, Setup, Subject, Unit, Waivers};

/// All that decides a run before it starts; the first thing in a journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The experiment's name.
    pub experiment: String,
    /// The target that it runs on, e.g. `host`.
    pub target: String,
    /// Values of factors other than the experiment's own, by factor, as `--set` gave them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The unit of values.
    pub unit: Unit,
    /// Decides every order and every packet.
    pub seed: u64,
    /// The cases, floors included, in the experiment's order.
    pub cases: Vec<Case>,
    /// The layout of the results.
    #[serde(default, flatten)]
    pub layout: Layout,
    /// Further values of trials that are compared as the main one is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// The factor whose values run next to each other in a round, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjacent: Option<String>,
    /// The subject of the run, as far as the experiment's name does not say it.
    #[serde(default)]
    pub subject: Subject,
    /// True if costs come from CPUs that contend for cache lines, which those of an emulated machine do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contends: bool,
    /// Safeguards that the experiment gives up.
    #[serde(default, skip_serializing_if = "Waivers::is_empty")]
    pub waivers: Waivers,
    /// The pairs of cases to compare, in each quantity.
    pub pairs: Vec<Pair>,
    /// CPUs that run each case at once.
    pub cpus: Vec<u32>,
    /// Stop when every raw interval's half-width is at most this share of its value (0.01 is 1 %).
    pub precision: Option<f64>,
    /// Stop after this many seconds of measuring.
    pub seconds: Option<f64>,
    /// True if the run waits for the first look when it comes after that time: so where the time is a default.
    #[serde(default)]
    pub patient: bool,
    /// Stop at the first look.
    pub quick: bool,
    /// Rounds per epoch where they are not the usual number.
    pub rounds: Option<u32>,
    /// The length to which a batch is calibrated, in nanoseconds.
    pub goal_ns: f64,
    /// The relative difference below which two cases count as the same.
    pub margin: f64,
    /// The cost of the anchor on this machine at rest, as a multiple of the sentinel's, from earlier sessions; `None`
    /// before the first, and in guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<f64>,
    /// The relative cost that a comparison may have, where a budget was given.
    pub budget: Option<f64>,
}

impl Plan {
    /// A plan with what an experiment declares, and nothing chosen or asked yet.
    pub fn new(description: Description) -> Self {
        Plan {
            experiment: description.name,
            layout: description.layout,
            metrics: description.metrics,
            adjacent: description.adjacent,
            subject: description.subject,
            contends: description.contends,
            waivers: description.waivers,
            rounds: description.rounds,
            margin: description.margin,
            ..Plan::default()
        }
    }

    /// The comparisons of a run, of all its quantities: the family over which the chance of a false verdict is
    /// bounded. Their number decides the first look.
    pub fn comparisons(&self) -> usize {
        self.pairs.len() * (1 + self.metrics.len())
    }

    /// Returns whether the target's clock counts instructions, so that costs are counted, not timed.
    pub fn counts(&self) -> bool {
        self.unit == Unit::InstructionsPerOp
    }

    /// The block of each case: cases of one differ in the adjacent factor alone.
    pub(super) fn blocks(&self) -> Vec<usize> {
        let Some(adjacent) = &self.adjacent else {
            return (0..self.cases.len()).collect();
        };
        let mut blocks: Vec<BTreeMap<String, String>> = Vec::new();
        let block = |case: &Case| {
            let mut others = case.factors.clone();
            others.remove(adjacent);
            let place = blocks.iter().position(|block| *block == others);
            place.unwrap_or_else(|| {
                blocks.push(others);
                blocks.len() - 1
            })
        };
        self.cases.iter().map(block).collect()
    }

    /// The number of epochs after which the run ends, where it does not depend on what is seen.
    pub fn loads(&self) -> Option<usize> {
        let cases = 0..self.cases.len();
        self.counts()
            .then(|| cases.map(|case| self.case_loads(case)).max().unwrap_or(0))
    }

    /// Returns whether a case runs in an epoch: always where it is timed.
    pub(super) fn runs_in(&self, epoch: usize, case: usize) -> bool {
        !self.counts() || epoch < self.case_loads(case)
    }

    fn case_loads(&self, case: usize) -> usize {
        count::loads(self.quick).max(self.cases[case].loads)
    }

    /// The inputs of the load of epoch `epoch`, with the cases numbered in `live`.
    pub fn setup(&self, live: &[usize], epoch: usize) -> Setup {
        Setup {
            cases: live
                .iter()
                .map(|&index| self.cases[index].clone())
                .collect(),
            cpus: self.cpus.clone(),
            seed: self.seed,
            epoch,
            exact: self.counts(),
        }
    }
}
