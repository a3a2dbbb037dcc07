//! Made-up runs with known answers, and the tests that take the record as a whole.

mod build;
mod compare;
mod contention;
mod counts;
mod gate;
mod keys;
pub(crate) mod totals;
mod turns;
mod undisturbed;

use std::collections::BTreeMap;

use super::{Machine, RESET_TWICE, Record, SessionSpreadRecord, SessionSpreadsRecord};
use bpfcost_measure::{Event, Measurements, Plan, Stop};
use bpfcost_model::{Case, Pair, Role, Sizing, Trial, Unit};

/// A case without reset: its floor, if any, is the empty loop.
pub(super) fn case(name: &str, role: Role, floor: Option<&str>) -> Case {
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
pub(super) fn plan() -> Plan {
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

pub(super) fn trial(value: f64, reset_twice: Option<f64>) -> Trial {
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

pub(super) fn finished(epoch: usize, seconds: f64) -> Event {
    Event::EpochFinished {
        epoch,
        seconds,
        rounds_s: 0.0,
    }
}

/// Three trials an epoch and case, of (value, reset twice); the middle one is the median.
pub(super) fn events(epochs: usize, value: impl Fn(usize, usize) -> (f64, f64)) -> Vec<Event> {
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

pub(super) fn fold(plan: &Plan, events: &[Event]) -> Measurements {
    let mut measured = Measurements::new(plan);
    events.iter().for_each(|event| measured.apply(event));
    measured
}

/// Hit costs 40 and miss a tenth more, drifting together; a reset 1.5 alone and 2.5 in context.
pub(super) fn usual(epoch: usize, case: usize) -> (f64, f64) {
    let drift = 1.0 + 0.01 * (epoch as f64 - 5.0).sin();
    match case {
        0 => (40.0 * drift, 2.5),
        1 => (44.0 * drift * (1.0 + 0.0002 * (epoch % 5) as f64), 2.5),
        2 => (2.0, 0.0),
        _ => (0.5, 0.0),
    }
}

/// The record of what happened in a plan on a machine.
pub(super) fn built(plan: &Plan, events: &[Event], machine: Machine) -> Record {
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

pub(crate) fn record(epochs: usize) -> Record {
    built(&plan(), &events(epochs, usual), Machine::default())
}
