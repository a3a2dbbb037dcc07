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
//! that could be trusted to be small. The gate is blind, which is no pass, if a case has no interval, or has no value
//! on a side that was to measure it (a run that was interrupted, a program that the kernel rejects). A case that is
//! missing from one side altogether does not matter, because people measure parts; it is listed.
//!
//! Counts of instructions have no interval and no p-value: a case has `regressed` where even its
//! cheapest load of the new side costs more than the most expensive of the old one plus the threshold,
//! which is zero there by default.
//!
//! Several records a side are sessions. Where the sides were measured in turn (A B A B …) often enough for the
//! exact two-sample test to show a change among so many cases (4 turns a side for one case, 7 for 24), that test
//! decides. Otherwise the sides count by their means, with intervals widened by the spread between sessions
//! ([`session_spread`](super::session_spread)), and by what the sentinel moved.
//!
//! For workloads, the cost that a probe adds is compared: each run measures it (`overhead_difference.rs`).
//!
//! **What the gate could see.** A gate that passes because nothing could be seen says little. Each comparison knows
//! the rise that would have failed it in about three of four runs, and a gate can be asked to fail where that is
//! more than it must see.

use bpfcost_stats::{
    holm::holm,
    power::FALSE_ALARM_LEVEL,
    session_spread::SessionSpread,
    sessions::{Basis as StatsBasis, SessionComparison, Sides, turns_needed},
    verdict::Verdict as StatsVerdict,
};

use crate::{
    CaseRecord, Change, ChangeBasis, ChangeOutcome, Changes, CompareError, Gate, Record, SCHEMA,
    Status,
    compat::{self, labels},
    exact,
    history::CaseLevels,
    reading::{Reading, in_one_reading},
    record_group::{
        RecordGroup, costs, distinct, first_failure, groups, judge, one_sided, raw_cost, run,
        sessions, side, status_of,
    },
    safeguards,
    session_spread::CaseSpreads,
};
use bpfcost_measure::Warning;
use bpfcost_model::Role;

/// The default rise of a cost that the gate lets pass, twice what a kernel cost typically moves
/// by between sessions.
const DEFAULT_THRESHOLD: f64 = 0.02;

/// The options of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GateOptions {
    /// The relative rise of a cost that it lets pass; 0.02 is 2 %.
    pub threshold: Option<f64>,
    /// The relative rise that it must have been able to see.
    pub must_see: Option<f64>,
}

impl GateOptions {
    /// The threshold, given whether instructions are counted, and the margin of workloads. It must let less pass than what
    /// must be seen.
    pub(super) fn settle(self, counts: bool, margin: Option<f64>) -> Result<f64, CompareError> {
        let default = match (counts, margin) {
            (true, _) => 0.0,
            (false, Some(margin)) => margin,
            (false, None) => DEFAULT_THRESHOLD,
        };
        let threshold = self.threshold.unwrap_or(default);
        if !(threshold.is_finite() && threshold >= 0.0) {
            return Err(CompareError::Threshold(threshold));
        }
        match self.must_see.filter(|share| *share <= threshold) {
            Some(must_see) => Err(CompareError::MustSee(must_see, threshold)),
            None => Ok(threshold),
        }
    }
}

/// Compares the records of two sides, several a side being sessions of the same.
///
/// `threshold` is the relative rise of a cost that the gate lets pass (0.02 is 2 %). The default is 2 %; 0
/// where all records count instructions; and where all are of workloads, the runs' own margin for "the same".
/// `must_see` is the rise that the gate must have been able to see in about three of four runs; without it,
/// it passes whatever it could see.
/// `history` is what the machine of a record measured in other sessions of its kind, in a reading: of each case.
pub fn compare(
    old: &[Record],
    new: &[Record],
    asked: GateOptions,
    history: impl Fn(&Record, Reading) -> Vec<CaseLevels>,
) -> Result<Changes, CompareError> {
    let records = || old.iter().chain(new);
    let counts = records().all(|record| record.unit.is_counted());
    let of_workloads = records().all(|record| record.layout.times_windows());
    let margins = records().map(|record| record.asked.margin);
    let threshold = asked.settle(counts, of_workloads.then(|| margins.fold(0.0, f64::max)))?;
    let must_see = asked.must_see;
    let one_reading = in_one_reading([old, new]);
    let (old, new) = one_reading.as_ref().map_or((old, new), |([old, new], _)| {
        (old.as_slice(), new.as_slice())
    });
    let mut warnings: Vec<Warning> = one_reading
        .iter()
        .map(|(_, warning)| warning.clone())
        .collect();
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
        return Err(CompareError::NothingInCommon(labels(&old), labels(&new)));
    }
    let mut changes = Changes {
        schema: SCHEMA,
        bpfcost: env!("CARGO_PKG_VERSION").to_owned(),
        threshold,
        must_see,
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
        changes.warnings.extend(safeguards::lacking(&records));
        group.compare(threshold, family, &history, &mut changes);
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
        if rejected && change.outcome == ChangeOutcome::Unresolved {
            change.note =
                Some("it differs; whether by more than the threshold is unresolved".to_owned());
        }
    }
    for change in &mut changes.cases {
        if change.outcome != ChangeOutcome::Unresolved {
            change.detectable = None;
        }
    }
    changes.gate = changes.decide_gate();
}

