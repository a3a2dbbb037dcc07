//! Time that processes had. On a busy machine a process may wait for a CPU for most of the time, and a limit in wall
//! time would end what merely lacks CPU: that wait does not count.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use procfs::process::Process;

use super::{process_tree, threads};

/// Times a process and its descendants.
#[derive(Clone, Debug)]
pub struct ProcessClock {
    begun: Instant,
    before: CpuReading,
}

/// Time that they had since the clock was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTime {
    /// Wall time.
    pub wall: Duration,
    /// CPU time that they got, all together.
    pub used: Duration,
    /// Time for which one of their threads could have run, and others had the CPU: that of the thread that waited for
    /// longest.
    pub waited: Duration,
}

/// CPU time of processes since their start.
#[derive(Clone, Debug, Default)]
struct CpuReading {
    used: Duration,
    /// Nanoseconds for which each thread waited for a CPU; none where the kernel does not count that.
    waited_ns: BTreeMap<i32, u64>,
}

impl ProcessClock {
    /// Times a process that runs already.
    pub fn start(pid: u32) -> Self {
        ProcessClock {
            begun: Instant::now(),
            before: CpuReading::now(pid),
        }
    }

    /// Times a process that was started just now. Its CPU time is not read for that: in a window each system call counts.
    pub fn start_new() -> Self {
        ProcessClock {
            begun: Instant::now(),
            before: CpuReading::default(),
        }
    }

    /// Returns the wall time since it was started.
    pub fn wall(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Whether the process had more than so much time, waits for a CPU not counted.
    pub fn exceeds(&self, pid: u32, limit: Duration) -> bool {
        self.wall() > limit && self.elapsed(pid).able() > limit
    }

    /// Returns the time that the process had.
    pub fn elapsed(&self, pid: u32) -> ProcessTime {
        let wall = self.begun.elapsed();
        CpuReading::now(pid).since(&self.before, wall)
    }
}

impl ProcessTime {
    /// Wall time without that in which the processes waited for a CPU.
    pub fn able(&self) -> Duration {
        self.wall.saturating_sub(self.waited)
    }
}

impl CpuReading {
    fn now(pid: u32) -> Self {
        let tick =
            Duration::from_secs(1) / u32::try_from(procfs::ticks_per_second()).unwrap_or(100);
        let mut reading = CpuReading::default();
        for pid in process_tree(pid) {
            let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat());
            let ticks = stat.map_or(0, |stat| stat.utime + stat.stime);
            reading.used += tick * u32::try_from(ticks).unwrap_or(u32::MAX);
            let waits = threads(pid).filter_map(|thread| {
                let waited = thread.schedstat().ok()?.run_delay;
                Some((thread.tid, waited))
            });
            reading.waited_ns.extend(waits);
        }
        reading
    }

    fn since(&self, before: &CpuReading, wall: Duration) -> ProcessTime {
        let waits = self.waited_ns.iter().map(|(thread, waited)| {
            waited.saturating_sub(before.waited_ns.get(thread).copied().unwrap_or(0))
        });
        ProcessTime {
            wall,
            used: self.used.saturating_sub(before.used),
            waited: Duration::from_nanos(waits.max().unwrap_or(0)).min(wall),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command},
        thread::sleep,
    };

    use rustix::{
        process::{Pid, Signal, kill_process},
        thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    };

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn reading(used: Duration, waits: &[(i32, Duration)]) -> CpuReading {
        let waits = waits.iter().map(|(thread, wait)| {
            let ns = u64::try_from(wait.as_nanos()).expect("a short wait");
            (*thread, ns)
        });
        CpuReading {
            used,
            waited_ns: waits.collect(),
        }
    }

    #[test]
    fn the_thread_that_waited_for_longest_counts() {
        let before = reading(3 * SECOND, &[(1, SECOND), (2, 40 * SECOND)]);
        let now = reading(
            5 * SECOND,
            &[(1, 8 * SECOND), (2, 41 * SECOND), (3, 2 * SECOND)],
        );
        let time = now.since(&before, 10 * SECOND);
        let expected = ProcessTime {
            wall: 10 * SECOND,
            used: 2 * SECOND,
            waited: 7 * SECOND,
        };
        assert_eq!(time, expected);
        assert_eq!(time.able(), 3 * SECOND);
        // What ended is no negative time, and a wait that began earlier is no longer than the time.
        let time = reading(SECOND, &[(3, 60 * SECOND)]).since(&before, SECOND);
        assert_eq!((time.used, time.able()), (Duration::ZERO, Duration::ZERO));
    }

    /// Ended when dropped.
    struct Running(Child);

    impl Running {
        fn start(script: &str) -> Self {
            let child = Command::new("sh").args(["-c", script]).spawn();
            Running(child.expect("sh runs"))
        }

        fn signal(&self, signal: Signal) {
            kill_process(Pid::from_child(&self.0), signal).expect("it runs");
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Waits until a clock shows something.
    fn until(clock: &ProcessClock, pid: u32, shows: impl Fn(ProcessTime) -> bool) -> ProcessTime {
        loop {
            let time = clock.elapsed(pid);
            if shows(time) {
                return time;
            }
            sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_process_that_is_stopped_gets_no_cpu_time() {
        let busy = Running::start("while :; do :; done");
        let pid = busy.0.id();
        let clock = ProcessClock::start(pid);
        until(&clock, pid, |time| time.used > Duration::ZERO);
        busy.signal(Signal::STOP);
        // It may get a CPU until it has seen the signal.
        let stat = || Process::new(pid.cast_signed()).and_then(|process| process.stat());
        while stat().expect("it is there").state != 'T' {
            sleep(Duration::from_millis(1));
        }
        let stopped = ProcessClock::start(pid);
        let time = until(&stopped, pid, |time| time.wall > SECOND / 2);
        assert_eq!(time.used, Duration::ZERO);
    }

    #[test]
    fn processes_that_share_a_cpu_wait_for_it() {
        // One CPU, and three that want all of it.
        let allowed = sched_getaffinity(None).expect("CPUs");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        let mut one = CpuSet::new();
        one.set(first.expect("a CPU"));
        let busy = [(); 3].map(|()| Running::start("while :; do :; done"));
        for running in &busy {
            let pid = Some(Pid::from_child(&running.0));
            sched_setaffinity(pid, &one).expect("its CPU");
        }
        if threads(busy[0].0.id()).all(|thread| thread.schedstat().is_err()) {
            return; // this kernel does not count it
        }
        let pid = busy[0].0.id();
        let clock = ProcessClock::start(pid);
        let time = until(&clock, pid, |time| time.waited > SECOND / 5);
        assert!(time.able() < time.wall, "{time:?}");
    }

    #[test]
    fn what_a_process_starts_counts_with_it() {
        let parent = Running::start("sh -c 'while :; do :; done' & wait");
        let pid = parent.0.id();
        let clock = ProcessClock::start_new();
        until(&clock, pid, |time| time.used > SECOND / 5);
        for child in process_tree(pid).into_iter().skip(1) {
            let child = Pid::from_raw(child.cast_signed()).expect("a number");
            let _ = kill_process(child, Signal::KILL);
        }
    }
}
