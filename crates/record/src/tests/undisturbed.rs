//! The undisturbed state: where it leads, what it is compared with, and where it is not known.

use super::{super::*, built, events, machine, plan};
use crate::samples::compared;
use bpfcost_measure::{Event, Plan};
use bpfcost_model::Slices;

/// Slices of a batch, of which all but the calm ones are beside a neighbour.
fn slices_with(level: f64, calm: impl Fn(usize) -> bool) -> Slices {
    let of_slice = |slice: usize| {
        let neighbour = 1.3 + 0.02 * (slice * 13 % 11) as f64;
        level * if calm(slice) { 1.0 } else { neighbour }
    };
    Slices::new(&(0..250).map(of_slice).collect::<Vec<f64>>())
}

/// Slices of a batch, two thirds of it beside a neighbour, in every second batch at its end.
fn slices(level: f64, at_the_end: bool) -> Slices {
    slices_with(
        level,
        |slice| if at_the_end { slice < 80 } else { slice >= 170 },
    )
}

/// The anchor's slices, which cost so much, beside the same neighbour.
fn anchor(level: f64) -> Slices {
    slices_with(level, |slice| !(40..210).contains(&slice))
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
    built(&plan(), &run(cut, || anchor(26.0)), machine())
}

#[test]
fn it_leads_and_what_was_found_stands_beside_it() {
    let record = record(&[0, 1, 2, 3]);
    let hit = record.case("hit").unwrap();
    let raw = hit.raw.clone().unwrap();
    assert!(near(raw.value, 50.0), "{raw:?}");
    let known = hit.undisturbed.clone().unwrap();
    assert!(near(known.as_found, 65.0), "{known:?}");
    assert!((0.25..0.35).contains(&known.share), "{known:?}");
    assert_eq!(known.epochs.len(), 12);
    assert!(known.epochs.iter().all(|value| near(value.unwrap(), 50.0)));
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
    assert!(record.has_undisturbed());
    assert!(near(record.spread.anchor.unwrap(), 26.0 / 5.0));

    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of_case = &value["cases"][0];
    assert!(of_case["slices"][11][2].is_string() && of_case["undisturbed"].is_object());
}

#[test]
fn cases_are_compared_in_one_reading() {
    // The floors are known, and one of the two cases.
    let mixed = record(&[0, 2, 3]);
    let [hit, miss] = ["hit", "miss"].map(|name| mixed.case(name).unwrap());
    assert_eq!(hit.reading(), Reading::Undisturbed);
    assert_eq!(miss.reading(), Reading::AsFound);
    let [pair] = &mixed.comparisons[..] else {
        panic!("one pair");
    };
    assert!(!pair.undisturbed && near(pair.difference, 6.5), "{pair:?}");

    // Without its floor, a case would have a raw cost of one reading, and a net cost of the other.
    let without_floor = record(&[0, 1, 3]);
    let hit = without_floor.case("hit").unwrap();
    assert_eq!(hit.reading(), Reading::AsFound);
    let (raw, net) = (hit.raw.clone().unwrap(), hit.net.clone().unwrap());
    assert!(
        near(raw.value, 65.0) && near(net.bracket[1], 65.0 - 2.6),
        "{net:?}"
    );
    let floor = without_floor.case("floor/none").unwrap();
    assert_eq!(floor.reading(), Reading::Undisturbed);

    // As found, the net is that of whole trials too.
    let all = record(&[0, 1, 2, 3]);
    let found = all.case("hit").unwrap().clone().into_found();
    assert_eq!((found.raw, found.net), (hit.raw.clone(), hit.net.clone()));
    let values = |record: &Record, factor: &str| {
        let record = record.in_one_reading_by(factor).into_owned();
        ["hit", "miss"].map(|name| record.case(name).unwrap().raw.clone().unwrap().value)
    };
    let alone = values(&mixed, "scenario");
    assert!(near(alone[0], 50.0) && near(alone[1], 71.5), "{alone:?}");
    let mut together = mixed.clone();
    for case in &mut together.cases {
        case.factors.insert("kind".to_owned(), "lookup".to_owned());
    }
    let together = values(&together, "kind");
    assert!(
        near(together[0], 65.0) && near(together[1], 71.5),
        "{together:?}"
    );
}

