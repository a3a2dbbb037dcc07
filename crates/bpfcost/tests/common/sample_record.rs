//! A synthetic record in the shape of a real `xdp-lb` run: 24 scenarios, an extra case and four
//! floors, with noise, two modes, a long tail, an invalid and an unsupported case. Fixed by its
//! seed. Its intervals are order statistics, near enough for looks; the real ones are computed
//! where records are built.

use std::collections::BTreeMap;

use bpfcost_measure::{Calibration, Stop, Warning};
use bpfcost_model::{Batch, Layout, Problem, Role, Unit};
use bpfcost_record::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Recipe of a case of the sample.
struct Made {
    name: &'static str,
    group: &'static str,
    about: &'static str,
    /// True cost, ns/op.
    cost: f64,
    /// Relative noise of a trial.
    noise: f64,
    floor: Option<&'static str>,
}

const FLOOR_COST: [(&str, f64, &str); 4] = [
    ("floor/none", 1.8, "empty body, no reset"),
    ("floor/strip", 3.4, "empty body, next source"),
    (
        "floor/strip-v4",
        12.6,
        "strip 20 bytes, restore the Ethernet header",
    ),
    (
        "floor/strip-v6",
        13.1,
        "strip 40 bytes, restore the Ethernet header",
    ),
];

#[rustfmt::skip]
const MADE: [Made; 25] = [
    made("tcp-v4-lru-hit", "single flow", "IPv4 TCP, flow in the LRU", 83.14, 0.002, V4),
    made("tcp-v4-ch", "single flow", "IPv4 TCP, VIP bypasses the LRU, consistent hash", 92.26, 0.002, V4),
    made("tcp-v6-lru-hit", "single flow", "IPv6 TCP, flow in the LRU", 82.70, 0.003, V6),
    made("tcp-v6-ch", "single flow", "IPv6 TCP, consistent hash", 106.36, 0.002, V6),
    made("udp-v4-lru-hit", "single flow", "IPv4 UDP, fresh flow in the LRU", 114.65, 0.002, V4),
    made("udp-v6-lru-hit", "single flow", "IPv6 UDP, fresh flow in the LRU", 112.91, 0.002, V6),
    made("tcp-v4v6-lru-hit", "single flow", "IPv4 TCP to an IPv6 real", 81.28, 0.012, V6),
    made("tcp-v4-lru-diverse", "diverse, 4K sources", "4,096 sources, LRU warm", 93.43, 0.004, V4),
    made("tcp-v4-ch-diverse", "diverse, 4K sources", "4,096 sources, consistent hash", 94.92, 0.02, V4),
    made("tcp-v6-lru-diverse", "diverse, 4K sources", "4,096 sources, LRU warm", 89.43, 0.02, V6),
    made("tcp-v6-ch-diverse", "diverse, 4K sources", "4,096 sources, consistent hash", 108.85, 0.002, V6),
    made("udp-v4-lru-diverse", "diverse, 4K sources", "4,096 sources, LRU warm", 126.66, 0.016, V4),
    made("tcp-v4-syn", "TCP flags", "SYN skips the lookup and inserts", 787.6, 0.002, V4),
    made("tcp-v4-rst-miss", "TCP flags", "RST looks up and never inserts", 160.33, 0.007, V4),
    made("tcp-v4-lru-miss", "LRU stress", "16M sources, cold LRU", 855.68, 0.037, V4),
    made("udp-v4-lru-miss", "LRU stress", "16M sources, cold LRU", 854.79, 0.055, V4),
    made("tcp-v4-lru-warmup", "LRU stress", "4,096 sources, cold LRU, 6,500 operations", 534.18, 0.03, V4),
    made("lru-insert-empty", "LRU stress", "insert into an empty table", 275.2, 0.02, V4),
    made("pass-v4-no-vip", "early exits", "unknown IPv4 VIP", 25.8, 0.0015, None),
    made("pass-v6-no-vip", "early exits", "unknown IPv6 VIP", 27.67, 0.002, None),
    made("pass-v4-icmp", "early exits", "ICMP", 5.57, 0.011, None),
    made("pass-non-ip", "early exits", "ARP ethertype", 4.8, 0.02, None),
    made("drop-v4-frag", "early exits", "IPv4 fragment", 4.81, 0.005, None),
    made("drop-v4-options", "early exits", "IPv4 options", 4.82, 0.02, None),
    made("drop-v6-frag", "early exits", "IPv6 fragment", 4.93, 0.019, None),
];

