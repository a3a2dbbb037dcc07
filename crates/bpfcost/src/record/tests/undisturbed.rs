//! The undisturbed state: where it leads, what it is compared with, and where it is not known.

use super::{super::*, built, events, plan};
use crate::{
    experiment::Slices,
    measure::{Event, Plan},
};

/// Slices of a batch, two thirds of it beside a neighbour, in every second batch at its end.
fn slices(level: f64, at_the_end: bool) -> Slices {
    let of_slice = |slice: usize| {
        let calm = if at_the_end { slice < 80 } else { slice >= 170 };
        let neighbour = 1.3 + 0.02 * (slice * 13 % 11) as f64;
        level * if calm { 1.0 } else { neighbour }
    };
    Slices::new(&(0..250).map(of_slice).collect::<Vec<f64>>())
}

/// The anchor's slices, which cost so much.
fn anchor(level: f64) -> Slices {
    Slices::new(&[level; 250])
}

/// A run of 12 epochs, whose trials take 1.3 times what their slices do undisturbed. Case 1 costs a tenth more, case 2 is the
/// floor of both, case 3 the empty loop. `cut` are the cases whose batches were cut.
fn run(cut: &[usize], anchor_slices: impl Fn() -> Slices) -> Vec<Event> {
    let levels = [50.0, 55.0, 2.0, 0.5];
    let mut events = events(12, |_, case| (1.3 * levels[case], 4.0));
    for event in &mut events {
        match event {
            Event::Trial {
                epoch, case, trial, ..
            } if cut.contains(case) => {
                let at_the_end = *epoch % 2 == 0;
                trial.slices = slices(levels[*case], at_the_end);
                if trial.secondary.contains_key(RESET_TWICE) {
                    let twice = slices(levels[*case] + 2.5, at_the_end);
                    trial.secondary_slices.insert(RESET_TWICE.to_owned(), twice);
                }
            }
            Event::Sentinel { anchor, .. } => *anchor = anchor_slices(),
            _ => {}
        }
    }
    events
}

fn near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 2e-4
}

fn record(cut: &[usize]) -> Record {
    built(&plan(), &run(cut, || anchor(26.0)), Machine::default())
}

#[test]
fn it_leads_and_what_was_found_stands_beside_it() {
    let record = record(&[0, 1, 2, 3]);
    let raw = record.case("hit").unwrap().raw.clone().unwrap();
    assert!(near(raw.value, 50.0), "{raw:?}");
    let state = raw.undisturbed.unwrap();
    assert!(near(state.as_found, 65.0), "{raw:?}");
    assert!((0.25..0.35).contains(&state.share), "{raw:?}");
    assert!((raw.p50 - 65.0).abs() < 0.2, "trials are as found: {raw:?}");

    // 2.5 for a second reset and 0.5 for the loop, or 2.0 for the reset alone.
    let net = record.case("hit").unwrap().net.clone().unwrap();
    assert!(
        near(net.bracket[0], 47.0) && near(net.bracket[1], 48.0),
        "{net:?}"
    );

    let [pair] = &record.comparisons[..] else {
        panic!("one pair");
    };
    assert!(pair.undisturbed && near(pair.difference, 5.0), "{pair:?}");
    assert_eq!(pair.verdict, VerdictRecord::Slower);
    assert!(record.is_undisturbed());
    assert!(near(record.spread.anchor.unwrap(), 26.0));

    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of_case = &value["cases"][0];
    assert!(of_case["slices"][11][2].is_string() && of_case["raw"]["undisturbed"].is_object());
}

#[test]
fn cases_are_compared_in_one_state() {
    let record = record(&[0]);
    let [hit, miss] = ["hit", "miss"].map(|name| record.case(name).unwrap());
    assert!(hit.is_undisturbed() && !miss.is_undisturbed());
    let [pair] = &record.comparisons[..] else {
        panic!("one pair");
    };
    assert!(!pair.undisturbed && near(pair.difference, 6.5), "{pair:?}");
    // Its floor is not known undisturbed: net is as found. 1.3 times 2.0 for the reset alone.
    let net = hit.net.clone().unwrap();
    assert!(near(net.bracket[1], 65.0 - 2.6), "{net:?}");
}

#[test]
fn a_machine_that_never_rests_has_none() {
    let all = [0, 1, 2, 3];
    let warned = |known: Option<f64>, events: &[Event]| {
        let plan = Plan {
            anchor: known,
            ..plan()
        };
        let record = built(&plan, events, Machine::default());
        let warning = record
            .warnings
            .iter()
            .find(|one| one.code == "never-at-rest");
        assert_eq!(warning.is_some(), !record.is_undisturbed());
        warning.map(|warning| warning.text.clone())
    };
    let quiet = run(&all, || anchor(26.0));
    assert_eq!(warned(None, &quiet), None);
    assert_eq!(warned(Some(25.5), &quiet), None);
    let text = warned(Some(20.0), &quiet).unwrap();
    assert!(text.contains("took 30 % longer at best"), "{text}");
    let restless = run(&all, || {
        let jitter = |slice: usize| 26.0 * (1.2 + 0.5 * (slice as f64 * 12.9898).sin().abs());
        Slices::new(&(0..250).map(jitter).collect::<Vec<f64>>())
    });
    let text = warned(Some(26.0), &restless).unwrap();
    assert!(text.contains("from moment to moment"), "{text}");
    assert!(warned(None, &restless).is_some());
    let emulated = Machine {
        emulator: Some("QEMU 7.2, tcg".to_owned()),
        ..Machine::default()
    };
    let record = built(&plan(), &restless, emulated);
    assert!(
        record
            .warnings
            .iter()
            .all(|one| one.code != "never-at-rest")
    );
    // An experiment without an anchor.
    assert_eq!(warned(Some(26.0), &run(&all, Slices::default)), None);
}

#[test]
fn sessions_are_compared_in_one_state() {
    let (with, without) = (record(&[0, 1, 2, 3]), record(&[]));
    let changes = |old: &Record, new: &Record| {
        let new = Record {
            started: "2026-01-02T00:00:00Z".to_owned(),
            ..new.clone()
        };
        compare(
            std::slice::from_ref(old),
            &[new],
            GateOptions::default(),
            |_| vec![],
        )
        .unwrap()
    };
    for (old, new) in [(&with, &without), (&without, &with)] {
        let changes = changes(old, new);
        let hit = changes.cases.iter().find(|change| change.case == "hit");
        let hit = hit.unwrap();
        assert!(hit.relative.unwrap().abs() < 1e-3, "{hit:?}");
        let warned = |code| changes.warnings.iter().any(|warning| warning.code == code);
        assert!(warned("as-found"), "{:?}", changes.warnings);
    }
    let both = changes(&with, &with);
    assert!(near(both.cases[0].old.as_ref().unwrap().value, 50.0));
    assert!(
        both.warnings
            .iter()
            .all(|warning| warning.code != "as-found")
    );
}
