//! Synthetic records of attach types whose parts are known: three types, three bodies, the first two with
//! `bpf_stats` too, and each driver alone. Built as a run builds them.

use std::collections::BTreeMap;

use bpfcost_measure::Plan;
use bpfcost_model::{Case, Grid, Pair, Role, Sizing, Trial, Unit};
use bpfcost_pages::attach::{KERNEL_NS, MISSED, OTHER_FUNCTIONS};
use bpfcost_record::*;

use super::synthetic;

/// Cost of the driver alone.
pub const DRIVER: f64 = 5.0;
/// Cost that `bpf_stats` adds to the empty program.
pub const TAX: f64 = 37.0;
/// Time in the kernel's account for an empty program.
pub const READING: f64 = 30.0;
/// Cost of `bpf_stats` for kprobe/map beyond that.
pub const BEYOND: f64 = 9.0;
/// Attach types with what their mechanism costs.
pub const TYPES: [(&str, f64); 3] = [
    ("tp_btf", 20.0),
    ("kprobe", 150.0),
    ("kprobe.multi-all", 90.0),
];
/// Bodies with what they add.
pub const BODIES: [(&str, f64); 3] = [("empty", 0.0), ("map", 12.0), ("ringbuf-wakeup", 700.0)];

const BATCH: u64 = 1000;

/// A run on the host of so many epochs.
pub fn timed(epochs: usize) -> Record {
    build("host", Unit::NanosPerOp, epochs)
}

/// A run on an exact target: the same costs, as whole numbers.
pub fn counted() -> Record {
    build("exact:6.12", Unit::InstructionsPerOp, 5)
}

/// A case that could not run, by its name.
pub fn without(mut record: Record, names: &[&str]) -> Record {
    for case in &mut record.cases {
        if names.contains(&case.name.as_str()) {
            case.status = Status::Unsupported;
            case.reason = Some("needs CONFIG_FPROBE".into());
            (case.raw, case.net) = (None, None);
            case.samples.iter_mut().for_each(Vec::clear);
        }
    }
    record
}

fn build(target: &str, unit: Unit, epochs: usize) -> Record {
    let plan = plan(target, unit);
    let measured = synthetic::measured(&plan, epochs, Some((BATCH, 100.0)), |case, _, noise| {
        let noise = if unit.is_counted() { 0.0 } else { noise / 2.0 };
        trial(case, noise)
    });
    let machine = Machine {
        kernel: "6.12.107".into(),
        cpu: "a CPU".into(),
        ..Machine::default()
    };
    Record::build(&plan, &measured, "2026-11-22T03:00:00Z", machine)
}

/// A trial of a case, with noise around what its parts make together.
fn trial(case: &Case, noise: f64) -> Trial {
    let factor = |name: &str| case.factors.get(name).map(String::as_str);
    let of = |known: &[(&str, f64)], name: &str| {
        let found = known.iter().find(|(own, _)| Some(*own) == factor(name));
        found.map_or(0.0, |(_, cost)| *cost)
    };
    let body = of(&BODIES, "body");
    let taxed = factor("stats") == Some("on");
    let beyond = match (taxed, case.name.as_str()) {
        (true, "kprobe/map/stats") => BEYOND,
        _ => 0.0,
    };
    let tax = if taxed { TAX } else { 0.0 };
    let value = DRIVER + of(&TYPES, "attach") + body + tax + beyond + noise;
    let mut secondary = BTreeMap::new();
    if taxed {
        secondary.insert(KERNEL_NS.to_owned(), READING + body + noise / 4.0);
    }
    if factor("attach") == Some("kprobe.multi-all") {
        secondary.insert(MISSED.to_owned(), 0.012);
        secondary.insert(OTHER_FUNCTIONS.to_owned(), 3.5);
    }
    Trial {
        value,
        ops: BATCH,
        elapsed_ns: value * BATCH as f64,
        secondary,
        ..Trial::default()
    }
}

fn plan(target: &str, unit: Unit) -> Plan {
    let mut cases = Vec::new();
    let mut pairs = Vec::new();
    for (attach, _) in TYPES {
        for (body, _) in BODIES {
            cases.push(case(attach, body, false));
            if body != "ringbuf-wakeup" {
                cases.push(case(attach, body, true));
            }
            if body != "empty" {
                pairs.push(Pair {
                    case: format!("{attach}/{body}"),
                    baseline: format!("{attach}/empty"),
                    about: "body".into(),
                });
            }
        }
    }
    cases.push(Case {
        name: "none/helper".into(),
        group: "nothing attached".into(),
        factors: [("driver".to_owned(), "helper".to_owned())].into(),
        about: "a call of bpf_get_numa_node_id".into(),
        role: Role::Floor,
        floor: None,
        sizing: Sizing::Calibrated { most: None },
        ..Case::default()
    });
    Plan {
        experiment: "attach".into(),
        target: target.into(),
        settings: BTreeMap::new(),
        unit,
        seed: 7,
        cases,
        layout: Grid::of_events("attach", "body").into(),
        pairs,
        cpus: vec![1],
        precision: None,
        seconds: None,
        patient: false,
        quick: true,
        rounds: Some(3),
        goal_ns: 2e6,
        margin: if unit.is_counted() { 0.0 } else { 0.01 },
        budget: None,
        ..Plan::default()
    }
}

fn case(attach: &str, body: &str, stats: bool) -> Case {
    let factors = [
        ("attach", attach),
        ("body", body),
        ("driver", "helper"),
        ("stats", if stats { "on" } else { "off" }),
    ];
    Case {
        name: format!("{attach}/{body}{}", if stats { "/stats" } else { "" }),
        group: "a call of bpf_get_numa_node_id".into(),
        factors: factors.map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
        about: "what it does".into(),
        role: Role::Case,
        floor: Some("none/helper".into()),
        sizing: Sizing::Calibrated { most: None },
        ..Case::default()
    }
}
