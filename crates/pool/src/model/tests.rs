//! Known answers: what an access costs, which core waits for which, and that nothing depends on chance.

use core::cell::{Cell, RefCell};
use std::{rc::Rc, vec, vec::Vec};

use super::{
    ModelMachine, ModelPool,
    line::{Access, AccessOutcome, SimulatedLine, time},
    predict,
    primitive::Simulated,
    random::Random,
    study::StudyArray,
    world::Simulation,
};
use crate::{
    Pool, Stride,
    primitive::{Atomic, Primitive},
};

use core::sync::atomic::Ordering::Relaxed;

const COMPACT: ModelPool = ModelPool::Array(Stride::Compact);
const PADDED: ModelPool = ModelPool::Array(Stride::Padded);

/// One socket, with what lines cost on the machine that this was written on.
fn socket(cores: u32) -> ModelMachine {
    ModelMachine::new(1, cores, 4.5, 57.0, 142.0)
}

/// Nanoseconds of one of `threads` for a pair, with two objects a CPU and no work.
fn pair_ns(kind: ModelPool, machine: &ModelMachine, threads: u32) -> f64 {
    let objects = 2 * machine.cpus() as usize;
    let rate = predict(kind, machine, threads, objects, 0.0).unwrap();
    f64::from(threads) * 1e9 / rate
}

#[test]
fn alone_a_thread_pays_what_its_accesses_cost() {
    let machine = socket(4);
    let value = Rc::new(<Simulated as Primitive>::U32::new(0));
    let ended = Rc::new(Cell::new(0));
    let last = Rc::clone(&ended);
    Simulation::run(&machine, 1, 3, move |world, _| {
        for _ in 0..100 {
            let held = value.load(Relaxed);
            assert_eq!(value.swap(held + 1, Relaxed), held);
            value.store(held + 2, Relaxed);
            let there = value.compare_exchange(held + 2, held, Relaxed, Relaxed);
            let gone = value.compare_exchange(held + 2, held, Relaxed, Relaxed);
            assert_eq!((there, gone), (Ok(held + 2), Err(held)));
            value.fetch_add(1, Relaxed);
        }
        ended.set(world.now());
    })
    .unwrap();
    let turn = time(machine.load_ns) * 2 + time(machine.own_ns) * 4;
    assert_eq!(last.get(), 100 * turn);
}

#[test]
fn alone_no_pool_costs_more_than_its_few_accesses() {
    for kind in [
        ModelPool::Freelist,
        COMPACT,
        PADDED,
        ModelPool::StudyArray,
        ModelPool::PerCpu,
    ] {
        let machine = socket(4);
        let found = pair_ns(kind, &machine, 1) / machine.own_ns;
        // The least: an exchange and a store.
        assert!((1.2..8.0).contains(&found), "{kind:?}: {found} changes");
    }
}

#[test]
fn work_is_added_to_a_pair() {
    let machine = socket(4);
    let rate = |work| 1e9 / predict(PADDED, &machine, 1, 8, work).unwrap();
    let added = rate(1000.0) - rate(0.0);
    assert!((950.0..1050.0).contains(&added), "{added}");
}

#[test]
fn a_line_is_kept_a_moment_after_another_asked_for_it() {
    let (machine, random) = (socket(2), Random::new(7));
    let mut line = SimulatedLine::default();
    let mut change = |core, at| line.access(&machine, core, time(at), Access::Change, &random);
    assert_eq!(change(0, 0.0), AccessOutcome::Hit);
    assert_eq!(change(0, 5.0), AccessOutcome::Hit);
    let AccessOutcome::Comes(second) = change(1, 10.0) else {
        panic!("another core has it");
    };
    let transfer = second - time(10.0);
    assert!((time(57.0 * 0.8)..=time(57.0 * 1.2)).contains(&transfer));
    // Asked for again while it travels, it comes back after it has arrived.
    let AccessOutcome::Comes(third) = change(0, 10.0 + 57.0 * 0.5) else {
        panic!("it was given up by then");
    };
    assert!(third >= second + time(57.0 * 0.8));
}

#[test]
fn readers_share_a_line_and_a_writer_takes_it_from_all() {
    let (machine, random) = (ModelMachine::new(2, 2, 4.5, 57.0, 142.0), Random::new(7));
    let mut line = SimulatedLine::default();
    let mut access = |core, at, kind| line.access(&machine, core, time(at), kind, &random);
    let near = time(57.0 * 0.8)..=time(57.0 * 1.2);
    let far = time(142.0 * 0.8)..=time(142.0 * 1.2);
    assert_eq!(access(0, 0.0, Access::Change), AccessOutcome::Hit);
    // Core 2 is on the other socket; core 3 then finds the line in its own.
    let AccessOutcome::Comes(at) = access(2, 1000.0, Access::Load) else {
        panic!("core 0 has it");
    };
    assert!(far.contains(&(at - time(1000.0))));
    let AccessOutcome::Comes(at) = access(3, 2000.0, Access::Load) else {
        panic!("core 3 never had it");
    };
    assert!(near.contains(&(at - time(2000.0))));
    for core in [0, 2, 3] {
        assert_eq!(access(core, 3000.0, Access::Load), AccessOutcome::Hit);
    }
    let AccessOutcome::Comes(at) = access(0, 4000.0, Access::Change) else {
        panic!("it is shared");
    };
    assert!(far.contains(&(at - time(4000.0))));
    assert!(matches!(
        access(3, 5000.0, Access::Load),
        AccessOutcome::Comes(_)
    ));
}

