//! Debug builds record which objects are out, to catch one that comes back twice, or to the wrong pool. Release
//! builds record nothing.

#[cfg(debug_assertions)]
use alloc::boxed::Box;
#[cfg(debug_assertions)]
use core::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

/// The objects that are out. Relaxed, and without the pool's own primitives: it must order nothing that the pool itself
/// does not.
#[derive(Debug)]
pub(crate) struct Ledger {
    #[cfg(debug_assertions)]
    out: Box<[AtomicBool]>,
}

impl Ledger {
    /// A ledger of `objects` objects, all in the pool.
    pub(crate) fn new(objects: usize) -> Result<Self, Error> {
        let _ = objects;
        Ok(Ledger {
            #[cfg(debug_assertions)]
            out: crate::error::boxed(objects, objects, || AtomicBool::new(false))?,
        })
    }

    #[inline]
    pub(crate) fn out(&self, index: u32) {
        let _ = index;
        #[cfg(debug_assertions)]
        {
            let was = self.out[index as usize].swap(true, Ordering::Relaxed);
            assert!(!was, "object {index} was handed out twice");
        }
    }

    /// Records that one comes back; call it before others can see it.
    #[inline]
    pub(crate) fn back(&self, index: u32) {
        let _ = index;
        #[cfg(debug_assertions)]
        {
            let all = self.out.len();
            let out = self.out.get(index as usize);
            let out = out
                .unwrap_or_else(|| panic!("object {index} is not of this pool, which has {all}"));
            assert!(
                out.swap(false, Ordering::Relaxed),
                "object {index} was returned twice"
            );
        }
    }
}
