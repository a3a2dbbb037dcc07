//! Every pool passes, and broken ones are found out.

use std::{
    sync::{Mutex, atomic::AtomicUsize},
    time::Duration,
};

use super::*;
use crate::builtin::pool::kind::Kind;
use crate::experiment::Batch;

const USE: Use = Use {
    pairs: 2000,
    hold: 0,
    bulk: 1,
};

/// What a trial finds wrong with a pool.
fn found(bed: &dyn Bed, threads: usize, each: Use, patience: Duration) -> Option<String> {
    let cpus = bpfcost_bpf::allowed_cpus();
    let group = ThreadGroup {
        cpus: &cpus,
        threads,
        patience,
    };
    let seen = bed.time(group, each).expect("it comes to its end");
    seen.problem(Batch(each.pairs)).map(|problem| problem.check)
}

#[test]
fn every_pool_passes() {
    for kind in Kind::all() {
        let bed = kind.bed(8, 2).expect("there is memory");
        for threads in [1, 4] {
            for (hold, bulk) in [(0, 1), (10, 1), (0, 4), (10, 3)] {
                let each = Use { hold, bulk, ..USE };
                let name = kind.name();
                assert_eq!(
                    found(&*bed, threads, each, PATIENCE),
                    None,
                    "{name} {each:?}"
                );
            }
        }
    }
}

/// With fewer objects than threads want at a time nobody waits for ever, and misses are counted.
#[test]
fn few_objects_are_enough_for_many_threads() {
    for kind in Kind::all() {
        let bed = kind.bed(1, 1).expect("there is memory");
        for bulk in [1, 4] {
            let each = Use { bulk, ..USE };
            assert_eq!(found(&*bed, 3, each, PATIENCE), None, "{}", kind.name());
        }
    }
    let bed = Kind::Array.bed(1, 1).expect("there is memory");
    let group = ThreadGroup {
        cpus: &bpfcost_bpf::allowed_cpus(),
        threads: 1,
        patience: PATIENCE,
    };
    let seen = bed.time(group, Use { bulk: 4, ..USE }).expect("it ends");
    assert_eq!(
        seen.tallies[0].misses,
        USE.pairs - 1,
        "one each time, but the last"
    );
}

#[test]
fn every_pair_of_the_second_pass_is_in_the_latencies() {
    let bed = Kind::Mutex.bed(2, 1).expect("there is memory");
    let group = ThreadGroup {
        cpus: &bpfcost_bpf::allowed_cpus(),
        threads: 2,
        patience: PATIENCE,
    };
    // Held for some hundred microseconds each.
    let each = Use {
        pairs: 32,
        hold: 100_000,
        ..USE
    };
    for tally in bed.time(group, each).expect("it ends").tallies {
        assert_eq!(tally.single, 2);
        assert_eq!(tally.latency.len(), tally.single);
        assert!(tally.latency.min() > 1000, "a multiplication takes time");
    }
}

#[test]
fn floors_pass() {
    for bulk in [1, 4] {
        let bed = Floor::boxed(3).expect("there is memory");
        assert_eq!(found(&*bed, 3, Use { bulk, ..USE }, PATIENCE), None);
    }
}

/// A pool that works, but for what `spoil` does to the indices in it at each push.
struct Spoilt {
    inside: Mutex<Vec<u32>>,
    pushes: AtomicUsize,
    spoil: fn(usize, u32) -> Vec<u32>,
}

impl Spoilt {
    fn bed(spoil: fn(usize, u32) -> Vec<u32>) -> PoolBed<Self> {
        let pool = Spoilt {
            inside: Mutex::new((0..4).collect()),
            pushes: AtomicUsize::new(0),
            spoil,
        };
        PoolBed::new(pool, 2).expect("there is memory")
    }
}

impl Pool for Spoilt {
    fn capacity(&self) -> usize {
        4
    }

    fn pop(&self, _cpu: usize) -> Option<Object> {
        let index = self.inside.lock().expect("nobody panics").pop()?;
        Some(Object::at(index as usize))
    }

    fn push(&self, _cpu: usize, object: Object) {
        let pushes = self.pushes.fetch_add(1, Relaxed);
        let back = (self.spoil)(pushes, object.index() as u32);
        self.inside.lock().expect("nobody panics").extend(back);
    }
}

#[test]
fn faults_of_a_pool_are_found() {
    let checked = |spoil| found(&Spoilt::bed(spoil), 1, USE, Duration::from_millis(1));
    assert_eq!(checked(|_, index| vec![index]), None);
    let lost = checked(|pushes, index| if pushes == 100 { vec![] } else { vec![index] });
    assert_eq!(lost.as_deref(), Some("objects in the pool afterwards"));
    let all_lost = checked(|_, _| vec![]);
    assert_eq!(all_lost.as_deref(), Some("pairs of each thread"));
    let doubled = checked(|pushes, index| vec![index; if pushes == 100 { 2 } else { 1 }]);
    assert_eq!(doubled.as_deref(), Some("objects that came out twice"));
    let made_up = checked(|pushes, index| vec![if pushes == 100 { 99 } else { index }]);
    assert_eq!(made_up.as_deref(), Some("foreign objects"));
}
