//! Threads that run before others for a moment.
//!
//! While a process is stopped, everything waits for the threads that work on it, and for each of its threads to
//! arrive in its stop. Where CPUs are few and busy, each of these waits would take some milliseconds.

#![allow(unsafe_code, reason = "rustix has no scheduling policies")]

use std::marker::PhantomData;

/// The raised priority of a thread. Where it is forbidden to raise one, or the thread has a policy of its own, nothing
/// changes.
#[derive(Debug)]
pub(super) struct Priority {
    tid: libc::pid_t,
    was_raised: bool,
    /// 0 is another thread elsewhere.
    not_send: PhantomData<*const ()>,
}

impl Priority {
    /// Raises that of a thread, 0 for the calling one. It must not make other threads meanwhile, as they would keep it.
    pub(super) fn raise(tid: libc::pid_t) -> Self {
        // SAFETY: no memory is used.
        let is_usual = unsafe { libc::sched_getscheduler(tid) } == libc::SCHED_OTHER;
        Priority {
            tid,
            was_raised: is_usual && set(tid, libc::SCHED_FIFO, 1),
            not_send: PhantomData,
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if self.was_raised {
            set(self.tid, libc::SCHED_OTHER, 0);
        }
    }
}

fn set(tid: libc::pid_t, policy: libc::c_int, sched_priority: libc::c_int) -> bool {
    let parameter = libc::sched_param { sched_priority };
    // SAFETY: the kernel only reads the parameter.
    unsafe { libc::sched_setscheduler(tid, policy, &raw const parameter) == 0 }
}

/// The CPU time that a thread has used, in ticks; the most where it is gone.
pub(super) fn cpu_time(pid: i32, tid: i32) -> u64 {
    let times = || -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        // In user space and in the kernel: the 12th and 13th field behind the name.
        let fields = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(2);
        fields.map(|field| field.parse::<u64>().ok()).sum()
    };
    times().unwrap_or(u64::MAX)
}
