//! The laws, each of them for any pool.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Barrier, mpsc},
    thread,
};

use bpfcost_pool::{Error, Object, Pool};

use crate::{Make, payload::Payloads, sequences};

/// Sizes around powers of two, which rings and masks are made of. Miri takes thousands of times longer.
const SIZES: &[usize] = if cfg!(miri) {
    &[1, 2, 3, 5]
} else {
    &[1, 2, 3, 4, 5, 8, 33, 100]
};
const CPUS: &[usize] = if cfg!(miri) { &[1, 3] } else { &[1, 2, 3, 8] };

/// Pairs of a thread.
const PAIRS: u64 = if cfg!(miri) { 60 } else { 50_000 };

fn make_pool(make: Make, objects: usize, cpus: usize) -> Box<dyn Pool> {
    make(objects, cpus).expect("it is small")
}

/// Pools of all those sizes, empty when the law looks at them: their objects are in its hands.
fn emptied(make: Make, law: impl Fn(&dyn Pool, Vec<Object>)) {
    for &objects in SIZES {
        for &cpus in CPUS {
            let pool = make_pool(make, objects, cpus);
            let out = take_all(&*pool, 0);
            law(&*pool, out);
        }
    }
}

/// All that is in a pool, of which each object must come once.
fn take_all(pool: &dyn Pool, cpu: usize) -> Vec<Object> {
    let mut seen = vec![false; pool.capacity()];
    let mut all = Vec::new();
    while let Some(object) = pool.pop(cpu) {
        let index = object.index();
        assert!(!seen[index], "object {index} came twice");
        seen[index] = true;
        all.push(object);
    }
    all
}

pub(crate) fn each_object_comes_out_once(make: Make) {
    for &objects in SIZES {
        for &cpus in CPUS {
            let pool = make_pool(make, objects, cpus);
            assert_eq!(pool.capacity(), objects);
            assert_eq!(take_all(&*pool, 0).len(), objects);
        }
    }
}

pub(crate) fn none_at_once_when_all_are_out(make: Make) {
    emptied(make, |pool, mut out| {
        for cpu in 0..10 {
            assert_eq!(pool.pop(cpu), None);
        }
        let last = out.pop().expect("it has one at least");
        let index = last.index();
        pool.push(0, last);
        assert_eq!(pool.pop(1).map(|object| object.index()), Some(index));
        assert_eq!(pool.pop(0), None);
    });
}

pub(crate) fn what_is_returned_comes_again(make: Make) {
    emptied(make, |pool, mut out| {
        // More laps than a ring has places, and not in the order that they came in.
        for lap in 0..12 {
            out.rotate_left(lap % pool.capacity());
            for (at, object) in out.drain(..).enumerate() {
                pool.push(at * lap, object);
            }
            out = take_all(pool, lap);
            assert_eq!(out.len(), pool.capacity());
        }
    });
}

pub(crate) fn any_cpu_will_do(make: Make) {
    let odd = [0, 1, 7, 1 << 20, usize::MAX / 2, usize::MAX - 1, usize::MAX];
    for &cpus in CPUS {
        let pool = make_pool(make, odd.len(), cpus);
        for there in odd {
            let out: Vec<_> = odd.iter().filter_map(|here| pool.pop(*here)).collect();
            assert_eq!(out.len(), odd.len());
            assert_eq!(pool.pop(there), None);
            out.into_iter().for_each(|object| pool.push(there, object));
        }
    }
}

pub(crate) fn sequences_do_as_a_set_does(make: Make) {
    sequences::check(make);
}

/// Pops and pushes in several threads; each object's payload counts its owners, without atomics.
fn crowd(make: Make, objects: usize, cpus: usize, threads: usize, bulk: usize) {
    let pool = make_pool(make, objects, cpus);
    let payloads = Payloads::new(objects);
    let start = Barrier::new(threads);
    let taken: u64 = thread::scope(|scope| {
        let run = |cpu: usize| {
            let (pool, payloads, start) = (&*pool, &payloads, &start);
            scope.spawn(move || {
                start.wait();
                let mut taken = 0;
                for _ in 0..PAIRS / bulk as u64 {
                    let held: Vec<_> = (0..bulk).map_while(|_| pool.pop(cpu)).collect();
                    taken += held.len() as u64;
                    for object in held {
                        payloads.count_up(&object);
                        pool.push(cpu, object);
                    }
                }
                taken
            })
        };
        let all: Vec<_> = (0..threads).map(run).collect();
        all.into_iter()
            .map(|one| one.join().expect("it does not panic"))
            .sum()
    });
    assert!(taken > 0, "no thread got an object");
    assert_eq!(take_all(&*pool, 0).len(), objects, "objects were lost");
    assert_eq!(payloads.sum(), taken, "an object had two owners");
}

