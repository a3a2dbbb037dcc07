//! What is predicted from which records, and how it does against what others measured.

use super::{super::*, case, finished, fold, plan, trial};
use crate::{
    experiment::Role,
    measure::{Event, Plan},
};

/// The machine that this was written on, in nanoseconds.
const HERE: [(&str, f64); 3] = [("line/own", 4.5), ("line/near", 55.0), ("none/1", 2.0)];

/// A record of such cases, each with a value in all its trials, on such a machine.
fn record(cases: &[(&str, f64)], machine: Machine) -> Record {
    let plan = Plan {
        cases: cases
            .iter()
            .map(|(name, _)| case(name, Role::Case, None))
            .collect(),
        pairs: Vec::new(),
        ..plan()
    };
    let mut events = Vec::new();
    for epoch in 0..2 {
        for round in 0..2 {
            for (index, (_, value)) in cases.iter().enumerate() {
                // Only the first trial is undisturbed.
                let slower = if (epoch, round) == (0, 0) { 1.0 } else { 3.0 };
                events.push(Event::Trial {
                    epoch,
                    round,
                    case: index,
                    trial: trial(value * slower, None),
                });
            }
        }
        events.push(finished(epoch, 1.0));
    }
    Record::build(
        &plan,
        &fold(&plan, &events),
        "2026-11-22T06:00:00Z",
        machine,
        None,
    )
}

fn prediction() -> Prediction {
    let record = record(&HERE, Machine::default());
    record.prediction.expect("lines were measured")
}

#[test]
fn who_did_not_measure_lines_predicts_nothing() {
    assert_eq!(record(&HERE[..1], Machine::default()).prediction, None);
    let emulated = Machine {
        emulator: Some("QEMU 9.2, tcg, -cpu max".to_owned()),
        ..Machine::default()
    };
    assert_eq!(record(&HERE, emulated).prediction, None);
}

#[test]
fn without_what_the_loop_costs_there_are_tables_and_no_curves() {
    for none in [None, Some(("none/1", 0.0))] {
        let cases: Vec<_> = HERE[..2].iter().copied().chain(none).collect();
        let prediction = record(&cases, Machine::default()).prediction.unwrap();
        assert!(prediction.curves.is_empty());
        assert!(!prediction.tables.is_empty());
    }
}

#[test]
fn a_point_that_is_no_rate_is_off_by_no_factor() {
    let table = &prediction().tables[0];
    let row = |published, predicted| PublishedRow {
        published,
        predicted,
        ..table.rows[0].clone()
    };
    assert_eq!(row(2.0, 4.0).factor(), Some(2.0));
    for (published, predicted) in [
        (-1.0, 1.0),
        (1.0, -0.9),
        (-1.0, -1.0),
        (0.0, 1.0),
        (1.0, f64::NAN),
    ] {
        let row = row(published, predicted);
        assert_eq!((row.factor(), row.within()), (None, false));
    }
}

#[test]
fn lines_are_the_smallest_trials_and_what_was_not_measured_is_said() {
    let lines = prediction().lines;
    assert_eq!(
        (lines.own_ns, lines.near_ns, lines.far_ns),
        (4.5, 55.0, 137.5)
    );
    assert!(matches!(&lines.assumed[..], [far] if far.starts_with("far: 2.5 times near")));

    let far = [HERE[0], HERE[1], ("line/far", 150.0)];
    let lines = record(&far, Machine::default()).prediction.unwrap().lines;
    assert_eq!((lines.far_ns, lines.assumed.len()), (150.0, 0));
}

#[test]
fn one_record_has_one_prediction_and_keeps_it_in_a_file() {
    let record = record(&HERE, Machine::default());
    assert_eq!(record.prediction, Some(prediction()));
    let written = serde_json::to_string(&record).unwrap();
    let read: Record = serde_json::from_str(&written).unwrap();
    assert_eq!(read.prediction, record.prediction);
}

#[test]
fn the_freelist_falls_with_cpus_and_the_others_rise() {
    let prediction = prediction();
    let rates = |series: &str| {
        let curve = prediction
            .curves
            .iter()
            .find(|curve| curve.series == series);
        let points = &curve.unwrap().points;
        assert_eq!(
            (points[0].threads, points[points.len() - 1].threads),
            (1, 192)
        );
        points.iter().map(|point| point.rate).collect::<Vec<_>>()
    };
    let freelist = rates("freelist");
    assert!(
        freelist.windows(2).all(|pair| pair[1] < 1.1 * pair[0]),
        "{freelist:?}"
    );
    for series in ["array-padded", "percpu"] {
        let rates = rates(series);
        assert!(
            rates.windows(2).all(|pair| pair[1] > 1.2 * pair[0]),
            "{rates:?}"
        );
    }
    // Side by side, slots share lines, so that two are slower than one; then it rises.
    let array = rates("array");
    assert!(
        array[1] < array[0] && array[9] > 3.0 * array[0],
        "{array:?}"
    );
}

/// The demand: each point within 2 times of what was published, or it is said where not.
#[test]
fn published_points_are_met_within_2_times_but_for_those_that_say_why() {
    let prediction = prediction();
    let rows = || prediction.tables.iter().flat_map(|table| &table.rows);
    let off: Vec<String> = rows()
        .filter(|row| !row.within() && row.note.is_none())
        .map(|row| format!("{}/{}: {:?}", row.series, row.threads, row.factor()))
        .collect();
    assert!(off.is_empty(), "{off:?}");
    let tested = rows().filter(|row| !row.fitted);
    let within = tested.clone().filter(|row| row.within()).count();
    assert!(
        (75..79).contains(&within) && tested.count() == 78,
        "{within}"
    );
    assert!(rows().filter(|row| row.threads == 1).all(|row| row.fitted));
    let whole = prediction.tables.iter().filter(|table| {
        let fitted = table.rows.iter().all(|row| row.fitted);
        assert_eq!(
            fitted,
            table.machine.contains("all of its points are fitted")
        );
        fitted
    });
    assert_eq!(whole.count(), 1, "only the study's own Kunpeng");
}
