//! The identity of threads: which thread an area belongs to, and what the helpers return as its numbers.
//!
//! # Invariant
//!
//! A probe runs in an area only if the GS base leads there and the thread is that area's owner. A thread is the owner if
//! the area holds the thread's FS base, and, while other processes may share the memory, the number that the kernel
//! gives it (`gettid`). What can't be shown is not assumed: the call is counted as missed.
//!
//! The FS base alone is enough as long as each thread that runs in this memory is one of the process: the C library
//! gives each thread that lives a block of its own. Three things break that, and each has its answer:
//!
//! - *A process that shares the memory* (`CLONE_VM` without `CLONE_THREAD`, so also `vfork` and `posix_spawn`) starts with
//!   its parent's FS and GS base. One that is there already is refused ([`sharers`]). Later ones are announced by the
//!   kernel before they run ([`watch`]): a counter in the process is then above 0, and each probe asks `gettid`, until none
//!   is left. A process that can't be watched asks at each hit. One that may filter that call can't ask: its hits are
//!   missed while another process shares its memory. Where that one can't be watched either, nothing is checked.
//! - *A GS base that is not ours*: the process has set it since. The probe leaves it as it is.
//! - *A number that is kept and a thread that is not the same*: a thread that ended leaves its FS base, and with it its
//!   area, to the next one. The number that a helper keeps is compared with the word in which the C library keeps it
//!   ([`thread_word`]). Without such a word, it asks the kernel each time.
//!
//! Locks of shared tables name their holder by an area, not by a thread's number, which another PID namespace may use
//! too ([`Holders`]).
//!
//! The code of it is in `trampoline/identity.rs` and, for the helpers, in `blob/identity.h`.

mod holders;
mod runtime;
mod sharers;
mod watch;
mod word;

pub(crate) use holders::Holders;
pub(super) use sharers::Mark;
pub(super) use watch::Watched;
pub(super) use word::thread_word;

/// Proof that an area is a thread's own, besides the FS base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proof {
    /// The address of the counter of processes that may share the memory, if the process is watched.
    pub(super) counter: Option<u64>,
    /// True if a thread may ask the kernel for its number.
    pub(super) asks: bool,
}
