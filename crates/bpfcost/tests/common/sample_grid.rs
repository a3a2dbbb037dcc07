//! Synthetic records of an experiment whose cases span a grid, in the shape of `attach`: counted on three
//! kernels and timed on a host. Cells are there, missing, invalid, unable to run, and with more values than
//! one.

use std::collections::BTreeMap;

use bpfcost_measure::Calibration;
use bpfcost_model::{Batch, Grid, Problem, Role};
use bpfcost_record::*;

use super::{sample_exact, sample_record};

/// A way to attach: its name, its driver, instructions of an empty program, the first kernel that has it.
type Way = (&'static str, &'static str, f64, (u32, u32));

#[rustfmt::skip]
const WAYS: [Way; 11] = [
    ("kprobe", "helper", 412.0, (4, 17)),
    ("kprobe.multi", "helper", 371.0, (5, 18)),
    ("kprobe.session", "helper", 598.0, (6, 10)),
    ("kretprobe", "helper", 780.0, (4, 17)),
    ("fentry", "helper", 59.0, (5, 5)),
    ("fexit", "helper", 66.0, (5, 5)),
    ("fsession", "helper", 95.0, (7, 0)),
    ("tp_btf", "kfunc", 57.0, (6, 12)),
    ("tcx", "sendto", 48.0, (6, 6)),
    ("uprobe-nop", "user-nop", 2_904.0, (4, 17)),
    ("uprobe.multi", "user-nop", 3_391.0, (6, 6)),
];

/// A body and what it adds.
const BODIES: [(&str, f64); 5] = [
    ("empty", 0.0),
    ("map", 31.0),
    ("hash", 118.0),
    ("ringbuf", 205.0),
    ("stack", 1_860.0),
];

/// Drivers, and the cost of their event alone.
const DRIVERS: [(&str, f64); 4] = [
    ("helper", 21.0),
    ("kfunc", 27.0),
    ("sendto", 5_120.0),
    ("user-nop", 11.0),
];

/// Loads of a record.
const LOADS: usize = 3;

/// Cost of a case of a kernel beyond its driver; `None` where it can't run.
fn net(version: (u32, u32), way: &Way, body: (&str, f64)) -> Option<f64> {
    let (name, _, empty, since) = *way;
    if version < since {
        return None;
    }
    // From 7.0 on some mechanisms cost less and others more; and one body costs more wherever it runs.
    let times = match (name, version >= (7, 0)) {
        ("kprobe", true) => 0.69,
        ("fentry", true) => 0.88,
        ("uprobe.multi", true) => 1.23,
        ("kprobe.session", true) => 1.12,
        ("fexit", true) => 1.03,
        _ => 1.0,
    };
    let added = match (body.0, version >= (7, 0)) {
        ("ringbuf", true) => body.1 * 1.9,
        _ => body.1,
    };
    Some((empty * times).round() + added.round())
}

/// A record of `exact:6.1`.
pub fn oldest() -> Record {
    counted("exact:6.1", "6.1.0-50-amd64", (6, 1))
}

/// A record of `exact:6.12`.
pub fn old() -> Record {
    counted("exact:6.12", "6.12.107+deb13-amd64", (6, 12))
}

/// A record of `exact:7.2`, with an invalid cell and one that was no part of the run.
pub fn new() -> Record {
    let mut record = counted("exact:7.2", "7.2.13+deb14-amd64", (7, 2));
    let problem = Problem {
        check: "hits".to_owned(),
        expected: "4,096".to_owned(),
        got: "4,095".to_owned(),
        detail: "the program did not run exactly once per event".to_owned(),
    };
    for case in &mut record.cases {
        if case.name == "kretprobe/hash" {
            (case.status, case.raw, case.net) = (Status::Invalid, None, None);
            case.problems = vec![problem.clone()];
        }
    }
    record
        .cases
        .retain(|case| case.name != "uprobe-nop/ringbuf");
    record
}

/// A record of a host that has no kprobes, no trampolines and real clocks.
pub fn host() -> Record {
    let mut record = counted("host", "6.18.5", (6, 18));
    let timed = sample_record::sized(25, 3);
    record.unit = timed.unit;
    record.machine = timed.machine;
    record.asked = timed.asked;
    record.stop = timed.stop;
    record.spread = timed.spread;
    for (index, case) in record.cases.iter_mut().enumerate() {
        let lacks = ["kprobe", "kretprobe", "fentry", "fexit"];
        if lacks.iter().any(|name| case.name.starts_with(name)) {
            unsupported(case, &case.name.clone());
        }
        let wobble = 0.002 + 0.001 * (index % 4) as f64;
        if let Some(raw) = &mut case.raw {
            let value = raw.value / 3.5;
            case.samples = vec![vec![value; 3]; 25];
            *raw = Raw {
                epochs: 25,
                trials: 75,
                value,
                ci95: Some([value * (1.0 - wobble), value * (1.0 + wobble)]),
                loads: None,
                repeats: None,
                ..raw.clone()
            };
        }
        let Some(net) = &mut case.net else { continue };
        let value = net.bracket[0] / 3.5;
        let open = wobble * case.raw.as_ref().map_or(0.0, |raw| raw.value);
        *net = Net {
            bracket: [value; 2],
            value: Some(value),
            ci95: Some([value - open, value + open]),
            distinguishable: value > open,
        };
    }
    record
}

