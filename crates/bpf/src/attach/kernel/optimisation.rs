//! The sysctl for optimised kprobes of the whole machine, `debug.kprobes-optimization`: changed while a kprobe
//! needs it, and restored however this process ends.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    rc::Rc,
};

use crate::error::{Result, failed};

const SWITCH_NAME: &str = "debug.kprobes-optimization";
const SWITCH: &str = "/proc/sys/debug/kprobes-optimization";

/// Waits until nothing can come any more, then puts the switch back.
const KEEPER: &str = "read _; printf %s \"$1\" > \"$2\"";

/// The switch's earlier state, and the child process that restores it.
pub(super) struct SwitchRestorer {
    before: String,
    child: Child,
    /// Open as long as this process is there: its closing is what the child waits for.
    lifeline: Option<ChildStdin>,
}

impl SwitchRestorer {
    /// Notes what the switch is; `None` where the kernel has no such switch, and no optimised kprobes.
    pub(super) fn start() -> Result<Option<Rc<Self>>> {
        let Ok(before) = fs::read_to_string(SWITCH) else {
            return Ok(None);
        };
        let before = before.trim().to_owned();
        let mut child = Command::new("/bin/sh")
            .args(["-c", KEEPER, "bpfcost-keeper", &before, SWITCH])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C on a terminal, and signals to this process's group, must not reach it.
            .process_group(0)
            .spawn()
            .map_err(failed(
                SWITCH_NAME,
                "starting the process that puts it back",
            ))?;
        let lifeline = child.stdin.take();
        Ok(Some(Rc::new(SwitchRestorer {
            before,
            child,
            lifeline,
        })))
    }

    /// Turns the switch. The kernel answers when every kprobe is as it says.
    pub(super) fn turn(self: &Rc<Self>, on: bool) -> Result<OptimisationGuard> {
        let turned = OptimisationGuard(Rc::clone(self));
        let wanted = if on { "1" } else { "0" };
        if fs::read_to_string(SWITCH).is_ok_and(|now| now.trim() == wanted) {
            return Ok(turned);
        }
        write(wanted)?;
        Ok(turned)
    }
}

impl Drop for SwitchRestorer {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        // It has nothing left to do but to write one byte.
        let _ = self.child.wait();
    }
}

/// The switch is turned until this is dropped.
pub(super) struct OptimisationGuard(Rc<SwitchRestorer>);

impl Drop for OptimisationGuard {
    fn drop(&mut self) {
        // By this the kernel is made to finish with a kprobe that was optimised: it undoes the jump
        // some time after the kprobe is gone.
        let _ = write("0");
        if self.0.before != "0" {
            let _ = write(&self.0.before);
        }
    }
}

fn write(value: &str) -> Result<()> {
    fs::write(SWITCH, value).map_err(failed(SWITCH_NAME, "turning it"))
}
