//! Results go to stdout, everything else to stderr. No colour if the output is no terminal, or with `NO_COLOR`.

use std::{
    fmt,
    io::{ErrorKind, Write},
};

use anyhow::{Context, Result};

/// Writes a part of the answer. A reader that has gone away (`| head -1`) has read enough, so that
/// is no mistake; a full disk behind `> FILE` is one.
pub(super) fn answer(text: fmt::Arguments<'_>) -> Result<()> {
    heard(text).map(|_heard| ())
}

/// As [`answer`], for answers without an end; returns whether the reader is still there.
pub(super) fn heard(text: fmt::Arguments<'_>) -> Result<bool> {
    let mut stdout = anstream::stdout();
    match stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
        Ok(()) => Ok(true),
    }
}

/// Writes a line to stderr. A failure to write is ignored: there is no place to report it.
pub(super) fn remark(text: fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{text}");
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
