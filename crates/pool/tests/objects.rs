//! Values that a pool hands out, in each of our pools: who has one has it alone, it comes back whatever
//! happens, and all are dropped once. Miri runs this too.
#![allow(
    unsafe_code,
    reason = "`Objects::over` is, and what it refuses is tested here"
)]

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::MutexGuard,
    thread,
};

use bpfcost_pool::{
    ArrayQueue, Error, Freelist, ObjectGuard, Objects, PerCpuPool, Pool,
    Stride::{Compact, Padded},
};

/// Turns of a thread. Miri takes thousands of times longer.
const TURNS: usize = if cfg!(miri) { 50 } else { 10_000 };

/// A way to make [`Objects`].
trait Make {
    type Pool: Pool;
    fn make<T>(values: Vec<T>) -> Result<Objects<T, Self::Pool>, Error>;
}

/// Names ways to make them, each with all tests of the list.
macro_rules! each {
    (all $tests:tt $($name:ident: $pool:ty, $make:expr;)*) => {$(
        mod $name {
            use super::*;

            struct Maker;

            impl Make for Maker {
                type Pool = $pool;
                fn make<T>(values: Vec<T>) -> Result<Objects<T, $pool>, Error> {
                    let make: fn(Vec<T>) -> _ = $make;
                    make(values)
                }
            }

            tests!($tests);
        }
    )*};
}

macro_rules! tests {
    ({ $($test:ident)* }) => {$(
        #[test]
        fn $test() -> Result<(), Error> {
            super::$test::<Maker>()
        }
    )*};
}

each! {
    all {
        values_go_out_once_and_come_back
        threads_own_what_they_took
        no_two_values_share_a_cache_line
        who_panics_gives_back
        a_value_that_was_forgotten_stays_out
        all_values_come_back_as_they_were_given
        each_value_is_dropped_once_in_the_order_given
        what_replaces_a_value_drops_it_at_once
        values_without_a_size_are_values
        no_values_are_refused
    }
    freelist: Freelist, |values| Objects::freelist(values);
    array: ArrayQueue, |values| Objects::array(values, 2, Compact);
    array_padded: ArrayQueue, |values| Objects::array(values, 2, Padded);
    per_cpu: PerCpuPool, |values| Objects::per_cpu(values, 2);
}

fn values_go_out_once_and_come_back<M: Make>() -> Result<(), Error> {
    let objects = M::make(vec![10, 20])?;
    assert_eq!(objects.capacity(), 2);
    let (mut one, two) = (
        objects.take(0).expect("full"),
        objects.take(0).expect("one left"),
    );
    assert_eq!(*one + *two, 30);
    assert!(objects.take(0).is_none());
    *one += 1;
    one.give_back(7);
    assert!(matches!(objects.take(0).as_deref(), Some(11 | 21)));
    drop(two);
    let values = objects.into_inner();
    assert!(values == [11, 20] || values == [10, 21], "{values:?}");
    Ok(())
}

fn threads_own_what_they_took<M: Make>() -> Result<(), Error> {
    let counters = M::make(vec![Cell::new(0); 3])?;
    thread::scope(|scope| {
        for cpu in 0..4 {
            let counters = &counters;
            scope.spawn(move || {
                let mut left = TURNS;
                while left > 0 {
                    match counters.take(cpu) {
                        Some(counter) => {
                            counter.set(counter.get() + 1);
                            left -= 1;
                        }
                        None => thread::yield_now(),
                    }
                }
            });
        }
    });
    let counted: usize = counters.into_inner().iter().map(Cell::get).sum();
    assert_eq!(counted, 4 * TURNS);
    Ok(())
}

fn no_two_values_share_a_cache_line<M: Make>() -> Result<(), Error> {
    let objects = M::make(vec![0_u8; 5])?;
    let taken: Vec<_> = (0..5).filter_map(|cpu| objects.take(cpu)).collect();
    let mut lines: Vec<_> = taken
        .iter()
        .map(|one| &raw const **one as usize / 64)
        .collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 5);
    Ok(())
}

fn who_panics_gives_back<M: Make>() -> Result<(), Error> {
    let objects = M::make(vec![1, 2])?;
    let end = catch_unwind(AssertUnwindSafe(|| {
        let (mut one, _other) = (objects.take(0), objects.take(1));
        **one.as_mut().expect("full") += 10;
        panic!("with both");
    }));
    end.expect_err("it panics");
    let both = [objects.take(0), objects.take(0)];
    assert_eq!(both.iter().flatten().map(|one| **one).sum::<i32>(), 13);
    assert!(objects.take(0).is_none(), "each came back once");
    Ok(())
}

