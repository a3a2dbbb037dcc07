//! Ctrl-C and SIGTERM: the first asks the run to end after the trial under way, the second ends the
//! program at once. Nothing is attached by name, so the kernel frees what is left.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};

use super::exit::Exit;

/// A flag that the first signal sets.
pub(super) fn on_signal() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(Exit::Interrupted as i32);
        }
    })
    .context("can't listen for Ctrl-C")?;
    Ok(flag)
}
