//! Scheduling and futexes.

use std::sync::atomic::AtomicU32;

use rustix::{
    io::Errno,
    process::{getpriority_process, setpriority_process},
    thread::{futex, sched_getaffinity, sched_setaffinity, sched_yield},
    time::Timespec,
};

use crate::{
    error::Result,
    stimulus::{Context, Prepared, Stimulus, expect_error},
};

const TIMEOUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000,
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new("yield", "sched_yield", give_way),
    Stimulus::new(
        "affinity",
        "sched_getaffinity, sched_setaffinity: the same CPUs",
        affinity,
    ),
    Stimulus::new(
        "priority",
        "getpriority, setpriority: the same priority",
        priority,
    ),
    Stimulus::new(
        "futex",
        "futex ×2: wake (no thread waits), wait (EAGAIN)",
        wake,
    ),
    Stimulus::new("futex-wait", "futex: wait, for 50 µs (ETIMEDOUT)", wait),
];

fn give_way(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        sched_yield();
        Ok(())
    }))
}

fn affinity(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        sched_setaffinity(None, &sched_getaffinity(None)?)?;
        Ok(())
    }))
}

fn priority(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        setpriority_process(None, getpriority_process(None)?)?;
        Ok(())
    }))
}

fn wake(_: &Context) -> Result<Prepared> {
    let word = AtomicU32::new(0);
    Ok(Prepared::new(move || {
        futex::wake(&word, futex::Flags::PRIVATE, 1)?;
        let wait = futex::wait(&word, futex::Flags::PRIVATE, 1, Some(&TIMEOUT));
        expect_error(wait, Errno::AGAIN)
    }))
}

fn wait(_: &Context) -> Result<Prepared> {
    let word = AtomicU32::new(0);
    Ok(Prepared::new(move || {
        let wait = futex::wait(&word, futex::Flags::PRIVATE, 0, Some(&TIMEOUT));
        expect_error(wait, Errno::TIMEDOUT)
    }))
}
