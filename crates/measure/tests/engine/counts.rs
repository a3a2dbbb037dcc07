//! Counting instructions: no noise to average out, only interruptions to keep out.

use bpfcost_measure::{Event, Stop};
use bpfcost_model::{Fault, Sizing};
use bpfcost_record::{Record, Status, VerdictRecord};

use crate::mock::{Ask, Mock};

/// The cost of a batch beside its operations: clock reads and entry.
const ONCE: f64 = 137.0;
/// The cost of a tick.
const TICK: f64 = 2700.0;

fn counted(costs: &'static [f64]) -> Mock {
    Mock::with(costs.len(), move |_, ask: Ask| {
        Ok(ONCE + costs[ask.case] * ask.batch as f64)
    })
}

fn record(mock: &Mock) -> Record {
    let plan = mock.counting_plan();
    let measured = mock.run(&plan).0.expect("it runs");
    Record::build(&plan, &measured, "2026-01-01T00:00:00Z", Default::default())
}

#[test]
fn what_is_paid_once_a_batch_cancels() {
    let mock = counted(&[22.0, 888.0, 889.0]);
    let record = record(&mock);
    let values: Vec<f64> = record
        .cases
        .iter()
        .map(|case| case.raw.as_ref().unwrap().value)
        .collect();
    assert_eq!(values, [22.0, 888.0, 889.0]);
    let verdicts: Vec<VerdictRecord> = record.comparisons.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts, [VerdictRecord::Slower; 2]);
    assert_eq!(record.comparisons[0].difference, 866.0);
    assert_eq!(record.stop, Stop::Rounds);
}

#[test]
fn batches_are_powers_of_two_and_end_within_a_millisecond() {
    let mock = counted(&[22.0, 888.0, 2100.0]);
    let plan = mock.counting_plan();
    let (measured, _) = mock.run(&plan);
    let measured = measured.unwrap();
    for (case, cost) in measured.cases.iter().zip([22.0, 888.0, 2100.0]) {
        let batch = case.calibration.unwrap().batch.0;
        assert!(batch.is_power_of_two(), "{batch}");
        let twice = 2.0 * batch as f64 * cost;
        assert!((2e5..1e6).contains(&twice), "{twice}");
    }
}

#[test]
fn every_load_that_counts_lives_through_the_same() {
    let mock = counted(&[22.0, 888.0]);
    let (measured, events) = mock.run(&mock.counting_plan());
    measured.unwrap();
    // One load more than there are epochs: the one in which batches were found.
    let finished = |event: &&Event| matches!(event, Event::EpochFinished { .. });
    let epochs = events.iter().filter(finished).count();
    let loads = mock.lab.loads.borrow().len();
    assert_eq!((epochs, loads), (5, 6));
    assert_eq!((mock.lab.unloads.get(), mock.lab.held.get()), (6, 0));
    let asks = mock.lab.asks.borrow();
    let of_load = |load: usize| -> Vec<(usize, u64)> {
        let own = asks.iter().filter(|ask| ask.epoch == load);
        own.map(|ask| (ask.case, ask.batch)).collect()
    };
    assert!(!of_load(1).is_empty());
    for load in 2..loads {
        assert_eq!(of_load(load), of_load(1));
    }
    // Nothing runs twice there but N and 2N, eight times.
    assert_eq!(of_load(1).len(), 2 * 2 * 8);
}

/// One whose count goes by its load needs more of them; the others are done before.
#[test]
fn a_case_has_the_loads_that_it_needs() {
    let mut mock = counted(&[22.0, 888.0, 7.0]);
    mock.cases[1].loads = 8;
    let plan = mock.counting_plan();
    let measured = mock.run(&plan).0.expect("it runs");
    let loads = |case: usize| {
        let samples = measured.cases[case].samples.iter();
        samples.filter(|trials| !trials.is_empty()).count()
    };
    assert_eq!([loads(0), loads(1), loads(2)], [5, 8, 5]);
    // The last loads hold nothing but what still runs.
    let last = mock.lab.loads.borrow().last().cloned();
    assert_eq!(last.map(|cases| cases.len()), Some(1));
    let record = Record::build(&plan, &measured, "2026-01-01T00:00:00Z", Default::default());
    let epochs = record.cases.iter().map(|case| case.raw.as_ref().unwrap());
    let epochs: Vec<(usize, f64)> = epochs.map(|raw| (raw.epochs, raw.value)).collect();
    assert_eq!(epochs, [(5, 22.0), (8, 888.0), (5, 7.0)]);
}

#[test]
fn quick_takes_two_loads() {
    let mock = counted(&[22.0, 888.0]);
    let plan = bpfcost_measure::Plan {
        quick: true,
        ..mock.counting_plan()
    };
    let (_, events) = mock.run(&plan);
    let finished = |event: &&Event| matches!(event, Event::EpochFinished { .. });
    assert_eq!(events.iter().filter(finished).count(), 2);
}