#[test]
fn targets_side_by_side_are_in_one_reading() {
    let on = |target: &str, cut: &[usize]| Record {
        target: target.to_owned(),
        ..record(cut)
    };
    let value = |table: &CrossTarget<'_>, at: usize| {
        let hit = table.rows.iter().find(|row| row.name == "hit").unwrap();
        hit.cells[at]
            .case
            .as_ref()
            .unwrap()
            .raw
            .clone()
            .unwrap()
            .value
    };
    let (new, old) = (on("host", &[0, 1, 2, 3]), on("vm:6.1", &[]));
    let mixed = CrossTarget::new(&[&new, &old]);
    assert!(near(value(&mixed, 0), 65.0) && near(value(&mixed, 1), 65.0));
    let newer = on("vm:6.12", &[0, 1, 2, 3]);
    let both = CrossTarget::new(&[&new, &newer]);
    assert!(near(value(&both, 0), 50.0) && near(value(&both, 1), 50.0));
    // Counts have no neighbours.
    let counts = Record {
        unit: bpfcost_model::Unit::InstructionsPerOp,
        ..on("exact:6.12", &[])
    };
    assert!(near(value(&CrossTarget::new(&[&new, &counts]), 0), 50.0));
}

#[test]
fn sessions_are_kept_in_both_readings() {
    let folder = tempfile::tempdir().unwrap();
    let history = SessionHistory::at(folder.path().join("sessions.json"));
    let mixed = record(&[0, 2, 3]);
    history.keep(&mixed).unwrap();
    let levels = |reading| {
        let lists = history.levels(&mixed, reading).unwrap().into_iter();
        lists
            .flat_map(|list| list.levels)
            .map(|level| level.value)
            .collect::<Vec<f64>>()
    };
    let [found, undisturbed] = Reading::ALL.map(levels);
    assert!(
        found.len() == 2 && near(found[0], 65.0) && near(found[1], 71.5),
        "{found:?}"
    );
    assert!(
        undisturbed.len() == 1 && near(undisturbed[0], 50.0),
        "{undisturbed:?}"
    );
    // Two sessions that agree show what rest is; one that is lower does not.
    let anchor = |anchor: f64, started: &str| {
        let mut record = mixed.clone();
        (record.spread.anchor, record.started) = (Some(anchor), started.to_owned());
        history.keep(&record).unwrap();
        history.anchor(&record.machine).unwrap().unwrap()
    };
    assert_eq!(anchor(4.0, "2026-01-02T00:00:00Z"), 4.0);
    assert!(near(anchor(5.21, "2026-01-03T00:00:00Z"), 5.2));
}

#[test]
fn a_machine_that_never_rests_has_none() {
    let all = [0, 1, 2, 3];
    let warned = |known: Option<f64>, events: &[Event]| {
        let plan = Plan {
            anchor: known,
            ..plan()
        };
        let record = built(&plan, events, machine());
        let warning = record
            .warnings
            .iter()
            .find(|one| one.code == "never-at-rest");
        assert_eq!(warning.is_some(), !record.has_undisturbed());
        warning.map(|warning| warning.text.clone())
    };
    let quiet = run(&all, || anchor(26.0));
    assert_eq!(warned(None, &quiet), None);
    assert_eq!(warned(Some(25.5 / 5.0), &quiet), None);
    let text = warned(Some(20.0 / 5.0), &quiet).unwrap();
    assert!(text.contains("took at least 30 % longer"), "{text}");
    let restless = run(&all, || {
        let jitter = |slice: usize| 26.0 * (1.2 + 0.5 * (slice as f64 * 12.9898).sin().abs());
        Slices::new(&(0..250).map(jitter).collect::<Vec<f64>>())
    });
    let text = warned(Some(26.0 / 5.0), &restless).unwrap();
    assert!(text.contains("at one moment than at the next"), "{text}");
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
    assert_eq!(warned(Some(26.0 / 5.0), &run(&all, Slices::default)), None);
}

