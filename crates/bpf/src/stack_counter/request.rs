//! The request: which events, whose, and what is done with their stacks.

use crate::attach::AttachMethod;

/// The longest stack that can be asked for.
pub const DEEPEST: u32 = 127;

/// The treatment of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMode {
    /// They are counted in the kernel.
    Count,
    /// Each is reported.
    Events,
    /// They are counted by the kernel's helper.
    Helper,
}

/// Whose stacks, and how long.
#[derive(Clone, Debug)]
pub struct StackFilter {
    /// Addresses, at most [`DEEPEST`].
    pub depth: u32,
    /// The only process whose stacks are taken.
    pub process: Option<u32>,
    /// The only command whose stacks are taken, a name of at most 15 bytes.
    pub command: Option<String>,
}

/// A place to attach programs to: a tracepoint `category:name` or a function of the kernel.
pub type StackEvent = (AttachMethod, String);