/// Marks a case that a host or an old kernel lacks.
fn unsupported(case: &mut CaseRecord, name: &str) {
    let what = name.split('/').next().unwrap_or_default();
    (case.status, case.raw, case.net) = (Status::Unsupported, None, None);
    case.samples.clear();
    case.reason = Some(format!(
        "this kernel has no {} (needs Linux 4.17 with CONFIG_KPROBE_EVENTS; this is 6.18.5 without it). Run \
         it in a guest: --on exact:6.12 (get that kernel once: bpfcost kernel add trixie)",
        what.split(['.', '-']).next().unwrap_or_default()
    ));
}

fn counted(target: &str, kernel: &str, version: (u32, u32)) -> Record {
    let mut record = sample_exact::counted(target, kernel, |_, count| count);
    record.experiment = "attach".to_owned();
    record.seed = 1;
    record.layout = Grid::of_events("attach", "body").into();
    record.comparisons.clear();
    record.cases.clear();
    for way in &WAYS {
        for body in BODIES {
            record.cases.push(case(version, way, body, false));
            if body.0 == "empty" {
                record.cases.push(case(version, way, body, true));
            }
        }
    }
    for (driver, cost) in DRIVERS {
        record.cases.push(floor(driver, cost));
    }
    record
}

fn case(version: (u32, u32), way: &Way, body: (&str, f64), stats: bool) -> CaseRecord {
    let (name, driver, ..) = *way;
    let harness = DRIVERS.iter().find(|one| one.0 == driver).unwrap().1;
    let tax = if stats { "/stats" } else { "" };
    let mut case = CaseRecord {
        name: format!("{name}/{}{tax}", body.0),
        group: format!("events of {driver}"),
        about: format!("the body {}", body.0),
        factors: BTreeMap::from([
            ("attach".to_owned(), name.to_owned()),
            ("body".to_owned(), body.0.to_owned()),
            ("driver".to_owned(), driver.to_owned()),
            (
                "stats".to_owned(),
                if stats { "on" } else { "off" }.to_owned(),
            ),
        ]),
        floor: Some(format!("none/{driver}")),
        ..floor(driver, 0.0)
    };
    case.role = Role::Case;
    if name == "tcx" && body.0 == "stack" {
        unsupported(&mut case, "tcx");
        case.reason = Some("no kernel offers the stack helper to programs on packets".to_owned());
        return case;
    }
    match net(version, way, body) {
        Some(net) => {
            let net = net + if stats { 74.0 } else { 0.0 };
            // How a stack hashes goes by where the kernel lies.
            let apart = if body.0 == "stack" { 14.0 } else { 0.0 };
            measured(&mut case, net + harness, apart);
            case.net = Some(Net {
                bracket: [net; 2],
                value: Some(net),
                ci95: None,
                distinguishable: true,
            });
        }
        None => {
            unsupported(&mut case, name);
            let (major, minor) = way.3;
            case.reason = Some(format!(
                "this kernel has no {name} (needs Linux {major}.{minor}; this is {}.{}). Run it in a guest: \
                 --on exact:sid (get that kernel once: bpfcost kernel add sid)",
                version.0, version.1
            ));
        }
    }
    case
}

fn floor(driver: &str, cost: f64) -> CaseRecord {
    let mut case = CaseRecord {
        name: format!("none/{driver}"),
        group: "nothing attached".to_owned(),
        about: format!("events of {driver}"),
        factors: BTreeMap::from([("driver".to_owned(), driver.to_owned())]),
        baseline: false,
        role: Role::Floor,
        floor: None,
        status: Status::Ok,
        problems: vec![],
        reason: None,
        calibration: Some(Calibration {
            batch: Batch(4_096),
            ns_per_op: cost,
            ratio: Some(2.0),
            attempts: 1,
            traced: false,
        }),
        samples: vec![],
        secondary: BTreeMap::new(),
        slices: vec![],
        secondary_slices: BTreeMap::new(),
        raw: None,
        net: None,
        observed: None,
        not_undisturbed: None,
        own_work: None,
        undisturbed: None,
    };
    measured(&mut case, cost, 0.0);
    case
}

/// Gives a case its count and its loads, so far apart.
fn measured(case: &mut CaseRecord, count: f64, apart: f64) {
    let load = |load: usize| count + apart * load as f64 / (LOADS - 1) as f64;
    case.samples = (0..LOADS).map(|at| vec![load(at); 3]).collect();
    case.raw = Some(Raw {
        epochs: LOADS,
        trials: 3 * LOADS,
        value: count,
        ci95: None,
        loads: Some([count, count + apart]),
        repeats: Some(3),
        min: count,
        max: count + apart,
        p50: count,
        p90: count + apart,
        p99: count + apart,
        stddev: apart / 2.0,
        cv: apart / 2.0 / count.max(1.0),
        outliers: 0,
        modes: vec![],
    });
}
