//! Lockdown: what a kernel that was booted so forbids even to root.

use std::fs;

use crate::mount;

/// The kernel's lockdown mode: the file lists all modes and marks the active one.
const MODES: &str = "/sys/kernel/security/lockdown";

/// The mode that forbids reading the kernel: kprobes, tracefs, programs that read its memory.
const NO_LOOKING: &str = "confidentiality";

/// The mode of a kernel in lockdown; `None` where it is in none, or doesn't report it.
pub(crate) fn mode() -> Option<String> {
    let text = match fs::read_to_string(MODES) {
        Ok(text) => text,
        Err(_) => fs::read_to_string(mount::open("securityfs").ok()?.path("lockdown")).ok()?,
    };
    chosen(&text)
}

/// Returns true if lockdown forbids reading the kernel.
pub(crate) fn forbids_looking() -> bool {
    mode().as_deref() == Some(NO_LOOKING)
}

/// The mode in brackets of `none [integrity] confidentiality`.
fn chosen(modes: &str) -> Option<String> {
    let mode = modes.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_stands_in_brackets() {
        assert_eq!(chosen("[none] integrity confidentiality\n"), None);
        assert_eq!(
            chosen("none [integrity] confidentiality\n").as_deref(),
            Some("integrity")
        );
        assert_eq!(
            chosen("none integrity [confidentiality]\n").as_deref(),
            Some(NO_LOOKING)
        );
        assert_eq!(chosen(""), None);
    }
}
