//! Checks of every record that an agent gets: a process that is watched, and a time since it was attached.

use std::fs;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use bpfcost_model::Problem;

/// The initial PID namespace: its inode number is the same on every kernel (PROC_PID_INIT_INO).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Returns true in the initial PID namespace: there programs see the process numbers that this process sees.
pub(super) fn in_first_namespace() -> Result<bool> {
    let namespace = fs::read_link("/proc/self/ns/pid").context("cannot read the PID namespace")?;
    Ok(namespace.ends_with(FIRST_NAMESPACE))
}

/// CLOCK_MONOTONIC, which programs read too, in nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Checks the records of a window.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// `None`: the programs number processes in another way.
    processes: Option<Vec<u32>>,
    since_ns: u64,
    latest_ns: u64,
    wrong: Option<Problem>,
}

impl Watched {
    /// Begins a window, just before the programs are attached.
    pub(super) fn begin(&mut self, processes: Option<&[u32]>) {
        *self = Watched {
            processes: processes.map(<[u32]>::to_vec),
            since_ns: monotonic_ns(),
            ..Watched::default()
        };
    }

    /// Takes note of a record.
    pub(super) fn see(&mut self, process: u32, time_ns: u64) {
        self.latest_ns = self.latest_ns.max(time_ns);
        if time_ns < self.since_ns {
            let since = self.since_ns;
            self.reject("time", || {
                (format!("{since} ns or later"), format!("{time_ns} ns"))
            });
        }
        let is_watched = |watched: &Vec<u32>| watched.contains(&process);
        if !self.processes.as_ref().is_none_or(is_watched) {
            let watched = self.processes.clone();
            self.reject("process", || {
                let watched = watched.unwrap_or_default();
                (format!("one of {watched:?}"), process.to_string())
            });
        }
    }

    /// Takes note that `what` of a record is not as expected; `expected_and_got` is called for the first one.
    pub(super) fn reject(
        &mut self,
        what: &str,
        expected_and_got: impl FnOnce() -> (String, String),
    ) {
        if self.wrong.is_none() {
            let (expected, got) = expected_and_got();
            self.wrong = Some(Problem {
                check: format!("{what} of a record"),
                expected,
                got,
                detail: "a record is not of a call of the server in this window".to_owned(),
            });
        }
    }

    /// Takes the first problem of the records since the window began, once it is over.
    pub(super) fn problem(&mut self) -> Option<Problem> {
        let (latest, now) = (self.latest_ns, monotonic_ns());
        if latest > now {
            self.reject("time", || {
                (format!("at most {now} ns"), format!("{latest} ns"))
            });
        }
        self.wrong.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_time_or_process_is_a_problem() {
        let mut watched = Watched::default();
        let now = || monotonic_ns();
        let mut window = |process, time_ns: &dyn Fn() -> u64| {
            watched.begin(Some(&[7, 8]));
            watched.see(7, now());
            watched.see(process, time_ns());
            watched.problem().map(|problem| problem.check)
        };
        assert_eq!(window(8, &now), None);
        assert_eq!(window(9, &now).as_deref(), Some("process of a record"));
        assert_eq!(window(8, &|| 0).as_deref(), Some("time of a record"));
        let later = || monotonic_ns() + 1_000_000_000_000;
        assert_eq!(window(8, &later).as_deref(), Some("time of a record"));
        watched.begin(None);
        watched.see(9, now());
        assert_eq!(watched.problem(), None);
    }
}
