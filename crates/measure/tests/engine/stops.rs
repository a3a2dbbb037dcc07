//! When a run ends: precision, time, request, never a verdict; and what is refused.

use std::rc::Rc;

use bpfcost_measure::{Error, Event, Measurements, PRECISION, Plan, Stop, forecast};
use bpfcost_model::{Experiment, Metric, Role};

use crate::mock::{Mock, noisy};

pub(crate) fn epochs(measured: &Measurements) -> usize {
    measured.whole().count()
}

fn looked(events: &[Event]) -> Vec<(usize, usize)> {
    let look = |event: &Event| match event {
        Event::Looked { epochs, open, .. } => Some((*epochs, *open)),
        _ => None,
    };
    events.iter().filter_map(look).collect()
}

#[test]
fn without_noise_the_first_look_ends_it() {
    let mock = Mock::new(&[10.0, 20.0, 30.0]);
    let plan = Plan {
        precision: Some(0.01),
        ..mock.plan()
    };
    let (measured, events) = mock.run(&plan);
    let measured = measured.unwrap();
    assert_eq!(measured.stop, Some(Stop::Precision));
    assert_eq!(epochs(&measured), 10);
    assert_eq!(looked(&events), [(10, 0)]);
    assert_eq!(
        events.last(),
        Some(&Event::Stopped {
            stop: Stop::Precision
        })
    );
}

#[test]
fn many_comparisons_put_the_first_look_off() {
    // 25 comparisons: max(10, ⌈log2(1250)⌉ + 1) = 12.
    let mock = Mock::new(&[10.0; 26]);
    let plan = Plan {
        quick: true,
        ..mock.plan()
    };
    let (measured, events) = mock.run(&plan);
    let measured = measured.unwrap();
    assert_eq!(epochs(&measured), 12);
    assert_eq!(measured.stop, Some(Stop::Rounds));
    assert_eq!(looked(&events), [(12, 26)]);
}

#[test]
fn comparisons_of_every_quantity_put_the_first_look_off() {
    let further = Metric {
        name: "p99".to_owned(),
        about: String::new(),
        unit: "us".to_owned(),
        more_is_better: Some(false),
        margin: 0.05,
    };
    // 5 cases against the first, in 5 quantities: ⌈log2(50 · 25)⌉ + 1 = 12; of one quantity it would be 10.
    let mock = Mock::new(&[10.0; 6]);
    let plan = Plan {
        quick: true,
        metrics: vec![further; 4],
        ..mock.plan()
    };
    let expected = forecast(&mock.description(), &plan);
    let (measured, events) = mock.run(&plan);
    assert_eq!(epochs(&measured.unwrap()), 12);
    assert_eq!(looked(&events), [(12, 6)]);
    assert_eq!((expected.first_look, expected.epochs), (12, 12));
    let alone = Plan {
        metrics: Vec::new(),
        ..plan
    };
    assert_eq!(forecast(&mock.description(), &alone).first_look, 10);
}

#[test]
fn looks_are_spaced_by_1_4_and_precision_ends_the_run_at_one() {
    let mock = Mock::with(3, noisy(1, 0.03, 0.01));
    let plan = Plan {
        precision: Some(0.01),
        ..mock.plan()
    };
    let (measured, events) = mock.run(&plan);
    let measured = measured.unwrap();
    assert_eq!(measured.stop, Some(Stop::Precision));
    let looked = looked(&events);
    let at: Vec<usize> = looked.iter().map(|look| look.0).collect();
    let all = [10, 14, 20, 28, 40, 56, 79, 111];
    assert!(at.len() >= 3 && all.starts_with(&at), "{at:?}");
    assert_eq!(looked.last().unwrap().1, 0);
    assert!(looked[..looked.len() - 1].iter().all(|look| look.1 > 0));
    assert_eq!(Some(&epochs(&measured)), at.last());
}

#[test]
fn an_effect_however_large_does_not_shorten_the_run() {
    let run = |factor: f64| {
        let noise = noisy(2, 0.03, 0.01);
        let mock = Mock::with(2, move |lab, ask| {
            let effect = if ask.case == 1 { factor } else { 1.0 };
            Ok(noise(lab, ask)? * effect)
        });
        let plan = Plan {
            precision: Some(0.01),
            ..mock.plan()
        };
        let (measured, events) = mock.run(&plan);
        (epochs(&measured.unwrap()), looked(&events))
    };
    let (without, looks) = run(1.0);
    assert!(without > 10);
    assert_eq!(run(5.0), (without, looks.clone()));
    assert_eq!(run(1000.0), (without, looks));
}

#[test]
fn converged_cases_keep_running() {
    let noise = noisy(3, 0.04, 0.01);
    let mock = Mock::with(2, move |lab, ask| match ask.case {
        0 => Ok(50.0 * ask.batch as f64),
        _ => noise(lab, ask),
    });
    let plan = Plan {
        precision: Some(0.01),
        ..mock.plan()
    };
    let (measured, events) = mock.run(&plan);
    let measured = measured.unwrap();
    assert_eq!(looked(&events)[0], (10, 1));
    assert!(epochs(&measured) > 10);
    let trials = |case: usize| measured.cases[case].samples.concat().len();
    assert_eq!(trials(0), trials(1));
}