#[test]
fn a_batch_with_a_tick_is_run_again() {
    // Two of three batches are ticked into.
    let mock = Mock::with(2, |lab, ask: Ask| {
        let tick = !ask.total.is_multiple_of(3);
        lab.ticks.set(u64::from(tick));
        let cost = [100.0, 300.0][ask.case];
        Ok(ONCE + cost * ask.batch as f64 + if tick { TICK } else { 0.0 })
    });
    let record = record(&mock);
    for (case, cost) in record.cases.iter().zip([100.0, 300.0]) {
        let raw = case.raw.as_ref().unwrap();
        assert_eq!((raw.min, raw.value, raw.max), (cost, cost, cost));
        assert_eq!(raw.repeats, Some(raw.trials));
    }
}

#[test]
fn where_every_batch_has_a_tick_the_one_with_the_fewest_counts() {
    let mock = Mock::with(1, |lab, ask: Ask| {
        let ticks = 1 + ask.total as u64 % 2;
        lab.ticks.set(ticks);
        Ok(50.0 * ask.batch as f64 + TICK * ticks as f64)
    });
    let record = record(&mock);
    assert_eq!(record.cases[0].raw.as_ref().unwrap().value, 50.0);
}

#[test]
fn a_batch_in_which_the_thread_slept_is_run_again() {
    // The clock jumps in the first batch of each case, and in every third one.
    let mut mock = Mock::with(2, |lab, ask: Ask| {
        let sleeps = ask.before == 0 || ask.total.is_multiple_of(3);
        lab.waits.set(u64::from(sleeps));
        let cost = [100.0, 300.0][ask.case];
        Ok(ONCE + cost * ask.batch as f64 + if sleeps { 1e6 } else { 0.0 })
    });
    // One is tried once, to find its batch.
    mock.cases[1].sizing = Sizing::Fixed(6500);
    let record = record(&mock);
    for (case, cost) in record.cases.iter().zip([100.0, 300.0 + ONCE / 6500.0]) {
        let raw = case.raw.as_ref().unwrap();
        assert_eq!((raw.min, raw.value, raw.max), (cost, cost, cost));
    }
}

#[test]
fn what_sleeps_in_every_batch_is_invalid() {
    let mock = Mock::with(2, |lab, ask: Ask| {
        lab.waits.set(u64::from(ask.case == 0));
        Ok(50.0 * ask.batch as f64)
    });
    let record = record(&mock);
    let [sleeps, other] = &record.cases[..] else {
        panic!("two cases")
    };
    assert_eq!(sleeps.status, Status::Invalid);
    assert_eq!(sleeps.problems[0].check, "waits");
    assert_eq!(other.status, Status::Ok);
}

#[test]
fn a_fixed_batch_is_counted_whole() {
    let mut mock = counted(&[100.0, 300.0]);
    mock.cases[1].sizing = Sizing::Fixed(6500);
    let plan = mock.counting_plan();
    let (measured, _) = mock.run(&plan);
    let case = &measured.unwrap().cases[1];
    assert_eq!(case.calibration.unwrap().batch.0, 6500);
    assert!(
        case.samples
            .concat()
            .iter()
            .all(|v| *v == 300.0 + ONCE / 6500.0)
    );
    assert!(
        mock.lab
            .asks
            .borrow()
            .iter()
            .all(|ask| ask.case == 0 || ask.batch == 6500)
    );
}

#[test]
fn what_needs_several_cpus_is_unsupported() {
    let mut mock = counted(&[22.0, 888.0]);
    mock.cases[1].cpus = 2;
    let record = record(&mock);
    assert_eq!(record.cases[1].status, Status::Unsupported);
    let reason = record.cases[1].reason.as_deref().unwrap();
    assert!(reason.contains("2 CPUs"), "{reason}");
    assert_eq!(record.cases[0].status, Status::Ok);
    // On a clock of seconds it runs.
    let timed = mock.run(&bpfcost_measure::Plan {
        quick: true,
        ..mock.plan()
    });
    assert!(timed.0.unwrap().cases[1].unsupported.is_none());
}

#[test]
fn a_case_that_fails_while_its_batch_is_sought_is_invalid_and_the_others_run() {
    let mock = Mock::with(2, |_, ask: Ask| {
        if ask.case == 1 && ask.batch > 1 {
            return Err(Fault::Invalid(bpfcost_model::Problem {
                check: "waits".to_owned(),
                expected: "0".to_owned(),
                got: "1".to_owned(),
                detail: String::new(),
            }));
        }
        Ok(40.0 * ask.batch as f64)
    });
    let record = record(&mock);
    assert_eq!(record.cases[1].status, Status::Invalid);
    assert_eq!(record.cases[0].raw.as_ref().unwrap().value, 40.0);
    assert_eq!(mock.lab.held.get(), 0);
}

/// Twice the work that takes no longer is no work: a clock that stands still must not pass for a cost of 0.
#[test]
fn a_count_of_nothing_is_invalid() {
    let mock = Mock::with(2, |_, ask: Ask| {
        Ok(match ask.case {
            0 => ONCE,
            _ => ONCE + 50.0 * ask.batch as f64,
        })
    });
    let record = record(&mock);
    assert_eq!(record.cases[0].status, Status::Invalid);
    assert_eq!(record.cases[0].problems[0].check, "twice the batch");
    assert_eq!(record.cases[0].raw, None);
    assert_eq!(record.cases[1].raw.as_ref().unwrap().value, 50.0);
}
