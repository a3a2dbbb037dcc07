//! What can go wrong with a journal: what, why, and the next command to try.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why a journal can't be written, read or continued.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another process has it locked.
    #[error(
        "another bpfcost is writing {path} right now; wait for it, or choose another file with --out"
    )]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// An earlier run left it behind.
    #[error(
        "{path} holds an unfinished run; continue it with --resume {path}, or delete that file, or \
         choose another with --out"
    )]
    Unfinished {
        /// The journal.
        path: PathBuf,
    },
    /// It can't be begun.
    #[error("can't begin the journal {path}: {source}; choose another place with --out")]
    Create {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It can't be written: no space, no permission, …
    #[error(
        "can't write the journal {path}: {source}. What was measured before is kept in it; make \
         room and continue with --resume {path}"
    )]
    Write {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A trial's value is not a number; the experiment should have refused it.
    #[error(
        "a trial gave a value that is not a finite number, and {path} can't hold that; this is a \
         fault of the experiment, please report it"
    )]
    NotFinite {
        /// The journal.
        path: PathBuf,
    },
    /// It can't be read.
    #[error("can't read the journal {path}: {source}; resume it as the user who began it")]
    Read {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is none.
    #[error(
        "there is no journal {path}: nothing to resume. A run that ended well has removed its own; \
         start anew without --resume"
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// It was killed before its first line was whole.
    #[error("{path} holds nothing yet: delete it and start anew without --resume")]
    Empty {
        /// The journal.
        path: PathBuf,
    },
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
        /// What is wrong there.
        what: String,
    },
    /// Written by a newer program.
    #[error(
        "{path} was written by a newer bpfcost ({version}, schema {schema}); update this one to \
         resume it"
    )]
    Newer {
        /// The journal.
        path: PathBuf,
        /// The program's version.
        version: String,
        /// Its schema.
        schema: u32,
    },
    /// Written by another version, whose trials need not be the same.
    #[error(
        "{path} was begun by bpfcost {version}, and this is {this}: their trials need not be the \
         same thing. Resume it with {version}, or start anew without --resume",
        this = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion {
        /// The journal.
        path: PathBuf,
        /// The program's version.
        version: String,
    },
    /// The experiment now declares its cases otherwise.
    #[error(
        "the case {case} of this journal is not what the experiment declares today; start anew \
         without --resume"
    )]
    OtherPlan {
        /// The first case that differs.
        case: String,
    },
    /// The machine or its kernel is another one.
    #[error(
        "this journal was begun on another machine or kernel ({then}, here {now}); one record is \
         of one machine. Start anew without --resume, and compare the two"
    )]
    OtherMachine {
        /// As the journal has it.
        then: String,
        /// As it is.
        now: String,
    },
    /// The record is safe, and the journal could not be removed.
    #[error("the record is written, but its journal {path} can't be removed: {source}; delete it")]
    Remove {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl JournalError {
    pub(super) fn write(path: &std::path::Path, source: io::Error) -> Self {
        JournalError::Write {
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn read(path: &std::path::Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => JournalError::Missing { path },
            _ => JournalError::Read { path, source },
        }
    }
}