/// Threads that do nothing but add to one value: who added, in order, and when the last was done.
fn adders(machine: &ModelMachine, threads: u32, each: usize) -> (Vec<usize>, u64) {
    let value = Rc::new(<Simulated as Primitive>::U64::new(0));
    let order = Rc::new(RefCell::new(Vec::new()));
    let ended = Rc::new(Cell::new(0));
    let (seen, last) = (Rc::clone(&order), Rc::clone(&ended));
    Simulation::run(machine, threads, 3, move |world, thread| {
        for _ in 0..each {
            let before = value.fetch_add(1, Relaxed);
            assert_eq!(before as usize, order.borrow().len(), "no addition is lost");
            order.borrow_mut().push(thread);
            world.pass(1.0);
        }
        ended.set(ended.get().max(world.now()));
    })
    .unwrap();
    let order = seen.borrow().clone();
    (order, last.get())
}

#[test]
fn two_that_fight_for_a_line_take_turns_and_wait_for_transfers() {
    let (order, ended) = adders(&socket(2), 2, 500);
    let turns = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    // A line is kept for a moment, so that some add twice before it goes.
    assert!((300..1000).contains(&turns), "{turns}");
    let transfers = ended as f64 / time(57.0) as f64;
    assert!(
        (0.8 * turns as f64..1.2 * turns as f64).contains(&transfers),
        "{transfers}"
    );
}

#[test]
fn siblings_share_a_core_and_its_lines() {
    let machine = ModelMachine {
        threads_per_core: 2,
        smt: 1.25,
        ..socket(1)
    };
    let (_, ended) = adders(&machine, 2, 500);
    let alone = adders(&machine, 1, 500).1;
    // Twice the work, in a core that gets 1.25 times as much done.
    let ratio = ended as f64 / alone as f64;
    assert!((1.5..1.7).contains(&ratio), "{ratio}");
}

#[test]
fn no_thread_starves() {
    let (order, _) = adders(&socket(16), 16, 200);
    let mut done = [0; 16];
    for thread in order {
        done[thread] += 1;
        if done[thread] == 200 {
            break;
        }
    }
    // The first is done, and the others have come far.
    assert!(done.iter().all(|adds| *adds > 100), "{done:?}");
}

#[test]
fn more_cores_help_the_padded_array_and_the_ring_and_hurt_the_freelist() {
    let machine = socket(32);
    let rates = |kind| [1, 4, 32].map(|threads| predict(kind, &machine, threads, 64, 2.0).unwrap());
    for kind in [PADDED, ModelPool::PerCpu] {
        let [one, four, all] = rates(kind);
        assert!(four > 3.5 * one && all > 25.0 * one, "{kind:?}");
    }
    let [one, four, all] = rates(ModelPool::Freelist);
    assert!(one > 2.0 * four && four > 1.5 * all);
    // Side by side, slots share lines: fast is only who is alone on one.
    assert!(rates(COMPACT)[2] < 0.3 * rates(PADDED)[2]);
}

#[test]
fn lines_of_half_the_size_hold_half_the_slots() {
    let wide = socket(16);
    let narrow = ModelMachine {
        line_bytes: 32,
        ..wide
    };
    let rate = |machine| predict(COMPACT, machine, 16, 32, 200.0).unwrap();
    assert!(rate(&narrow) > 1.2 * rate(&wide));
}

#[test]
fn more_threads_than_cpus_take_turns() {
    let machine = socket(4);
    let rate = |threads| predict(ModelPool::Freelist, &machine, threads, 8, 100.0).unwrap();
    assert_eq!(rate(4), rate(16));
}

#[test]
fn the_same_question_has_the_same_answer_wherever_memory_lies() {
    let machine = socket(12);
    for kind in [
        ModelPool::Freelist,
        COMPACT,
        PADDED,
        ModelPool::StudyArray,
        ModelPool::PerCpu,
    ] {
        let rate = || predict(kind, &machine, 12, 24, 10.0).unwrap();
        let first = rate();
        // Moves what is allocated next by one size after another.
        let hold: Vec<Vec<u8>> = (1..40).map(|size| vec![0; size * 8]).collect();
        assert_eq!(first, rate());
        drop(hold);
        assert_eq!(first, rate());
    }
}

#[test]
fn what_can_be_no_pool_is_refused() {
    let machine = socket(2);
    for kind in [
        ModelPool::Freelist,
        COMPACT,
        ModelPool::StudyArray,
        ModelPool::PerCpu,
    ] {
        assert_eq!(
            predict(kind, &machine, 2, 0, 0.0),
            Err(crate::Error::NoObjects)
        );
    }
}

#[test]
fn the_studys_array_loses_nothing_and_hands_nothing_out_twice() {
    let (threads, objects) = (6, 4);
    let pool = Rc::new(StudyArray::<Simulated>::with_primitive(objects, threads).unwrap());
    let out = Rc::new(RefCell::new(vec![false; objects]));
    let moved = Rc::new(Cell::new(0));
    let (shared, held, came) = (Rc::clone(&pool), Rc::clone(&out), Rc::clone(&moved));
    Simulation::run(&socket(6), 6, 3, move |world, cpu| {
        for _ in 0..200 {
            let Some(object) = shared.pop(cpu) else {
                Simulation::relax();
                continue;
            };
            let twice = core::mem::replace(&mut held.borrow_mut()[object.index()], true);
            assert!(!twice, "handed out twice");
            world.pass(50.0);
            held.borrow_mut()[object.index()] = false;
            // To any slot: also where another thread begins.
            shared.push(cpu + 1, object);
            came.set(came.get() + 1);
        }
    })
    .unwrap();
    assert!(moved.get() > 200, "{}", moved.get());
    let mut left: Vec<usize> = core::iter::from_fn(|| pool.pop(0))
        .map(|object| object.index())
        .collect();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 3]);
}