/// The outcome if the interval of a cost lies wholly beyond ± threshold, or `None`.
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

/// The true rise at which the whole 90 % interval lies above the threshold in three of four runs, where it reaches
/// from a change down to `low`.
fn gate_sees(change: f64, low: f64, threshold: f64) -> f64 {
    /// The quantile that POWER is, in half-widths of a 90 % interval of the normal distribution: 0.674 ∕ 1.645.
    const POWER_IN_REACHES: f64 = 0.410;
    let reach = change.ln_1p() - low.ln_1p();
    (threshold.ln_1p() + (1.0 + POWER_IN_REACHES) * reach).exp_m1()
}

impl RecordGroup<'_> {
    /// Returns whether instructions were counted.
    pub(super) fn counts(&self) -> bool {
        self.records().all(|record| record.unit.is_counted())
    }

    /// Adds the outcomes of this group; those beyond `same` and `invalid` are decided later.
    fn compare(
        &self,
        threshold: f64,
        family: usize,
        history: &impl Fn(&Record, Reading) -> Vec<CaseLevels>,
        changes: &mut Changes,
    ) {
        let mut matched = Vec::new();
        for name in self.names(Role::Case) {
            let (old, new) = (sessions(&self.old, &name), sessions(&self.new, &name));
            if let Some(problem) = first_failure(&self.new, &name) {
                changes.cases.push(Change {
                    outcome: ChangeOutcome::Invalid,
                    old: side(&old),
                    note: Some(problem),
                    ..self.blank(&name)
                });
            } else if !old.is_empty() && !new.is_empty() {
                matched.push((name, old, new));
            } else if !new.is_empty() {
                // What could not run is new, and what failed may be repaired: neither has a cost to rise from.
                let unjudged = status_of(&self.old, &name) == Some(Status::Ok);
                changes
                    .only_new
                    .push(one_sided(&self.new, &self.old, name, unjudged));
            } else if !old.is_empty() {
                let unjudged = status_of(&self.new, &name).is_some();
                changes
                    .only_old
                    .push(one_sided(&self.old, &self.new, name, unjudged));
            }
        }
        if self.counts() {
            let change = |(name, old, new): &(String, Vec<_>, Vec<_>)| {
                let (old_costs, new_costs) = (costs(old), costs(new));
                let (outcome, relative) = exact::change(&old_costs, &new_costs, threshold);
                let ranges = exact::widest(&old_costs) + exact::widest(&new_costs);
                Change {
                    outcome,
                    gate_sees: Some(100.0 * (threshold + ranges)),
                    old: side(old),
                    new: side(new),
                    relative,
                    basis: (exact::range(&old_costs).zip(exact::range(&new_costs)))
                        .map(|_| ChangeBasis::Counts),
                    ..self.blank(name)
                }
            };
            changes.cases.extend(matched.iter().map(change));
            return;
        }
        let spreads =
            Reading::ALL.map(|reading| CaseSpreads::new([&self.old, &self.new], reading, history));
        let names: Vec<String> = matched.into_iter().map(|(name, ..)| name).collect();
        let judged = if self.are_of_a_workload() {
            let (judged, warning) =
                self.overhead_difference(&names, &spreads[0], threshold, family);
            changes.warnings.extend(warning);
            judged
        } else {
            let moved = compat::sentinel_moved(&self.old, &self.new);
            let machine = moved.as_ref().map_or(0.0, |(share, _)| *share);
            changes.warnings.extend(moved.map(|(_, warning)| warning));
            let sides = |name: &str| Sides {
                machine,
                ..self.raw_sides(name, &spreads)
            };
            self.changes(&names, sides, threshold, family)
        };
        changes.warnings.extend(self.captions(&judged, family));
        changes
            .warnings
            .extend(self.floors(&spreads, threshold, family));
        changes
            .cases
            .extend(judged.into_iter().map(|(change, _)| change));
    }

    /// The reading of a case that is compared: the same in all records.
    fn reading(&self, name: &str) -> Reading {
        let mut cases = self.new.iter().filter_map(|record| record.case(name));
        cases.next().map_or(Reading::AsFound, CaseRecord::reading)
    }

    /// The sessions of a case on both sides by its costs as measured, on a machine that did not move.
    fn raw_sides(&self, name: &str, spreads: &[CaseSpreads; 2]) -> Sides {
        let spreads = spreads[self.reading(name) as usize].case(name);
        self.sides(name, spreads, |_, record| raw_cost(record, name))
    }

    /// The changes of cases that both sides have, as far as each can be judged by itself.
    pub(super) fn changes(
        &self,
        names: &[String],
        sides: impl Fn(&str) -> Sides,
        threshold: f64,
        family: usize,
    ) -> Vec<(Change, StatsBasis)> {
        let sides: Vec<Sides> = names.iter().map(|name| sides(name)).collect();
        let comparisons = judge(&sides, family, threshold);
        let change = |(name, comparison): (&String, SessionComparison)| {
            let change = self.change(name, &comparison, threshold);
            (change, comparison.basis)
        };
        names.iter().zip(comparisons).map(change).collect()
    }

    fn change(&self, name: &str, comparison: &SessionComparison, threshold: f64) -> Change {
        let [old, new] = [&self.old, &self.new].map(|records| side(&sessions(records, name)));
        let plain = old.zip(new).map(|(old, new)| new.value / old.value - 1.0);
        let detectable = comparison.detectable.filter(|share| share.is_finite());
        let has_interval = comparison.relative.is_some();
        Change {
            outcome: match comparison.verdict {
                StatsVerdict::Same { .. } => ChangeOutcome::Same,
                _ => ChangeOutcome::Unresolved,
            },
            undisturbed: self.reading(name) == Reading::Undisturbed,
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
                StatsBasis::Turns { .. } => ChangeBasis::Sessions,
                StatsBasis::Widened(_) => ChangeBasis::Widened,
            }),
            detectable: detectable.map(|share| share * 100.0),
            gate_sees: comparison
                .relative
                .zip(comparison.relative90)
                .zip(detectable)
                .map(|((change, interval), detectable)| {
                    100.0 * gate_sees(change.value, interval.low, threshold).max(detectable)
                }),
            note: (!has_interval).then(|| {
                "too few epochs on a side for an interval; let the run end by itself".to_owned()
            }),
            ..self.blank(name)
        }
    }

    /// A change of which only the names are known.
    fn blank(&self, name: &str) -> Change {
        let mut groups = self
            .records()
            .filter_map(|record| Some(&record.case(name)?.group));
        let group = groups.next().cloned().unwrap_or_default();
        let blank = |record: &Record| Change {
            experiment: record.experiment.clone(),
            target: record.target.clone(),
            unit: record.unit,
            case: name.to_owned(),
            group,
            ..Change::default()
        };
        self.records().next().map(blank).unwrap_or_default()
    }

    /// Warnings about the spread that widened the intervals, with a way to narrower ones; none where no interval is
    /// widened.
    fn captions(&self, judged: &[(Change, StatsBasis)], family: usize) -> Vec<Warning> {
        let widest = judged
            .iter()
            .filter(|(change, _)| change.p.is_some())
            .filter_map(|(_, basis)| match basis {
                StatsBasis::Widened(spread) => Some(*spread),
                StatsBasis::Turns { .. } => None,
            })
            // That something is assumed is what people must know first.
            .max_by(|a, b| {
                let assumed = a.freedom.is_none().cmp(&b.freedom.is_none());
                assumed.then(a.share.total_cmp(&b.share))
            });
        let Some(SessionSpread { share, freedom }) = widest else {
            return Vec::new();
        };
        let what = self.records().next().map_or_else(String::new, compat::what);
        let (of_probes, self_test) = if self.are_of_a_workload() {
            (", more for a probe that adds more than 5 %", "")
        } else {
            ("", ", and `bpfcost self-test`")
        };
        let percent = share * 100.0;
        let needed = turns_needed(family);
        let in_turn = format!("{needed} records per side in turn (A B A B)");
        let mut captions = vec![match freedom {
            Some(freedom) => Warning::new(
                "sessions",
                format!(
                    "{what}: the intervals include the spread between sessions here, up to {percent:.1} % (estimated \
                     with {freedom} degrees of freedom). {in_turn} need no such estimate; cases of one run compare even \
                     better"
                ),
            ),
            None => Warning::new(
                "session-spread-unknown",
                format!(
                    "{what}: too few sessions of this machine are known to estimate their spread; up to {percent:.0} % \
                     is assumed{of_probes}. Measure {in_turn}; or run more sessions: each run on this machine \
                     counts{self_test}",
                ),
            ),
        }];
        let records = self.old.len().min(self.new.len());
        if records >= needed {
            captions.push(Warning::new(
                "not-in-turn",
                format!(
                    "{what}: {records} records a side would be enough, but they were not measured in turn, so that \
                     a change of the machine would affect one side only. Measure A B A B"
                ),
            ));
        }
        captions
    }

    /// A floor that moved says that the harness or the machine did, not what is measured.
    fn floors(&self, spreads: &[CaseSpreads; 2], threshold: f64, family: usize) -> Vec<Warning> {
        let names = self.names(Role::Floor);
        let sides = |name: &str| self.raw_sides(name, spreads);
        self.changes(&names, sides, threshold, family.max(names.len()))
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
