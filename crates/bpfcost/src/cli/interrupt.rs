//! Ctrl-C and SIGTERM: the first asks the run to end after the trial under way, the second ends the
//! program at once. Nothing is attached by name, so the kernel frees what is left.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{exit::Exit, output::note};

/// Signals that follow the first within this time are the same request: `timeout` sends one to the process and one to its
/// group.
const SAME_REQUEST: Duration = Duration::from_millis(300);

/// The flag of this process, once it is used.
static LISTENING: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Words that are printed if a second signal ends the program, by the journals of the runs under way.
static LAST_WORDS: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());

/// The signals that came.
#[derive(Debug, Default)]
struct Signals {
    first: Option<Instant>,
}

impl Signals {
    /// Notes one; returns whether it is a second request.
    fn is_second(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        now.duration_since(first) >= SAME_REQUEST
    }
}

/// A flag that the first signal sets: the same for everybody who asks.
pub(super) fn on_signal() -> Result<Arc<AtomicBool>> {
    let mut listening = locked(&LISTENING);
    if let Some(flag) = &*listening {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&flag);
    let mut signals = Signals::default();
    ctrlc::set_handler(move || {
        asked.store(true, Ordering::Relaxed);
        if signals.is_second(Instant::now()) {
            for words in locked(&LAST_WORDS).values() {
                note!("{words}");
            }
            std::process::exit(Exit::Interrupted as i32);
        }
    })
    .context("cannot handle Ctrl-C")?;
    *listening = Some(Arc::clone(&flag));
    Ok(flag)
}

/// Sets what to print of the run with this journal if a second signal ends the program from now on.
pub(super) fn set_last_words(journal: &Path, words: String) {
    locked(&LAST_WORDS).insert(journal.to_owned(), words);
}

/// Nothing is to be printed any more of the run with this journal.
pub(super) fn clear_last_words(journal: &Path) {
    locked(&LAST_WORDS).remove(journal);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_signals_at_once_are_one_request() {
        let (mut signals, begun) = (Signals::default(), Instant::now());
        let after = |ms| begun + Duration::from_millis(ms);
        assert!(!signals.is_second(begun));
        assert!(!signals.is_second(after(2)));
        assert!(!signals.is_second(after(299)));
        assert!(signals.is_second(after(300)), "counted from the first");
        assert!(signals.is_second(after(5000)));
    }
}
