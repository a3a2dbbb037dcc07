//! Time limit on a guest. It counts the CPU time that QEMU got: on a busy machine a guest may get a twentieth of a CPU,
//! and is slow then, not dead. Behind it is a limit in wall time, for a guest that sleeps for ever.

use std::{
    thread::available_parallelism,
    time::{Duration, Instant},
};

use bpfcost_process::{ProcessClock, ProcessTime};

/// Limit on wall time, as a multiple of that on CPU time. Time in which QEMU waits for a CPU does not count.
const ASLEEP: u32 = 4;

/// QEMU's CPU time is read only in longer waits: reading it takes time from the guest that is measured.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// A limit, and how much wall time it allows a QEMU that sleeps.
#[derive(Clone, Copy, Debug)]
pub struct GuestLimit {
    cpu: Duration,
    asleep: Duration,
}

/// A wait for a guest.
#[derive(Debug)]
pub struct GuestWait {
    qemu: u32,
    begun: Instant,
    /// Started when the wait is no longer a short one.
    clock: Option<ProcessClock>,
}

impl GuestLimit {
    /// So much CPU time; a test may set the wall time that QEMU may sleep.
    pub fn new(cpu: Duration, asleep: Option<Duration>) -> Self {
        GuestLimit {
            cpu,
            asleep: asleep.unwrap_or(ASLEEP * cpu),
        }
    }

    /// The shorter one.
    pub fn min(self, other: GuestLimit) -> GuestLimit {
        GuestLimit {
            cpu: self.cpu.min(other.cpu),
            asleep: self.asleep.min(other.asleep),
        }
    }

    /// Returns true if the limit can be over after so much wall time, on so many CPUs.
    fn may_be_over(&self, wall: Duration) -> bool {
        let cpus = available_parallelism().map_or(u32::MAX, |cpus| cpus.get() as u32);
        wall.saturating_mul(cpus) > self.cpu || wall > self.asleep
    }

    fn is_over(&self, time: &ProcessTime) -> bool {
        time.used > self.cpu || time.able() > self.asleep
    }
}

impl GuestWait {
    /// Begins to wait for a guest of this QEMU.
    pub fn begin(qemu: u32) -> Self {
        GuestWait {
            qemu,
            begun: Instant::now(),
            clock: None,
        }
    }

    /// The QEMU that is waited for.
    pub fn qemu(&self) -> u32 {
        self.qemu
    }

    /// Returns how long the wait was, in words, once it is longer than `limit`.
    pub fn over(&mut self, limit: GuestLimit) -> Option<String> {
        if self.begun.elapsed() < SHORT_WAIT {
            return None;
        }
        let clock = self
            .clock
            .get_or_insert_with(|| ProcessClock::start(self.qemu));
        if !limit.may_be_over(clock.wall()) {
            return None;
        }
        let time = clock.elapsed(self.qemu);
        limit.is_over(&time).then(|| words(&time))
    }
}

fn words(time: &ProcessTime) -> String {
    format!(
        "{} s, in which QEMU got {:.1} s of CPU time",
        time.wall.as_secs(),
        time.used.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest's time in seconds: wall, CPU time, waiting for a CPU.
    fn time(wall: f64, used: f64, waited: f64) -> ProcessTime {
        let [wall, used, waited] = [wall, used, waited].map(Duration::from_secs_f64);
        ProcessTime { wall, used, waited }
    }

    #[test]
    fn a_guest_that_lacks_cpu_is_waited_for() {
        let limit = GuestLimit::new(Duration::from_secs(45), None);
        for (waits, is_over) in [
            // 2.4 s of CPU time in 45 s, and load 200 for most of an hour.
            (time(45.0, 2.4, 42.0), false),
            (time(3000.0, 30.0, 2900.0), false),
            // It does not count the wait, or QEMU was stopped.
            (time(120.0, 6.0, 0.0), false),
            // It works for nothing, on an idle machine and on a busy one.
            (time(46.0, 45.1, 0.5), true),
            (time(900.0, 45.1, 850.0), true),
            // It sleeps for ever.
            (time(181.0, 4.0, 0.5), true),
            (time(400.0, 4.0, 200.0), true),
        ] {
            assert_eq!(limit.is_over(&waits), is_over, "{waits:?}");
        }
        assert_eq!(
            words(&time(45.7, 2.44, 42.0)),
            "45 s, in which QEMU got 2.4 s of CPU time"
        );
    }

    #[test]
    fn of_two_limits_the_shorter_counts() {
        let [short, long] = [20, 45].map(|s| GuestLimit::new(Duration::from_secs(s), None));
        let both = long.min(short);
        assert!(both.is_over(&time(30.0, 21.0, 0.0)) && both.is_over(&time(81.0, 0.0, 0.0)));
        let asleep = GuestLimit::new(Duration::from_secs(45), Some(Duration::from_secs(6)));
        assert!(asleep.is_over(&time(7.0, 0.1, 0.0)));
    }
}
