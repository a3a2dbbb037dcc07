//! The data of a run so far: its events, folded.

use std::collections::BTreeMap;

use bpfcost_stats::Total;
use serde::{Deserialize, Serialize};

use crate::{Event, Plan, Stop, stopping::PRECISION};
use bpfcost_model::{Batch, Problem, Slices};

/// The data of a run so far, built from events alone, live or from a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// One per case of the plan, in its order.
    pub cases: Vec<CaseData>,
    /// The sentinel's values, by epoch.
    pub sentinel: Vec<Vec<f64>>,
    /// The slices of the anchor, by epoch.
    pub anchor: Vec<Vec<Slices>>,
    /// Seconds that loading took, by epoch.
    pub load_s: Vec<f64>,
    /// Seconds of each whole epoch; 0 for one that was cut off.
    pub epoch_s: Vec<f64>,
    /// Seconds that the rounds of each whole epoch took.
    pub rounds_s: Vec<f64>,
    /// The most kernel memory that an epoch held, in bytes.
    pub kernel_bytes: Option<u64>,
    /// Warnings for readers of the result.
    pub warnings: Vec<Warning>,
    /// The reason for which the run ended; `None` while it runs.
    pub stop: Option<Stop>,
}

/// The data of one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseData {
    /// Trials by epoch; an epoch in which the case has no trial is empty.
    pub samples: Vec<Vec<f64>>,
    /// Further values by name, shaped as `samples`.
    pub secondary: BTreeMap<String, Vec<Vec<f64>>>,
    /// The slices of each trial whose batch was cut, by epoch.
    pub slices: Vec<Vec<Slices>>,
    /// The same of further values, by name.
    pub secondary_slices: BTreeMap<String, Vec<Vec<Slices>>>,
    /// Operations that were timed, over all trials.
    pub ops: u64,
    /// Failed checks; where there is one, the case is invalid.
    pub problems: Vec<Problem>,
    /// The reason for which it can't run here.
    pub unsupported: Option<String>,
    /// Facts from its first preparation, in a form of its experiment's.
    pub observed: Option<serde_json::Value>,
    /// The batch and how it was found.
    pub calibration: Option<Calibration>,
}

/// The secondary value that counts the operations of a workload's window.
pub const OPS: &str = "ops";

/// Makes a total from the values of trials and their operations.
pub type Summed = fn(&[f64], &[f64]) -> Option<Total>;

impl CaseData {
    /// The totals of these values by epoch. Windows of a workload (`windows`) count by their operations, and have no totals
    /// without; batches of a case have as many operations each, and count alike.
    pub fn totals(&self, values: &[Vec<f64>], summed: Summed, windows: bool) -> Vec<Option<Total>> {
        if !windows {
            let total = |values: &Vec<f64>| summed(values, &vec![1.0; values.len()]);
            return values.iter().map(total).collect();
        }
        let ops = self.secondary.get(OPS).map_or(&[][..], Vec::as_slice);
        let epochs = values.iter().zip(ops);
        epochs.map(|(values, ops)| summed(values, ops)).collect()
    }

    /// Returns whether trials of this case still make sense.
    pub fn live(&self) -> bool {
        self.problems.is_empty() && self.unsupported.is_none()
    }
}

/// The batch size of a case and how it was calibrated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Operations per trial.
    pub batch: Batch,
    /// The cost of one operation while calibrating, in nanoseconds.
    pub ns_per_op: f64,
    /// Time of 2N operations over that of N; `None` for fixed batches.
    pub ratio: Option<f64>,
    /// The number of 2N/N checks.
    pub attempts: u32,
    /// True if instructions are traced, not read from a clock, which rounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traced: bool,
}

/// Something that a reader of the result should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Stable, for programs: `proportionality`, `steal`, …
    pub code: String,
    /// A text for people: the observation, its meaning, and what to do.
    pub text: String,
}

impl Warning {
    /// A warning of that code.
    pub fn new(code: &str, text: impl Into<String>) -> Self {
        Warning {
            code: code.to_owned(),
            text: text.into(),
        }
    }
}

impl Measurements {
    /// Empty measurements of this plan.
    pub fn new(plan: &Plan) -> Self {
        Measurements {
            cases: vec![CaseData::default(); plan.cases.len()],
            ..Measurements::default()
        }
    }

