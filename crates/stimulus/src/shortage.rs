//! Lack of memory, as the kernel handles it.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::Stdio,
};

use rustix::process::Signal;

use crate::{
    error::{Error, Result, Step},
    processes::{finish, program},
    smallest_program,
    stimulus::{Context, Prepared, Stimulus},
};

const TRIGGER: &str = "/proc/sysrq-trigger";
const PRINTED: &str = "/proc/sys/kernel/printk";
const OWN: &str = "/proc/self/oom_score_adj";
/// The process that the kernel kills first, and one that it never kills.
const FIRST: &str = "1000";
const NEVER: &str = "-1000";

pub(crate) const STIMULI: &[Stimulus] = &[Stimulus::new(
    "oom-kill",
    "start of a program that waits; read of its output; openat, write, close of its oom_score_adj (1000); write to /proc/sysrq-trigger: the kernel kills a process as if memory were used up; pidfd_open, ppoll, close, wait4",
    kill_one,
)];

/// The kernel chooses the process, so that no others may be there.
fn kill_one(context: &Context) -> Result<Prepared> {
    if !context.is_alone {
        return Err(Error::NotAlone);
    }
    let mut trigger = File::options()
        .write(true)
        .open(TRIGGER)
        .step("open /proc/sysrq-trigger")?;
    let settings = (
        Setting::set(PRINTED, "1").step("keep the kernel from printing")?,
        Setting::set(OWN, NEVER).step("protect this process")?,
    );
    let folder = context.temporary_folder()?;
    let mut command = program(folder.path(), &smallest_program::that_waits())?;
    command.stdout(Stdio::piped());
    Ok(Prepared::new(move || {
        let _kept = (&folder, &settings);
        let mut child = command.spawn()?;
        // Only now does it have memory of its own, and can be killed for it.
        if let Some(output) = &mut child.stdout {
            output.read_exact(&mut [0])?;
        }
        fs::write(format!("/proc/{}/oom_score_adj", child.id()), FIRST)?;
        trigger.write_all(b"f")?;
        match finish(child)?.signal() {
            Some(signal) if signal == Signal::KILL.as_raw() => Ok(()),
            _ => Err(io::Error::other("the kernel killed another process")),
        }
    }))
}

/// A setting that lasts until this is dropped.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    fn set(path: &'static str, value: &str) -> io::Result<Self> {
        let before = fs::read_to_string(path)?;
        fs::write(path, value)?;
        Ok(Setting { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(self.path, self.before.trim());
    }
}
