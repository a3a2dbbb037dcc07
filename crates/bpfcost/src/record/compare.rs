//! Compares records of separate sessions (docs/compare.md), for people and as a gate in CI.
//!
//! **The gate.** A case has `regressed` where both hold:
//!
//! 1. it is shown to cost more: "no change" is rejected by Holm over all cases compared, so that
//!    two runs of the same program raise even one alarm in at most 5 % of comparisons;
//! 2. it is shown to cost more than the threshold allows: the whole 90 % interval of the change,
//!    the spread between sessions included, lies above the threshold. A case whose true rise is the
//!    threshold itself fails in at most 5 % of comparisons.
//!
//! An estimate above the threshold is not enough: with a true rise near it, every other run would
//! fail, and a gate that flickers is soon ignored. The price is that a rise just above the threshold
//! passes as `unresolved`; more records a side make the gate sharper, never laxer. `improved` is the
//! mirror image. `same` needs the 90 % interval inside ± threshold, and takes precedence.
//! A case that failed its own checks on the new side fails the gate, because it has no number
//! that could be trusted to be small. A case that is missing from one side does not, because people
//! measure parts; it is listed.
//!
//! Counts of instructions have no interval and no p-value: a case has `regressed` where even its
//! cheapest load of the new side costs more than the most expensive of the old one plus the threshold,
//! which is zero there by default.
//!
//! Several records a side are sessions: where there are enough for the exact two-sample test to
//! show a change among so many cases (4 a side for one case, 7 for 24), that test decides. Fewer
//! count by their mean, with intervals widened by the spread between sessions.
//!
//! For workloads, the cost that a probe adds is compared: each run measures it (`added.rs`).

use bpfcost_stats::{
    Policy, Sense,
    holm::holm,
    power::FALSE_ALARM_LEVEL,
    sessions::{Basis as StatsBasis, SessionComparison, Sides, judge_sessions},
    verdict::Verdict as StatsVerdict,
};

use super::{
    CaseRecord, Change, ChangeBasis, ChangeOutcome, Changes, CompareError, Gate, Machine, Record,
    SCHEMA, compat, exact,
    session::spread_between,
    sides::{
        RecordGroup, costs, distinct, estimates, failed, groups, judged, named, one_sided, run,
        sessions, sessions_needed, side,
    },
};
use crate::{experiment::Role, measure::Warning};

/// The spread between sessions (relative standard deviation) that is assumed where it was not measured
/// it: twice what two sessions of a kernel cost typically differ by on the shared virtual machine
/// where bpfcost was made (1.6 %), and less than their worst (19 %).
pub const DEFAULT_SESSION_SPREAD: f64 = 0.03;

/// The default rise of a cost that the gate lets pass, twice what a kernel cost typically moves
/// by between sessions.
const DEFAULT_THRESHOLD: f64 = 0.02;

/// Compares the records of two sides, several a side being sessions of the same.
///
/// `threshold` is the relative rise of a cost that the gate lets pass (0.02 is 2 %). The default is 2 %; 0
/// where all records count instructions; and where all are of workloads, the runs' own margin for "the same".
/// `known_spread` is the spread between sessions of a machine, as a share, where `self-test` measured it
/// since; records also carry their own.
pub fn compare(
    old: &[Record],
    new: &[Record],
    threshold: Option<f64>,
    known_spread: impl Fn(&Machine) -> Option<f64>,
) -> Result<Changes, CompareError> {
    let records = || old.iter().chain(new);
    let threshold = threshold.unwrap_or_else(|| {
        if records().all(|record| record.unit.is_counted()) {
            0.0
        } else if records().all(|record| record.layout.workload().is_some()) {
            records()
                .map(|record| record.asked.margin)
                .fold(0.0, f64::max)
        } else {
            DEFAULT_THRESHOLD
        }
    });
    if !(threshold.is_finite() && threshold >= 0.0) {
        return Err(CompareError::Threshold(threshold));
    }
    let mut warnings = Vec::new();
    let old = distinct(old, "old", &mut warnings)?;
    let new = distinct(new, "new", &mut warnings)?;
    if old
        .iter()
        .any(|one| new.iter().any(|other| run(one) == run(other)))
    {
        warnings.push(Warning::new(
            "same-run",
            "the same run is on both sides; it can't differ from itself".to_owned(),
        ));
    }

    let groups = groups(&old, &new);
    if !groups.iter().any(RecordGroup::is_shared) {
        return Err(CompareError::NothingInCommon(named(&old), named(&new)));
    }
    let mut changes = Changes {
        schema: SCHEMA,
        bpfcost: env!("CARGO_PKG_VERSION").to_owned(),
        threshold,
        gate: Gate::Passed,
        cases: Vec::new(),
        only_old: Vec::new(),
        only_new: Vec::new(),
        warnings,
    };
    let family = groups
        .iter()
        .map(|group| group.names(Role::Case).len())
        .sum();
    for group in &groups {
        let records: Vec<&Record> = group.old.iter().chain(&group.new).copied().collect();
        changes.warnings.extend(compat::compatible(&records)?);
        changes
            .warnings
            .extend(compat::sentinel_moved(&group.old, &group.new));
        group.compare(threshold, family, &known_spread, &mut changes);
    }
    settle(&mut changes);
    Ok(changes)
}

