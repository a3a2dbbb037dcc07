//! Atomics that report every access to the simulation. They have the size of real ones, so that data shares cache
//! lines as it does on a machine.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, Ordering::Relaxed};

use super::{line::Access, world::Simulation};
use crate::primitive::{Atomic, Primitive};

/// Atomics of simulated machines. Outside of a simulation they are plain values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Simulated;

impl Primitive for Simulated {
    type U32 = TracedAtomic<AtomicU32>;
    type U64 = TracedAtomic<AtomicU64>;

    fn relax() {
        Simulation::relax();
    }
}

/// A value whose every access is traced.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct TracedAtomic<T>(T);

macro_rules! traced {
    ($atomic:ty, $value:ty) => {
        impl Atomic<$value> for TracedAtomic<$atomic> {
            fn new(value: $value) -> Self {
                TracedAtomic(<$atomic>::new(value))
            }
            fn load(&self, _order: Ordering) -> $value {
                Simulation::access(self, Access::Load);
                self.0.load(Relaxed)
            }
            fn store(&self, value: $value, _order: Ordering) {
                Simulation::access(self, Access::Store);
                self.0.store(value, Relaxed)
            }
            fn swap(&self, value: $value, _order: Ordering) -> $value {
                Simulation::access(self, Access::Change);
                self.0.swap(value, Relaxed)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _success: Ordering,
                _failure: Ordering,
            ) -> Result<$value, $value> {
                Simulation::access(self, Access::Change);
                self.0.compare_exchange(current, new, Relaxed, Relaxed)
            }
            fn fetch_add(&self, value: $value, _order: Ordering) -> $value {
                Simulation::access(self, Access::Change);
                self.0.fetch_add(value, Relaxed)
            }
        }
    };
}

traced!(AtomicU32, u32);
traced!(AtomicU64, u64);
