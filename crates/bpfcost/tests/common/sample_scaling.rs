//! A synthetic record of pools on a machine of 4 CPUs whose curves are known: eight pools with 1 to 16 threads,
//! four of them with other objects, hold and bulk, floors and cache lines. Built as a run builds it.

use std::collections::BTreeMap;

use bpfcost_measure::Plan;
use bpfcost_model::{Case, Layout, Pair, Problem, Role, Scaling, Sizing, Trial, Unit};
use bpfcost_record::*;

use super::synthetic;

/// Pools, with the millions of pairs per second of one thread, and how many times that two, four and sixteen
/// threads do.
pub const POOLS: [(&str, f64, [f64; 3]); 8] = [
    ("freelist", 80.0, [0.45, 0.3, 0.21]),
    ("array", 76.0, [1.9, 3.6, 3.5]),
    ("array-padded", 74.0, [1.95, 3.8, 3.75]),
    ("percpu", 79.0, [1.98, 3.9, 3.7]),
    ("crossbeam-array", 60.0, [0.9, 0.62, 0.4]),
    ("crossbeam-seg", 41.0, [0.8, 0.5, 0.31]),
    ("concurrent", 55.0, [0.85, 0.6, 0.41]),
    ("mutex", 48.0, [0.3, 0.2, 0.13]),
];
/// Numbers of threads.
pub const THREADS: [u32; 4] = [1, 2, 4, 16];
/// CPUs.
pub const CPUS: u32 = 4;
/// Variations of some cases, with what becomes of their rates.
pub const APART: [(&str, f64); 4] = [
    ("objects-1x", 0.8),
    ("objects-4x", 1.05),
    ("hold-100", 0.2),
    ("bulk-4", 1.3),
];
/// Pools that have such cases.
const VARIED: [&str; 4] = ["freelist", "array", "percpu", "crossbeam-array"];

const BATCH: u64 = 100_000;

/// Millions of pairs per second of all threads together.
pub fn rate(pool: &str, threads: u32) -> f64 {
    let (_, one, times) = POOLS.iter().find(|(name, ..)| *name == pool).unwrap();
    match THREADS.iter().position(|count| *count == threads) {
        Some(0) => *one,
        Some(place) => one * times[place - 1],
        None => panic!("no curve has {threads} threads"),
    }
}

/// A run of so many epochs.
pub fn pools(epochs: usize) -> Record {
    build("host", epochs, None)
}

/// The same in an emulated guest: its times say little.
pub fn emulated(epochs: usize) -> Record {
    build("vm:6.12", epochs, Some("QEMU 7.2.22, tcg, -cpu max"))
}

/// One case could not run, one failed its checks, and one curve has none at all.
pub fn flawed(epochs: usize) -> Record {
    let mut record = pools(epochs);
    for case in &mut record.cases {
        let name = case.name.as_str();
        case.status = match name {
            "array/16" => Status::Invalid,
            "line/far" | "percpu/16" => Status::Unsupported,
            _ if name.starts_with("mutex/") => Status::Unsupported,
            _ => continue,
        };
        match case.status {
            Status::Invalid => case.problems = vec![lost()],
            _ => case.reason = Some("this machine has one socket".into()),
        }
        (case.raw, case.net) = (None, None);
    }
    record.comparisons.retain(|pair| {
        let gone = ["array/16", "percpu/16"];
        !gone.contains(&pair.case.as_str()) && !gone.contains(&pair.baseline.as_str())
    });
    record
}

fn lost() -> Problem {
    Problem {
        check: "objects".into(),
        expected: "8, each once".into(),
        got: "7, number 3 is lost".into(),
        detail: String::new(),
    }
}

fn build(target: &str, epochs: usize, emulator: Option<&str>) -> Record {
    let plan = plan(target);
    let measured = synthetic::measured(&plan, epochs, Some((BATCH, 20.0)), |case, _, noise| {
        trial(case, noise)
    });
    let machine = Machine {
        kernel: "6.18.5".into(),
        cpu: "a CPU".into(),
        cpus: CPUS,
        emulator: emulator.map(str::to_owned),
        ..Machine::default()
    };
    Record::build(&plan, &measured, "2026-11-22T06:00:00Z", machine)
}