/// Decides the outcomes of all groups as one family, and the gate.
fn settle(changes: &mut Changes) {
    let p_values: Vec<f64> = changes.cases.iter().filter_map(|change| change.p).collect();
    let mut rejected = holm(&p_values, FALSE_ALARM_LEVEL).into_iter();
    let threshold = changes.threshold;
    for change in &mut changes.cases {
        let Some(rejected) = change.p.and_then(|_| rejected.next()) else {
            continue;
        };
        if change.outcome == ChangeOutcome::Same {
            continue;
        }
        change.outcome = beyond(change.relative_ci90, threshold)
            .filter(|_| rejected)
            .unwrap_or(ChangeOutcome::Unresolved);
        if change.outcome != ChangeOutcome::Unresolved {
            change.detectable = None;
        } else if rejected {
            change.note =
                Some("it differs; whether by more than the threshold is unresolved".to_owned());
        }
    }
    let has = |outcome| changes.cases.iter().any(|change| change.outcome == outcome);
    changes.gate = if has(ChangeOutcome::Regressed) {
        Gate::Regressed
    } else if has(ChangeOutcome::Invalid) {
        Gate::Invalid
    } else {
        Gate::Passed
    };
}

/// Which side of ± threshold the interval of a cost wholly lies on.
fn beyond(interval: Option<[f64; 2]>, threshold: f64) -> Option<ChangeOutcome> {
    let [low, high] = interval?;
    if low > threshold {
        Some(ChangeOutcome::Regressed)
    } else if high < -threshold / (1.0 + threshold) {
        // As much less as the threshold is more: 1 / (1 + t) − 1.
        Some(ChangeOutcome::Improved)
    } else {
        None
    }
}

