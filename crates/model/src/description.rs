//! The description of an experiment: its name, question and factors, and how it is run and shown.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Layout, Metric};

/// The description of an experiment: plain data, made without privilege or side effects. `list` and `--dry-run` answer
/// from it, and a plan keeps the parts that views need.
#[derive(Clone, Debug)]
pub struct Description {
    /// The name on the command line, e.g. `xdp-lb`.
    pub name: String,
    /// The question in one line, for `bpfcost list`.
    pub about: String,
    /// Factor names and what each of them means, for `bpfcost list EXPERIMENT`.
    pub factors: Vec<(String, String)>,
    /// The subject of a run, as far as the experiment's name does not say it.
    pub subject: Subject,
    /// The layout of the results.
    pub layout: Layout,
    /// Further values of its trials that are compared as the main one is.
    pub metrics: Vec<Metric>,
    /// The relative difference below which two cases count as the same (METHODOLOGY: 0.01 for kernel costs).
    pub margin: f64,
    /// The time of loads and trials beside the batch itself, for forecasts alone.
    pub overhead: Overhead,
    /// The factor whose values are run next to each other in a round, where the others make a difference that takes
    /// time to settle: a probe goes on and off while the size of a request stays.
    pub adjacent: Option<String>,
    /// The number of rounds of an epoch, an odd number; `None` leaves it to the engine.
    pub rounds: Option<u32>,
    /// True if it takes the privilege to load BPF programs.
    pub privileged: bool,
    /// True if it asks the kernel for programs of other processes, their runs and their links, which takes
    /// CAP_SYS_ADMIN.
    pub observes_others: bool,
    /// True if it starts programs of the machine or reads its files. A guest has the files of the host then, which takes
    /// it longer to boot.
    pub host_files: bool,
    /// True if it has the instructions recorded that an emulated target executes.
    pub traces: bool,
    /// True if it measures contention between CPUs. Then it runs on all CPUs that it may use unless some are named, and
    /// on no target that has only one.
    pub every_cpu: bool,
    /// True if it can run where instructions are counted, on one CPU whose clock leaps while it waits.
    pub counts: bool,
    /// True if costs come from CPUs that contend for cache lines. An emulated machine has no such contention, so its
    /// times for such cases mean nothing, not even which of two is slower.
    pub contends: bool,
    /// The most CPUs that `--cpus` may name; `None` where there is no limit.
    pub most_cpus: Option<usize>,
    /// Safeguards that it gives up.
    pub waivers: Waivers,
}

impl Description {
    /// An experiment with this name, question and factors, and all else as most have it.
    pub fn new(name: &str, about: &str, factors: &[(&str, &str)]) -> Self {
        let owned = |(name, about): &(&str, &str)| ((*name).to_owned(), (*about).to_owned());
        Description {
            name: name.to_owned(),
            about: about.to_owned(),
            factors: factors.iter().map(owned).collect(),
            subject: Subject::default(),
            layout: Layout::default(),
            metrics: Vec::new(),
            margin: 0.01,
            overhead: Overhead::default(),
            adjacent: None,
            rounds: None,
            privileged: true,
            observes_others: false,
            host_files: false,
            traces: false,
            every_cpu: false,
            counts: true,
            contends: false,
            most_cpus: None,
            waivers: Waivers::default(),
        }
    }
}

/// Safeguards that an experiment gives up, each with the reason in a sentence without its full stop. Records, reports
/// and comparisons show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waivers {
    /// Reason to measure without a [`Sentinel`](crate::Sentinel).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentinel: Option<String>,
    /// Reason to record nothing of the programs that are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<String>,
}

impl Waivers {
    /// Whether nothing is given up.
    pub fn is_empty(&self) -> bool {
        *self == Waivers::default()
    }
}

/// The subject of a run, as far as its experiment's name does not say it. A plan holds it whole, and only its experiment
/// reads it: so a guest and a resumed run have the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The programs that the experiment brings.
    #[default]
    BuiltIn,
    /// A workload, and probes beside it.
    Workload(Value),
    /// A person's own programs.
    OwnPrograms(Value),
    /// A person's own programs at their hooks.
    HookedPrograms(Value),
}

impl Subject {
    /// True for a workload.
    pub fn is_workload(&self) -> bool {
        matches!(self, Subject::Workload(_))
    }

    /// A workload.
    pub fn workload(definition: &impl Serialize) -> Self {
        Subject::Workload(data(definition))
    }

    /// A person's own programs.
    pub fn own_programs(programs: &impl Serialize) -> Self {
        Subject::OwnPrograms(data(programs))
    }

    /// A person's own programs at their hooks.
    pub fn hooked_programs(programs: &impl Serialize) -> Self {
        Subject::HookedPrograms(data(programs))
    }
}

/// Plain data can be written.
fn data(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("plain data")
}

/// The time of loads and trials beside the batch itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// Seconds of a load, preparation and unload included.
    pub load_s: f64,
    /// Seconds of a trial beside its batches.
    pub trial_s: f64,
    /// Batches in a trial: the timed one, and those around it.
    pub batches: f64,
}

impl Default for Overhead {
    fn default() -> Self {
        Overhead {
            load_s: 0.1,
            trial_s: 0.001,
            batches: 1.0,
        }
    }
}
