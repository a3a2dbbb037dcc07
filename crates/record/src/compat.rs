//! Checks that records can be compared, and lists the conditions that differ.

use std::collections::BTreeMap;

use bpfcost_stats::sample::median;
use thiserror::Error;

use crate::{GateOptions, Machine, Record};
use bpfcost_measure::{Plan, Warning};
use bpfcost_model::{Headline, Role, Unit};

/// The reason for which two sides can't be compared.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CompareError {
    /// Nothing to compare.
    #[error("the {0} side has no record; name a record or a folder of records")]
    NoRecord(&'static str),
    /// The threshold makes no sense.
    #[error("{0} is not a valid threshold; write it like 2%")]
    Threshold(f64),
    /// The rise that must be seen is below the threshold, and would pass.
    #[error(
        "a gate that lets a rise of {} pass can't be asked to see one of {}; raise --must-see, or lower --threshold",
        percent(*.1), percent(*.0)
    )]
    MustSee(f64, f64),
    /// No experiment and target is on both sides.
    #[error("the two sides have nothing in common: old has {0}; new has {1}")]
    NothingInCommon(String, String),
    /// Counted in different units.
    #[error("{0} is counted in different units: {1} and {2}; measure both the same way")]
    Units(String, String, String),
    /// Run on different numbers of CPUs at once.
    #[error(
        "{0} ran on {1} CPUs at once in one record and on {2} in another. More CPUs share caches and change the \
         cost. Measure both with the same --cpus"
    )]
    CpuCount(String, usize, usize),
    /// CPU time of something else, or per something else.
    #[error("{0} is {1} in one record and {2} in another; compare records of the same workload")]
    Workload(String, String, String),
    /// A case of the same name that is another configuration.
    #[error(
        "{what}: {case} was measured with another {factor} ({one}, {other}); measure both sides alike"
    )]
    Factor {
        /// Experiment and target.
        what: String,
        /// The case's name.
        case: String,
        /// The factor's name.
        factor: String,
        /// The factor's value on one side.
        one: String,
        /// The factor's value on the other side.
        other: String,
    },
    /// Short batches against long ones: first touches of cold data weigh otherwise.
    #[error(
        "{0}: one side was measured with --quick, whose shorter batches cost more where data are cold; measure \
         both sides the same way"
    )]
    Quick(String),
    /// CPUs that fight for cache lines, on a machine that has none.
    #[error(
        "{0}: costs come from cache-line contention, which an emulated machine does not have; compare records of \
         hardware, or of guests with KVM"
    )]
    Emulated(String),
    /// Counts of instructions hold for one build of everything.
    #[error(
        "{0}: counts depend on the emulator, the kernel, its mitigations, the build of the programs, the seed and \
         the choice of cases. These differ ({1}); measure both sides in the same guest"
    )]
    Exact(String, String),
}

/// The experiment and target of a record, as errors and warnings name them.
pub(super) fn what(record: &Record) -> String {
    format!("{} on {}", record.experiment, record.target)
}

/// The experiments and targets of a side's records, each once.
pub(super) fn labels(side: &[&Record]) -> String {
    let mut names: Vec<String> = side.iter().map(|record| what(record)).collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

/// The conditions of a measurement, made or planned, that must be the same to compare it.
pub(super) struct Terms<'a> {
    unit: Unit,
    cpus: usize,
    quick: bool,
    seed: u64,
    cases: Vec<&'a str>,
    /// The factors of the cases that are compared. A floor is shared by cases, and has those of the first.
    factors: BTreeMap<&'a str, &'a BTreeMap<String, String>>,
}

impl<'a> Terms<'a> {
    pub(super) fn from_record(record: &'a Record) -> Self {
        Terms {
            unit: record.unit,
            cpus: record.asked.cpus.len(),
            quick: record.asked.quick,
            seed: record.seed,
            cases: record.cases.iter().map(|case| &*case.name).collect(),
            factors: (record.cases.iter())
                .filter(|case| case.role == Role::Case)
                .map(|case| (&*case.name, &case.factors))
                .collect(),
        }
    }

