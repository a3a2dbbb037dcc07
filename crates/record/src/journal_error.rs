//! Errors of journals: what happened, why, and the next command to try.

use std::{io, path::PathBuf};

use thiserror::Error;

/// An error in writing, reading or continuing a journal.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another process has it locked.
    #[error(
        "another bpfcost is writing {0} right now; wait for it, or choose another file with --out"
    )]
    Busy(PathBuf),
    /// An earlier run left it behind.
    #[error(
        "{0} holds an unfinished run; continue it with --resume {0}, or delete that file, or \
         choose another with --out"
    )]
    Unfinished(PathBuf),
    /// The file can't be created.
    #[error("can't create the journal {0}: {1}; choose another place with --out")]
    Create(PathBuf, #[source] io::Error),
    /// The file can't be written: no space, no permission, …
    #[error(
        "can't write the journal {0}: {1}. It keeps all trials so far; make room and continue with --resume {0}"
    )]
    Write(PathBuf, #[source] io::Error),
    /// A trial's value is not a number; the experiment should have refused it.
    #[error(
        "a trial's value is not a finite number, and {0} can't store that; this is a bug in the experiment, please \
         report it"
    )]
    NotFinite(PathBuf),
    /// The file can't be read.
    #[error("can't read the journal {0}: {1}; resume it as the user who started it")]
    Read(PathBuf, #[source] io::Error),
    /// There is none.
    #[error(
        "there is nothing to resume: no journal {0}\n  A finished run removes its journal: start a new run without --resume"
    )]
    Missing(PathBuf),
    /// The run was killed before the journal's first line was whole.
    #[error("{0} is empty; delete it and start anew without --resume")]
    Empty(PathBuf),
    /// A line is not what this program writes.
    #[error(
        "{path} is damaged at line {line}: {what}. To keep what comes before, cut it there \
         (head -n {keep} {path} > new.journal) and resume that", keep = line - 1
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The error at that place.
        what: String,
    },
    /// Written by a newer program.
    #[error(
        "{0} was written by a newer bpfcost ({1}, schema {2}); update this one to \
         resume it"
    )]
    Newer(PathBuf, String, u32),
    /// Written by another version, whose trials need not be the same.
    #[error(
        "{0} was started by bpfcost {1}, and this is {this}: their trials may differ. Resume it with {1}, or start \
         anew without --resume",
        this = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion(PathBuf, String),
    /// The experiment now declares its cases otherwise.
    #[error(
        "the case {0} of this journal differs from that of the experiment; start anew without --resume"
    )]
    OtherPlan(String),
    /// Written by a build that made another number of rounds.
    #[error(
        "the epochs of this journal have {0} rounds, and those of this bpfcost have {1}: together they are not one run. \
         Resume it with the build that started it, or start anew without --resume"
    )]
    OtherRounds(usize, usize),
    /// The machine or its kernel is another one.
    #[error(
        "this journal is of another machine or kernel ({0}, here {1}). Start anew without --resume, and compare \
         the two records"
    )]
    OtherMachine(String, String),
    /// The record is safe, and the journal could not be removed.
    #[error("the record is written, but its journal {0} can't be removed: {1}; delete it")]
    Remove(PathBuf, #[source] io::Error),
}

impl JournalError {
    pub(super) fn write(path: &std::path::Path, source: io::Error) -> Self {
        JournalError::Write(path.to_owned(), source)
    }

    pub(super) fn read(path: &std::path::Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => JournalError::Missing(path),
            _ => JournalError::Read(path, source),
        }
    }
}
