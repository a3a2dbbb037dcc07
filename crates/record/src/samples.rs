//! Made-up runs with known answers, for tests.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::{
    CaseRecord, Changes, CompareError, GateOptions, Machine, RESET_TWICE, Raw, Record,
    SessionSpreadRecord, SessionSpreadsRecord, compare,
};
use bpfcost_measure::{Event, Measurements, Plan, Stop, Warning};
use bpfcost_model::{
    ABORTED, Case, Description, Headline, Layout, Metric, OFF, Pair, ProbedWorkload, Role, Sizing,
    Trial, Unit, VARIANT,
};

/// A case without reset: its floor, if any, is the empty loop.
pub fn case(name: &str, role: Role, floor: Option<&str>) -> Case {
    Case {
        name: name.to_owned(),
        group: "group".to_owned(),
        factors: [("scenario".to_owned(), name.to_owned())].into(),
        about: format!("what happens in {name}"),
        role,
        floor: floor.map(str::to_owned),
        sizing: Sizing::Calibrated { most: None },
        ..Case::default()
    }
}

/// Two cases with a pair, their reset's floor and the empty loop.
pub fn plan() -> Plan {
    Plan {
        experiment: "made-up".to_owned(),
        target: "host".to_owned(),
        settings: BTreeMap::new(),
        unit: Unit::NanosPerOp,
        seed: 7,
        cases: vec![
            case("hit", Role::Case, Some("floor/reset")),
            case("miss", Role::Case, Some("floor/reset")),
            case("floor/reset", Role::Floor, Some("floor/none")),
            case("floor/none", Role::Floor, None),
        ],
        pairs: vec![Pair {
            case: "miss".to_owned(),
            baseline: "hit".to_owned(),
            about: "miss against hit".to_owned(),
        }],
        cpus: vec![0],
        precision: Some(0.01),
        seconds: None,
        patient: false,
        quick: false,
        rounds: None,
        goal_ns: 1e7,
        margin: 0.01,
        budget: Some(0.05),
        ..Plan::default()
    }
}

/// A trial of a thousand operations; with the value of a batch in which the reset was done twice.
pub fn trial(value: f64, reset_twice: Option<f64>) -> Trial {
    Trial {
        value,
        ops: 1000,
        elapsed_ns: value * 1000.0,
        secondary: reset_twice
            .map(|value| (RESET_TWICE.to_owned(), value))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        ..Trial::default()
    }
}

/// The end of an epoch.
pub fn finished(epoch: usize, seconds: f64) -> Event {
    Event::EpochFinished {
        epoch,
        seconds,
        rounds_s: 0.0,
    }
}

/// Three trials an epoch and case, of (value, reset twice); the middle one is the median.
pub fn events(epochs: usize, value: impl Fn(usize, usize) -> (f64, f64)) -> Vec<Event> {
    let mut events = Vec::new();
    for epoch in 0..epochs {
        events.push(Event::EpochStarted {
            epoch,
            load_s: 0.01,
            kernel_bytes: Some(1000 + epoch as u64),
        });
        for (round, factor) in [0.999, 1.0, 1.002].into_iter().enumerate() {
            for case in 0..4 {
                let (value, twice) = value(epoch, case);
                events.push(Event::Trial {
                    epoch,
                    round,
                    case,
                    trial: trial(value * factor, (case < 2).then_some(value * factor + twice)),
                });
            }
        }
        events.push(Event::Sentinel {
            epoch,
            value: 5.0,
            anchor: Default::default(),
        });
        events.push(finished(epoch, 2.0));
    }
    events.push(Event::Stopped {
        stop: Stop::Precision,
    });
    events
}

/// The measurements that events are of.
pub fn fold(plan: &Plan, events: &[Event]) -> Measurements {
    let mut measured = Measurements::new(plan);
    events.iter().for_each(|event| measured.apply(event));
    measured
}