    fn from_plan(plan: &'a Plan) -> Self {
        Terms {
            unit: plan.unit,
            cpus: plan.cpus.len(),
            quick: plan.quick,
            seed: plan.seed,
            cases: plan.cases.iter().map(|case| &*case.name).collect(),
            factors: (plan.cases.iter())
                .filter(|case| case.role == Role::Case)
                .map(|case| (&*case.name, &case.factors))
                .collect(),
        }
    }

    /// Refuses what differs in a way that changes every cost.
    fn agree(&self, other: &Self, what: &str) -> Result<(), CompareError> {
        let what = what.to_owned();
        if self.unit != other.unit {
            let [one, other] = [self.unit, other.unit].map(|unit| unit.to_string());
            return Err(CompareError::Units(what, one, other));
        }
        if self.cpus != other.cpus {
            return Err(CompareError::CpuCount(what, self.cpus, other.cpus));
        }
        if !self.unit.is_counted() && self.quick != other.quick {
            return Err(CompareError::Quick(what));
        }
        // A factor that only one of them has came with another version.
        for (case, factors) in &self.factors {
            let Some(others) = other.factors.get(case) else {
                continue;
            };
            for (factor, one) in *factors {
                if let Some(other) = others.get(factor).filter(|other| *other != one) {
                    return Err(CompareError::Factor {
                        what,
                        case: (*case).to_owned(),
                        factor: factor.clone(),
                        one: one.clone(),
                        other: other.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The choices in which two runs of counts differ, among those that a count depends on.
    pub(super) fn different_choices(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        // The mean over 6 batches of a table's states is another than that over 8.
        if self.quick != other.quick {
            differences.push(format!("quick {} → {}", self.quick, other.quick));
        }
        if self.seed != other.seed {
            differences.push(format!("seed {} → {}", self.seed, other.seed));
        }
        // What ran before leaves its traces in a table, and memcpy() takes its way by where things lie.
        if self.cases != other.cases {
            let (one, other) = (self.cases.len(), other.cases.len());
            differences.push(format!("cases that ran together {one} → {other}"));
        }
        differences
    }
}

/// Checks that a record of this plan could be compared with these, as far as that is known before it is measured.
pub fn comparable(records: &[Record], plan: &Plan, asked: GateOptions) -> Result<(), CompareError> {
    let planned = Terms::from_plan(plan);
    let same =
        |record: &&Record| record.experiment == plan.experiment && record.target == plan.target;
    let shares = |record: &Record| {
        Terms::from_record(record)
            .cases
            .iter()
            .any(|name| planned.cases.contains(name))
    };
    if !records.iter().filter(same).any(shares) {
        let new = format!("{} on {}", plan.experiment, plan.target);
        let old: Vec<&Record> = records.iter().collect();
        return Err(CompareError::NothingInCommon(labels(&old), new));
    }
    for record in records.iter().filter(same) {
        let (what, terms) = (what(record), Terms::from_record(record));
        terms.agree(&planned, &what)?;
        let differs = terms.different_choices(&planned).join("; ");
        if plan.counts() && !differs.is_empty() {
            return Err(CompareError::Exact(what, differs));
        }
    }
    asked.settle(
        plan.counts(),
        plan.layout.times_windows().then_some(plan.margin),
    )?;
    Ok(())
}

/// Checks all records of one experiment and target against the first, and warns of differences.
pub(super) fn compatible(records: &[&Record]) -> Result<Vec<Warning>, CompareError> {
    let Some((first, others)) = records.split_first() else {
        return Ok(Vec::new());
    };
    let what = what(first);
    if records
        .iter()
        .any(|one| one.contends && one.machine.emulates_time())
    {
        return Err(CompareError::Emulated(what));
    }
    let mut differs: Vec<String> = Vec::new();
    let mut versions = vec![first.bpfcost.as_str()];
    let mut other_cpus = false;
    for other in others {
        let (terms, others) = (Terms::from_record(first), Terms::from_record(other));
        terms.agree(&others, &what)?;
        let values = (describe_values(first), describe_values(other));
        if values.0 != values.1 {
            return Err(CompareError::Workload(what, values.0, values.1));
        }
        other_cpus |= other.asked.cpus != first.asked.cpus;
        if !versions.contains(&other.bpfcost.as_str()) {
            versions.push(&other.bpfcost);
        }
        let machines = unlike(&first.machine, &other.machine);
        let mut differences: Vec<String> = machines
            .map(|(name, one, two)| format!("{name} {one} → {two}"))
            .collect();
        if first.unit.is_counted() {
            differences.extend(terms.different_choices(&others));
        }
        for difference in differences {
            if !differs.contains(&difference) {
                differs.push(difference);
            }
        }
    }
    let differs = differs.join("; ");
    if first.unit.is_counted() && !differs.is_empty() {
        return Err(CompareError::Exact(what, differs));
    }
    let warnings = [
        (
            !differs.is_empty(),
            "machine-differs",
            format!(
                "the machines or their settings differ, and the changes include that: {differs}"
            ),
        ),
        (
            first.layout.times_windows(),
            "workload-sessions",
            format!(
                "the comparison is of {}: the share that each probe added within its run. To compare two probes, \
                 or two versions of one, give both to one run of `bpfcost overhead`",
                describe_values(first)
            ),
        ),
        (
            versions.len() > 1,
            "version-differs",
            format!(
                "written by different versions of bpfcost ({}); the harness's part of the cost may have changed",
                versions.join(", ")
            ),
        ),
        (
            other_cpus,
            "cpus-differ",
            "ran on different CPUs of the machine, which may differ in speed".to_owned(),
        ),
    ];
    let issued = warnings.into_iter().filter(|warning| warning.0);
    Ok(issued
        .map(|(_, code, text)| Warning::new(code, format!("{what}: {text}")))
        .collect())
}

/// A description of a record's values: `CPU time of the server per command`.
fn describe_values(record: &Record) -> String {
    match record.layout.workload() {
        None => "not a workload".to_owned(),
        Some(workload) => format!(
            "CPU time of the {} per {}",
            match workload.headline {
                Headline::Server => "server",
                Headline::Machine => "machine",
            },
            workload.operation
        ),
    }
}

/// The relative change between the sides of the sentinel, which shares no code with any case, if it is more than the
/// margin: then the machine changed, and the cases with it.
pub(super) fn sentinel_moved(old: &[&Record], new: &[&Record]) -> Option<(f64, Warning)> {
    let level = |side: &[&Record]| {
        let levels: Vec<f64> = side
            .iter()
            .filter_map(|record| record.spread.sentinel)
            .collect();
        median(&levels)
    };
    let (first, old, new) = (new.first()?, level(old)?, level(new)?);
    let moved = new / old - 1.0;
    (moved.is_finite() && moved.abs() > first.asked.margin).then(|| {
        let warning = Warning::new(
            "sentinel-moved",
            format!(
                "{}: a program that shares no code with any case changed by {:+.1} % too: the machine itself changed, \
                 probably its clock speed. How much of that each case shares is unknown, so intervals between sessions \
                 that were not measured in turn reach from the change as measured to the change without it",
                what(first),
                100.0 * moved
            ),
        );
        (moved, warning)
    })
}

/// The properties in which two machines differ, among those that a cost depends on: name and both values.
pub(super) fn unlike(
    one: &Machine,
    other: &Machine,
) -> impl Iterator<Item = (&'static str, String, String)> {
    let fields = |m: &Machine| {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let on = |value: bool| if value { "on" } else { "off" }.to_owned();
        [
            ("CPU", m.cpu.clone()),
            ("CPUs", m.cpus.to_string()),
            ("kernel", m.kernel.clone()),
            ("kernel build", m.kernel_build.clone()),
            ("hypervisor", text(&m.virtualised)),
            ("emulator", text(&m.emulator)),
            ("clock", m.clocksource.clone()),
            ("governor", text(&m.governor)),
            ("SMT", text(&m.smt.map(on))),
            ("mitigations", m.mitigations.join(", ")),
            ("JIT", on(m.jit)),
            ("bpf_stats", on(m.bpf_stats)),
            ("programs", text(&m.programs)),
        ]
    };
    let pairs = fields(one).into_iter().zip(fields(other));
    let unlike = pairs.filter(|(one, other)| one != other);
    unlike.map(|((name, one), (_, other))| (name, one, other))
}

/// A share in percent, as people write it.
fn percent(share: f64) -> String {
    format!("{} %", (1e4 * share).round() / 100.0)
}
