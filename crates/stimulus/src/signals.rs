//! Signals to this process. Its default reaction to the chosen one is to ignore it.

use nix::sys::{
    signal::{SigSet, Signal, raise},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::process::{getpid, kill_process, test_kill_process};

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

const SIGNAL: Signal = Signal::SIGURG;

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "signal",
        "rt_sigprocmask, gettid, getpid, tgkill, rt_sigprocmask: SIGURG, delivered and ignored",
        deliver,
    ),
    Stimulus::new(
        "signalfd",
        "rt_sigprocmask, gettid, getpid, tgkill, read, rt_sigprocmask: SIGURG",
        read_signal,
    ),
    Stimulus::new(
        "kill",
        "getpid, kill ×2: signal 0, and SIGURG, which is ignored when it is sent",
        kill,
    ),
];

fn set() -> SigSet {
    SigSet::from_iter([SIGNAL])
}

fn deliver(_: &Context) -> Result<Prepared> {
    let set = set();
    Ok(Prepared::new(move || {
        // The kernel drops an ignored signal at once, unless it is blocked.
        set.thread_block()?;
        let sent = raise(SIGNAL);
        set.thread_unblock()?;
        Ok(sent?)
    }))
}

fn read_signal(_: &Context) -> Result<Prepared> {
    let set = set();
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&set, flags).step("make a signalfd")?;
    Ok(Prepared::new(move || {
        set.thread_block()?;
        let read = raise(SIGNAL).and_then(|()| signals.read_signal());
        set.thread_unblock()?;
        expect_bytes(usize::from(read?.is_some()), 1)
    }))
}

fn kill(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let process = getpid();
        test_kill_process(process)?;
        kill_process(process, rustix::process::Signal::URG)?;
        Ok(())
    }))
}
