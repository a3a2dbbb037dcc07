//! What every pool must do, ours and its peers: one list of laws, one list of pools. Miri and ThreadSanitizer
//! run it too: objects have payloads that are no atomics.

mod laws;
mod sequences;

use bpfcost_pool::{ArrayQueue, Error, Freelist, PerCpuPool, Pool, Stride};

/// Makes a pool of so many objects for so many CPUs.
type Make = fn(usize, usize) -> Result<Box<dyn Pool>, Error>;

/// A module with a test for each law, of each pool.
macro_rules! pools {
    ($($name:ident: $make:expr, [$($laws:ident),*];)*) => {$(
        mod $name {
            const MAKE: super::Make = |objects, cpus| {
                let make: fn(usize, usize) -> _ = $make;
                Ok(Box::new(make(objects, cpus)?))
            };
            $($crate::laws::$laws!(MAKE);)*
        }
    )*};
}

use pools;
