//! Clocks, timers and sleep.

use std::{thread, time::Duration};

use nix::{
    sys::{
        signal::{SigEvent, SigevNotify},
        time::TimeSpec,
        timer::{Expiration, Timer, TimerSetTimeFlags},
    },
    time::ClockId,
};
use rustix::{
    io::read,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_getres,
        clock_gettime, timerfd_create, timerfd_gettime, timerfd_settime,
    },
};

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

const SLEEP: Duration = Duration::from_micros(50);
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new("nanosleep", "clock_nanosleep, nanosleep: 50 µs each", sleep),
    Stimulus::new(
        "timer",
        "timerfd_create, timerfd_settime (an hour), timerfd_gettime, timerfd_settime (disarm), close",
        arm,
    ),
    Stimulus::new("timer-expiry", "timerfd_settime (50 µs), read", expire),
    Stimulus::new(
        "posix-timer",
        "timer_create, timer_settime (an hour), timer_gettime, timer_delete",
        posix_timer,
    ),
    Stimulus::new(
        "clock",
        "clock_gettime ×2 (CPU time of the process and the thread), clock_getres",
        clocks,
    ),
];

fn once(after: Duration) -> Itimerspec {
    Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: after.as_secs().cast_signed(),
            tv_nsec: after.subsec_nanos().into(),
        },
    }
}

fn sleep(_: &Context) -> Result<Prepared> {
    let time = once(SLEEP).it_value;
    Ok(Prepared::new(move || {
        thread::sleep(SLEEP);
        let _ = rustix::thread::nanosleep(&time);
        Ok(())
    }))
}

fn arm(_: &Context) -> Result<Prepared> {
    let flags = TimerfdTimerFlags::empty();
    Ok(Prepared::new(move || {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        timerfd_settime(&timer, flags, &once(HOUR))?;
        timerfd_gettime(&timer)?;
        timerfd_settime(&timer, flags, &once(Duration::ZERO))?;
        Ok(())
    }))
}

fn expire(_: &Context) -> Result<Prepared> {
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).step("make a timer")?;
    Ok(Prepared::new(move || {
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once(SLEEP))?;
        expect_bytes(read(&timer, &mut [0; 8])?, 8)
    }))
}

fn posix_timer(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let event = SigEvent::new(SigevNotify::SigevNone);
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, event)?;
        let hour = Expiration::OneShot(TimeSpec::from_duration(HOUR));
        timer.set(hour, TimerSetTimeFlags::empty())?;
        timer.get()?;
        Ok(())
    }))
}

fn clocks(_: &Context) -> Result<Prepared> {
    use rustix::time::ClockId;
    Ok(Prepared::new(|| {
        let _ = clock_gettime(ClockId::ProcessCPUTime);
        let _ = clock_gettime(ClockId::ThreadCPUTime);
        let _ = clock_getres(ClockId::ThreadCPUTime);
        Ok(())
    }))
}