pub(crate) fn threads_lose_nothing_and_share_nothing(make: Make) {
    crowd(make, 4, 2, 2, 1);
    crowd(make, 4, 4, 4, 1);
    crowd(make, 16, 2, 4, 4);
}

pub(crate) fn more_threads_than_objects(make: Make) {
    crowd(make, 1, 1, 3, 1);
    crowd(make, 3, 2, 4, 2);
}

pub(crate) fn objects_return_by_other_threads(make: Make) {
    const OBJECTS: usize = 3;
    let pool = make_pool(make, OBJECTS, 2);
    let payloads = Payloads::new(OBJECTS);
    let (give, given) = mpsc::channel::<Object>();
    let taken = thread::scope(|scope| {
        let (pool, payloads) = (&*pool, &payloads);
        scope.spawn(move || {
            for object in given {
                payloads.count_up(&object);
                pool.push(1, object);
            }
        });
        let mut taken = 0;
        while taken < PAIRS / 10 {
            match pool.pop(0) {
                Some(object) => {
                    payloads.count_up(&object);
                    give.send(object).expect("the other takes all");
                    taken += 1;
                }
                None => thread::yield_now(),
            }
        }
        drop(give);
        taken
    });
    assert_eq!(take_all(&*pool, 0).len(), OBJECTS);
    assert_eq!(payloads.sum(), 2 * taken);
}

pub(crate) fn nobody_waits_for_a_holder(make: Make) {
    let pool = make_pool(make, 2, 2);
    let held = take_all(&*pool, 0);
    thread::scope(|scope| {
        for cpu in 0..3 {
            let pool = &*pool;
            scope.spawn(move || (0..PAIRS).for_each(|_| assert_eq!(pool.pop(cpu), None)));
        }
    });
    held.into_iter().for_each(|object| pool.push(0, object));
    assert_eq!(take_all(&*pool, 1).len(), 2);
}

pub(crate) fn who_panics_loses_what_it_holds(make: Make) {
    let pool = make_pool(make, 3, 2);
    let end = catch_unwind(AssertUnwindSafe(|| {
        let held = pool.pop(0);
        panic!("with {held:?}");
    }));
    end.expect_err("it panics");
    assert_eq!(take_all(&*pool, 1).len(), 2);
}

pub(crate) fn no_objects_make_no_pool(make: Make) {
    assert_eq!(make(0, 1).err(), Some(Error::NoObjects));
}

pub(crate) fn too_many_objects_make_no_pool(make: Make) {
    let error = make(usize::MAX, 1).err();
    assert!(
        matches!(error, Some(Error::TooManyObjects { asked, .. }) if asked == usize::MAX),
        "{error:?}"
    );
}

pub(crate) fn no_cpus_make_no_pool(make: Make) {
    assert_eq!(make(1, 0).err(), Some(Error::NoCpus));
}

/// Checks the panic message of a push in debug builds; release builds keep no ledger.
fn assert_panics(pool: &dyn Pool, object: Object, expected: &str) {
    if cfg!(not(debug_assertions)) {
        return;
    }
    let end = catch_unwind(AssertUnwindSafe(|| pool.push(0, object)));
    let payload = end.expect_err("it panics");
    let text = payload.downcast_ref::<String>().expect("it has a text");
    assert!(text.contains(expected), "{text}");
}

pub(crate) fn an_object_returned_twice_panics(make: Make) {
    let pool = make_pool(make, 2, 1);
    let object = pool.pop(0).expect("it is full");
    let again = Object::at(object.index());
    pool.push(0, object);
    assert_panics(&*pool, again, "was returned twice");
    // The pool has not taken it.
    assert_eq!(take_all(&*pool, 0).len(), 2);
}

pub(crate) fn an_object_of_another_pool_panics(make: Make) {
    let pool = make_pool(make, 2, 1);
    assert_panics(&*pool, Object::at(2), "is not of this pool");
    assert_eq!(take_all(&*pool, 0).len(), 2);
}
