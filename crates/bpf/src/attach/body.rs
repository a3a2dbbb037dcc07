//! What an attached program does.

use std::fmt;

/// A program's body; study 003 had the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Body {
    /// Nothing but to count its own runs, as all of them do.
    Empty,
    /// Writes the process into a per-CPU array.
    Map,
    /// Counts by process in a hash map.
    Hash,
    /// 64 bytes into a ring buffer; nobody is woken.
    Ringbuf,
    /// The same, and the reader is woken, who listens by epoll and does not sleep.
    RingbufWakeup,
    /// The number of the stack in a map of stacks: the kernel's, or for events of user space theirs.
    Stack,
}

impl Body {
    /// All of them.
    pub const ALL: [Body; 6] = [
        Body::Empty,
        Body::Map,
        Body::Hash,
        Body::Ringbuf,
        Body::RingbufWakeup,
        Body::Stack,
    ];

    /// As cases are named.
    pub fn name(self) -> &'static str {
        match self {
            Body::Empty => "empty",
            Body::Map => "map",
            Body::Hash => "hash",
            Body::Ringbuf => "ringbuf",
            Body::RingbufWakeup => "ringbuf-wakeup",
            Body::Stack => "stack",
        }
    }

    /// What it does, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Body::Empty => "a program that only counts its runs",
            Body::Map => "the process written into a per-CPU array",
            Body::Hash => "a hash map counts by process",
            Body::Ringbuf => "64 bytes into a ring buffer, nobody woken",
            Body::RingbufWakeup => "64 bytes into a ring buffer, the reader woken each time",
            Body::Stack => "the stack looked up in a map of stacks",
        }
    }

    /// What stands in the names of programs.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Body::RingbufWakeup => "ringbuf_wakeup",
            other => other.name(),
        }
    }

    /// Whether it writes into the ring buffer.
    pub(crate) fn fills_ring(self) -> bool {
        matches!(self, Body::Ringbuf | Body::RingbufWakeup)
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