impl RecordGroup<'_> {
    /// Whether instructions were counted.
    fn counts(&self) -> bool {
        let mut records = self.new.iter().chain(&self.old);
        records.all(|record| record.unit.is_counted())
    }

    /// Adds the outcomes of this group; those beyond `same` and `invalid` are decided later.
    fn compare(
        &self,
        threshold: f64,
        family: usize,
        known_spread: &impl Fn(&Machine) -> Option<f64>,
        changes: &mut Changes,
    ) {
        let mut matched = Vec::new();
        for name in self.names(Role::Case) {
            let (old, new) = (sessions(&self.old, &name), sessions(&self.new, &name));
            if let Some(problem) = failed(&self.new, &name) {
                changes.cases.push(Change {
                    outcome: ChangeOutcome::Invalid,
                    old: side(&old),
                    note: Some(problem),
                    ..self.blank(&name)
                });
            } else if !old.is_empty() && !new.is_empty() {
                matched.push((name, old, new));
            } else if !new.is_empty() {
                changes.only_new.push(one_sided(&self.new, &self.old, name));
            } else if !old.is_empty() {
                changes.only_old.push(one_sided(&self.old, &self.new, name));
            }
        }
        if self.counts() {
            let change = |(name, old, new): &(String, Vec<_>, Vec<_>)| {
                let (outcome, relative) = exact::change(&costs(old), &costs(new), threshold);
                Change {
                    outcome,
                    old: side(old),
                    new: side(new),
                    relative,
                    basis: Some(ChangeBasis::Counts),
                    ..self.blank(name)
                }
            };
            changes.cases.extend(matched.iter().map(change));
            return;
        }
        if self.are_of_a_workload() {
            let names: Vec<String> = matched.into_iter().map(|(name, ..)| name).collect();
            let (added, warning) = self.overhead_difference(&names, threshold, family);
            changes.cases.extend(added);
            changes.warnings.extend(warning);
            return;
        }
        let (spread, spread_known) = self.spread(known_spread);
        let judged = self.judge(&matched, spread, threshold, family);
        if judged
            .iter()
            .any(|(_, comparison)| comparison.basis == StatsBasis::Widened)
        {
            changes
                .warnings
                .push(self.caption(spread, spread_known, family));
        }
        changes
            .cases
            .extend(judged.into_iter().map(|(change, _)| change));
        changes
            .warnings
            .extend(self.floors(spread, threshold, family));
    }

    fn judge(
        &self,
        matched: &[(String, Vec<&CaseRecord>, Vec<&CaseRecord>)],
        spread: f64,
        threshold: f64,
        family: usize,
    ) -> Vec<(Change, SessionComparison)> {
        let sides: Vec<Sides> = matched
            .iter()
            .map(|(_, old, new)| {
                judged(
                    estimates(&costs(old)),
                    estimates(&costs(new)),
                    spread,
                    family,
                )
            })
            .collect();
        let policy = Policy {
            margin: threshold,
            budget: None,
            sense: Sense::Cost,
        };
        let comparisons = judge_sessions(&sides, 0.0, &policy);
        matched
            .iter()
            .zip(comparisons)
            .map(|((name, old, new), comparison)| {
                (self.change(name, old, new, &comparison), comparison)
            })
            .collect()
    }

    pub(super) fn change(
        &self,
        name: &str,
        old: &[&CaseRecord],
        new: &[&CaseRecord],
        comparison: &SessionComparison,
    ) -> Change {
        let (old, new) = (side(old), side(new));
        let plain = old.zip(new).map(|(old, new)| new.value / old.value - 1.0);
        let detectable = match comparison.verdict {
            StatsVerdict::Unresolved { detectable } => detectable,
            _ => None,
        };
        let has_interval = comparison.relative.is_some();
        Change {
            outcome: match comparison.verdict {
                StatsVerdict::Same { .. } => ChangeOutcome::Same,
                _ => ChangeOutcome::Unresolved,
            },
            old,
            new,
            relative: comparison
                .relative
                .map(|e| e.value)
                .or(plain)
                .filter(|v| v.is_finite()),
            relative_ci95: comparison.relative.map(|e| [e.low, e.high]),
            relative_ci90: comparison.relative90.map(|i| [i.low, i.high]),
            p: has_interval.then_some(comparison.p),
            basis: has_interval.then_some(match comparison.basis {
                StatsBasis::Sessions { .. } => ChangeBasis::Sessions,
                StatsBasis::Widened => ChangeBasis::Widened,
            }),
            detectable: detectable
                .map(|share| share * 100.0)
                .filter(|v| v.is_finite()),
            note: (!has_interval).then(|| {
                "too few epochs on a side for an interval; let the run end by itself".to_owned()
            }),
            ..self.blank(name)
        }
    }

    /// A change of which only the names are known.
    fn blank(&self, name: &str) -> Change {
        let records = || self.new.iter().chain(&self.old);
        let group = records().find_map(|record| Some(record.case(name)?.group.clone()));
        let group = group.unwrap_or_default();
        let blank = |record: &&Record| Change {
            experiment: record.experiment.clone(),
            target: record.target.clone(),
            unit: record.unit,
            case: name.to_owned(),
            group,
            ..Change::default()
        };
        records().next().map(blank).unwrap_or_default()
    }

    /// The spread between sessions of this group, and whether anybody measured it: the largest of
    /// what the records say, what is known of their machines, and what several records of a side
    /// show.
    fn spread(&self, known_spread: &impl Fn(&Machine) -> Option<f64>) -> (f64, bool) {
        let records = || self.old.iter().chain(&self.new);
        let recorded = records().filter_map(|record| record.spread.session.map(|p| p / 100.0));
        let measured = records().filter_map(|record| known_spread(&record.machine));
        let shown = [&self.old, &self.new]
            .into_iter()
            .filter_map(|side| spread_between(side.iter().copied()));
        recorded
            .chain(measured)
            .chain(shown)
            .filter(|share| share.is_finite() && *share >= 0.0)
            .reduce(f64::max)
            .map_or((DEFAULT_SESSION_SPREAD, false), |share| (share, true))
    }

    fn caption(&self, spread: f64, spread_known: bool, family: usize) -> Warning {
        let what = self
            .new
            .first()
            .map_or_else(String::new, |record| compat::what(record));
        let percent = spread * 100.0;
        let enough = sessions_needed(family);
        if spread_known {
            Warning::new(
                "sessions",
                format!(
                    "{what}: few records a side, so intervals are widened by the spread between sessions here, \
                     {percent:.1} %. {enough} records a side need no widening; cases of one run compare even better"
                ),
            )
        } else {
            Warning::new(
                "session-spread-unknown",
                format!(
                    "{what}: the spread between sessions on this machine is unknown; {percent:.0} % is assumed. \
                     Measure it with `bpfcost self-test`, or bring {enough} records a side"
                ),
            )
        }
    }

    /// A floor that moved says that the harness or the machine did, not what is measured.
    fn floors(&self, spread: f64, threshold: f64, family: usize) -> Vec<Warning> {
        let matched: Vec<_> = self
            .names(Role::Floor)
            .into_iter()
            .map(|name| {
                let (old, new) = (sessions(&self.old, &name), sessions(&self.new, &name));
                (name, old, new)
            })
            .collect();
        self.judge(&matched, spread, threshold, family)
            .into_iter()
            .filter_map(|(change, _)| {
                beyond(change.relative_ci90, threshold)?;
                let percent = change.relative? * 100.0;
                Some(Warning::new(
                    "floor-moved",
                    format!(
                        "{}: {} of the harness moved by {percent:+.1} %: part of the changes comes from the \
                         machine",
                        change.experiment, change.case
                    ),
                ))
            })
            .collect()
    }
}