const V4: Option<&str> = Some("floor/strip-v4");
const V6: Option<&str> = Some("floor/strip-v6");

const fn made(
    name: &'static str,
    group: &'static str,
    about: &'static str,
    cost: f64,
    noise: f64,
    floor: Option<&'static str>,
) -> Made {
    Made {
        name,
        group,
        about,
        cost,
        noise,
        floor,
    }
}

/// The comparisons that xdp-lb answers.
const PAIRS: [(&str, &str, &str); 9] = [
    ("tcp-v4-ch", "tcp-v4-lru-hit", "consistent hash against hit"),
    (
        "tcp-v6-ch",
        "tcp-v6-lru-hit",
        "consistent hash against hit, IPv6",
    ),
    ("tcp-v6-lru-hit", "tcp-v4-lru-hit", "IPv6 against IPv4"),
    ("udp-v4-lru-hit", "tcp-v4-lru-hit", "UDP against TCP"),
    (
        "tcp-v4v6-lru-hit",
        "tcp-v4-lru-hit",
        "IPv6 tunnel against IPv4",
    ),
    (
        "tcp-v4-lru-miss",
        "tcp-v4-lru-diverse",
        "miss against hit, many flows",
    ),
    ("tcp-v4-rst-miss", "tcp-v4-syn", "no insert against insert"),
    (
        "udp-v4-lru-miss",
        "tcp-v4-lru-miss",
        "UDP against TCP, cold",
    ),
    ("pass-v4-icmp", "pass-v4-no-vip", "ICMP against unknown VIP"),
];

/// A whole run: 29 cases, 25 epochs of 3 trials; everything valid but what `flaws` adds.
pub fn clean() -> Record {
    sized(25, 3)
}

/// As [`clean`], with `epochs` of `trials`.
pub fn sized(epochs: usize, trials: usize) -> Record {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut cases: Vec<CaseRecord> = MADE
        .iter()
        .map(|made| case(made, epochs, trials, &mut random))
        .collect();
    for (name, cost, about) in FLOOR_COST {
        let made = made(name, "harness floors", about, cost, 0.004, None);
        let mut floor = case(&made, epochs, trials, &mut random);
        floor.role = Role::Floor;
        floor.net = None;
        cases.push(floor);
    }
    let comparisons = PAIRS
        .iter()
        .filter_map(|pair| comparison(pair, &cases))
        .collect();
    Record {
        schema: SCHEMA,
        bpfcost: "0.1.0".to_owned(),
        experiment: "xdp-lb".to_owned(),
        target: "host".to_owned(),
        unit: Unit::NanosPerOp,
        started: "2026-11-21T20:15:00Z".to_owned(),
        seconds: 61.3,
        seed: 7,
        stop: Stop::Time,
        asked: Asked {
            precision: Some(0.01),
            seconds: Some(60.0),
            quick: false,
            cpus: vec![1],
            budget: None,
            margin: 0.01,
        },
        machine: machine(),
        warnings: vec![Warning {
            code: "steal".to_owned(),
            text:
                "the hypervisor took 312 ms of 122 s away while measuring; the intervals include \
                   what that did, a quieter hour narrows them"
                    .to_owned(),
        }],
        cases,
        layout: Layout::default(),
        contends: false,
        waivers: Default::default(),
        comparisons,
        metrics: Vec::new(),
        spread: SpreadRecord {
            sentinel: Some(90.2),
            session: Some(1.6),
            sessions: None,
            undisturbed_sessions: None,
            epoch: 0.9,
            trial: 2.1,
            anchor: None,
            sentinel_drift: Some(0.4),
            noise: None,
            nothing: Default::default(),
        },
    }
}

/// As [`clean`], on a machine with neighbours: all cases but one are known undisturbed.
pub fn undisturbed() -> Record {
    let mut record = clean();
    let cases = record.cases.iter_mut();
    for case in cases.filter(|case| case.name != "tcp-v4-syn") {
        let Some(raw) = &case.raw else { continue };
        let found = |value: f64| value * 1.23;
        case.undisturbed = Some(UndisturbedRecord {
            share: 0.38,
            epochs: case.samples.iter().map(|_| Some(raw.value)).collect(),
            as_found: found(raw.value),
            as_found_ci95: raw.ci95.map(|ends| ends.map(found)),
            as_found_net: case.net.clone(),
        });
    }
    for pair in &mut record.comparisons {
        pair.undisturbed = pair.case != "tcp-v4-syn" && pair.baseline != "tcp-v4-syn";
    }
    record
}

