//! The probed process: stopped for a moment, given memory, patched, and restored.
//!
//! [`Image`] finds a [`Function`], or a [`UsdtSite`] and the function around it, [`Site`] where it can be probed;
//! [`Runtime`] keeps memory and code in the process, attaches programs to functions while a [`Session`] stops all
//! threads, and restores them.
//!
//! Another process uses ptrace on the tool's behalf. A tool that is killed at any step leaves the probed process as it
//! was, but for memory that the next one uses. If the other process is killed, the tool starts it again with its next
//! stop; if both are, the probes stay.
//!
//! Not here yet:
//! - Kernels on which no process may write another's code (CONFIG_PROC_MEM_NO_FORCE).
//! - If that other process is killed while a thread makes system calls for it (some 50 µs of each attachment and
//!   detachment), that thread goes on behind one, where its stack makes no sense: the probed process crashes. The
//!   kernel does not choose that process when memory runs out.
//! - If it is killed in the microseconds in which bytes are replaced, threads may be in the middle of them.
//! - Where Yama lets processes trace only their own children (kernel.yama.ptrace_scope is 1), CAP_SYS_PTRACE is needed:
//!   that other process is not the parent.
//! - A signal handler that sets the GS base while it interrupts a probe: the process crashes.
//! - A process whose seccomp filter may not let `gettid` pass is not asked which of its threads runs. While another process
//!   shares its memory (`CLONE_VM`), its calls are missed; where the kernel does not announce that process (no BTF, or no CAP_BPF and
//!   CAP_PERFMON), two threads may use one area, and crash.
//! - A process that shares the memory and is killed while it takes an area leaves the lock of the areas: threads without
//!   one miss their calls.
//! - A kernel uprobe that comes to a function while it is probed replaces a byte of the jump: the function's calls then
//!   execute the rest of the jump as other instructions, up to the detachment.
//! - A library that is loaded again has no probes.
//! - Where the first program of a place is detached and others stay, a thread that has counted its hit and not called
//!   it yet leaves it out: at most one hit of each thread, and one of its handler.
//! - Of two tools that guard reads of one process, the earlier one's reads are slow, and its handler stays if it ends
//!   first, passing everything on. Handlers of forked children stay.
//! - Where a signal handler runs on an alternate stack and is in a probe, a second signal whose handler has SA_ONSTACK
//!   overwrites the first one's frame and stack: the kernel sees that the stack pointer, the probe's, is not on the
//!   alternate stack, and starts at that stack's top again. The process crashes, or the first handler goes on with
//!   wrong values.
//! - A probe that a signal handler leaves by longjmp keeps its frame: after three of them, the thread's probes are
//!   missed, and counted as such.
//! - Functions that leave by a jump to another one have no probe at their return where that one may throw, be unwound
//!   through, or look at its caller, as far as its file shows (`process/image/reach.rs`); nor have functions too short
//!   for both probes.
//! - A signal handler that interrupts one of the few instructions before or behind a probe's frame, and then goes on on another
//!   stack, as for a thread of its own making that is not run for a while, is not seen: where the tool ends meanwhile, the
//!   process crashes when that one returns.
//! - While such another one runs, its return address is replaced. A stack walk by tables of unwinding, in a signal handler or
//!   from outside, ends there; one by frame pointers has the stub's address in place of the caller's. An exception that a
//!   signal handler throws then ends the process; a thread that is cancelled asynchronously then leaves out the
//!   destructors of its callers.
//! - Where functions that leave by jumps to each other do so in turns without end, or are called from more than some 1700
//!   places, the rest of the calls is missed.
//! - Goroutines are not searched for addresses inside of the replaced bytes: Go doesn't stop them in prologues, but
//!   may before a RET.
//! - In between, Go functions are probed at instructions of 5 bytes and more, behind the test of the stack's limit, that
//!   can't fault: Go recovers from a fault only in its own code. Functions
//!   that set the direction flag are not probed in between.
//! - The instructions before a probed one are not moved with it, unless that is a RET: where a branch leads into the
//!   4 bytes behind its first, it has no probe. Nor has it where a jump table might lead there.
//! - Jumps into a function from outside of it are found where they have a distance of 4 bytes; the landing pads of
//!   exceptions are not looked for.
//! - The function around a USDT site comes from the symbol table: stripped programs have no probe there.
//! - After a tool was killed, a thread may still be in the code of its probe when the next tool comes, which doesn't
//!   know that code: it would lead into the middle of a jump that covers the bytes behind it.

mod area;
mod attachment;
mod child;
mod children;
mod comparison;
mod error;
#[doc(hidden)]
pub mod fault;
mod files;
pub(crate) mod fuzz;
mod guard;
mod handlers;
mod identity;
mod image;
mod jumps;
mod kept;
mod layout;
mod mapped;
mod maps;
mod memory;
mod patch;
mod permission;
mod place;
mod plan;
mod priority;
mod program_list;
mod queue;
mod release;
mod remote;
mod replaced;
mod runtime;
mod seccomp;
mod server;
mod session;
mod share;
mod shifted;
mod site;
mod start_point;
mod starts;
mod stopped;
mod support;
mod tail;
mod threads;
mod tracer;
mod trampoline;
mod vdso;
mod wire;

pub use attachment::{Attachment, Hits, Inside, Prepared, Probe};
pub use child::Child;
pub(crate) use child::this_process;
pub use error::{Error, Result};
pub(crate) use identity::Holders;
pub use image::{Function, Image, TailJump, UsdtSite};
pub use maps::{Mapping, mappings};
pub use memory::Memory;
pub use remote::Remote;
pub use runtime::{Counts, Program, Runtime};
pub use seccomp::Denied;
pub use session::{Session, Stops};
pub use share::Shared;
pub use site::{Returns, Site, When};
pub use starts::{Started, Starters, Starts};
pub use stopped::{Registers, Stopped};
pub use support::check as check_support;
