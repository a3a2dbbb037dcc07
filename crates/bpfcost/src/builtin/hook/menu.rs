//! The menu of stimuli: those of [`bpfcost_stimulus`], and system calls that no safe function makes.

use bpfcost_bpf::hook::old_calls;
use bpfcost_stimulus::{Prepared, Stimulus};

const OLD_CALLS: &[Stimulus] = &[
    #[cfg(target_arch = "x86_64")]
    Stimulus::new("stat-old", "stat, lstat", |_| {
        Ok(Prepared::new(old_calls::stat))
    }),
    Stimulus::new("tkill", "gettid, tkill: signal 0", |_| {
        Ok(Prepared::new(old_calls::tkill))
    }),
    Stimulus::new(
        "perf-event",
        "perf_event_open (CPU clock of this thread, disabled), close",
        |_| Ok(Prepared::new(old_calls::perf_event)),
    ),
    Stimulus::new(
        "bpf-map",
        "bpf ×3: a map of one element is made, written, read; close",
        |_| Ok(Prepared::new(old_calls::bpf_map)),
    ),
];

/// All stimuli, in a fixed order.
pub fn all() -> impl Iterator<Item = &'static Stimulus> {
    bpfcost_stimulus::all().chain(OLD_CALLS)
}

/// The stimulus of this name.
pub fn find(name: &str) -> Option<&'static Stimulus> {
    all().find(|stimulus| stimulus.name == name)
}
