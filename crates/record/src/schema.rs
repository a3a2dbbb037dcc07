//! Schema 1 of the record, as JSON on disk, key by key. Wire types only: `run_data.rs`, `judgement.rs` and `net.rs`
//! compute the values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use bpfcost_measure::{Calibration, Stop, Warning};
use bpfcost_model::{Layout, Metric, Problem, Role, Slices, Unit, Waivers};

/// The version that this program writes; it reads this one and older.
pub const SCHEMA: u32 = 1;

/// One run of one experiment on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// Version of that program.
    pub bpfcost: String,
    /// The experiment's name.
    pub experiment: String,
    /// The target that it ran on, e.g. `host`.
    pub target: String,
    /// The unit of every value, unless a key names another one.
    pub unit: Unit,
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// Seconds of measuring, loads included.
    pub seconds: f64,
    /// Decides every order and every packet.
    pub seed: u64,
    /// The reason for which it ended.
    pub stop: Stop,
    /// The options of the run: stopping rules, CPUs, rounds.
    pub asked: Asked,
    /// The machine, and what disturbed it meanwhile.
    pub machine: Machine,
    /// Warnings for readers.
    pub warnings: Vec<Warning>,
    /// The layout of the results.
    #[serde(default, flatten)]
    pub layout: Layout,
    /// True if costs come from CPUs that contend for cache lines: emulated times of such cases mean nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contends: bool,
    /// Safeguards that the experiment gave up.
    #[serde(default, skip_serializing_if = "Waivers::is_empty")]
    pub waivers: Waivers,
    /// Every case, floors included, in the experiment's order.
    pub cases: Vec<CaseRecord>,
    /// The experiment's pairs, where both cases have values.
    pub comparisons: Vec<ComparisonRecord>,
    /// Further values that are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricRecord>,
    /// The spread of values by its sources.
    pub spread: SpreadRecord,
}

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Relative half-width to reach (0.01 is 1 %).
    pub precision: Option<f64>,
    /// Seconds to measure at most.
    pub seconds: Option<f64>,
    /// True if the first look ended it.
    pub quick: bool,
    /// CPUs that ran each case at once.
    pub cpus: Vec<u32>,
    /// Relative cost that a comparison may have.
    pub budget: Option<f64>,
    /// Relative difference below which two cases count as the same.
    pub margin: f64,
}

/// The machine's fingerprint and the disturbances seen while measuring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -v`: distinguishes builds of the same version.
    pub kernel_build: String,
    /// Model name of the CPU.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: u32,
    /// The hypervisor's name, `container`, or null on bare metal.
    pub virtualised: Option<String>,
    /// The emulator, where the machine was a guest of this program's: QEMU's version, the accelerator (`kvm` or `tcg`),
    /// `-cpu`, and the way in which the clock counted.
    #[serde(default)]
    pub emulator: Option<String>,
    /// The clock behind `bpf_ktime_get_ns`.
    pub clocksource: String,
    /// Frequency governor, null where there is none.
    pub governor: Option<String>,
    /// True if sibling threads are on; null where unknown.
    pub smt: Option<bool>,
    /// True if its kernel accounts interrupts by themselves (CONFIG_IRQ_TIME_ACCOUNTING), so that the CPU time of
    /// processes lacks them; absent where unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq_time: Option<bool>,
    /// `NAME: state` of each vulnerability that this CPU has.
    pub mitigations: Vec<String>,
    /// True if the BPF JIT is on.
    pub jit: bool,
    /// `kernel.bpf_stats_enabled` while measuring.
    pub bpf_stats: bool,
    /// The timed programs: their build, their loop and their clock.
    #[serde(default)]
    pub programs: Option<String>,
    /// The BPF features that its kernel has and lacks.
    #[serde(default)]
    pub features: Vec<FeatureRecord>,
    /// Time that the hypervisor took away while measuring, summed over CPUs.
    pub steal_ms: f64,
    /// Moves of this program's measuring threads between CPUs.
    pub migrations: u64,
    /// CPU time that other processes used while measuring, in milliseconds over all CPUs.
    pub other_cpu_ms: f64,
    /// Lowest and highest frequency seen, in MHz, where the kernel reports it.
    pub mhz: Option<[f64; 2]>,
    /// BPF programs that were attached or loaded by others: `type name (id)`.
    pub other_tracers: Vec<String>,
    /// Peak kernel memory of the experiment, in bytes.
    pub kernel_bytes: Option<u64>,
    /// Greatest resident memory of this program, in bytes.
    pub user_bytes: Option<u64>,
}

/// Something of BPF that a kernel has or lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureRecord {
    /// The feature's name, e.g. `kprobe.multi`.
    pub name: String,
    /// The reason for which it is missing; null where it exists.
    pub missing: Option<String>,
}

impl Machine {
    /// Returns whether its times are those of an emulator, which say little of hardware. A clock that counts
    /// instructions gives no times at all.
    pub fn emulates_time(&self) -> bool {
        self.emulator
            .as_deref()
            .is_some_and(|by| by.contains(", tcg") && !by.contains("-icount"))
    }
}

