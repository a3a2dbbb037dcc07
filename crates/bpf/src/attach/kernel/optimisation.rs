//! The sysctl for optimised kprobes of the whole machine, [`KPROBE_OPTIMISATION`]: changed while a kprobe needs it. Who may
//! be killed meanwhile takes care that it is restored then.

use std::{fs, rc::Rc};

use crate::error::{Result, failed};

/// The sysctl that attaching an optimised kprobe, or one that must not be optimised, changes while it is attached.
pub(in crate::attach) const KPROBE_OPTIMISATION: &str = "debug.kprobes-optimization";
const FILE: &str = "/proc/sys/debug/kprobes-optimization";

/// The switch's earlier state.
pub(super) struct Switch {
    before: String,
}

impl Switch {
    /// Notes what the switch is; `None` where the kernel has no such switch, and no optimised kprobes.
    pub(super) fn find() -> Option<Rc<Self>> {
        let before = fs::read_to_string(FILE).ok()?.trim().to_owned();
        Some(Rc::new(Switch { before }))
    }

    /// Turns the switch. The kernel answers when every kprobe is as it says.
    pub(super) fn turn(self: &Rc<Self>, on: bool) -> Result<OptimisationGuard> {
        let turned = OptimisationGuard(Rc::clone(self));
        let wanted = if on { "1" } else { "0" };
        if fs::read_to_string(FILE).is_ok_and(|now| now.trim() == wanted) {
            return Ok(turned);
        }
        write(wanted)?;
        Ok(turned)
    }
}

/// The switch is turned until this is dropped.
pub(super) struct OptimisationGuard(Rc<Switch>);

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
    fs::write(FILE, value).map_err(failed(KPROBE_OPTIMISATION, "turning it"))
}
