//! Synthetic records of the same cases on other targets: counted under an emulator on one kernel or
//! another, and timed in an emulated guest.

use std::collections::BTreeMap;

use bpfcost_measure::Stop;
use bpfcost_model::{Problem, Role, Unit};
use bpfcost_record::*;

use super::sample_record;

const QEMU: &str = "QEMU 7.2.22, tcg, -cpu max, -icount shift=0,sleep=off";

/// A record of `exact:6.12`.
pub fn old() -> Record {
    counted("exact:6.12", "6.12.107+deb13-amd64", |_, count| count)
}

/// A record of `exact:7.2`: most cases cost some 4 % less, two more, two the same.
pub fn new() -> Record {
    counted("exact:7.2", "7.2.3-amd64", |index, count| match index {
        3 => (count * 1.012).round(),
        12 => (count * 1.31).round(),
        0 | 19 => count,
        index => (count * (0.975 - 0.003 * (index % 11) as f64)).round(),
    })
}

/// As [`new`], with an invalid case and two that can't run there.
pub fn flawed() -> Record {
    let mut record = new();
    let problem = Problem {
        check: "lru misses".to_owned(),
        expected: "0".to_owned(),
        got: "3 of 1,024 operations".to_owned(),
        detail: "the LRU entry was evicted during the trial".to_owned(),
    };
    for (name, status) in [
        ("udp-v6-lru-hit", Status::Invalid),
        ("tcp-v6-ch-diverse", Status::Unsupported),
        ("tcp-v4-lru-warmup", Status::Unsupported),
    ] {
        let case = record.cases.iter_mut().find(|case| case.name == name);
        let case = case.expect("the sample has it");
        (case.status, case.raw, case.net) = (status, None, None);
        match status {
            Status::Invalid => case.problems = vec![problem.clone()],
            _ => case.reason = Some("needs Linux 6.9 (can_loop)".to_owned()),
        }
        record
            .comparisons
            .retain(|pair| pair.case != name && pair.baseline != name);
    }
    record
}

/// A record of a guest whose times are an emulator's: some 20 times those of the host.
pub fn emulated(target: &str, kernel: &str, times: f64) -> Record {
    let mut record = sample_record::sized(14, 3);
    record.target = target.to_owned();
    record.machine.kernel = kernel.to_owned();
    record.machine.emulator = Some("QEMU 7.2.22, tcg, -cpu max".to_owned());
    record.spread.session = None;
    let by = |values: &mut [f64; 2]| values.iter_mut().for_each(|value| *value *= times);
    for case in &mut record.cases {
        case.samples
            .iter_mut()
            .flatten()
            .for_each(|value| *value *= times);
        if let Some(raw) = &mut case.raw {
            for value in [
                &mut raw.value,
                &mut raw.min,
                &mut raw.max,
                &mut raw.p50,
                &mut raw.p90,
                &mut raw.p99,
                &mut raw.stddev,
            ] {
                *value *= times;
            }
            raw.ci95.as_mut().map(by);
            raw.modes.clear();
        }
        if let Some(net) = &mut case.net {
            by(&mut net.bracket);
            net.value = net.value.map(|value| value * times);
            net.ci95.as_mut().map(by);
        }
    }
    record
}

/// A record of an exact target whose counts are what `change` makes of each case's index and count.
pub fn counted(target: &str, kernel: &str, change: impl Fn(usize, f64) -> f64) -> Record {
    let mut record = sample_record::sized(3, 9);
    record.target = target.to_owned();
    record.unit = Unit::InstructionsPerOp;
    record.seconds = 84.0;
    record.stop = Stop::Rounds;
    record.asked.precision = None;
    record.asked.margin = 0.0;
    record.machine.kernel = kernel.to_owned();
    record.machine.kernel_build = "#1 SMP PREEMPT_DYNAMIC Debian".to_owned();
    record.machine.cpu = "QEMU TCG CPU version 2.5+".to_owned();
    record.machine.cpus = 1;
    record.machine.emulator = Some(QEMU.to_owned());
    record.warnings.clear();
    record.spread.session = None;
    record.spread.sentinel = None;
    record.spread.sentinel_drift = None;
    for (index, case) in record.cases.iter_mut().enumerate() {
        recount(index, case, &change);
    }
    let counts: BTreeMap<String, Raw> = record
        .cases
        .iter()
        .filter_map(|case| Some((case.name.clone(), case.raw.clone()?)))
        .collect();
    for pair in &mut record.comparisons {
        let (case, baseline) = (&counts[&pair.case], &counts[&pair.baseline]);
        pair.difference = case.value - baseline.value;
        pair.relative = case.value / baseline.value - 1.0;
        (pair.ci95, pair.relative_ci95) = (None, None);
        (pair.p, pair.detectable, pair.resolve_s) = (1.0, None, None);
        let [low, high] = case.loads.unwrap();
        let [least, most] = baseline.loads.unwrap();
        pair.verdict = match () {
            () if low > most => VerdictRecord::Slower,
            () if high < least => VerdictRecord::Faster,
            () if low == high && least == most => VerdictRecord::Same,
            () => {
                pair.detectable = Some((high - low).max(most - least) / least * 100.0);
                VerdictRecord::Unresolved
            }
        };
    }
    record
}

/// Turns a timed case into a counted one: three loads of nine trials, a timer tick in some.
fn recount(index: usize, case: &mut CaseRecord, change: impl Fn(usize, f64) -> f64) {
    let Some(raw) = &mut case.raw else { return };
    // Amortised costs are not whole, and what hashes differs a little from load to load.
    let whole = (raw.value * 3.5).round().max(6.0);
    let count = match case.name.as_str() {
        "tcp-v4-lru-miss" => whole + 0.38,
        "tcp-v4-lru-warmup" => whole + 0.5,
        _ => whole,
    };
    let count = change(index, count);
    let spread = match (case.role, case.group.as_str()) {
        (Role::Case, "LRU stress") => 2.0,
        _ => 0.0,
    };
    for (load, trials) in case.samples.iter_mut().enumerate() {
        for (trial, value) in trials.iter_mut().enumerate() {
            let tick = if (load + trial + index) % 7 == 6 {
                0.25
            } else {
                0.0
            };
            *value = count + spread * load as f64 / 2.0 + tick;
        }
    }
    let twice = case
        .samples
        .iter()
        .map(|load| load.iter().map(|value| value + 6.0).collect());
    case.secondary = BTreeMap::from([("reset_twice".to_owned(), twice.collect())]);
    *raw = Raw {
        value: count,
        ci95: None,
        loads: Some([count, count + spread]),
        repeats: Some(if spread > 0.0 { 9 } else { 24 }),
        min: count,
        max: count + spread + 0.25,
        p50: count + spread / 2.0,
        p90: count + spread,
        p99: count + spread + 0.25,
        stddev: 0.11 + spread / 2.4,
        cv: (0.11 + spread / 2.4) / count,
        outliers: 3,
        modes: vec![],
        ..raw.clone()
    };
    if let Some(net) = &mut case.net {
        let value = (count - 12.0).max(0.0);
        *net = Net {
            bracket: [value; 2],
            value: Some(value),
            ci95: None,
            distinguishable: value > 0.0,
        };
    }
    if let Some(found) = &mut case.calibration {
        found.ns_per_op = count;
        found.batch = bpfcost_model::Batch((4e5 / count) as u64);
        found.ratio = found.ratio.map(|_| 2.0);
    }
}
