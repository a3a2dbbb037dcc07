//! Pins the calling thread to a CPU until the guard is dropped; real-time priority for threads that read buffers.

use std::{io, panic, thread};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use rustix::{
    thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

use crate::error::{Result, cpu_number, failed};

/// Those of one priority in turn; not for children.
const REAL_TIME: libc::c_int = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;

/// Keeps the calling thread on one CPU; drop it on the same thread to go back to what was.
#[derive(Debug)]
pub struct CpuPin {
    before: CpuSet,
}

impl CpuPin {
    /// Moves the calling thread to `cpu` and keeps it there.
    pub fn to(cpu: u32) -> Result<Self> {
        let failed = || failed(format!("CPU {cpu}"), "moving a thread there");
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(cpu_number(cpu, CpuSet::MAX_CPU as u32));
        }
        let before = sched_getaffinity(None).map_err(failed())?;
        let mut only = CpuSet::new();
        only.set(cpu as usize);
        sched_setaffinity(None, &only).map_err(failed())?;
        Ok(CpuPin { before })
    }
}

impl Drop for CpuPin {
    fn drop(&mut self) {
        // Going back can fail only where the CPUs from before are gone; then staying is right.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Has the calling thread run as soon as it wants to, before all that is not in real time: for a reader that
/// sleeps most of the time, and loses what its buffer has no room for. Threads that it starts run as others do.
///
/// `false` where that is not allowed; then it runs when its turn comes.
#[allow(unsafe_code, reason = "no safe interface to this system call")]
pub fn real_time() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel only reads `lowest`, which lives on; 0 is the calling thread.
    let outcome = unsafe { libc::sched_setscheduler(0, REAL_TIME, &raw const lowest) };
    outcome == 0
}

/// The CPU's own counter of time (TSC), which the kernel's clock can be held against. It counts at a constant rate
/// on every CPU that this program supports; which rate, is unknown.
#[allow(unsafe_code, reason = "an instruction without a safe name")]
pub fn time_counter() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and it touches nothing but two registers.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Does `work` on `cpu`: on another thread, so that the caller stays where it is, unless it is there already.
pub(crate) fn on<T: Send>(cpu: u32, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if allowed_cpus() == [cpu] {
        return work();
    }
    thread::scope(|scope| {
        let pinned = || CpuPin::to(cpu).and_then(|_pinned| work());
        scope
            .spawn(pinned)
            .join()
            .unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

/// The CPU on which the caller runs just now.
pub fn current_cpu() -> u32 {
    sched_getcpu() as u32
}

/// Work of the calling thread as the thread itself sees it: from before it to after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideTime {
    /// Nanoseconds that passed (`CLOCK_MONOTONIC`).
    pub elapsed_ns: u64,
    /// Nanoseconds in which the thread ran (`CLOCK_THREAD_CPUTIME_ID`).
    pub cpu_ns: u64,
    /// Times that the thread waited for something.
    pub waits: u64,
}

/// Share by which the rates of the kernel's clocks may differ: NTP slews `CLOCK_MONOTONIC` by half of it, and not the
/// CPU time counter.
const CLOCKS_APART: f64 = 1e-3;

impl OutsideTime {
    /// Returns true if what lasted so long by a clock of the kernel can have been a part of this time.
    pub fn holds(&self, inside_ns: u64) -> bool {
        inside_ns as f64 <= self.elapsed_ns as f64 * (1.0 + CLOCKS_APART)
    }
}

/// Does work, and times it from outside.
pub(crate) fn outside<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, OutsideTime)> {
    let now = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
    };
    let waits_before = waits()?;
    let start = [ClockId::Monotonic, ClockId::ThreadCPUTime].map(now);
    let result = work()?;
    let [cpu_ns, elapsed_ns] = [ClockId::ThreadCPUTime, ClockId::Monotonic].map(now);
    let time = OutsideTime {
        elapsed_ns: elapsed_ns.saturating_sub(start[0]),
        cpu_ns: cpu_ns.saturating_sub(start[1]),
        waits: waits()? - waits_before,
    };
    Ok((result, time))
}

/// Returns the number of times that the calling thread has given up its CPU to wait for something.
pub(crate) fn waits() -> Result<u64> {
    Ok(usage()?.voluntary_context_switches() as u64)
}

/// Returns the number of times that another thread has taken the calling thread's CPU.
pub fn preemptions() -> Result<u64> {
    Ok(usage()?.involuntary_context_switches() as u64)
}

fn usage() -> Result<Usage> {
    getrusage(UsageWho::RUSAGE_THREAD)
        .map_err(io::Error::from)
        .map_err(failed("a thread", "asking how often it gave up its CPU"))
}

/// CPUs on which the caller may run, in order; empty where the kernel does not report them.
pub fn allowed_cpus() -> Vec<u32> {
    let Ok(allowed) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .map(|cpu| cpu as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_in_real_time_starts_none_that_are() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("stat");
            let (_, fields) = stat.rsplit_once(')').expect("fields");
            // The 41st, where the name is the 2nd.
            let policy = fields.split_whitespace().nth(38);
            policy.expect("a policy").parse::<i32>().expect("a number")
        };
        let in_real_time = thread::spawn(move || {
            let allowed = real_time();
            let child = thread::spawn(policy).join().expect("a policy");
            (allowed, policy(), child)
        });
        let (allowed, own, child) = in_real_time.join().expect("policies");
        let expected = if allowed {
            libc::SCHED_RR
        } else {
            libc::SCHED_OTHER
        };
        assert_eq!((own, child), (expected, libc::SCHED_OTHER));
    }
}
