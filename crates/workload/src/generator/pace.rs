//! When requests are due.

use std::time::Duration;

/// How fast requests are made, and how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At a fixed rate, for a fixed time: the server has no say.
    Open {
        /// Requests a second.
        rate: f64,
        /// For how long they fall due.
        time: Duration,
    },
    /// A number of requests, each connection sending its next once it has the answer.
    Closed {
        /// How many.
        requests: u64,
    },
}

impl Pace {
    pub(super) fn requests(self) -> u64 {
        match self {
            Pace::Open { rate, time } => (rate * time.as_secs_f64()).round() as u64,
            Pace::Closed { requests } => requests,
        }
    }

    /// When this request is due, since the beginning; `None`: as soon as a connection is free.
    pub(super) fn due(self, request: u64) -> Option<Duration> {
        match self {
            Pace::Open { rate, .. } => Some(Duration::from_secs_f64(request as f64 / rate)),
            Pace::Closed { .. } => None,
        }
    }

    /// When no further request is sent: a server that is twice as slow as was asked has been asked too much.
    pub(super) fn end(self) -> Option<Duration> {
        match self {
            Pace::Open { time, .. } => Some(2 * time),
            Pace::Closed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fall_due_evenly() {
        let pace = Pace::Open {
            rate: 1000.0,
            time: Duration::from_millis(500),
        };
        assert_eq!(pace.requests(), 500);
        assert_eq!(pace.due(0), Some(Duration::ZERO));
        assert_eq!(pace.due(499), Some(Duration::from_millis(499)));
        assert_eq!(Pace::Closed { requests: 7 }.due(3), None);
    }
}