    /// Applies an event. An index that the plan does not have is skipped.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Unsupported { case, reason } => {
                if let Some(data) = self.cases.get_mut(*case) {
                    data.unsupported = Some(reason.clone());
                }
            }
            Event::EpochStarted {
                epoch,
                load_s,
                kernel_bytes,
            } => {
                self.reopen();
                grow(&mut self.load_s, *epoch);
                self.load_s[*epoch] = *load_s;
                self.kernel_bytes = self.kernel_bytes.max(*kernel_bytes);
                grow(&mut self.sentinel, *epoch);
                for data in &mut self.cases {
                    grow(&mut data.samples, *epoch);
                    data.secondary
                        .values_mut()
                        .for_each(|values| grow(values, *epoch));
                }
            }
            Event::Observed { case, facts } => {
                if let Some(data) = self.cases.get_mut(*case) {
                    data.observed = Some(facts.clone());
                }
            }
            Event::Calibrated { case, calibration } => {
                if let Some(data) = self.cases.get_mut(*case) {
                    data.calibration = Some(*calibration);
                }
            }
            Event::Trial {
                epoch, case, trial, ..
            } => {
                if let Some(data) = self.cases.get_mut(*case) {
                    grow(&mut data.samples, *epoch);
                    data.samples[*epoch].push(trial.value);
                    data.ops += trial.ops;
                    keep(&mut data.slices, *epoch, &trial.slices);
                    for (name, slices) in &trial.secondary_slices {
                        let kept = data.secondary_slices.entry(name.clone()).or_default();
                        keep(kept, *epoch, slices);
                    }
                    for (name, value) in &trial.secondary {
                        let values = data.secondary.entry(name.clone()).or_default();
                        grow(values, *epoch);
                        values[*epoch].push(*value);
                    }
                }
            }
            Event::Invalid { case, problem, .. } => {
                if let Some(data) = self.cases.get_mut(*case) {
                    data.problems.push(problem.clone());
                }
            }
            Event::Sentinel {
                epoch,
                value,
                anchor,
            } => {
                keep(&mut self.anchor, *epoch, anchor);
                grow(&mut self.sentinel, *epoch);
                self.sentinel[*epoch].push(*value);
            }
            Event::Warned(warning) => self.warnings.push(warning.clone()),
            Event::EpochFinished {
                epoch,
                seconds,
                rounds_s,
            } => {
                grow(&mut self.epoch_s, *epoch);
                grow(&mut self.rounds_s, *epoch);
                self.epoch_s[*epoch] = *seconds;
                self.rounds_s[*epoch] = *rounds_s;
            }
            Event::Looked { .. } => {}
            Event::Stopped { stop } => self.stop = Some(*stop),
        }
    }

    /// Epochs begun so far; the next one has this number.
    pub fn epochs(&self) -> usize {
        self.load_s.len()
    }

    /// The numbers of the epochs that ended whole: each of them has every live case.
    pub fn whole(&self) -> impl Iterator<Item = usize> {
        (0..self.epoch_s.len()).filter(|&epoch| self.epoch_s[epoch] > 0.0)
    }

    /// Rounds in an epoch: the most trials that a case has there.
    pub fn rounds(&self, epoch: usize) -> usize {
        let trials = |case: &CaseData| case.samples.get(epoch).map_or(0, Vec::len);
        self.cases.iter().map(trials).max().unwrap_or(0)
    }

    /// Seconds of measuring so far, as far as they are known: of an epoch that was cut off, its load.
    pub fn seconds(&self) -> f64 {
        let whole = |epoch: usize| self.epoch_s.get(epoch).copied().unwrap_or(0.0);
        let load = self.load_s.iter().enumerate();
        load.map(|(epoch, load)| load.max(whole(epoch))).sum()
    }

    /// Forgets that the run had ended, and the warnings about its end: it goes on.
    pub fn reopen(&mut self) {
        self.stop = None;
        self.warnings.retain(|warning| warning.code != PRECISION);
    }
}

/// Adds the slices of a trial to those of its epoch, if it has some.
fn keep(epochs: &mut Vec<Vec<Slices>>, epoch: usize, slices: &Slices) {
    if !slices.is_empty() {
        grow(epochs, epoch);
        epochs[epoch].push(slices.clone());
    }
}

/// Makes room for `index`, with empty values.
fn grow<T: Default>(values: &mut Vec<T>, index: usize) {
    if values.len() <= index {
        values.resize_with(index + 1, T::default);
    }
}