#[test]
fn sessions_are_compared_in_one_reading() {
    let (with, without) = (record(&[0, 1, 2, 3]), record(&[]));
    let changes = |old: &Record, new: &Record| {
        let new = Record {
            started: "2026-01-02T00:00:00Z".to_owned(),
            ..new.clone()
        };
        compared(std::slice::from_ref(old), &[new], GateOptions::default()).unwrap()
    };
    // The undisturbed ones.
    let marks = |changes: &Changes| {
        let of = |name| changes.cases.iter().find(|change| change.case == name);
        ["hit", "miss"].map(|name| of(name).is_some_and(|one| one.undisturbed))
    };
    for (old, new) in [(&with, &without), (&without, &with)] {
        let changes = changes(old, new);
        let hit = changes.cases.iter().find(|change| change.case == "hit");
        let hit = hit.unwrap();
        assert!(hit.relative.unwrap().abs() < 1e-3, "{hit:?}");
        let warned = |code| changes.warnings.iter().any(|warning| warning.code == code);
        assert!(warned("as-found"), "{:?}", changes.warnings);
        assert_eq!(marks(&changes), [false, false]);
    }
    let both = changes(&with, &with);
    assert_eq!(marks(&both), [true, true]);
    assert_eq!(marks(&changes(&with, &record(&[0, 2, 3]))), [true, false]);
    assert!(near(both.cases[0].old.as_ref().unwrap().value, 50.0));
    assert!(
        both.warnings
            .iter()
            .all(|warning| warning.code != "as-found")
    );
}

/// Costs of one case are crisp, those of another differ by a percent from session to session; each is widened by its own.
#[test]
fn undisturbed_costs_are_compared_by_the_spread_of_their_own_sessions() {
    let later = |minute: usize| Record {
        started: format!("2026-01-01T00:{minute:02}:00Z"),
        ..record(&[0, 1, 2, 3])
    };
    let own = history::series(&later(0));
    let levels = |series: &str, case: &str, step: f64| CaseLevels {
        series: series.to_owned(),
        case: case.to_owned(),
        levels: (10..20)
            .map(|minute| bpfcost_stats::session_spread::Level {
                began_s: 1_767_225_600.0 + 60.0 * f64::from(minute),
                value: 50.0 * (1.0 + step * f64::from(minute % 3)),
            })
            .collect(),
    };
    let width = |reading_kept: Reading, lists: Vec<CaseLevels>| {
        let history = |_: &Record, reading| {
            let lists = lists.iter().filter(|_| reading == reading_kept);
            lists.cloned().collect()
        };
        let changes = compare(&[later(1)], &[later(2)], GateOptions::default(), history).unwrap();
        let width = |name: &str| {
            let change = changes.cases.iter().find(|change| change.case == name);
            let [low, high] = change.and_then(|change| change.relative_ci95).unwrap();
            high - low
        };
        [width("hit"), width("miss")]
    };
    let crisp_and_not = vec![levels(&own, "hit", 0.0), levels(&own, "miss", 0.01)];
    let [hit, miss] = width(Reading::Undisturbed, crisp_and_not.clone());
    assert!(hit < 0.012 && miss > 0.03, "{hit} and {miss}");
    // A namesake in another series says nothing of the case, but counts among all cases.
    let namesake = vec![levels("other", "hit", 0.0), levels(&own, "miss", 0.01)];
    let [hit, miss] = width(Reading::Undisturbed, namesake);
    assert!(hit > 0.03 && miss > 0.03, "{hit} and {miss}");
    // 1 % is assumed without sessions of the same reading; of costs as found it would be 3 %.
    for lists in [vec![], crisp_and_not] {
        let [hit, miss] = width(Reading::AsFound, lists);
        assert!(hit > 0.05 && hit < 0.062, "{hit}");
        assert!((hit / miss - 1.0).abs() < 0.02, "{hit} and {miss}");
    }
}

