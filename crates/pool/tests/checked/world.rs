//! The atomics, the threads and the memory of a model checker.
#![allow(
    unsafe_code,
    reason = "a payload that threads share without atomics is what loom looks at"
)]

use std::{panic::Location, sync::atomic::Ordering};

use bpfcost_pool::primitive::{Atomic, Primitive};

use crate::fault::{FaultKind, ordering, ordering_of_failure, strikes};

/// A checker's threads and memory, beside its atomics.
pub(crate) trait World: Primitive {
    /// The payload of an object: a number that its owner counts up.
    type Payload: Payload;

    /// Starts a thread; what comes back waits for its result.
    fn spawn<T: Send + 'static>(
        run: impl FnOnce() -> T + Send + 'static,
    ) -> impl FnOnce() -> T + 'static;
}

/// A number that is read and then written, for it has one owner at a time.
pub(crate) trait Payload: Default + Send + Sync + 'static {
    fn count_up(&self);
    fn value(&self) -> u64;
}

/// Every interleaving and every value that the orderings allow, within bounds.
#[derive(Debug)]
pub(crate) struct Loom;

/// Random interleavings of larger cases, all orderings taken for sequentially consistent.
#[derive(Debug)]
pub(crate) struct Shuttle;

impl Primitive for Loom {
    type U32 = Loom32;
    type U64 = Loom64;

    fn relax() {
        loom::thread::yield_now();
    }
}

impl World for Loom {
    type Payload = LoomPayload;

    fn spawn<T: Send + 'static>(
        run: impl FnOnce() -> T + Send + 'static,
    ) -> impl FnOnce() -> T + 'static {
        let thread = loom::thread::spawn(run);
        || thread.join().expect("its panic has ended the model")
    }
}

impl Primitive for Shuttle {
    type U32 = Shuttle32;
    type U64 = Shuttle64;

    fn relax() {
        shuttle::thread::yield_now();
    }
}

impl World for Shuttle {
    type Payload = ShuttlePayload;

    fn spawn<T: Send + 'static>(
        run: impl FnOnce() -> T + Send + 'static,
    ) -> impl FnOnce() -> T + 'static {
        let thread = shuttle::thread::spawn(run);
        || thread.join().expect("its panic has ended the model")
    }
}

/// loom panics where two accesses to it are not ordered by what the pool does.
#[derive(Default)]
pub(crate) struct LoomPayload(loom::cell::Cell<u64>);

// SAFETY: all threads of a model run on one thread of the machine, one after the other.
unsafe impl Send for LoomPayload {}
// SAFETY: as above.
unsafe impl Sync for LoomPayload {}

impl Payload for LoomPayload {
    fn count_up(&self) {
        self.0.set(self.0.get() + 1);
    }

    fn value(&self) -> u64 {
        self.0.get()
    }
}

/// A load and a store, so that a count is lost where two own an object.
#[derive(Default)]
pub(crate) struct ShuttlePayload(shuttle::sync::atomic::AtomicU64);

impl Payload for ShuttlePayload {
    fn count_up(&self) {
        let value = self.0.load(Ordering::SeqCst);
        self.0.store(value + 1, Ordering::SeqCst);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The ordering of the load of an exchange that is taken apart.
fn of_load(order: Ordering) -> Ordering {
    match order {
        Ordering::AcqRel | Ordering::Acquire => Ordering::Acquire,
        _ => Ordering::Relaxed,
    }
}

/// The ordering of the store of an exchange that is taken apart.
fn of_store(order: Ordering) -> Ordering {
    match order {
        Ordering::AcqRel | Ordering::Release => Ordering::Release,
        _ => Ordering::Relaxed,
    }
}

/// An atomic of a checker that can have faults.
macro_rules! atomic {
    ($name:ident, $checked:ty, $value:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name($checked);

        impl Atomic<$value> for $name {
            fn new(value: $value) -> Self {
                $name(<$checked>::new(value))
            }

            #[track_caller]
            fn load(&self, order: Ordering) -> $value {
                let order = ordering(order, Location::caller());
                self.0.load(order)
            }

            #[track_caller]
            fn store(&self, value: $value, order: Ordering) {
                let order = ordering(order, Location::caller());
                self.0.store(value, order);
            }

            #[track_caller]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                let at = Location::caller();
                let order = ordering(order, at);
                if strikes(FaultKind::Torn, at) {
                    let held = self.0.load(of_load(order));
                    self.0.store(value, of_store(order));
                    return held;
                }
                self.0.swap(value, order)
            }

            #[track_caller]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let at = Location::caller();
                let success = ordering(success, at);
                let failure = ordering_of_failure(failure, at);
                if strikes(FaultKind::Torn, at) {
                    let held = self.0.load(of_load(success));
                    if held != current {
                        return Err(held);
                    }
                    self.0.store(new, of_store(success));
                    return Ok(held);
                }
                self.0.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                let at = Location::caller();
                let order = ordering(order, at);
                if strikes(FaultKind::Torn, at) {
                    let held = self.0.load(of_load(order));
                    self.0.store(held.wrapping_add(value), of_store(order));
                    return held;
                }
                self.0.fetch_add(value, order)
            }
        }
    };
}

atomic!(Loom32, loom::sync::atomic::AtomicU32, u32);
atomic!(Loom64, loom::sync::atomic::AtomicU64, u64);
atomic!(Shuttle32, shuttle::sync::atomic::AtomicU32, u32);
atomic!(Shuttle64, shuttle::sync::atomic::AtomicU64, u64);