/// Hit costs 40 and miss a tenth more, drifting together; a reset 1.5 alone and 2.5 in context.
pub fn usual(epoch: usize, case: usize) -> (f64, f64) {
    let drift = 1.0 + 0.01 * (epoch as f64 - 5.0).sin();
    match case {
        0 => (40.0 * drift, 2.5),
        1 => (44.0 * drift * (1.0 + 0.0002 * (epoch % 5) as f64), 2.5),
        2 => (2.0, 0.0),
        _ => (0.5, 0.0),
    }
}

/// The record of what happened in a plan on a machine.
pub fn built(plan: &Plan, events: &[Event], machine: Machine) -> Record {
    let started = "2026-11-21T20:00:00Z";
    let mut record = Record::build(plan, &fold(plan, events), started, machine);
    record.spread.sessions = Some(SessionSpreadsRecord {
        within: Some(SessionSpreadRecord {
            percent: 1.6,
            freedom: 3,
        }),
        between: None,
    });
    record
}

/// A run of [`plan`] on an unknown machine.
pub fn record(epochs: usize) -> Record {
    built(&plan(), &events(epochs, usual), machine())
}

/// Epochs of a run, and windows of a case in each.
const EPOCHS: usize = 10;
const WINDOWS: usize = 5;

/// A workload with a probe, and without.
fn workload() -> Plan {
    let words = |name: &str, about: &str| (name.to_owned(), about.to_owned());
    let variants = vec![words(OFF, "no probe"), words("probe", "what it does")];
    let metric = |(name, unit, more_is_better, margin): (&str, &str, bool, f64)| Metric {
        name: name.to_owned(),
        about: name.to_owned(),
        unit: unit.to_owned(),
        more_is_better: Some(more_is_better),
        margin,
    };
    let metrics = [
        ("machine_ns", "ns/op", false, 0.03),
        ("ops_per_s", "op/s", true, 0.05),
        ("latency_p50_us", "us", false, 0.05),
    ];
    let case = |(name, about): &(String, String)| Case {
        name: name.clone(),
        about: about.clone(),
        factors: [(VARIANT.to_owned(), name.clone())].into(),
        sizing: Sizing::Fixed(1),
        ..Case::default()
    };
    Plan {
        cases: variants.iter().map(case).collect(),
        pairs: vec![Pair {
            case: "probe".to_owned(),
            baseline: OFF.to_owned(),
            about: "probe against off".to_owned(),
        }],
        ..Plan::new(Description {
            layout: Layout::from(ProbedWorkload {
                operation: "request".to_owned(),
                headline: Headline::Server,
                about: "what does the probe cost?".to_owned(),
                subject: None,
                prose: String::new(),
                variants,
                over: None,
            }),
            metrics: metrics.map(metric).into(),
            margin: 0.03,
            rounds: Some(WINDOWS as u32),
            counts: false,
            ..Description::new("server", "what does the probe cost?", &[])
        })
    }
}

/// A record of windows in which an operation takes `ns`, of the number of a window in the run and whether it has the
/// probe; so many operations are done.
pub fn windows(
    budget: Option<f64>,
    ns: impl Fn(usize, bool) -> f64,
    ops: impl Fn(usize) -> f64,
) -> Record {
    let plan = Plan {
        cpus: vec![0],
        quick: true,
        budget,
        ..workload()
    };
    let mut events = Vec::new();
    for epoch in 0..EPOCHS {
        events.push(Event::EpochStarted {
            epoch,
            load_s: 0.01,
            kernel_bytes: None,
        });
        for round in 0..WINDOWS {
            for case in 0..plan.cases.len() {
                let window = epoch * WINDOWS + round;
                let value = ns(window, case == 1) * (1.0 + 0.001 * ((window * 7 % 5) as f64 - 2.0));
                let done = ops(window);
                let secondary = [
                    ("ops", done),
                    ("machine_ns", 2.0 * value),
                    ("ops_per_s", 1e9 / value),
                ];
                let secondary = secondary.map(|(name, value)| (name.to_owned(), value));
                events.push(Event::Trial {
                    epoch,
                    round,
                    case,
                    trial: Trial {
                        value,
                        ops: done as u64,
                        elapsed_ns: value * done,
                        secondary: BTreeMap::from(secondary),
                        ..Trial::default()
                    },
                });
            }
        }
        events.push(finished(epoch, 2.0));
    }
    events.push(Event::Stopped { stop: Stop::Rounds });
    built(&plan, &events, machine())
}