#[test]
fn why_a_cost_is_not_known_undisturbed_is_said() {
    let why = |cut: &[usize], name: &str| {
        let record = record(cut);
        let case = record.case(name).unwrap();
        assert!(case.undisturbed.is_none() || case.not_undisturbed.is_none());
        case.not_undisturbed.clone()
    };
    assert_eq!(why(&[0, 1, 2, 3], "hit"), None);
    // Not even cut: nothing to explain.
    assert_eq!(why(&[2, 3], "hit"), None);
    let floor = why(&[0, 1, 3], "hit").unwrap();
    assert_eq!(floor, "of floor/reset, its batches are not cut into slices");
    let mut colder = run(&[0, 1, 2, 3], || anchor(26.0));
    for event in &mut colder {
        if let Event::Trial { case: 1, trial, .. } = event {
            let values: Vec<f64> = trial.slices.values().collect();
            let warm = |(slice, value): (usize, &f64)| value * (1.2 - 0.2 * slice as f64 / 250.0);
            trial.slices = Slices::new(&values.iter().enumerate().map(warm).collect::<Vec<_>>());
        }
    }
    let record = built(&plan(), &colder, machine());
    let miss = record.case("miss").unwrap();
    assert_eq!(
        miss.not_undisturbed.as_deref(),
        Some("operations cost more or less along the batch")
    );
    assert!(record.case("hit").unwrap().undisturbed.is_some());
}

/// The program sweeps a table in one slice of eight, and in the first trial of each epoch once more.
#[test]
fn own_work_is_part_of_the_cost_and_named() {
    let mut sweeping = run(&[0, 1, 2, 3], || anchor(26.0));
    for event in &mut sweeping {
        if let Event::Trial {
            round,
            case: 1,
            trial,
            ..
        } = event
        {
            let values: Vec<f64> = trial.slices.values().collect();
            let sweeps =
                |slice: usize| (437.585 * (12.9898 * slice as f64).sin()).fract().abs() < 0.125;
            let sweep =
                |(slice, value): (usize, &f64)| value * if sweeps(slice) { 2.0 } else { 1.0 };
            trial.slices = Slices::new(&values.iter().enumerate().map(sweep).collect::<Vec<_>>());
            trial.value *= if *round == 0 { 1.6 } else { 1.0 };
        }
    }
    let record = built(&plan(), &sweeping, machine());
    let miss = record.case("miss").unwrap();
    assert_eq!(miss.reading(), Reading::AsFound);
    let own = miss
        .own_work
        .unwrap_or_else(|| panic!("{:?}", miss.not_undisturbed));
    assert!(
        (own.share - 0.12).abs() < 0.04 && own.reference_share == 0.0,
        "{own:?}"
    );
    assert!((own.times - 2.0).abs() < 0.01, "{own:?}");
    let why = miss.not_undisturbed.clone().unwrap();
    assert!(
        why.contains(" % (2.0 times as long) of its slices take longer, and 0.0 % (1.0 times as long) of those"),
        "{why}"
    );
    // The mean of trials, not their median.
    let raw = miss.raw.clone().unwrap();
    assert!(near(raw.value, 1.3 * 55.0 * 1.2), "{raw:?}");
    assert!(raw.ci95.unwrap()[1] >= raw.value);
    let values = miss.epoch_values(Reading::AsFound).unwrap();
    assert!(
        values.iter().all(|value| near(*value, 1.3 * 55.0 * 1.2)),
        "{values:?}"
    );
    let net = miss.net.clone().unwrap();
    assert!(near(net.bracket[1], 1.3 * (55.0 * 1.2 - 2.0)), "{net:?}");

    let hit = record.case("hit").unwrap();
    assert!(hit.undisturbed.is_some() && hit.own_work.is_none());
    // The pair is of means, so that the sweep is in the difference.
    let pair = &record.comparisons[0];
    assert!(
        !pair.undisturbed && (pair.relative - 0.32).abs() < 1e-3,
        "{pair:?}"
    );
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
}

/// The interval of net includes what a neighbour may have added without notice, as that of the cost does.
#[test]
fn net_carries_what_goes_unnoticed() {
    let record = record(&[0, 1, 2, 3]);
    let floor = record.case("floor/reset").unwrap();
    let (raw, net) = (floor.raw.clone().unwrap(), floor.net.clone().unwrap());
    let [low, high] = net.ci95.unwrap();
    let empty = record.case("floor/none").unwrap().raw.clone().unwrap();
    // Both parts are the same in all epochs, and 0.2 % of each goes unnoticed.
    assert!(near(net.value.unwrap(), 1.5), "{net:?}");
    assert!(
        (net.value.unwrap() - low - 0.002 * raw.value).abs() < 2e-4,
        "{net:?}"
    );
    assert!(
        (high - net.value.unwrap() - 0.002 * empty.value).abs() < 2e-4,
        "{net:?}"
    );
}
