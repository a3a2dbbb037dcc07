//! Laws of every pool, ours and its peers: one list of laws, one list of pools. Miri and ThreadSanitizer
//! run it too: objects have payloads that are no atomics.

mod laws;
mod payload;
mod sequences;

use bpfcost_pool::{Error, Pool};

/// Makes a pool of a number of objects, for a number of CPUs.
type Make = fn(usize, usize) -> Result<Box<dyn Pool>, Error>;

/// A list of laws: a test of each where it is named.
macro_rules! list {
    ($($list:ident: $($law:ident)*;)*) => {$(
        macro_rules! $list {
            () => {$(
                #[test]
                fn $law() {
                    crate::laws::$law(MAKE);
                }
            )*};
        }
    )*};
}

/// A pool, how it is made, and the lists that it must pass.
macro_rules! pools {
    ($($name:ident: $make:expr, $($list:ident)*;)*) => {$(
        mod $name {
            const MAKE: crate::Make = |objects, cpus| {
                let make: fn(usize, usize) -> _ = $make;
                Ok(Box::new(make(objects, cpus)?))
            };
            $($list!();)*
        }
    )*};
}

list! {
    every:
        each_object_comes_out_once
        none_at_once_when_all_are_out
        what_is_returned_comes_again
        any_cpu_will_do
        sequences_do_as_a_set_does
        threads_lose_nothing_and_share_nothing
        more_threads_than_objects
        objects_return_by_other_threads
        nobody_waits_for_a_holder
        who_panics_loses_what_it_holds
        no_objects_make_no_pool
        too_many_objects_make_no_pool;
    by_cpu:
        no_cpus_make_no_pool;
    booked:
        an_object_returned_twice_panics
        an_object_of_another_pool_panics;
}

pools! {
    freelist: |objects, _| bpfcost_pool::Freelist::new(objects), every booked;
    array: |objects, cpus| bpfcost_pool::ArrayQueue::new(objects, cpus, bpfcost_pool::Stride::Compact), every by_cpu booked;
    array_padded: |objects, cpus| bpfcost_pool::ArrayQueue::new(objects, cpus, bpfcost_pool::Stride::Padded), every by_cpu booked;
    percpu: |objects, cpus| bpfcost_pool::PerCpuPool::new(objects, cpus), every by_cpu booked;
}

#[cfg(feature = "peers")]
pools! {
    crossbeam_array: |objects, _| bpfcost_pool::peer::CrossbeamArray::new(objects), every;
    crossbeam_seg: |objects, _| bpfcost_pool::peer::CrossbeamSeg::new(objects), every;
    concurrent: |objects, _| bpfcost_pool::peer::Concurrent::new(objects), every;
    mutex: |objects, _| bpfcost_pool::peer::Mutexed::new(objects), every;
}