fn a_value_that_was_forgotten_stays_out<M: Make>() -> Result<(), Error> {
    let objects = M::make(vec![(), ()])?;
    mem::forget(objects.take(0));
    assert!(objects.take(0).is_some());
    let _one = objects.take(0);
    assert!(objects.take(0).is_none());
    Ok(())
}

fn all_values_come_back_as_they_were_given<M: Make>() -> Result<(), Error> {
    let given: Vec<_> = (0..9).map(|number| number.to_string()).collect();
    let objects = M::make(given.clone())?;
    mem::forget(objects.take(0));
    drop((objects.take(1), objects.take(0)));
    assert_eq!(objects.into_inner(), given);
    Ok(())
}

/// Writes down that it was dropped.
struct DropLog<'a>(&'a RefCell<Vec<usize>>, usize);

impl Drop for DropLog<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

fn each_value_is_dropped_once_in_the_order_given<M: Make>() -> Result<(), Error> {
    let dropped = RefCell::new(Vec::new());
    let values = || (0..5).map(|number| DropLog(&dropped, number)).collect();
    let objects = M::make(values())?;
    mem::forget(objects.take(0));
    drop((objects.take(1), objects.take(0)));
    assert!(dropped.borrow().is_empty(), "who gives back drops nothing");
    drop(objects);
    assert_eq!(dropped.take(), [0, 1, 2, 3, 4]);

    let inner = M::make(values())?.into_inner();
    assert!(dropped.borrow().is_empty(), "they are the caller's");
    drop(inner);
    assert_eq!(dropped.take(), [0, 1, 2, 3, 4]);
    Ok(())
}

fn what_replaces_a_value_drops_it_at_once<M: Make>() -> Result<(), Error> {
    let dropped = RefCell::new(Vec::new());
    let objects = M::make(vec![DropLog(&dropped, 1)])?;
    *objects.take(0).expect("full") = DropLog(&dropped, 2);
    assert_eq!(*dropped.borrow(), [1]);
    drop(objects);
    assert_eq!(dropped.take(), [1, 2]);
    Ok(())
}

fn values_without_a_size_are_values<M: Make>() -> Result<(), Error> {
    let objects = M::make(vec![(); 3])?;
    let all: Vec<_> = (0..9).filter_map(|cpu| objects.take(cpu)).collect();
    assert_eq!(all.len(), 3);
    drop(all);
    assert_eq!(objects.into_inner().len(), 3);
    Ok(())
}

fn no_values_are_refused<M: Make>() -> Result<(), Error> {
    let none = M::make(Vec::<u8>::new());
    assert_eq!(none.map(drop), Err(Error::NoObjects));
    Ok(())
}

#[test]
fn others_than_the_pool_has_are_refused_and_dropped() -> Result<(), Error> {
    let value = Rc::new(());
    let pool = Freelist::new(2)?;
    // SAFETY: the pool is new and goes nowhere else.
    let three = unsafe { Objects::over(pool, vec![value.clone(); 3]) };
    let refused = Error::OtherCount {
        objects: 2,
        values: 3,
    };
    assert_eq!(three.map(drop), Err(refused));
    assert_eq!(Rc::strong_count(&value), 1);
    Ok(())
}

/// Tells whether a type is `Send` or `Sync`: the constant of the type itself takes precedence over that of the trait,
/// and exists where its bound holds.
struct Is<T>(PhantomData<T>);

trait Not {
    const SEND: bool = false;
    const SYNC: bool = false;
}

impl<T> Not for Is<T> {}

impl<T: Send> Is<T> {
    const SEND: bool = true;
}

impl<T: Sync> Is<T> {
    const SYNC: bool = true;
}

/// Says of each type whether threads may send and share it, and does not compile where it is otherwise.
macro_rules! bounds {
    ($($type:ty: $send:literal $sync:literal;)*) => {$(
        const _: () = assert!(Is::<$type>::SEND == $send && Is::<$type>::SYNC == $sync);
    )*};
}

type Guard = MutexGuard<'static, u8>;

bounds! {
    // Sent and shared.
    Objects<u8, Freelist>: true true;
    ObjectGuard<'static, u8, Freelist>: true true;
    // Sent and not shared: but in a pool, one thread has it at a time.
    Objects<Cell<u8>, ArrayQueue>: true true;
    ObjectGuard<'static, Cell<u8>, ArrayQueue>: true false;
    // Shared and not sent: the pool would send it.
    Objects<Guard, PerCpuPool>: false false;
    ObjectGuard<'static, Guard, PerCpuPool>: false false;
    // Neither.
    Objects<Rc<u8>, PerCpuPool>: false false;
    ObjectGuard<'static, Rc<u8>, PerCpuPool>: false false;
}
