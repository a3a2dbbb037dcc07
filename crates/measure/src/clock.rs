//! Time as the engine sees it, behind a trait so that scheduling is tested without waiting.

use std::time::{Duration, Instant};

/// A clock that never goes back.
pub trait Clock {
    /// Time since a moment that stays the same while the clock lives.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    start: Instant,
}

impl Monotonic {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Monotonic {
            start: Instant::now(),
        }
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
