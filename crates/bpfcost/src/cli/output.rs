//! The two ways out: results go to stdout, everything else to stderr. Text of others (names of processes and files, the
//! output of tools) may hold sequences that drive a terminal, so all text is cleaned here and only here; what redraws a
//! line is written here too. No colour if the output is no terminal, or with `NO_COLOR`.

use std::{
    env, fmt,
    io::{self, BufWriter, ErrorKind, Write},
};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use bpfcost_report::style;

/// Writes a part of the answer. A reader that has gone away (`| head -1`) has read enough, so that
/// is no mistake; a full disk behind `> FILE` is one.
pub(super) fn answer(text: fmt::Arguments<'_>) -> Result<()> {
    heard(text).map(|_heard| ())
}

/// As [`answer`], for answers without an end; returns whether the reader is still there.
pub(super) fn heard(text: fmt::Arguments<'_>) -> Result<bool> {
    write_answer(|out| out.write_fmt(text))
}

/// As [`heard`], in the place of the last `lines` lines of a terminal.
pub(super) fn redrawn(lines: usize, text: &str) -> Result<bool> {
    let mut stdout = anstream::stdout();
    // Up to where they began, and all below away.
    if lines > 0
        && let Err(error) = write!(stdout, "\u{1b}[{lines}A\u{1b}[J")
    {
        return reader_left(error);
    }
    heard(format_args!("{text}"))
}

/// Writes an answer that may be too large to hold; returns whether the reader is still there.
pub(super) fn write_answer(
    write: impl FnOnce(&mut Cleaned<BufWriter<anstream::Stdout>>) -> io::Result<()>,
) -> Result<bool> {
    let mut out = Cleaned(BufWriter::new(anstream::stdout()));
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) => {
            // It would try once more.
            let _ = out.0.into_parts();
            reader_left(error)
        }
        Ok(()) => Ok(true),
    }
}

fn reader_left(error: io::Error) -> Result<bool> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(false),
        _ => Err(error).context("cannot write to standard output"),
    }
}

/// Writes a line to stderr, in no style. A failure to write is ignored: there is no place to report it.
pub(super) fn remark(text: fmt::Arguments<'_>) {
    let text = words_on_one_line(&text.to_string());
    let _ = writeln!(anstream::stderr(), "{}", bpfcost_text::printable(&text));
}

/// Puts what the command line names (a file, say) on one line wherever `text` repeats it.
pub(super) fn words_on_one_line(text: &str) -> String {
    let words: Vec<String> = env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .filter(|word| word.contains('\n'))
        .collect();
    let values = words.iter().filter_map(|word| word.split_once(['=', ':']));
    let values: Vec<&str> = values.map(|(_, value)| value).collect();
    let all = words.iter().map(String::as_str).chain(values);
    all.fold(text.to_owned(), |text, word| {
        text.replace(word, &bpfcost_text::line(word))
    })
}

/// Cleans what goes through it, and lets the sequences of our own style alone pass.
pub(super) struct Cleaned<W>(W);

impl<W: Write> Write for Cleaned<W> {
    /// Takes whole characters and whole sequences.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(style::cleaned(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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

/// A line of the answer, formatted as by `println!`.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::output::answer(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// A line for people who watch, on stderr, formatted as by `eprintln!`.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::cli::output::remark(format_args!($($text)*))
    };
}

pub(super) use {note, say};
