//! Ctrl-C and SIGTERM: the first asks the run to end after the trial under way, the second ends the
//! program at once. Nothing is attached by name, so the kernel frees what is left.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};

use super::exit::Exit;

/// The flag of this process, once it is used.
static LISTENING: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// A flag that the first signal sets: the same for everybody who asks.
pub(super) fn on_signal() -> Result<Arc<AtomicBool>> {
    let mut listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(flag) = &*listening {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(Exit::Interrupted as i32);
        }
    })
    .context("cannot handle Ctrl-C")?;
    *listening = Some(Arc::clone(&flag));
    Ok(flag)
}
