//! Failures end no more than they must, and leave nothing loaded.

use std::rc::Rc;

use anyhow::anyhow;
use bpfcost_measure::{Error, Event, Measurements, Plan, Stop, measure};
use bpfcost_model::{Fault, Observed, Role};

use crate::mock::{Mock, invalid, noisy, usual};

fn quick(mock: &Mock) -> Plan {
    Plan {
        quick: true,
        ..mock.plan()
    }
}

fn invalids(events: &[Event]) -> Vec<(usize, usize)> {
    let of = |event: &Event| match event {
        Event::Invalid { epoch, case, .. } => Some((*epoch, *case)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn an_unsupported_case_is_told_first_and_never_loaded() {
    let mut mock = Mock::new(&[10.0, 20.0, 30.0]);
    mock.unsupported = Some(1);
    let (measured, events) = mock.run(&quick(&mock));
    let Event::Unsupported { case: 1, reason } = &events[0] else {
        panic!("{:?}", events[0]);
    };
    assert_eq!(reason, "needs Linux 9");
    assert!(
        mock.lab
            .loads
            .borrow()
            .iter()
            .all(|load| load == &["c0", "c2"])
    );
    let measured = measured.unwrap();
    assert!(measured.cases[1].samples.concat().is_empty());
    assert_eq!(measured.cases[2].samples.concat().len(), 30);
}

#[test]
fn a_case_that_shows_something_wrong_is_not_timed() {
    let mut mock = Mock::new(&[10.0, 20.0]);
    mock.observed = Rc::new(|_, (_, case)| match case {
        1 => Err(invalid()),
        _ => Ok(Observed::default()),
    });
    let (measured, events) = mock.run(&quick(&mock));
    assert_eq!(invalids(&events), [(0, 1)]);
    let measured = measured.unwrap();
    assert!(measured.cases[1].samples.concat().is_empty());
    assert_eq!(measured.cases[0].samples.concat().len(), 30);
}

#[test]
fn a_case_that_fails_a_trial_runs_no_more_and_the_others_go_on() {
    let mock = Mock::with(3, |_, ask| {
        if ask.case == 1 && ask.epoch == 2 && ask.before == 2 {
            return Err(invalid());
        }
        Ok(50.0 * ask.batch as f64)
    });
    let (measured, events) = mock.run(&quick(&mock));
    assert_eq!(invalids(&events), [(2, 1)]);
    let asks = mock.lab.asks.borrow();
    let last = asks.iter().rfind(|ask| ask.case == 1).unwrap();
    assert_eq!((last.epoch, last.before), (2, 2));
    let loads = mock.lab.loads.borrow();
    assert_eq!(loads[2], ["c0", "c1", "c2"]);
    assert_eq!(loads[3], ["c0", "c2"]);
    let measured = measured.unwrap();
    assert_eq!(measured.cases[1].problems.len(), 1);
    assert!(!measured.cases[1].live());
    assert_eq!(measured.cases[0].samples.concat().len(), 30);
    assert_eq!(measured.cases[2].samples.concat().len(), 30);
}

#[test]
fn a_case_is_proved_once_more_after_the_rounds() {
    let mut mock = Mock::new(&[10.0, 20.0]);
    mock.conclude = Rc::new(|_, key| match key {
        (2, 1) => Err(invalid()),
        _ => Ok(()),
    });
    let (measured, events) = mock.run(&quick(&mock));
    assert_eq!(invalids(&events), [(2, 1)]);
    // The trials of that epoch came before, and the case has none after.
    let asks = mock.lab.asks.borrow();
    let last = asks.iter().rfind(|ask| ask.case == 1).unwrap();
    assert_eq!((last.epoch, last.before), (2, 3));
    let measured = measured.unwrap();
    assert!(!measured.cases[1].live());
    assert_eq!(measured.cases[0].samples.concat().len(), 30);
}

#[test]
fn a_warning_of_each_epoch_is_given_once() {
    let mut mock = Mock::new(&[10.0, 20.0]);
    mock.observed = Rc::new(|_, _| {
        Ok(Observed {
            facts: None,
            warnings: vec![("odd", "it is odd".to_owned())],
        })
    });
    let (measured, _) = mock.run(&quick(&mock));
    let warnings = measured.unwrap().warnings;
    let odd = warnings.iter().filter(|warning| warning.code == "odd");
    assert_eq!(odd.count(), 1, "{warnings:?}");
}

#[test]
fn a_case_that_fails_at_any_point_is_told_once() {
    // Calibration takes trials 0 to 6, then there is a warm-up, then the rounds.
    for failing in 0..11 {
        let mock = Mock::with(2, move |_, ask| {
            if ask.case == 0 && ask.before == failing && ask.epoch == 0 {
                return Err(invalid());
            }
            Ok(50.0 * ask.batch as f64)
        });
        let (measured, events) = mock.run(&quick(&mock));
        assert_eq!(invalids(&events), [(0, 0)], "{failing}");
        let asks = mock.lab.asks.borrow();
        let asked = asks.iter().filter(|ask| ask.case == 0).count();
        assert_eq!(asked, failing + 1);
        assert_eq!(measured.unwrap().cases[1].samples.concat().len(), 30);
    }
}

#[test]
fn a_case_that_fails_its_preparation_is_not_timed() {
    let mut mock = Mock::new(&[10.0, 20.0]);
    mock.prepare = Rc::new(|_, (_, case)| if case == 0 { Err(invalid()) } else { Ok(()) });
    let (measured, events) = mock.run(&quick(&mock));
    assert_eq!(invalids(&events), [(0, 0)]);
    assert!(mock.lab.asks.borrow().iter().all(|ask| ask.case == 1));
    assert_eq!(measured.unwrap().stop, Some(Stop::Rounds));
}

#[test]
fn when_no_case_is_left_the_run_ends() {
    for floor in [false, true] {
        let mut mock = Mock::with(2, move |_, ask| {
            if ask.epoch == 1 && (ask.case == 0 || !floor) {
                return Err(invalid());
            }
            Ok(50.0 * ask.batch as f64)
        });
        if floor {
            mock.cases[1].role = Role::Floor;
        }
        let (measured, _) = mock.run(&mock.plan());
        assert_eq!(measured.unwrap().stop, Some(Stop::Rounds));
        assert_eq!(mock.lab.loads.borrow().len(), 2);
        assert_eq!(mock.lab.unloads.get(), 2);
    }
    let mut mock = Mock::new(&[10.0]);
    mock.unsupported = Some(0);
    let (measured, _) = mock.run(&mock.plan());
    assert_eq!(measured.unwrap().stop, Some(Stop::Rounds));
    assert!(mock.lab.loads.borrow().is_empty());
}

#[test]
fn a_value_that_is_no_number_is_invalid() {
    let mock = Mock::with(2, |_, ask| match (ask.case, ask.epoch) {
        (1, 1) => Ok(f64::NAN),
        _ => Ok(50.0 * ask.batch as f64),
    });
    let (measured, events) = mock.run(&quick(&mock));
    assert_eq!(invalids(&events), [(1, 1)]);
    assert_eq!(measured.unwrap().cases[1].problems[0].check, "value");
}

#[test]
fn whatever_breaks_the_run_says_where_and_unloads() {
    type Break = fn(&mut Mock);
    let breaks: [(Break, &str, usize); 4] = [
        (
            |mock| {
                mock.load = Rc::new(|_, epoch| match epoch {
                    2 => Err(anyhow!("no memory")),
                    _ => Ok(()),
                });
            },
            "loading epoch 2 failed",
            2,
        ),
        (
            |mock| {
                mock.prepare = Rc::new(|_, at| match at {
                    (2, 1) => Err(Fault::Broken(anyhow!("no memory"))),
                    _ => Ok(()),
                });
            },
            "preparing c1 in epoch 2 failed",
            3,
        ),
        (
            |mock| {
                mock.elapsed = Rc::new(|_, ask| match (ask.epoch, ask.case, ask.before) {
                    (2, 1, 2) => Err(Fault::Broken(anyhow!("no memory"))),
                    _ => Ok(50.0 * ask.batch as f64),
                });
            },
            "timing c1 in epoch 2 failed",
            3,
        ),
        (
            |mock| {
                mock.unload = Rc::new(|_, epoch| match epoch {
                    2 => Err(anyhow!("no memory")),
                    _ => Ok(()),
                });
            },
            "unloading epoch 2 failed",
            3,
        ),
    ];
    for (apply, text, unloads) in breaks {
        let mut mock = Mock::new(&[10.0, 20.0]);
        apply(&mut mock);
        let (outcome, events) = mock.run(&quick(&mock));
        let Err(error @ Error::Broken { .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(error.to_string(), text);
        assert!(format!("{:#}", anyhow::Error::from(error)).ends_with("no memory"));
        assert_eq!(mock.lab.unloads.get(), unloads, "{text}");
        assert_eq!(mock.lab.held.get(), 0, "{text}");
        let trials = |event: &&Event| matches!(event, Event::Trial { .. });
        assert!(events.iter().filter(trials).count() >= 12, "{text}");
    }
}

#[test]
fn an_observer_that_fails_ends_the_run_and_unloads() {
    for after in [0, 1, 2, 5, 30] {
        let mock = Mock::new(&[10.0, 20.0]);
        let plan = quick(&mock);
        let mut observed = 0;
        let outcome = measure(
            &mock,
            &usual,
            &plan,
            &*mock.lab,
            &mock.lab.interrupt,
            Measurements::new(&plan),
            &mut |_| {
                observed += 1;
                if observed > after {
                    return Err(anyhow!("disk full"));
                }
                Ok(())
            },
        );
        assert!(matches!(outcome, Err(Error::Unobserved(_))), "{outcome:?}");
        assert_eq!(observed, after + 1);
        assert_eq!(mock.lab.held.get(), 0);
        assert_eq!(mock.lab.unloads.get(), mock.lab.loads.borrow().len());
    }
}

#[test]
fn a_panic_loses_nothing_that_was_told_and_leaves_nothing_loaded() {
    let mock = Mock::with(2, |_, ask| {
        assert!(ask.total < 60, "a bug in an experiment");
        Ok(50.0 * ask.batch as f64)
    });
    let plan = quick(&mock);
    let mut observed = 0;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        measure(
            &mock,
            &usual,
            &plan,
            &*mock.lab,
            &mock.lab.interrupt,
            Measurements::new(&plan),
            &mut |event| {
                observed += usize::from(matches!(event, Event::Trial { .. }));
                Ok(())
            },
        )
    }));
    assert!(outcome.is_err());
    assert!(observed > 20);
    assert_eq!(mock.lab.held.get(), 0);
}

#[test]
fn an_interruption_keeps_the_trials_that_ended() {
    // Set while a trial runs: that trial still counts, the next does not begin.
    for at in 0..60 {
        let mock = Mock::with(3, move |lab, ask| {
            if ask.total == at {
                lab.interrupt();
            }
            Ok(50.0 * ask.batch as f64)
        });
        let (measured, events) = mock.run(&quick(&mock));
        let measured = measured.unwrap();
        assert_eq!(measured.stop, Some(Stop::Interrupted));
        assert_eq!(
            events.last(),
            Some(&Event::Stopped {
                stop: Stop::Interrupted
            })
        );
        assert_eq!(mock.lab.asks.borrow().len(), at + 1);
        assert_eq!(mock.lab.held.get(), 0);
        assert_eq!(mock.lab.unloads.get(), mock.lab.loads.borrow().len());
        let observed = events
            .iter()
            .filter(|event| matches!(event, Event::Trial { .. }))
            .count();
        let kept: usize = measured
            .cases
            .iter()
            .map(|c| c.samples.concat().len())
            .sum();
        assert_eq!(observed, kept);
        let mut folded = Measurements::new(&mock.plan());
        events.iter().for_each(|event| folded.apply(event));
        assert_eq!(folded, measured);
    }
}

#[test]
fn a_fault_that_comes_with_an_interruption_is_no_finding() {
    for broken in [false, true] {
        let mock = Mock::with(2, move |lab, ask| {
            if ask.total < 40 {
                return Ok(50.0 * ask.batch as f64);
            }
            lab.interrupt();
            Err(if broken {
                Fault::Broken(anyhow!("interrupted system call"))
            } else {
                invalid()
            })
        });
        let (measured, events) = mock.run(&quick(&mock));
        assert_eq!(measured.unwrap().stop, Some(Stop::Interrupted));
        assert_eq!(invalids(&events), []);
    }
}

#[test]
fn what_stays_loaded_is_told_though_the_run_was_interrupted() {
    let mut mock = Mock::with(2, |lab, ask| {
        lab.interrupt();
        Ok(50.0 * ask.batch as f64)
    });
    mock.unload = Rc::new(|_, _| Err(anyhow!("still there")));
    let (outcome, _) = mock.run(&quick(&mock));
    assert!(matches!(outcome, Err(Error::Broken { .. })), "{outcome:?}");
}

#[test]
fn what_is_told_is_what_is_returned() {
    let mock = Mock::with(4, noisy(1, 0.02, 0.01));
    let plan = Plan {
        seconds: Some(20.0),
        precision: Some(0.0001),
        rounds: None,
        ..mock.plan()
    };
    let (measured, events) = mock.run(&plan);
    let mut folded = Measurements::new(&plan);
    events.iter().for_each(|event| folded.apply(event));
    assert_eq!(folded, measured.unwrap());
    // A journal's line holds each of them without loss.
    for event in events {
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }
}
