//! The two ways out: results go to stdout, everything else to stderr. Text of others (names of processes and files, the
//! output of tools) may hold sequences that drive a terminal, so all text is cleaned here and only here; what redraws a
//! line is written here too. No colour if the output is no terminal, or with `NO_COLOR`.

use std::{
    env, fmt,
    io::{self, BufWriter, ErrorKind, Write},
};

use anyhow::{Context, Result};

use bpfcost_report::style;

use super::exit::Exit;
use crate::note;

/// Writes a part of the answer. A reader that has gone away (`| head -1`) has read enough, so that
/// is no mistake; a full disk behind `> FILE` is one.
pub fn answer(text: fmt::Arguments<'_>) -> Result<()> {
    heard(text).map(|_heard| ())
}

/// As [`answer`], for answers without an end; returns whether the reader is still there.
pub fn heard(text: fmt::Arguments<'_>) -> Result<bool> {
    write_answer(|out| out.write_fmt(text))
}

/// As [`heard`], in the place of the last `lines` lines of a terminal.
pub fn redrawn(lines: usize, text: &str) -> Result<bool> {
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
pub fn write_answer(
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
pub fn remark(text: fmt::Arguments<'_>) {
    let text = words_on_one_line(&text.to_string());
    let _ = writeln!(anstream::stderr(), "{}", bpfcost_text::printable(&text));
}

/// Puts what the command line names (a file, say) on one line wherever `text` repeats it.
pub fn words_on_one_line(text: &str) -> String {
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
pub struct Cleaned<W>(W);

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

/// Says what clap found in the words of the command line: a mistake, the help or the version.
pub fn say_of_words(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        // Words are put on one line before clap's style goes, which would take theirs with it.
        let text = words_on_one_line(&error.render().ansi().to_string());
        note!("{}", anstream::adapter::strip_str(text.trim_end()));
        return Exit::Usage;
    }
    let shown = answer(format_args!("{}", error.render().ansi()));
    shown.map_or(Exit::Lacking, |()| Exit::Done)
}

/// A line of the answer, formatted as by `println!`.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::answer(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// A line for people who watch, on stderr, formatted as by `eprintln!`.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::remark(format_args!($($text)*))
    };
}