/// One case as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// Unique in its experiment.
    pub name: String,
    /// The heading under which tables show it.
    pub group: String,
    /// The work of one operation, in one line.
    pub about: String,
    /// Factor values by factor name.
    pub factors: BTreeMap<String, String>,
    /// True if others are compared with it.
    pub baseline: bool,
    /// `case`, or `floor` for a part of the harness.
    pub role: Role,
    /// The floor case that holds what the harness costs this one.
    pub floor: Option<String>,
    /// The validity of its numbers.
    pub status: Status,
    /// Failed checks, where `status` is `invalid`.
    pub problems: Vec<Problem>,
    /// The reason for which it is unsupported.
    pub reason: Option<String>,
    /// Facts from its first preparation, in a form of its experiment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<serde_json::Value>,
    /// The calibration of its batch.
    pub calibration: Option<Calibration>,
    /// All trials, by epoch. An epoch in which it has none is empty.
    pub samples: Vec<Vec<f64>>,
    /// Further values by name, shaped as `samples`.
    pub secondary: BTreeMap<String, Vec<Vec<f64>>>,
    /// The slices of each trial whose batch was cut, by epoch; absent if none was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Vec<Slices>>,
    /// The same of further values, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secondary_slices: BTreeMap<String, Vec<Vec<Slices>>>,
    /// As measured; null unless `status` is `ok` and there are trials.
    pub raw: Option<Raw>,
    /// The cost without the floor; null without a floor.
    pub net: Option<Net>,
    /// The reason for which they are not undisturbed, although batches were cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_undisturbed: Option<String>,
    /// Work of its own that it does now and then, so that `raw`, `net` and comparisons are of means: the undisturbed cost
    /// and medians would leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_work: Option<OwnWorkRecord>,
    /// If `raw` and `net` are undisturbed: how that is known, and both as found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undisturbed: Option<UndisturbedRecord>,
}

/// The validity of a case's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Every trial proved itself.
    Ok,
    /// A trial failed its checks; nothing is reported.
    Invalid,
    /// The case can't run on this target.
    Unsupported,
}

/// A case's own value as measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// Epochs with a value, of which there is an interval.
    pub epochs: usize,
    /// Trials over all epochs.
    pub trials: usize,
    /// Hodges–Lehmann estimate over epoch medians, or over their undisturbed values if the case has `undisturbed`; the
    /// mean if it has `own_work`; on exact targets the value on which most trials agree, else the median of a load.
    pub value: f64,
    /// 95 % signed-rank interval over epochs; null with too few of them.
    pub ci95: Option<[f64; 2]>,
    /// Smallest and largest of the per-load values, on exact targets: the spread over loads.
    #[serde(default)]
    pub loads: Option<[f64; 2]>,
    /// Trials that agree on `value`, on exact targets: where it is 0, the cost depends on a state that
    /// differs from batch to batch, and `value` is a median over batches.
    #[serde(default)]
    pub repeats: Option<usize>,
    /// Smallest trial.
    pub min: f64,
    /// Largest trial.
    pub max: f64,
    /// Percentiles of trials, that is of batch means: never the latency of one operation.
    pub p50: f64,
    /// As `p50`.
    pub p90: f64,
    /// As `p50`.
    pub p99: f64,
    /// Standard deviation of trials.
    pub stddev: f64,
    /// Standard deviation of trials over their mean.
    pub cv: f64,
    /// Trials far from the rest; counted, kept.
    pub outliers: usize,
    /// The two groups into which epochs fall, with their shares of the epochs; empty if they are one group.
    pub modes: Vec<ModeRecord>,
}

/// The evidence for the undisturbed cost of a case, and its cost as found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UndisturbedRecord {
    /// The share of the time in which nothing disturbed it, 0 to 1.
    pub share: f64,
    /// The undisturbed value of each epoch; null for an epoch that was disturbed throughout.
    pub epochs: Vec<Option<f64>>,
    /// The cost with everything that slowed it: Hodges–Lehmann estimate over epoch medians.
    pub as_found: f64,
    /// The 95 % signed-rank interval of `as_found`.
    pub as_found_ci95: Option<[f64; 2]>,
    /// The net cost as found.
    pub as_found_net: Option<Net>,
}

/// Work of its own that a case does now and then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnWorkRecord {
    /// The share of slices that it makes longer, 0 to 1.
    pub share: f64,
    /// The same of floors and the anchor, for which neighbours and timer ticks account.
    pub reference_share: f64,
    /// The time of such slices as a multiple of that of usual ones.
    pub times: f64,
    /// The same of floors and the anchor.
    pub reference_times: f64,
}

/// One of two values among which the epochs of a case fall.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeRecord {
    /// The group's median.
    pub value: f64,
    /// The share of the epochs in this group, 0 to 1.
    pub share: f64,
}

/// The cost of a case without the harness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Net {
    /// [raw − reset in context, raw − reset alone], low end first.
    pub bracket: [f64; 2],
    /// One number, where both ends agree within the margin.
    pub value: Option<f64>,
    /// The 95 % interval of `value`, where there is one and enough epochs.
    pub ci95: Option<[f64; 2]>,
    /// True if it is distinguishable from the harness: false where the bracket or its intervals reach 0.
    pub distinguishable: bool,
}