/// As [`clean`], with one invalid case (and its hex diff) and one that can't run.
pub fn flawed() -> Record {
    let mut record = clean();
    let problem = Problem {
        check: "lru misses".to_owned(),
        expected: "0".to_owned(),
        got: "3 of 118,204 operations".to_owned(),
        detail: "the LRU entry was evicted or expired during the trial\n\
                 0000  de ad be ef 00 01 aa bb cc dd ee ff 08 00 45 00\n\
                 0010  00 4c 00 00 00 00 40 04 2c[4c] 0a 0a 02 01 c0 a8\n\
                 \x20                               ^^ expected 4b: low byte of the header checksum"
            .to_owned(),
    };
    spoil(&mut record, "udp-v6-lru-hit", Status::Invalid);
    spoil(&mut record, "tcp-v6-ch-diverse", Status::Unsupported);
    for case in &mut record.cases {
        match case.status {
            Status::Invalid => case.problems = vec![problem.clone()],
            Status::Unsupported => case.reason = Some("needs Linux 6.9 (can_loop)".to_owned()),
            Status::Ok => {}
        }
    }
    record
}

/// Takes a case's result away.
fn spoil(record: &mut Record, name: &str, status: Status) {
    for case in record.cases.iter_mut().filter(|case| case.name == name) {
        case.status = status;
        case.raw = None;
        case.net = None;
    }
    record
        .comparisons
        .retain(|pair| pair.case != name && pair.baseline != name);
}

