//! Where an agent's events come from: programs in the kernel, or whatever else delivers the same events.

use std::time::Duration;

use anyhow::Result;

/// A source of events. It is made with what takes them, and hands them over in each of its methods.
pub(super) trait Source {
    /// What it counted itself: what it lost, and what comes by no event.
    type Counts;

    /// Attaches to these processes: from here on it sees every event of theirs.
    fn attach(&mut self, processes: &[u32]) -> Result<()>;

    /// Hands over the events that are there, and waits for more for about so long.
    fn poll(&mut self, patience: Duration) -> Result<()>;

    /// Detaches, hands over what is left, and returns what was counted since it was attached.
    fn detach(&mut self) -> Result<Self::Counts>;
}
