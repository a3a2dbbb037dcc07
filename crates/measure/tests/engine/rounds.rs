//! Every case once a round, in an order that the seed decides.

use std::{collections::BTreeMap, rc::Rc};

use bpfcost_measure::{Event, Plan, Warning};
use bpfcost_model::{Observed, Role};

use crate::mock::{Mock, OWN_NS, USUAL_NS};

/// Case indices by epoch and round, in the order in which they ran.
pub(crate) type Orders = BTreeMap<(usize, usize), Vec<usize>>;

pub(crate) fn orders(events: &[Event]) -> Orders {
    let mut orders = Orders::new();
    for event in events {
        if let Event::Trial {
            epoch, round, case, ..
        } = event
        {
            orders.entry((*epoch, *round)).or_default().push(*case);
        }
    }
    orders
}

fn quick(mock: &Mock, seed: u64) -> Plan {
    Plan {
        quick: true,
        seed,
        ..mock.plan()
    }
}

#[test]
fn every_case_runs_once_a_round() {
    let mock = Mock::new(&[10.0, 20.0, 30.0, 40.0, 50.0]);
    let (measured, events) = mock.run(&quick(&mock, 7));
    let orders = orders(&events);
    assert_eq!(orders.len(), 10 * 3);
    for order in orders.values() {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4]);
    }
    let measured = measured.unwrap();
    for (index, data) in measured.cases.iter().enumerate() {
        assert_eq!(data.samples.len(), 10);
        assert!(data.samples.iter().all(|epoch| epoch.len() == 3));
        assert_eq!(data.samples[0][0], 10.0 * (index + 1) as f64);
    }
    assert!(measured.sentinel.iter().all(|epoch| epoch == &[OWN_NS; 3]));
}

#[test]
fn the_seed_decides_the_order() {
    let run = |seed| {
        let mock = Mock::new(&[10.0; 8]);
        orders(&mock.run(&quick(&mock, seed)).1)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let order = run(7);
    let distinct: std::collections::BTreeSet<_> = order.values().collect();
    assert!(distinct.len() >= 29, "of 30 orders of 8 cases"); // 8! = 40,320
}

#[test]
fn costs_do_not_change_the_order() {
    let run = |costs: &[f64]| {
        let mock = Mock::new(costs);
        orders(&mock.run(&quick(&mock, 7)).1)
    };
    assert_eq!(run(&[10.0, 10.0, 10.0]), run(&[10.0, 1000.0, 3.0]));
}

#[test]
fn an_epoch_is_loaded_prepared_warmed_up_measured_unloaded() {
    let mock = Mock::new(&[10.0, 20.0]);
    let (_, events) = mock.run(&quick(&mock, 7));
    assert_eq!(mock.lab.loads.borrow().len(), 10);
    assert_eq!(mock.lab.unloads.get(), 10);
    assert_eq!(mock.lab.held.get(), 0);
    let prepared = mock.lab.prepared.borrow();
    assert_eq!(prepared.len(), 20);
    assert_eq!(prepared[4], (2, "c0".to_owned()));
    // A warm-up trial for each case, then the rounds; the warm-up is in no event.
    let asks = mock.lab.asks.borrow();
    let second: Vec<_> = asks.iter().filter(|ask| ask.epoch == 1).collect();
    assert_eq!(second.len(), 2 + 6);
    assert!(second[..2].iter().all(|ask| ask.batch < 200_000));
    assert_eq!((second[0].case, second[1].case), (0, 1));
    let trials = |epoch| {
        let of = |event: &&Event| matches!(event, Event::Trial { epoch: e, .. } if *e == epoch);
        events.iter().filter(of).count()
    };
    assert_eq!(trials(1), 6);
    assert_eq!(trials(0), 6);
}

#[test]
fn an_epoch_tells_what_its_parts_took() {
    let mock = Mock::new(&[10.0, 20.0]);
    let (measured, _) = mock.run(&quick(&mock, 7));
    let measured = measured.unwrap();
    // 50 ms of load, two warm-ups of 11 ms, six trials of 20 ms.
    assert!((measured.load_s[4] - 0.05).abs() < 1e-6);
    assert!((measured.rounds_s[4] - 0.12).abs() < 1e-4);
    assert!((measured.epoch_s[4] - 0.192).abs() < 1e-4);
}

#[test]
fn without_a_sentinel_the_rounds_are_the_same() {
    let with = Mock::new(&[10.0; 6]);
    let mut without = Mock::new(&[10.0; 6]);
    without.waivers.sentinel = Some("nothing drifts here".to_owned());
    let plan = quick(&with, 7);
    let (measured, events) = without.run(&plan);
    assert_eq!(orders(&events), orders(&with.run(&plan).1));
    assert!(measured.unwrap().sentinel.iter().all(Vec::is_empty));
}

#[test]
fn an_experiment_without_a_sentinel_of_its_own_has_the_usual_one() {
    let mut mock = Mock::new(&[10.0; 2]);
    let levels = |mock: &Mock| mock.run(&quick(mock, 7)).0.unwrap().sentinel.concat();
    assert_eq!(levels(&mock), [OWN_NS; 30]);
    mock.sentinel = false;
    assert_eq!(levels(&mock), [USUAL_NS; 30]);
}

#[test]
fn floors_run_like_cases() {
    let mut mock = Mock::new(&[10.0, 20.0, 1.0]);
    mock.cases[2].role = Role::Floor;
    let (measured, _) = mock.run(&quick(&mock, 7));
    assert_eq!(measured.unwrap().cases[2].samples[9], [1.0; 3]);
}

/// In the first epoch alone, and nothing of cases that show nothing.
#[test]
fn what_preparing_a_case_showed_is_in_the_events() {
    let mut mock = Mock::new(&[10.0, 20.0]);
    mock.observed = Rc::new(|_, (epoch, case)| {
        Ok(Observed {
            facts: (case == 1).then(|| serde_json::json!({ "epoch": epoch })),
            warnings: if case == 1 {
                vec![("odd", format!("in {epoch}"))]
            } else {
                Vec::new()
            },
        })
    });
    let (measured, events) = mock.run(&quick(&mock, 7));
    let measured = measured.unwrap();
    assert_eq!(measured.cases[0].observed, None);
    assert_eq!(
        measured.cases[1].observed,
        Some(serde_json::json!({ "epoch": 0 }))
    );
    assert_eq!(measured.warnings, [Warning::new("odd", "in 0")]);
    let observed = |event: &&Event| matches!(event, Event::Observed { .. });
    assert_eq!(events.iter().filter(observed).count(), 1);
}