fn case(made: &Made, epochs: usize, trials: usize, random: &mut Pcg64Mcg) -> CaseRecord {
    let mut normal = move || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    let samples: Vec<Vec<f64>> = (0..epochs)
        .map(|epoch| {
            // Every load has its own luck, and one case falls into two modes.
            let luck = 1.0 + normal() * made.noise * 0.5;
            let mode = if made.name == "tcp-v4v6-lru-hit" && epoch % 5 < 2 {
                1.035
            } else {
                1.0
            };
            (0..trials)
                .map(|_| {
                    let noise = normal();
                    let tail = if noise > 1.6 { noise * noise } else { noise };
                    made.cost * luck * mode * (1.0 + tail * made.noise * 0.6)
                })
                .collect()
        })
        .collect();
    let secondary = samples
        .iter()
        .map(|epoch| epoch.iter().map(|value| value + 1.7).collect())
        .collect();
    let mut raw = raw(&samples);
    if made.name == "tcp-v4v6-lru-hit" {
        let mode = |value, share| ModeRecord { value, share };
        raw.modes = vec![mode(made.cost, 0.6), mode(made.cost * 1.035, 0.4)];
    }
    let harness = FLOOR_COST
        .iter()
        .find(|floor| Some(floor.0) == made.floor)
        .map_or(1.8, |floor| floor.1);
    let early = made.cost < 6.0;
    let (low, high) = match made.floor {
        Some(_) => (raw.value - harness * 3.4, raw.value - harness),
        None => (raw.value - harness - 0.1, raw.value - harness),
    };
    let agree = (high - low) / raw.value < 0.01;
    CaseRecord {
        name: made.name.to_owned(),
        group: made.group.to_owned(),
        about: made.about.to_owned(),
        factors: BTreeMap::from([
            ("scenario".to_owned(), made.name.to_owned()),
            ("group".to_owned(), made.group.to_owned()),
        ]),
        baseline: PAIRS.iter().any(|pair| pair.1 == made.name),
        role: Role::Case,
        floor: Some(made.floor.unwrap_or("floor/none").to_owned()),
        status: Status::Ok,
        problems: vec![],
        reason: None,
        calibration: Some(Calibration {
            batch: Batch((1e7 / made.cost) as u64),
            ns_per_op: made.cost * 1.01,
            ratio: (made.name != "tcp-v4-lru-warmup").then_some(1.9996),
            attempts: 1,
            traced: false,
        }),
        net: Some(Net {
            bracket: [low, high],
            value: agree.then_some(high),
            ci95: raw
                .ci95
                .filter(|_| agree)
                .map(|ci95| ci95.map(|end| end - harness)),
            distinguishable: !early,
        }),
        observed: None,
        not_undisturbed: None,
        own_work: None,
        undisturbed: None,
        samples,
        secondary: BTreeMap::from([("reset_twice".to_owned(), secondary)]),
        slices: vec![],
        secondary_slices: BTreeMap::new(),
        raw: Some(raw),
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Middle and about-95 % ends of some values, by their order.
fn middle(values: &[f64]) -> (f64, Option<[f64; 2]>) {
    let reach = (values.len() as f64).sqrt() * 0.98;
    let half = values.len() as f64 / 2.0;
    let ends = (values.len() >= 6).then(|| {
        [
            values[(half - reach) as usize],
            values[(half + reach) as usize],
        ]
    });
    (values[values.len() / 2], ends)
}

fn raw(samples: &[Vec<f64>]) -> Raw {
    let medians = sorted(
        samples
            .iter()
            .map(|epoch| middle(&sorted(epoch.iter().copied())).0),
    );
    let (value, ci95) = middle(&medians);
    let all = sorted(samples.iter().flatten().copied());
    let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let variance = all.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / all.len() as f64;
    let far = (at(0.75) - at(0.25)) * 3.0;
    Raw {
        epochs: samples.len(),
        trials: all.len(),
        value,
        ci95,
        loads: None,
        repeats: None,
        min: at(0.0),
        max: at(1.0),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        stddev: variance.sqrt(),
        cv: variance.sqrt() / mean,
        outliers: all.iter().filter(|value| **value > at(0.75) + far).count(),
        modes: vec![],
    }
}

fn comparison(pair: &(&str, &str, &str), cases: &[CaseRecord]) -> Option<ComparisonRecord> {
    let medians = |name: &str| -> Option<Vec<f64>> {
        let case = cases.iter().find(|case| case.name == name)?;
        let epochs = case.samples.iter();
        Some(
            epochs
                .map(|epoch| middle(&sorted(epoch.iter().copied())).0)
                .collect(),
        )
    };
    let (case, base) = (medians(pair.0)?, medians(pair.1)?);
    let both = || case.iter().zip(&base);
    let (difference, ci95) = middle(&sorted(both().map(|(case, base)| case - base)));
    let (relative, relative_ci95) = middle(&sorted(both().map(|(case, base)| case / base - 1.0)));
    let verdict = match relative_ci95 {
        Some([low, high]) if low > -0.01 && high < 0.01 => VerdictRecord::Same,
        Some([low, _]) if low > 0.0 => VerdictRecord::Slower,
        Some([_, high]) if high < 0.0 => VerdictRecord::Faster,
        _ => VerdictRecord::Unresolved,
    };
    let open = verdict == VerdictRecord::Unresolved;
    Some(ComparisonRecord {
        case: pair.0.to_owned(),
        baseline: pair.1.to_owned(),
        about: pair.2.to_owned(),
        undisturbed: false,
        difference,
        ci95,
        relative,
        relative_ci95,
        relative_ci90: None,
        totals: None,
        p: if open { 0.31 } else { 0.000_12 },
        verdict,
        detectable: Some(2.3),
        resolve_s: open.then_some(240.0),
        budget_s: None,
        budget: None,
    })
}

fn machine() -> Machine {
    Machine {
        programs: Some("build 0123456789abcdef, can_loop, bpf_ktime_get_ns".to_owned()),
        kernel: "6.18.5".to_owned(),
        kernel_build: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
        cpu: "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".to_owned(),
        cpus: 2,
        features: Vec::new(),
        virtualised: Some("kvm".to_owned()),
        emulator: None,
        clocksource: "tsc".to_owned(),
        governor: None,
        smt: Some(true),
        irq_time: None,
        mitigations: vec![
            "spectre_v1: usercopy/swapgs barriers and __user pointer sanitization".to_owned(),
            "spectre_v2: Enhanced / Automatic IBRS; IBPB conditional".to_owned(),
        ],
        jit: true,
        bpf_stats: false,
        steal_ms: 312.0,
        migrations: 4,
        other_cpu_ms: 1_840.0,
        mhz: None,
        other_tracers: vec!["cgroup_device (14)".to_owned()],
        kernel_bytes: Some(61_000_000),
        user_bytes: Some(38_000_000),
    }
}
