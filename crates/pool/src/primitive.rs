//! The atomics that pools are made of, and the one place that decides which: those of the machine, or those
//! of a checker or a simulation that sees every access.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A kind of atomics.
pub trait Primitive: 'static {
    /// An atomic of 32 bits.
    type U32: Atomic<u32>;
    /// An atomic of 64 bits.
    type U64: Atomic<u64>;

    /// Called where a loop goes round because another thread was faster.
    fn relax() {
        core::hint::spin_loop();
    }
}

/// One atomic value.
pub trait Atomic<T>: Send + Sync + core::fmt::Debug {
    /// An atomic with this value, which one thread alone sees so far.
    fn new(value: T) -> Self;
    /// As in `core`.
    fn load(&self, order: Ordering) -> T;
    /// As in `core`.
    fn store(&self, value: T, order: Ordering);
    /// As in `core`.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// As in `core`.
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;
    /// As in `core`; wraps.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
}

/// The atomics of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

impl Primitive for Native {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
}

/// Passes every operation on to the atomic type of that name, which has the methods of `core`'s.
#[macro_export]
macro_rules! pass_on {
    ($atomic:ty, $value:ty) => {
        impl $crate::primitive::Atomic<$value> for $atomic {
            #[inline]
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }
            #[inline]
            fn load(&self, order: core::sync::atomic::Ordering) -> $value {
                self.load(order)
            }
            #[inline]
            fn store(&self, value: $value, order: core::sync::atomic::Ordering) {
                self.store(value, order)
            }
            #[inline]
            fn swap(&self, value: $value, order: core::sync::atomic::Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: core::sync::atomic::Ordering,
                failure: core::sync::atomic::Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline]
            fn fetch_add(&self, value: $value, order: core::sync::atomic::Ordering) -> $value {
                self.fetch_add(value, order)
            }
        }
    };
}

pass_on!(AtomicU32, u32);
pass_on!(AtomicU64, u64);
