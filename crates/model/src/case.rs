//! A case: one configuration of an experiment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One configuration of an experiment: a name plus factor values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Unique in its experiment; globs on the command line pick by it.
    pub name: String,
    /// The heading under which tables show it.
    pub group: String,
    /// Factor values by factor name.
    pub factors: BTreeMap<String, String>,
    /// The work of one operation, in one line.
    pub about: String,
    /// The role: measured for its own sake, or as a part of the harness.
    pub role: Role,
    /// The floor case that holds what the harness costs this one.
    pub floor: Option<String>,
    /// The number of operations of a trial.
    pub sizing: Sizing,
    /// Minimum number of loads where instructions are counted; 0 for the default.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loads: usize,
    /// The number of CPUs that it uses at once. An exact target has one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub cpus: u32,
    /// Target length of its batch, in nanoseconds, where it differs from that of other cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_ns: Option<f64>,
    /// True if its cost is traced instruction by instruction, and no clock rounds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traced: bool,
    /// True if `--quick` leaves it out unless it is named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slow: bool,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            name: String::new(),
            group: String::new(),
            factors: BTreeMap::new(),
            about: String::new(),
            role: Role::Case,
            floor: None,
            sizing: Sizing::Calibrated { most: None },
            loads: 0,
            cpus: 1,
            batch_ns: None,
            traced: false,
            slow: false,
        }
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// The role of a case in its experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The thing that the experiment asks about.
    #[default]
    Case,
    /// The cost of the harness itself, for one class of reset.
    Floor,
}

/// The number of operations of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizing {
    /// Found by calibration, at most this many where there is a cap.
    Calibrated {
        /// The largest batch that keeps the trial's own expectations exact.
        most: Option<u64>,
    },
    /// Part of what the case means; no 2N/N check, because its cost is not proportional.
    Fixed(u64),
    /// A window of this many milliseconds, in which other programs do the work: the trial reports the number of
    /// operations.
    Window(u64),
}

/// The number of operations of one trial, or the milliseconds of a window; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Batch(pub u64);

/// A comparison that an experiment answers: `case` against `baseline`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The case in question.
    pub case: String,
    /// The case that it is compared with.
    pub baseline: String,
    /// The question that the pair answers, in a few words ("hit against consistent hash").
    pub about: String,
}

/// A further value of trials, which is compared as the main one is: requests per second beside CPU time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The name among the secondary values of a trial.
    pub name: String,
    /// A description in a few words, for tables.
    pub about: String,
    /// The unit: `op/s`, `us`.
    pub unit: String,
    /// True if more of it is better; `None` if that is unknown, and it merely differs.
    pub more_is_better: Option<bool>,
    /// The relative difference below which two cases have the same of it.
    pub margin: f64,
}
