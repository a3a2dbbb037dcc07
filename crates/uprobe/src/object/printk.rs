//! The tracepoint of `bpf_trace_printk`. The kernel switches it on, for the trace buffer, when a program that calls
//! the helper is loaded, and leaves it on. It does so after the load has returned (Linux 6.18), or during it.

use std::{
    fs,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::mount::MountedFs;

/// Where the tracepoint is switched on and off, in tracefs.
const SWITCH: &str = "events/bpf_trace/bpf_trace_printk/enable";

/// How long the kernel is watched: so many times in a row it must not have switched it on again, since
/// it does so several times a load.
const LOOKS: u32 = 10;
const MOST_LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Remembers that the tracepoint was off, to switch it off again. If it was on before, it stays on.
pub struct PrintkGuard(Option<MountedFs>);

/// One load at a time: another one's guard would take what this one switches on for somebody else's wish.
static LOADS: Mutex<()> = Mutex::new(());

impl PrintkGuard {
    /// Does `load`, and switches the tracepoint off again if it was off.
    pub fn around<T>(load: impl FnOnce() -> T) -> T {
        let _turn = LOADS.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = PrintkGuard::note();
        let loaded = load();
        guard.restore();
        loaded
    }

    /// To be called before a program is loaded.
    pub fn note() -> Self {
        let tracefs = MountedFs::ask("tracefs").ok();
        PrintkGuard(tracefs.filter(|tracefs| is_on(tracefs) == Some(false)))
    }

    /// To be called once the program is loaded.
    pub fn restore(&self) {
        let Some(tracefs) = &self.0 else { return };
        let mut quiet = 0;
        for _ in 0..MOST_LOOKS {
            match is_on(tracefs) {
                Some(true) => {
                    switch_off(tracefs);
                    quiet = 0;
                }
                _ => quiet += 1,
            }
            if quiet == LOOKS {
                return;
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }
}

impl Drop for PrintkGuard {
    fn drop(&mut self) {
        if let Some(tracefs) = self
            .0
            .as_ref()
            .filter(|tracefs| is_on(tracefs) == Some(true))
        {
            switch_off(tracefs);
        }
    }
}

fn switch_off(tracefs: &MountedFs) {
    // A failure shows in others().
    let _ = fs::write(tracefs.path(SWITCH), "0");
}

fn is_on(tracefs: &MountedFs) -> Option<bool> {
    let text = fs::read_to_string(tracefs.path(SWITCH)).ok()?;
    Some(text.trim() != "0")
}