/// A case against its baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonRecord {
    /// The case in question.
    pub case: String,
    /// The case that it is compared with.
    pub baseline: String,
    /// The question, in a few words.
    pub about: String,
    /// True if the undisturbed costs are compared, otherwise those as found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undisturbed: bool,
    /// case − baseline, in the record's unit.
    pub difference: f64,
    /// 95 % interval of `difference`; null with too few epochs.
    pub ci95: Option<[f64; 2]>,
    /// case ∕ baseline − 1.
    pub relative: f64,
    /// 95 % interval of `relative`.
    pub relative_ci95: Option<[f64; 2]>,
    /// 90 % interval of `relative`, where there is a budget: it is judged on this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_ci90: Option<[f64; 2]>,
    /// Two-sided p of the exact signed-rank test over epochs, unadjusted.
    pub p: f64,
    /// The verdict.
    pub verdict: VerdictRecord,
    /// Percent: the effect that would have been seen about three times in four.
    pub detectable: Option<f64>,
    /// Seconds of measuring that would resolve the margin, where the verdict is `unresolved`.
    pub resolve_s: Option<f64>,
    /// Against the run's budget, where there is one.
    pub budget: Option<BudgetVerdict>,
    /// Seconds of measuring that would decide whether it is within the budget, where that is undecided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<f64>,
    /// The same of all windows together, where operations are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TotalsRecord>,
}

/// The ratio of totals of two cases: all that one took by all that it did, against the same of the other. What
/// comes seldom is in it, while `relative` is of typical windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TotalsRecord {
    /// case ∕ baseline − 1.
    pub relative: f64,
    /// The 95 % interval of `relative`.
    pub ci95: [f64; 2],
    /// The 90 % interval of `relative`, on which `same` and the budget are judged beside that of typical windows.
    pub ci90: [f64; 2],
    /// True if it differs from the ratio of typical windows: the 95 % intervals do not meet.
    pub apart: bool,
    /// True if typical windows alone would have a verdict, and the total withholds it: then the verdict is
    /// `unresolved`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

/// A further value that is compared: throughput beside CPU time per operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricRecord {
    /// The metric.
    #[serde(flatten)]
    pub metric: Metric,
    /// The estimates by case; cases without one are left out.
    pub cases: BTreeMap<String, MetricValue>,
    /// The experiment's pairs where both cases have it, judged as one family with all comparisons of the run. `slower` reads as worse;
    /// as more, if neither way is known to be better.
    pub comparisons: Vec<ComparisonRecord>,
}

/// A case's value of a metric, over epoch medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricValue {
    /// Hodges–Lehmann estimate, in the metric's unit.
    pub value: f64,
    /// 95 % signed-rank interval; null with too few epochs.
    pub ci95: Option<[f64; 2]>,
}

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictRecord {
    /// The case costs more.
    Slower,
    /// The case costs less.
    Faster,
    /// Within the margin.
    Same,
    /// The data does not resolve it.
    Unresolved,
}

/// A comparison against a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetVerdict {
    /// Shown to be within.
    #[serde(rename = "within")]
    Within,
    /// Shown to be over.
    #[serde(rename = "over")]
    Over,
    /// The data does not resolve it.
    #[serde(rename = "can't tell")]
    CantTell,
}

/// The spread between the sessions of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionSpreadsRecord {
    /// Sessions of one sitting; null where too few were known.
    pub within: Option<SessionSpreadRecord>,
    /// Sessions of different sittings; null where too few were known.
    pub between: Option<SessionSpreadRecord>,
}

/// A spread that was learnt from sessions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionSpreadRecord {
    /// Relative standard deviation of a session's level, in percent.
    pub percent: f64,
    /// Degrees of freedom of that estimate.
    pub freedom: u32,
}

/// The spread of values by its sources, in percent (medians over cases).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpreadRecord {
    /// The spread between sessions of one sitting, only in records from before `sessions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<f64>,
    /// The spread between sessions, as sessions before this one showed on its machine; absent where too few had been
    /// measured. For a workload, the spread of the ratio to the case without a probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionSpreadsRecord>,
    /// The same of undisturbed costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undisturbed_sessions: Option<SessionSpreadsRecord>,
    /// Between epochs of this run.
    pub epoch: f64,
    /// Between trials of an epoch.
    pub trial: f64,
    /// The cost of the sentinel, in the record's unit: separates the machine's level from that of the cases when
    /// sessions differ.
    #[serde(default)]
    pub sentinel: Option<f64>,
    /// The undisturbed cost of the anchor, additions that a neighbour on the same core slows, as a multiple of the
    /// sentinel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<f64>,
    /// The drift of the sentinel over the run.
    pub sentinel_drift: Option<f64>,
    /// The widest of `nothing`, as an interval. In records without `nothing`: the 95 % interval of each window of off
    /// against the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<[f64; 2]>,
    /// The distance from 0 within which a probe that does nothing reads in 19 of 20 runs, in percent, by the case
    /// without a probe that it would be compared with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nothing: BTreeMap<String, f64>,
}
