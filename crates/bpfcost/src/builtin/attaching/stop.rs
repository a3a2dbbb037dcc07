//! The longest stop of a thread that does nothing but read the clock: what others notice.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::{CpuPin, preemptions};

/// Maximum time until the thread that reads the clock first runs on its CPU.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Shorter stops are no switch to another thread: that takes as long twice.
const MIN_SWITCH: Duration = Duration::from_micros(1);

/// The longest times between two readings of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LongestStop {
    /// Longest stop of all.
    pub(super) any: Duration,
    /// Longest stop without a switch to another thread: caused by interrupts, other CPUs, or the host of a virtual
    /// machine.
    pub(super) interrupted: Duration,
}

impl LongestStop {
    fn add(&mut self, stop: Duration, was_preempted: bool) {
        self.any = self.any.max(stop);
        if !was_preempted {
            self.interrupted = self.interrupted.max(stop);
        }
    }
}

/// Does `work`, and returns the longest stops of a thread on `cpu` meanwhile.
pub(super) fn longest_during<T>(cpu: u32, work: impl FnOnce() -> T) -> Result<(T, LongestStop)> {
    let (runs, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| -> Result<LongestStop> {
            let _pinned = CpuPin::to(cpu)?;
            let ended = || ended.load(Ordering::Acquire);
            longest(&runs, ended, Instant::now, || Ok(preemptions()?))
        });
        // However the work ends, the thread does.
        let ending = EndOnDrop(&ended);
        let begun = Instant::now();
        while !runs.load(Ordering::Acquire) && !reader.is_finished() {
            if begun.elapsed() > START_TIMEOUT {
                bail!(
                    "no thread came to run on CPU {cpu} within {} s: another program holds it; choose others with --cpus",
                    START_TIMEOUT.as_secs()
                );
            }
            thread::yield_now();
        }
        let done = work();
        drop(ending);
        let longest = reader.join().ok();
        let longest = longest.context("the thread that reads the clock panicked")?;
        Ok((done, longest?))
    })
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The longest stops, the one in which it ended included: that may last beyond the end.
fn longest(
    runs: &AtomicBool,
    ended: impl Fn() -> bool,
    now: impl Fn() -> Instant,
    preemptions: impl Fn() -> Result<u64>,
) -> Result<LongestStop> {
    let mut longest = LongestStop::default();
    let mut preempted = preemptions()?;
    let mut before = now();
    runs.store(true, Ordering::Release);
    loop {
        let is_over = ended();
        let read = now();
        let stop = read.saturating_duration_since(before);
        before = read;
        if stop < MIN_SWITCH {
            longest.add(stop, false);
        } else {
            let count = preemptions()?;
            longest.add(stop, count > preempted);
            preempted = count;
            // To ask takes as long as a short stop.
            before = now();
        }
        if is_over {
            return Ok(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The longest stops, in nanoseconds, of some; those of odd numbers are switches to another thread.
    fn longest_ns(stops: &[u64]) -> [u128; 2] {
        let (at, zero) = (Cell::new(0), Instant::now());
        let (left, preempted, asked) = (Cell::new(stops), Cell::new(0), Cell::new(false));
        let now = || {
            // The first reading, and the one after a question.
            let again = asked.replace(false);
            if let (false, [stop, rest @ ..]) = (again, left.get()) {
                at.set(at.get() + stop);
                preempted.set(preempted.get() + stop % 2);
                left.set(rest);
            }
            zero + Duration::from_nanos(at.get())
        };
        let preemptions = || {
            asked.set(true);
            Ok(preempted.get())
        };
        let runs = AtomicBool::new(false);
        let found = longest(&runs, || left.get().len() == 1, now, preemptions);
        assert!(runs.into_inner());
        let found = found.expect("an answer");
        [found.any, found.interrupted].map(|stop| stop.as_nanos())
    }

    #[test]
    fn the_longest_ns_all_stops_is_kept_the_last_one_too() {
        assert_eq!(longest_ns(&[20]), [20, 20]);
        assert_eq!(longest_ns(&[20, 900, 22, 30]), [900, 900]);
        assert_eq!(longest_ns(&[20, 30, 8000]), [8000, 8000]);
        assert_eq!(longest_ns(&[20, 5000, 30, 4000, 20]), [5000, 5000]);
    }

    #[test]
    fn switches_to_another_thread_are_no_interruptions() {
        assert_eq!(longest_ns(&[20, 9001, 20, 4000, 20]), [9001, 4000]);
        assert_eq!(longest_ns(&[20, 3001]), [3001, 20]);
        assert_eq!(longest_ns(&[4000, 3001, 20]), [4000, 4000]);
    }

    #[test]
    fn work_is_done_while_the_thread_runs() {
        let cpu = bpfcost_bpf::allowed_cpus().pop().expect("a CPU");
        let (done, longest) = longest_during(cpu, || 7).expect("it is watched");
        assert_eq!(done, 7);
        assert!(longest.any > Duration::ZERO && longest.any >= longest.interrupted);
        let error = longest_during(1_000_000, || 7).expect_err("no machine has it");
        assert!(format!("{error:#}").contains("CPU"), "{error:#}");
    }

    #[test]
    fn a_panic_of_the_work_ends_the_thread() {
        let cpu = bpfcost_bpf::allowed_cpus().pop().expect("a CPU");
        let outcome = std::panic::catch_unwind(|| longest_during(cpu, || panic!("on purpose")));
        assert!(outcome.is_err());
    }
}
