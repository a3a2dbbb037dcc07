//! The result of a comparison of records: the wire types of `compare --format json`.

use serde::{Deserialize, Serialize};

use bpfcost_measure::Warning;
use bpfcost_model::Unit;

/// The result of `compare OLD NEW`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// [`SCHEMA`](super::SCHEMA) of the program that made it.
    pub schema: u32,
    /// Version of that program.
    pub bpfcost: String,
    /// The relative rise of a cost that the gate lets pass (0.02 is 2 %).
    pub threshold: f64,
    /// The relative rise that the gate had to be able to see, where that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub must_see: Option<f64>,
    /// The answer of the gate.
    pub gate: Gate,
    /// Every case that both sides measured, in the order of the new records.
    pub cases: Vec<Change>,
    /// Cases that only the old side measured.
    pub only_old: Vec<OneSided>,
    /// Cases that only the new side measured.
    pub only_new: Vec<OneSided>,
    /// Warnings for readers.
    pub warnings: Vec<Warning>,
}

/// The answer of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// No case is shown to cost more than the threshold allows. Unresolved cases pass.
    Passed,
    /// A case costs more.
    Regressed,
    /// None is shown to cost more, but a case of the new side failed its own checks.
    Invalid,
    /// None is shown to cost more, but a rise could not have been seen: of any size, as a case could not be judged, or
    /// of the size that had to be seen.
    Blind,
}

impl Changes {
    /// The gate's answer to these outcomes.
    pub(super) fn decide_gate(&self) -> Gate {
        let has = |outcome| self.cases.iter().any(|change| change.outcome == outcome);
        // A level alone is shown, not judged.
        let judged = self.cases.iter().any(|change| !change.level_only);
        if has(ChangeOutcome::Regressed) {
            Gate::Regressed
        } else if has(ChangeOutcome::Invalid) {
            Gate::Invalid
        } else if !judged || self.unjudged().next().is_some() || self.blind().next().is_some() {
            Gate::Blind
        } else {
            Gate::Passed
        }
    }

    /// The names of the cases that the gate could not judge, whatever they cost: without an interval, or without a value
    /// on the side that was to measure them.
    pub fn unjudged(&self) -> impl Iterator<Item = &str> {
        let cases = self.cases.iter().filter(|change| change.is_unjudged());
        let one_sided = self.only_old.iter().chain(&self.only_new);
        let one_sided = one_sided.filter(|case| case.unjudged);
        let names = cases.map(|change| change.case.as_str());
        names.chain(one_sided.map(|case| case.case.as_str()))
    }

    /// The cases of which the gate could not have seen the rise that it had to; none where nothing was asked. A case
    /// that is shown to have changed was seen, and so was one whose 95 % interval ends below that rise. The level of a
    /// server without a probe has no verdict, unless there are enough runs.
    pub fn blind(&self) -> impl Iterator<Item = &Change> {
        self.cases.iter().filter(|change| {
            let Some(must_see) = self.must_see.filter(|_| !change.is_unjudged()) else {
                return false;
            };
            match change.outcome {
                ChangeOutcome::Same | ChangeOutcome::Unresolved => {
                    let ends_below = change
                        .relative_ci95
                        .is_some_and(|[_, high]| high < must_see);
                    let sees = change
                        .gate_sees
                        .is_some_and(|percent| percent <= 100.0 * must_see);
                    !(change.level_only || ends_below || sees)
                }
                _ => false,
            }
        })
    }
}

/// One case on both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The experiment's name.
    pub experiment: String,
    /// The target that it ran on.
    pub target: String,
    /// The unit of `old` and `new`.
    pub unit: Unit,
    /// The case's name.
    pub case: String,
    /// The heading under which tables show it.
    pub group: String,
    /// The case without a probe, for a workload. Then `relative` is the change of the ratio to it, which each run
    /// measures itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// True if undisturbed costs are compared; otherwise costs as found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undisturbed: bool,
    /// The outcome, given the gate's threshold.
    pub outcome: ChangeOutcome,
    /// The old side; null where its case was invalid.
    pub old: Option<Side>,
    /// The new side; null where its case was invalid.
    pub new: Option<Side>,
    /// new ∕ old − 1; null where a side has no value.
    pub relative: Option<f64>,
    /// 95 % interval of `relative`, the spread between sessions included; null with too few epochs.
    pub relative_ci95: Option<[f64; 2]>,
    /// 90 % interval of `relative`: what the gate goes by.
    pub relative_ci90: Option<[f64; 2]>,
    /// Two-sided p of "no change", unadjusted.
    pub p: Option<f64>,
    /// The source of the interval.
    pub basis: Option<ChangeBasis>,
    /// Percent: the change that would have been seen about three times in four, where the outcome
    /// is `unresolved`.
    pub detectable: Option<f64>,
    /// Percent: the rise that would have failed the gate about three times in four; null without an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_sees: Option<f64>,
    /// True if it is the level of a workload without a probe, and there are too few runs for a verdict on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub level_only: bool,
    /// The reason for which there are no numbers, or the failed check.
    pub note: Option<String>,
}

impl Change {
    /// Returns whether it has no interval, so that no rise could have been seen. The level of a server without a probe
    /// is shown without one.
    pub fn is_unjudged(&self) -> bool {
        self.outcome == ChangeOutcome::Unresolved && self.basis.is_none() && !self.level_only
    }
}

/// The outcome of a case, given the gate's threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeOutcome {
    /// The case is shown to cost more, by more than the threshold.
    Regressed,
    /// The case is shown to cost less, by more than the threshold.
    Improved,
    /// Any change is shown to be smaller than the threshold.
    Same,
    /// The data does not resolve it.
    #[default]
    Unresolved,
    /// The case failed its own checks on the new side.
    Invalid,
}

/// A case on one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Records that have a value for it.
    pub sessions: usize,
    /// The cost: the record's own, or the Hodges–Lehmann estimate over several.
    pub value: f64,
    /// 95 % interval within the session, where there is one session: it knows nothing of others.
    pub ci95: Option<[f64; 2]>,
    /// The added cost of a workload's probe: case ∕ `baseline` − 1, within the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<f64>,
    /// 95 % interval of `added`, where there is one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_ci95: Option<[f64; 2]>,
}

/// The source of a change's interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeBasis {
    /// From the sessions themselves, exactly.
    Sessions,
    /// From intervals within sessions, widened by the spread between sessions.
    Widened,
    /// From what each run of a workload knows of a probe against none, on the same server.
    Runs,
    /// From counts of instructions, which have no interval: by the ranges that they take over loads.
    Counts,
}

/// A case that one side alone measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneSided {
    /// The experiment's name.
    pub experiment: String,
    /// The target that it ran on.
    pub target: String,
    /// The case's name.
    pub case: String,
    /// The reason for which the other side has none, where it states one.
    pub reason: Option<String>,
    /// True if the other side was to measure it too, and has no value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unjudged: bool,
}