#[test]
fn floors_need_not_converge() {
    let noise = noisy(4, 0.2, 0.1);
    let mut mock = Mock::with(3, move |lab, ask| match ask.case {
        2 => noise(lab, ask),
        _ => Ok(50.0 * ask.batch as f64),
    });
    mock.cases[2].role = Role::Floor;
    let plan = Plan {
        precision: Some(0.01),
        ..mock.plan()
    };
    let measured = mock.run(&plan).0.unwrap();
    assert_eq!(measured.stop, Some(Stop::Precision));
    assert_eq!(epochs(&measured), 10);
}

#[test]
fn a_tenth_of_a_nanosecond_is_always_narrow_enough() {
    // 1 ns that scatters by 5 %: 1 % of it could not be reached at the first look, 0.1 ns can.
    let noise = noisy(5, 0.05, 0.01);
    let mock = Mock::with(1, move |lab, ask| Ok(noise(lab, ask)? / 50.0));
    let plan = Plan {
        precision: Some(0.001),
        ..mock.plan()
    };
    let measured = mock.run(&plan).0.unwrap();
    assert_eq!(epochs(&measured), 10);
}

#[test]
fn time_ends_it_within_half_an_epoch() {
    // Three cases: epochs of 50 + 3 × 11 + 9 × 20 = 263 ms.
    for seconds in [3.0, 5.0, 5.1, 5.2, 20.0, 60.0] {
        let mock = Mock::with(3, noisy(6, 0.03, 0.01));
        let plan = Plan {
            seconds: Some(seconds),
            ..mock.plan()
        };
        let measured = mock.run(&plan).0.unwrap();
        assert_eq!(measured.stop, Some(Stop::Time));
        let spent = measured.seconds();
        assert!((spent - seconds).abs() <= 0.15, "{seconds}: {spent}");
        assert_eq!(measured.warnings, []);
    }
}

#[test]
fn an_epoch_that_has_become_slow_ends_after_the_round_under_way() {
    // From epoch 12 on everything takes 40 times as long: an epoch would take seven seconds.
    let mock = Mock::with(3, |_, ask| {
        let slow = if ask.epoch >= 12 { 40.0 } else { 1.0 };
        Ok(50.0 * slow * ask.batch as f64)
    });
    let plan = Plan {
        seconds: Some(3.8),
        ..mock.plan()
    };
    let measured = mock.run(&plan).0.unwrap();
    assert_eq!(measured.stop, Some(Stop::Time));
    assert_eq!(epochs(&measured), 13);
    let last: Vec<usize> = measured
        .cases
        .iter()
        .map(|case| case.samples[12].len())
        .collect();
    assert_eq!(last, [1, 1, 1]);
    assert!(measured.seconds() < 5.5, "{}", measured.seconds());
}

