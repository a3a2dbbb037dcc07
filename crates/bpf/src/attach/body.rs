//! The table of bodies: what an attached program does.

use crate::{feature::Feature, table::table};

table! {
/// A program's body; study 003 had the first two.
pub enum Body: BodyInfo {
    /// Nothing but to count its own runs, as all of them do.
    Empty = body_info("empty", "a program that only counts its runs", &[]);
    /// Writes the process into a per-CPU array.
    Map = body_info("map", "the process written into a per-CPU array", &[]);
    /// Counts by process in a hash map.
    Hash = body_info("hash", "a hash map counts by process", &[]);
    /// 64 bytes into a ring buffer, without a wakeup.
    Ringbuf = body_info("ringbuf", "64 bytes into a ring buffer, no wakeup", &[Feature::RingBuffer]);
    /// The same, and the reader is woken, who listens by epoll and does not sleep.
    RingbufWakeup = body_info(
        "ringbuf-wakeup",
        "64 bytes into a ring buffer, a wakeup each time",
        &[Feature::RingBuffer],
    );
    /// The number of the stack in a map of stacks: the kernel's, or for events of user space theirs.
    Stack = body_info("stack", "the stack looked up in a map of stacks", &[Feature::StackMap]);
}
}

/// Facts about a body.
struct BodyInfo {
    name: &'static str,
    about: &'static str,
    needs: &'static [Feature],
}

const fn body_info(name: &'static str, about: &'static str, needs: &'static [Feature]) -> BodyInfo {
    BodyInfo { name, about, needs }
}

impl Body {
    /// Describes the body's work, in a few words.
    pub fn about(self) -> &'static str {
        self.known().about
    }

    /// Kernel features that the body needs.
    pub fn needs(self) -> &'static [Feature] {
        self.known().needs
    }

    /// Returns true if the body writes into the ring buffer.
    pub(crate) fn fills_ring(self) -> bool {
        matches!(self, Body::Ringbuf | Body::RingbufWakeup)
    }
}
