//! A run that was killed goes on as the whole run would have.

use bpfcost_measure::{Error, Event, Measurements, PRECISION, Plan, Stop, measure};

use crate::{
    mock::{Mock, noisy, usual},
    rounds::orders,
};

fn mock() -> Mock {
    Mock::with(4, noisy(11, 0.03, 0.02))
}

fn plan() -> Plan {
    Plan {
        seconds: Some(8.0),
        rounds: None,
        ..mock().plan()
    }
}

fn folded(events: &[Event]) -> Measurements {
    let mut measured = Measurements::new(&plan());
    events.iter().for_each(|event| measured.apply(event));
    measured
}

/// Resumes from these events; what happens then.
fn resume(events: &[Event]) -> (Measurements, Vec<Event>) {
    let measured = folded(events);
    let mut mock = mock();
    mock.first_epoch = measured.epochs();
    let (outcome, resumed) = mock.resume(&plan(), measured);
    (outcome.unwrap(), resumed)
}

#[test]
fn killed_anywhere_it_draws_the_orders_of_the_whole_run() {
    let (_, whole) = mock().run(&plan());
    let of_whole = orders(&whole);
    for kill in 0..whole.len() {
        let (measured, resumed) = resume(&whole[..kill]);
        assert_eq!(measured.stop, Some(Stop::Time));
        let (before, after) = (orders(&whole[..kill]), orders(&resumed));
        let next = folded(&whole[..kill]).epochs();
        assert!(after.keys().all(|(epoch, _)| *epoch >= next));
        for (key, order) in &after {
            // The last epoch of either run may have fewer rounds.
            if let Some(expected) = of_whole.get(key) {
                assert_eq!(order, expected, "killed at {kill}, {key:?}");
            }
        }
        let trials: usize = measured
            .cases
            .iter()
            .map(|c| c.samples.concat().len())
            .sum();
        let resumed: usize = before.values().chain(after.values()).map(Vec::len).sum();
        assert_eq!(trials, resumed);
    }
}

#[test]
fn killed_between_epochs_it_is_the_whole_run() {
    let (outcome, whole) = mock().run(&plan());
    let outcome = outcome.unwrap();
    let ends = whole
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event, Event::EpochFinished { .. }))
        .map(|(index, _)| index + 1);
    let mut compared = 0;
    for kill in ends {
        let (measured, _) = resume(&whole[..kill]);
        let samples = |measured: &Measurements| -> Vec<Vec<Vec<f64>>> {
            measured.cases.iter().map(|c| c.samples.clone()).collect()
        };
        assert_eq!(samples(&measured), samples(&outcome), "killed at {kill}");
        assert_eq!(measured.stop, outcome.stop);
        compared += 1;
    }
    assert!(compared > 15, "{compared}");
}

#[test]
fn calibrations_are_kept_and_what_lacks_is_made_up() {
    let (_, whole) = mock().run(&plan());
    let second = whole
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event, Event::Calibrated { .. }))
        .map(|(index, _)| index + 1)
        .nth(1)
        .unwrap();
    let (measured, resumed) = resume(&whole[..second]);
    let again: Vec<usize> = resumed
        .iter()
        .filter_map(|event| match event {
            Event::Calibrated { case, .. } => Some(*case),
            _ => None,
        })
        .collect();
    assert_eq!(again, [2, 3]);
    assert!(measured.cases.iter().all(|case| case.calibration.is_some()));
}

#[test]
fn time_of_earlier_sessions_counts() {
    let (_, whole) = mock().run(&plan());
    let (measured, _) = resume(&whole[..whole.len() / 2]);
    assert!(
        (measured.seconds() - 8.0).abs() < 0.4,
        "{}",
        measured.seconds()
    );
    // Nothing is left of the time: it ends at once.
    let (measured, resumed) = resume(&whole);
    assert_eq!(resumed.len(), 1, "{resumed:?}");
    assert_eq!(measured.stop, Some(Stop::Time));
}

#[test]
fn an_interrupted_run_goes_on() {
    let mock = Mock::with(4, |lab, ask| {
        if ask.total == 100 {
            lab.interrupt();
        }
        noisy(11, 0.03, 0.02)(lab, ask)
    });
    let (interrupted, events) = mock.run(&plan());
    assert_eq!(interrupted.unwrap().stop, Some(Stop::Interrupted));
    let (measured, _) = resume(&events);
    assert_eq!(measured.stop, Some(Stop::Time));
    // The epoch that was cut off is none of the whole ones, but its trials are there.
    let whole: Vec<usize> = measured.whole().collect();
    let all: Vec<usize> = (0..measured.epochs()).collect();
    assert_eq!(whole.len() + 1, all.len());
    let cut = all.iter().find(|epoch| !whole.contains(epoch)).unwrap();
    assert!(
        measured
            .cases
            .iter()
            .any(|case| !case.samples[*cut].is_empty())
    );
}

#[test]
fn what_was_told_of_an_end_is_forgotten_when_the_run_goes_on() {
    let short = Plan {
        precision: Some(0.01),
        ..plan()
    };
    let (first, mut events) = mock().run(&short);
    assert_eq!(first.unwrap().warnings[0].code, PRECISION);
    let (at_once, _) = mock().resume(&short, folded(&events));
    assert_eq!(at_once.unwrap().warnings.len(), 1);

    let mut again = mock();
    again.first_epoch = folded(&events).epochs();
    let long = Plan {
        seconds: Some(400.0),
        ..short
    };
    let (measured, more) = again.resume(&long, folded(&events));
    let measured = measured.unwrap();
    assert_eq!(measured.stop, Some(Stop::Precision));
    assert_eq!(measured.warnings, []);
    events.extend(more);
    assert_eq!(folded(&events), measured);
}

#[test]
fn unsupported_and_invalid_cases_stay_so() {
    let mut first = mock();
    first.unsupported = Some(1);
    first.prepare = std::rc::Rc::new(|_, (_, case)| match case {
        2 => Err(crate::mock::invalid()),
        _ => Ok(()),
    });
    let (_, events) = first.run(&plan());
    let (_, resumed) = resume(&events[..events.len() / 2]);
    let again = |event: &Event| {
        matches!(event, Event::Unsupported { .. } | Event::Invalid { .. })
            || matches!(event, Event::Trial { case: 1 | 2, .. })
    };
    assert!(!resumed.iter().any(again));
}

#[test]
fn data_of_another_plan_is_refused() {
    let mock = mock();
    let outcome = measure(
        &mock,
        &usual,
        &plan(),
        &*mock.lab,
        &mock.lab.interrupt,
        Measurements::default(),
        &mut |_| Ok(()),
    );
    assert!(matches!(
        outcome,
        Err(Error::OtherPlan {
            expected: 4,
            found: 0
        })
    ));
}