#[test]
fn a_time_too_short_for_the_first_look_is_refused_after_one_epoch() {
    let mock = Mock::new(&[10.0, 20.0, 30.0]);
    let plan = Plan {
        seconds: Some(1.5),
        ..mock.plan()
    };
    let (outcome, events) = mock.run(&plan);
    let Err(error @ Error::TooShort { needed, epochs, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(epochs, 10);
    let text = error.to_string();
    assert!(text.starts_with("1.5 s are too short"), "{text}");
    assert!(text.contains(&format!("--time {needed}s")), "{text}");
    assert!((2.6..4.0).contains(&needed), "{needed}");
    assert_eq!(mock.lab.loads.borrow().len(), 1);
    assert_eq!(mock.lab.unloads.get(), 1);
    assert!(!events.iter().any(|e| matches!(e, Event::Stopped { .. })));

    // What it says suffices does suffice.
    let again = Mock::new(&[10.0, 20.0, 30.0]);
    let enough = Plan {
        seconds: Some(needed),
        ..plan
    };
    let measured = again.run(&enough).0.unwrap();
    assert!((10..=13).contains(&self::epochs(&measured)));
}

#[test]
fn a_time_that_nobody_asked_for_waits_for_the_first_look() {
    let mock = Mock::new(&[10.0, 20.0, 30.0]);
    let plan = Plan {
        seconds: Some(1.5),
        patient: true,
        ..mock.plan()
    };
    let (outcome, events) = mock.run(&plan);
    let measured = outcome.unwrap();
    assert_eq!(measured.stop, Some(Stop::Time));
    assert_eq!((epochs(&measured), looked(&events)[0].0), (10, 10));
}

#[test]
fn time_for_the_first_look_is_not_refused_for_calibration() {
    // Ten epochs take 2.63 s, and calibration 0.6 s once. Projected with ten calibrations it would
    // be 8 s.
    let mock = Mock::new(&[10.0, 20.0, 30.0]);
    let plan = Plan {
        seconds: Some(3.6),
        ..mock.plan()
    };
    let measured = mock.run(&plan).0.unwrap();
    assert!(epochs(&measured) >= 10);
}

/// Three seconds of work that no later epoch has: ten times as much would not fit.
#[test]
fn a_slow_first_load_is_no_reason_to_refuse_a_time() {
    let mut mock = Mock::new(&[10.0, 20.0, 30.0]);
    mock.load = Rc::new(|lab, epoch| {
        lab.pass_s(if epoch == 0 { 3.0 } else { 0.0 });
        Ok(())
    });
    let plan = Plan {
        seconds: Some(6.5),
        ..mock.plan()
    };
    let measured = mock.run(&plan).0.expect("there is time");
    assert!(epochs(&measured) >= 10);
}

/// A busy machine: every other epoch takes twice as long. The quicker ones show that the time may do.
#[test]
fn an_epoch_that_others_slow_down_is_no_reason_to_refuse_a_time() {
    let mut mock = Mock::new(&[10.0, 20.0, 30.0]);
    mock.load = Rc::new(|lab, epoch| {
        lab.pass_s(if epoch % 2 == 1 { 0.3 } else { 0.0 });
        Ok(())
    });
    let plan = Plan {
        seconds: Some(3.6),
        ..mock.plan()
    };
    let measured = mock.run(&plan).0.expect("it goes on");
    assert!(epochs(&measured) >= 10);
}

#[test]
fn a_run_that_becomes_too_slow_before_its_first_look_is_refused_then() {
    let mock = Mock::with(3, |_, ask| {
        let slow = if ask.epoch >= 4 { 40.0 } else { 1.0 };
        Ok(50.0 * slow * ask.batch as f64)
    });
    let plan = Plan {
        seconds: Some(3.6),
        ..mock.plan()
    };
    let outcome = mock.run(&plan).0;
    assert!(
        matches!(outcome, Err(Error::TooShort { .. })),
        "{outcome:?}"
    );
    assert_eq!(mock.lab.held.get(), 0);
}

#[test]
fn a_precision_that_is_out_of_reach_ends_after_an_hour_and_says_so() {
    let mock = Mock::with(2, noisy(8, 0.5, 0.01));
    let plan = Plan {
        precision: Some(0.001),
        goal_ns: 5e8,
        ..mock.plan()
    };
    let (measured, events) = mock.run(&plan);
    let measured = measured.unwrap();
    assert_eq!(measured.stop, Some(Stop::Time));
    assert!((3597.0..3603.0).contains(&measured.seconds()));
    let [warning] = measured.warnings.as_slice() else {
        panic!("{:?}", measured.warnings);
    };
    assert_eq!(warning.code, PRECISION);
    assert!(warning.text.starts_with("2 of 2 cases"), "{}", warning.text);
    assert!(
        warning.text.contains("a day would not be enough"),
        "{}",
        warning.text
    );
    assert!(looked(&events).len() > 10);
}

#[test]
fn the_time_that_a_warning_names_suffices() {
    let mut sufficed = 0;
    for seed in 0..20 {
        let run = |seconds| {
            let mock = Mock::with(3, noisy(100 + seed, 0.04, 0.01));
            let plan = Plan {
                precision: Some(0.005),
                seconds: Some(seconds),
                ..mock.plan()
            };
            mock.run(&plan).0.unwrap()
        };
        let text = &run(10.0).warnings[0].text;
        let (_, after) = text.split_once("--time ").unwrap();
        let option = after.split_once(' ').unwrap().0;
        let needed = humantime::parse_duration(option).unwrap().as_secs_f64();
        // Looks are up to 1.4 apart, and the widest of three intervals is uncertain by a third.
        let measured = run(2.0 * needed);
        sufficed += usize::from(measured.stop == Some(Stop::Precision));
    }
    assert!(sufficed >= 16, "{sufficed} of 20");
}

/// An epoch of another number of trials has another centre where trials are only ever slower.
#[test]
fn every_epoch_has_the_same_odd_number_of_rounds() {
    for (epoch_sd, trial_sd) in [(0.05, 0.002), (0.0005, 0.05)] {
        for quick in [false, true] {
            let mut mock = Mock::with(9, noisy(9, epoch_sd, trial_sd));
            mock.load = Rc::new(move |lab, _| {
                lab.pass_s(1.0);
                Ok(())
            });
            let plan = Plan {
                rounds: None,
                seconds: Some(120.0),
                quick,
                ..mock.plan()
            };
            let measured = mock.run(&plan).0.unwrap();
            let rounds = (0..epochs(&measured)).map(|epoch| measured.rounds(epoch));
            let whole = rounds.take(epochs(&measured) - usize::from(!quick)); // time may cut the last one short
            assert!(whole.len() >= 10);
            assert!(whole.into_iter().all(|rounds| rounds == 3));
        }
    }
}

#[test]
fn planned_rounds_stay() {
    let mock = Mock::with(2, noisy(9, 0.05, 0.002));
    let plan = Plan {
        rounds: Some(5),
        seconds: Some(10.0),
        ..mock.plan()
    };
    let measured = mock.run(&plan).0.unwrap();
    assert!((0..epochs(&measured)).all(|epoch| measured.rounds(epoch) == 5));
}
