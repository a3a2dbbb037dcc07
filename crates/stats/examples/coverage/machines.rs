//! Machines on which sessions are simulated, by the spread of their sessions.

/// The effects of a machine on sessions, as standard deviations of logs.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    /// Between sessions of a sitting.
    pub(crate) within: f64,
    /// The spread between days, beside that within one.
    pub(crate) days: f64,
    /// The drift of the level from one session to the next, which adds up through a sitting.
    pub(crate) drift: f64,
    /// The share of sessions that are 20 % slower, as by a lower clock.
    pub(crate) throttled: f64,
    /// True if the sentinel is as much slower then.
    pub(crate) sentinel_slows: bool,
    /// True if sessions scatter as Student's t with 2 degrees of freedom.
    pub(crate) heavy: bool,
}

const STILL: Machine = Machine {
    name: "sessions 1.5 % apart",
    within: 0.015,
    days: 0.0,
    drift: 0.0,
    throttled: 0.0,
    sentinel_slows: true,
    heavy: false,
};

/// A machine whose sessions differ by these shares, within a sitting and from day to day.
const fn machine(name: &'static str, within: f64, days: f64) -> Machine {
    Machine {
        name,
        within,
        days,
        ..STILL
    }
}

/// The machines that are simulated.
pub(crate) const MACHINES: [Machine; 9] = [
    STILL,
    machine("days 1 % apart", 0.005, 0.01),
    machine("days 1.5 % apart", 0.005, 0.015),
    machine("days 2 % apart", 0.005, 0.02),
    machine("days 4 % apart", 0.005, 0.04),
    Machine {
        throttled: 0.1,
        ..machine("1 in 10 throttled", 0.005, 0.01)
    },
    Machine {
        throttled: 0.1,
        sentinel_slows: false,
        ..machine("the same, unseen", 0.005, 0.01)
    },
    Machine {
        drift: 0.003,
        ..machine("drift 0.3 % a session", 0.005, 0.01)
    },
    Machine {
        heavy: true,
        ..machine("heavy tails", 0.007, 0.01)
    },
];

/// Machines by the spread of undisturbed costs between sessions.
pub(crate) const AT_REST: [Machine; 9] = [
    machine("0.01 % apart", 0.0001, 0.0),
    machine("0.5 % apart", 0.005, 0.0),
    machine("0.5 %, days 1 %", 0.005, 0.01),
    machine("0.5 %, days 2 %", 0.005, 0.02),
    machine("0.5 %, days 4 %", 0.005, 0.04),
    Machine {
        throttled: 0.1,
        ..machine("1 in 10 throttled", 0.005, 0.01)
    },
    Machine {
        throttled: 0.1,
        sentinel_slows: false,
        ..machine("the same, unseen", 0.005, 0.01)
    },
    Machine {
        drift: 0.001,
        ..machine("drift 0.1 % a session", 0.003, 0.005)
    },
    Machine {
        heavy: true,
        ..machine("heavy tails", 0.003, 0.005)
    },
];

/// Machines by the spread of a small probe's added cost between runs.
pub(crate) const ADDED: [Machine; 4] = [
    machine("added, 0.5 % apart", 0.005, 0.0),
    machine("added, 2 % apart", 0.02, 0.0),
    machine("added, 5 % apart", 0.05, 0.0),
    Machine {
        heavy: true,
        ..machine("added, heavy tails", 0.01, 0.0)
    },
];
