//! Messages of libbpf while it works on one object, kept off the terminal.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// libbpf has one printer for the whole process: one object at a time.
static TURN: Mutex<()> = Mutex::new(());
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs `work`, and returns with its result the warnings that libbpf printed. The process' own printer is put back.
pub(crate) fn collect<T>(work: impl FnOnce() -> T) -> (T, String) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let collect_line = |_, line: String| {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.trim_end().to_owned());
    };
    let before = set_print(Some((PrintLevel::Warn, collect_line)));
    let result = work();
    set_print(before);
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    (result, std::mem::take(&mut *lines).join("\n"))
}
