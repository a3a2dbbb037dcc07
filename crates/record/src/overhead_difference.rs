//! Compares what probes add to a workload between runs.
//!
//! The CPU time of a server per operation moves from run to run by more than a run's interval knows. The cost that a
//! probe adds is known within each run, on the same server. So the ratio of a case with a probe to `off` is compared.
//! From run to run
//! that ratio scatters by little more than its interval, and by how much is measured (docs/evidence/sessions.md): its
//! spread has its own history and its own assumption. A case without a probe has nothing to stand on, and a verdict only
//! where there are enough runs in turn to speak for themselves.

use bpfcost_stats::{
    Estimate, hodges_lehmann,
    sessions::{Basis, Session, Sides, turns_needed},
};

use crate::{
    Change, ChangeBasis, ComparisonRecord, Record, Side,
    compat::what,
    history::began_s,
    off::{against_off, is_off},
    record_group::{RecordGroup, raw_cost},
    session_spread::{CaseSpreads, ratio_leverage},
};
use bpfcost_measure::Warning;
use bpfcost_model::OFF;

impl RecordGroup<'_> {
    /// Returns whether these are runs of a workload.
    pub(super) fn are_of_a_workload(&self) -> bool {
        self.records().all(|record| record.layout.times_windows())
    }

    /// The changes of cases that both sides have, and what keeps some of them from a verdict.
    pub(super) fn overhead_difference(
        &self,
        names: &[String],
        spreads: &CaseSpreads,
        threshold: f64,
        family: usize,
    ) -> (Vec<(Change, Basis)>, Option<Warning>) {
        let sides = |name: &str| self.overhead_sides(name, spreads, family);
        let changes = self.changes(names, sides, threshold, family).into_iter();
        let changes = changes.map(|(change, basis)| {
            let name = &change.case.clone();
            let change = match self.off(name) {
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
                    level_only: !self.is_probed(name) && change.p.is_none(),
                    note: self
                        .is_probed(name)
                        .then(|| format!("the added cost is unknown: it ran without {OFF}")),
                    ..change
                },
            };
            (self.with_remedy(change), basis)
        });
        let changes: Vec<(Change, Basis)> = changes.collect();
        let open = |change: &Change| {
            change.baseline.is_none() && change.p.is_none() && !self.is_probed(&change.case)
        };
        let warning = changes.iter().any(|(change, _)| open(change)).then(|| {
            let record = self.records().next();
            Warning::new(
                "workload-level",
                format!(
                    "{}: there is no verdict on the CPU time without a probe, because the spread between its runs \
                     is unknown; {} records a side would resolve it",
                    record.map_or_else(String::new, what),
                    turns_needed(family)
                ),
            )
        });
        (changes, warning)
    }

    /// The same, and what to do where each side knows what the probe adds, and it is unknown how far runs differ.
    fn with_remedy(&self, change: Change) -> Change {
        let knows = |side: &[&Record]| !ratios(side, &change.case).is_empty();
        if change.p.is_some() || !knows(&self.old) || !knows(&self.new) {
            return change;
        }
        Change {
            note: Some(
                "how far runs differ here is unknown: measure two or more records a side, in turn (A B A B)"
                    .to_owned(),
            ),
            ..change
        }
    }

    /// The sides of a case: ratios to the case without a probe, or costs where the records are enough turns for the
    /// exact test; empty if neither can be judged.
    fn overhead_sides(&self, name: &str, spreads: &CaseSpreads, family: usize) -> Sides {
        let spreads = spreads.case(name);
        let empty = || Sides::new(Vec::new(), Vec::new());
        match self.off(name) {
            Some(_) => {
                let (old, new) = (ratios(&self.old, name), ratios(&self.new, name));
                let largest = old.iter().chain(&new);
                let largest = largest.map(|one| ratio_leverage(one.estimate.value.ln()));
                Sides {
                    spreads,
                    leverage: largest.fold(1.0, f64::max),
                    unassumed: true,
                    ..Sides::new(old, new)
                }
            }
            None if self.is_probed(name) => empty(),
            // The spread between the levels of a server is unknown: its runs must show it themselves.
            None => {
                let sides = self.sides(name, spreads, |_, record| raw_cost(record, name));
                if sides.are_exact(family) {
                    sides
                } else {
                    empty()
                }
            }
        }
    }

    /// Returns whether a case has a probe.
    fn is_probed(&self, name: &str) -> bool {
        let mut cases = self.records().filter_map(|record| record.case(name));
        cases.any(|case| !is_off(case))
    }

    /// The case without a probe that a case was compared with; `None` of that itself.
    fn off(&self, name: &str) -> Option<String> {
        self.records()
            .find_map(|record| Some(against_off(record, name)?.baseline.clone()))
    }
}

/// The ratios of a case to the one without a probe, of each record of a side that has one.
fn ratios(side: &[&Record], name: &str) -> Vec<Session> {
    let ratio = |record: &&Record| {
        let comparison = against_off(record, name)?;
        let [low, high] = comparison.relative_ci95?;
        Some(Session {
            began_s: began_s(record),
            estimate: Estimate {
                value: 1.0 + comparison.relative,
                low: 1.0 + low,
                high: 1.0 + high,
            },
        })
    };
    side.iter().filter_map(ratio).collect()
}

/// The cost that the probe of a case adds, over the records of a side, with the interval of a single one.
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
            other => other,
        }),
        old: with_added(change.old, sides[0]),
        new: with_added(change.new, sides[1]),
        ..change
    }
}
