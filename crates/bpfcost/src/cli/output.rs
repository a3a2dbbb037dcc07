//! What is said, and a line that is redrawn while something lasts.

pub(super) use bpfcost_console::{
    note,
    output::{answer, heard, redrawn, say_of_words, write_answer},
    say,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::{process::getpgrp, termios::tcgetpgrp};
use std::{fs::File, io::stderr, process::Stdio};

/// Standard error, for the output of a command: the answer has standard output for itself.
pub(super) fn errors_for_command() -> Stdio {
    Stdio::from(stderr())
}

/// Returns whether this process is in the foreground of its terminal, which sends Ctrl-C to all that are.
pub(super) fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    let foreground = terminal.and_then(|terminal| Ok(tcgetpgrp(terminal)?));
    foreground.is_ok_and(|group| group == getpgrp())
}

/// A line on stderr that is redrawn: a bar or a spinner with words. Nothing where stderr is no terminal.
#[derive(Clone)]
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// A bar of so many steps, drawn so often a second.
    pub(super) fn new(steps: u64, hz: u8, template: &str) -> Self {
        // A wrong template is a mistake in this program, which the default then covers.
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let target = ProgressDrawTarget::stderr_with_hz(hz);
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        Bar(bar.with_style(style))
    }

    /// One that is never shown.
    pub(super) fn hidden() -> Self {
        Bar(ProgressBar::hidden())
    }

    /// The words beside it.
    pub(super) fn set_words(&self, words: &str) {
        self.0.set_message(bpfcost_text::line(words));
    }

    /// Steps that are done.
    pub(super) fn set_steps(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// Starts anew, and shows from now on that it is alive.
    pub(super) fn restart(&self, every: std::time::Duration) {
        self.0.reset();
        self.0.enable_steady_tick(every);
    }

    /// Hides it while `write` writes lines.
    pub(super) fn suspend(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