/// A trial of a case, `noise` percent off.
fn trial(case: &Case, noise: f64) -> Trial {
    let factor = |name: &str| case.factors.get(name).map_or("", String::as_str);
    let threads: u32 = factor("threads").parse().unwrap_or(1);
    let off = 1.0 + noise / 100.0;
    let mut secondary = BTreeMap::new();
    let value = match (case.role, factor("line")) {
        (Role::Floor, _) => 2.5,
        (_, "own") => 5.0,
        (_, "near") => 60.0,
        (_, "far") => 150.0,
        _ => {
            let apart = APART.iter().find(|(name, _)| case.name.ends_with(name));
            let pool = factor("pool");
            let rate = rate(pool, threads) * apart.map_or(1.0, |(_, times)| *times) * off;
            let crowded = threads > CPUS;
            secondary.insert("pairs_per_s".to_owned(), rate * 1e6);
            let scarce = case.name.ends_with("objects-1x") && crowded;
            secondary.insert("misses".to_owned(), if scarce { 0.031 } else { 0.0 });
            let fair = if pool == "mutex" && crowded {
                0.62
            } else {
                0.99
            };
            secondary.insert("fairness".to_owned(), fair);
            let ns = f64::from(threads) / rate * 1e3;
            secondary.insert("latency_p50_ns".to_owned(), ns + 20.0);
            secondary.insert("latency_p99_ns".to_owned(), ns * 4.0 + 20.0);
            secondary.insert("latency_p999_ns".to_owned(), ns * 30.0 + 20.0);
            ns
        }
    };
    Trial {
        value,
        ops: BATCH,
        elapsed_ns: value * BATCH as f64,
        secondary,
        ..Trial::default()
    }
}

fn plan(target: &str) -> Plan {
    let mut cases = Vec::new();
    let mut pairs = Vec::new();
    for threads in THREADS {
        for (pool, ..) in POOLS {
            cases.push(case(pool, threads, ""));
        }
        for pool in ["array", "array-padded", "percpu"] {
            for other in ["crossbeam-array", "freelist"] {
                pairs.push(pair(pool, other, threads));
            }
        }
        pairs.push(pair("array-padded", "array", threads));
        for (apart, _) in APART {
            cases.extend(VARIED.map(|pool| case(pool, threads, apart)));
        }
    }
    cases.extend(["own", "near", "far"].map(line));
    cases.extend(THREADS.map(floor));
    Plan {
        experiment: "pool".into(),
        target: target.into(),
        settings: BTreeMap::new(),
        unit: Unit::NanosPerOp,
        seed: 7,
        cases,
        layout: Layout::from(Scaling {
            over: "threads".into(),
            series: "pool".into(),
            rate: "pairs_per_s".into(),
        }),
        contends: true,
        pairs,
        cpus: (0..CPUS).collect(),
        precision: None,
        seconds: None,
        patient: false,
        quick: true,
        rounds: Some(3),
        goal_ns: 2e6,
        margin: 0.03,
        budget: None,
        ..Plan::default()
    }
}

fn pair(case: &str, baseline: &str, threads: u32) -> Pair {
    Pair {
        case: format!("{case}/{threads}"),
        baseline: format!("{baseline}/{threads}"),
        about: format!("{case} against {baseline}"),
    }
}

fn case(pool: &str, threads: u32, apart: &str) -> Case {
    let varied = |name: &str, usual: &str| {
        let own = apart
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('-'));
        (name.to_owned(), own.unwrap_or(usual).to_owned())
    };
    let mut factors = BTreeMap::from([
        ("pool".to_owned(), pool.to_owned()),
        ("threads".to_owned(), threads.to_string()),
    ]);
    factors.extend([
        varied("objects", "2x"),
        varied("hold", "0"),
        varied("bulk", "1"),
    ]);
    let slash = if apart.is_empty() { "" } else { "/" };
    Case {
        name: format!("{pool}/{threads}{slash}{apart}"),
        group: match threads {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        },
        factors,
        about: format!("pop and push, {threads} at once"),
        role: Role::Case,
        floor: Some(format!("none/{threads}")),
        sizing: Sizing::Calibrated { most: None },
        ..Case::default()
    }
}

fn line(line: &str) -> Case {
    Case {
        name: format!("line/{line}"),
        group: "cache lines".into(),
        factors: BTreeMap::from([("line".to_owned(), line.to_owned())]),
        about: "an atomic change of a line".into(),
        floor: None,
        ..case("array", 1, "")
    }
}

fn floor(threads: u32) -> Case {
    Case {
        name: format!("none/{threads}"),
        group: "harness floors".into(),
        factors: BTreeMap::from([("threads".to_owned(), threads.to_string())]),
        about: "the same loop without a pool".into(),
        role: Role::Floor,
        floor: None,
        ..case("array", threads, "")
    }
}
