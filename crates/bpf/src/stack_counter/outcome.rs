//! Outcomes of events: stacks that are counted or reported, and accounts of all of them.

use std::rc::Rc;

use crate::unwind::{Generation, UnwindLosses};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackReport {
    /// The kernel's monotonic clock, in nanoseconds.
    pub ns: u64,
    /// The process that was running, as the kernel numbers it.
    pub process: u32,
    /// The thread that was running.
    pub thread: u32,
    /// The CPU.
    pub cpu: u32,
    /// The command's name.
    pub command: String,
    /// The stack, the innermost first.
    pub addresses: Rc<[u64]>,
    /// When it was taken.
    pub generation: Generation,
    /// The reason why the addresses end.
    pub end: StackEnd,
}

/// The reason why a stack has no more addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// The stack has no more.
    Whole,
    /// No more were asked for; there may be some.
    Deep,
    /// The unwind rules do not lead on.
    Lost,
}

/// A stack that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackCount {
    /// The innermost first.
    pub addresses: Vec<u64>,
    /// Times that it was counted.
    pub count: u64,
    /// When it was taken.
    pub generation: Generation,
}

/// Accounts of events, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackTotals {
    /// Events that passed the filter: `counted + reported + lost`.
    pub events: u64,
    /// Stacks that were counted in the kernel.
    pub counted: u64,
    /// Stacks that were reported one by one: because that was asked for, or because the tree was full.
    pub reported: u64,
    /// Events whose stacks are not known: no room was left.
    pub lost: u64,
    /// Events that the kernel says it did not run the programs for; `None` where it does not say.
    pub missed: Option<u64>,
    /// Walks that did not go as they should.
    pub losses: UnwindLosses,
    /// Runs of the programs, and their time in nanoseconds; 0 while `bpf_stats` is off.
    pub runs: u64,
    /// See `runs`.
    pub run_ns: u64,
}