/// A probe that costs nothing but in one window of ten, where it costs three times as much again.
pub fn rare(budget: Option<f64>) -> Record {
    let ns = |window: usize, on: bool| if on && window % 10 == 3 { 400.0 } else { 100.0 };
    windows(budget, ns, |_| 1000.0)
}

/// A machine whose programs are known.
pub fn machine() -> Machine {
    Machine {
        programs: Some("build 1, can_loop, bpf_ktime_get_ns".to_owned()),
        ..Machine::default()
    }
}

/// A record whose cases have these values, known to a share `half` within the session.
pub fn session(started: &str, values: &[(&str, f64)], half: f64) -> Record {
    static TEMPLATE: LazyLock<Record> = LazyLock::new(|| Record {
        cases: vec![record(12).cases.swap_remove(0)],
        ..record(1)
    });
    let mut record = TEMPLATE.clone();
    record.started = started.to_owned();
    record.spread.sessions = None;
    record.spread.sentinel = Some(5.0);
    let template = record.cases[0].clone();
    record.cases = values
        .iter()
        .map(|(name, value)| CaseRecord {
            name: (*name).to_owned(),
            role: if name.starts_with("floor") {
                Role::Floor
            } else {
                Role::Case
            },
            raw: template.raw.clone().map(|raw| Raw {
                value: *value,
                ci95: Some([value * (1.0 - half), value * (1.0 + half)]),
                ..raw
            }),
            ..template.clone()
        })
        .collect();
    record
}

/// The older side of a comparison: one session.
pub fn old(values: &[(&str, f64)]) -> Vec<Record> {
    vec![session("old", values, 0.001)]
}

/// The newer side.
pub fn new(values: &[(&str, f64)]) -> Vec<Record> {
    vec![session("new", values, 0.001)]
}

/// Records that state how far sessions of their machine differ, as if that were known from very many.
pub fn with_session_spread(mut records: Vec<Record>, percent: f64) -> Vec<Record> {
    let spread = Some(SessionSpreadRecord {
        percent,
        freedom: 1_000_000_000,
    });
    for record in &mut records {
        record.spread.sessions = Some(SessionSpreadsRecord {
            within: spread,
            between: spread,
        });
    }
    records
}

/// Compares with that threshold, on a machine without stored sessions.
pub fn gate(old: &[Record], new: &[Record], threshold: f64) -> Result<Changes, CompareError> {
    let asked = GateOptions {
        threshold: Some(threshold),
        must_see: None,
    };
    compared(old, new, asked)
}

/// Compares as asked, on a machine without stored sessions.
pub fn compared(
    old: &[Record],
    new: &[Record],
    asked: GateOptions,
) -> Result<Changes, CompareError> {
    compare(old, new, asked, |_, _| Vec::new())
}

/// Compares with a threshold of 2 % and sessions that differ by half a percent.
pub fn changes(old: &[Record], new: &[Record]) -> Changes {
    gate(
        &with_session_spread(old.to_vec(), 0.5),
        &with_session_spread(new.to_vec(), 0.5),
        0.02,
    )
    .unwrap()
}

/// A run that was aborted after so many epochs.
pub fn aborted(epochs: usize) -> Record {
    let mut events = events(epochs, usual);
    events.pop();
    let text = "The probe was detached after 0.2 s: it cost too much.";
    events.push(Event::Warned(Warning::new(ABORTED, text)));
    events.push(Event::Stopped {
        stop: Stop::Aborted,
    });
    built(&plan(), &events, machine())
}
