//! Compares what probes add to a workload between runs.
//!
//! What a server takes per operation moves from run to run by more than a run's interval knows, and `self-test`
//! measures something else: kernel programs. What a probe adds is known within each run, on the same server, and its
//! interval holds from one run to the next. Seen on the machine where this was made: of the 190 pairs among 20 runs of
//! redis, 55 differed by more than the 95 % intervals of `off` allow, and 1 by more than those of a probe's difference;
//! among 7 runs of nginx on a busy machine 28 of 42, and 3 of 42; where the sniffer takes ten times what nginx does, 0
//! of 12.
//!
//! So of a case with a probe the ratio to `off` is compared, without any addition. A case without one has nothing to
//! stand on, and a verdict only where there are enough runs a side to speak for themselves.

use bpfcost_stats::{
    Estimate, Policy, Sense, hodges_lehmann,
    sessions::{SessionComparison, Sides, judge_sessions},
};

use super::{
    CaseRecord, Change, ChangeBasis, ComparisonRecord, Record, Side,
    compat::what,
    sides::{RecordGroup, costs, estimates, exact_suffices, judged, sessions, sessions_needed},
};
use crate::{
    measure::Warning,
    workload::{OFF, VARIANT},
};

impl RecordGroup<'_> {
    /// Whether these are runs of a workload.
    pub(super) fn are_of_a_workload(&self) -> bool {
        let mut records = self.new.iter().chain(&self.old);
        records.all(|record| record.layout.workload().is_some())
    }

    /// The changes of cases that both sides have, and what keeps some of them from a verdict.
    pub(super) fn overhead_difference(
        &self,
        names: &[String],
        threshold: f64,
        family: usize,
    ) -> (Vec<Change>, Option<Warning>) {
        let sides: Vec<Sides> = names
            .iter()
            .map(|name| self.judged_of(name, family))
            .collect();
        let policy = Policy {
            margin: threshold,
            budget: None,
            sense: Sense::Cost,
        };
        let comparisons = judge_sessions(&sides, 0.0, &policy);
        let change = |(name, comparison): (&String, SessionComparison)| {
            let (old, new) = (sessions(&self.old, name), sessions(&self.new, name));
            let change = self.change(name, &old, &new, &comparison);
            match self.off(name) {
                Some(off) => beyond_off(
                    change,
                    off,
                    [
                        overhead_difference(&self.old, name),
                        overhead_difference(&self.new, name),
                    ],
                ),
                // There are epochs; it is runs that are too few, or one without the probe beside it.
                None => Change {
                    note: self
                        .is_probed(name)
                        .then(|| format!("the added cost is unknown: it ran without {OFF}")),
                    ..change
                },
            }
        };
        let changes: Vec<Change> = names.iter().zip(comparisons).map(change).collect();
        let open = |change: &Change| {
            change.baseline.is_none() && change.p.is_none() && !self.is_probed(&change.case)
        };
        let warning = changes.iter().any(open).then(|| {
            let record = self.new.first().or(self.old.first());
            Warning::new(
                "workload-level",
                format!(
                    "{}: there is no verdict on the CPU time without a probe, because the spread between its runs \
                     is unknown; {} records a side would resolve it",
                    record.map_or_else(String::new, |record| what(record)),
                    sessions_needed(family)
                ),
            )
        });
        (changes, warning)
    }

    /// What of a case is judged.
    fn judged_of(&self, name: &str, family: usize) -> Sides {
        let side_estimates = |side: &[&Record]| estimates(&costs(&sessions(side, name)));
        match self.off(name) {
            Some(_) => judged(
                ratios(&self.old, name),
                ratios(&self.new, name),
                0.0,
                family,
            ),
            None if self.is_probed(name) => Sides::default(),
            None => {
                let (old, new) = (side_estimates(&self.old), side_estimates(&self.new));
                if exact_suffices(old.len(), new.len(), family) {
                    Sides { old, new }
                } else {
                    Sides::default()
                }
            }
        }
    }

    /// Whether a case has a probe.
    fn is_probed(&self, name: &str) -> bool {
        let mut records = self.new.iter().chain(&self.old);
        records.any(|record| record.case(name).is_some_and(|case| !is_off(case)))
    }

    /// The case without a probe that a case was compared with; `None` of that itself.
    fn off(&self, name: &str) -> Option<String> {
        let mut records = self.new.iter().chain(&self.old);
        records.find_map(|record| Some(against_off(record, name)?.baseline.clone()))
    }
}

/// How a case of a record compares with the one without a probe.
fn against_off<'a>(record: &'a Record, name: &str) -> Option<&'a ComparisonRecord> {
    let mut comparisons = record.comparisons.iter();
    comparisons.find(|one| one.case == name && record.case(&one.baseline).is_some_and(is_off))
}

/// Whether a case has no probe.
fn is_off(case: &CaseRecord) -> bool {
    case.factors.get(VARIANT).is_some_and(|name| name == OFF)
}

/// What a case takes of what it takes without a probe, in each record of a side that knows.
fn ratios(side: &[&Record], name: &str) -> Vec<Estimate> {
    let ratio = |record: &&Record| {
        let comparison = against_off(record, name)?;
        let [low, high] = comparison.relative_ci95?;
        Some(Estimate {
            value: 1.0 + comparison.relative,
            low: 1.0 + low,
            high: 1.0 + high,
        })
    };
    side.iter().filter_map(ratio).collect()
}

/// What a case takes beyond what it takes without a probe, over the records of a side, with the interval of a single one.
fn overhead_difference(side: &[&Record], name: &str) -> (Option<f64>, Option<[f64; 2]>) {
    let comparisons: Vec<&ComparisonRecord> = side
        .iter()
        .filter_map(|record| against_off(record, name))
        .collect();
    let shares: Vec<f64> = comparisons.iter().map(|one| one.relative).collect();
    let ci95 = match comparisons.as_slice() {
        [one] => one.relative_ci95,
        _ => None,
    };
    (hodges_lehmann(&shares), ci95)
}

/// A change of what a probe adds, with what it adds on both sides.
fn beyond_off(change: Change, off: String, sides: [(Option<f64>, Option<[f64; 2]>); 2]) -> Change {
    let [(old, _), (new, _)] = sides;
    let with_added = |side: Option<Side>, (added, added_ci95)| {
        Some(Side {
            added,
            added_ci95,
            ..side?
        })
    };
    Change {
        baseline: Some(off),
        relative: match change.p {
            Some(_) => change.relative,
            None => old
                .zip(new)
                .map(|(old, new)| (1.0 + new) / (1.0 + old) - 1.0),
        },
        basis: change.basis.map(|basis| match basis {
            ChangeBasis::Widened => ChangeBasis::Runs,
            basis => basis,
        }),
        old: with_added(change.old, sides[0]),
        new: with_added(change.new, sides[1]),
        ..change
    }
}
