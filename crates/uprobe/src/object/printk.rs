//! The tracepoint of `bpf_trace_printk`. The kernel switches it on, for the trace buffer, when a program that calls
//! the helper is loaded, and leaves it on. It does so after the load has returned (Linux 6.18), or during it. So it is on
//! wherever any tool has loaded such a program since the machine booted.

use std::{
    fs::{self, File},
    io, thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags},
    fd::AsFd as _,
    fs::{FlockOperation, flock},
};

use crate::{
    mount::MountedFs,
    process::{Child, this_process},
};

/// File in tracefs that switches the tracepoint on and off.
const SWITCH: &str = "events/bpf_trace/bpf_trace_printk/enable";

/// Time for which the kernel is watched. It must have switched it on, on a busy machine long after the load, and then not
/// again for so many looks: it does so several times a load.
const QUIET_POLLS: u32 = 300;
const MAX_POLLS: u32 = 1000;
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Number of times the lock is tried. A load that takes longer than that is not waited for.
const LOCK_ATTEMPTS: u32 = 10_000;

/// Loads programs that write lines. The tracepoint is off again afterwards if it was off before, also where this process
/// is killed meanwhile.
pub fn load_quietly<T>(load: impl FnOnce() -> T) -> T {
    let switch = Switch::lock();
    let Some(switch) = switch.filter(|switch| switch.is_on() == Some(false)) else {
        return load();
    };
    let _off = KeptOff {
        // Without it, all but a kill is provided for.
        custodian: switch.outlive(|| switch.keep_off()).ok(),
        switch,
    };
    load()
}

/// The tracepoint, switched off. Dropping this switches it on again; where this process is killed, the custodian does.
#[derive(Debug)]
pub struct PrintkOff {
    switch: Switch,
    custodian: Option<Child>,
}

impl PrintkOff {
    /// Switches it off. `None` where it is off already, or where there is none.
    pub fn switch_off() -> Option<Self> {
        let switch = Switch::lock()?;
        if switch.is_on() != Some(true) {
            return None;
        }
        let off = PrintkOff {
            custodian: switch.outlive(|| switch.set_on()).ok(),
            switch,
        };
        off.switch.keep_off();
        off.switch.unlock();
        Some(off)
    }
}

impl Drop for PrintkOff {
    fn drop(&mut self) {
        // A load in another process, which knows it as off, would switch it off again.
        wait_for_lock(&self.switch.locked);
        self.switch.set_on();
        self.switch.unlock();
        if let Some(custodian) = &self.custodian {
            custodian.kill();
        }
    }
}

/// Switches it off when this is dropped, or the custodian does when this process has ended.
struct KeptOff {
    switch: Switch,
    custodian: Option<Child>,
}

impl Drop for KeptOff {
    fn drop(&mut self) {
        self.switch.keep_off();
        if let Some(custodian) = &self.custodian {
            custodian.kill();
        }
    }
}

/// The switch of the tracepoint, locked: what another load switches on would be taken for somebody else's wish, in this
/// process or in another one of this tool.
#[derive(Debug)]
struct Switch {
    tracefs: MountedFs,
    locked: File,
}

impl Switch {
    /// `None` where there is none.
    fn lock() -> Option<Self> {
        let tracefs = MountedFs::ask("tracefs").ok()?;
        let locked = File::open(tracefs.path(SWITCH)).ok()?;
        wait_for_lock(&locked);
        Some(Switch { tracefs, locked })
    }

    fn unlock(&self) {
        let _ = flock(&self.locked, FlockOperation::Unlock);
    }

    fn set_on(&self) {
        let _ = fs::write(self.tracefs.path(SWITCH), "1");
    }

    fn is_on(&self) -> Option<bool> {
        let text = fs::read_to_string(self.tracefs.path(SWITCH)).ok()?;
        Some(text.trim() != "0")
    }

    /// Switches it off until the kernel no longer switches it on.
    fn keep_off(&self) {
        let (mut was_on, mut quiet) = (false, 0);
        for _ in 0..MAX_POLLS {
            if self.is_on() == Some(true) {
                // A failure shows in others().
                let _ = fs::write(self.tracefs.path(SWITCH), "0");
                (was_on, quiet) = (true, 0);
            } else {
                quiet += 1;
            }
            if was_on && quiet >= QUIET_POLLS {
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Starts a process that does something when this one has ended. It has the lock, too.
    fn outlive(&self, last: impl FnOnce()) -> io::Result<Child> {
        let tool = this_process()?;
        let kept = [tool.as_fd(), self.locked.as_fd(), self.tracefs.as_fd()];
        Child::fork(&kept, || {
            let mut end = [PollFd::new(&tool, PollFlags::IN)];
            while !matches!(rustix::event::poll(&mut end, None), Ok(1..)) {}
            last();
        })
    }
}

/// Takes the lock, or goes on without it.
fn wait_for_lock(locked: &File) {
    for _ in 0..LOCK_ATTEMPTS {
        if flock(locked, FlockOperation::NonBlockingLockExclusive).is_ok() {
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
}
