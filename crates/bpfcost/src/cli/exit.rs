//! Exit codes, and how errors map to them.

use std::{io, process::ExitCode};

use crate::{
    measure, probe,
    program::InputError,
    record,
    target::{
        guest::{Failure, GuestError},
        kernel,
    },
    workload,
};

/// How the program ends; the numbers are a contract (README).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exit {
    /// Everything was done.
    Done = 0,
    /// A comparison failed its gate.
    Gate = 1,
    /// Wrong usage or input.
    Usage = 2,
    /// A case was invalid.
    Invalid = 3,
    /// The machine lacks what was asked.
    Lacking = 4,
    /// Interrupted: 128 + SIGINT, as shells have it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error that knows its exit code: what, why, and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct Refusal {
    exit: Exit,
    text: String,
}

/// Wrong usage or input.
pub(super) fn usage(text: impl Into<String>) -> anyhow::Error {
    refusal(Exit::Usage, text.into())
}

/// An error for an interrupt before there was anything to show.
pub(super) fn interrupted(text: impl Into<String>) -> anyhow::Error {
    refusal(Exit::Interrupted, text.into())
}

/// The machine lacks what was asked.
pub(super) fn lacking(text: impl Into<String>) -> anyhow::Error {
    refusal(Exit::Lacking, text.into())
}

/// The same error with a further line: what to do next, known only where it came up.
pub(super) fn with_advice(error: &anyhow::Error, advice: &str) -> anyhow::Error {
    refusal(Exit::of(error), format!("{}\n  {advice}", sentence(error)))
}

fn refusal(exit: Exit, text: String) -> anyhow::Error {
    Refusal { exit, text }.into()
}

impl Exit {
    /// The exit code of this number, as the same program in a guest reports it.
    fn known(code: u8) -> Exit {
        [Exit::Gate, Exit::Usage, Exit::Invalid, Exit::Interrupted]
            .into_iter()
            .find(|exit| *exit as u8 == code)
            .unwrap_or(Exit::Lacking)
    }

    /// The exit code of an error: its own, else that of the first cause that has one.
    pub(super) fn of(error: &anyhow::Error) -> Exit {
        error
            .chain()
            .find_map(exit_of_cause)
            .unwrap_or(Exit::Lacking)
    }
}

fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(refusal) = cause.downcast_ref::<Refusal>() {
        return Some(refusal.exit);
    }
    if let Some(error) = cause.downcast_ref::<measure::Error>() {
        return match error {
            measure::Error::TooShort { .. } | measure::Error::OtherPlan { .. } => Some(Exit::Usage),
            measure::Error::Broken { .. } | measure::Error::Unobserved(_) => None,
        };
    }
    if let Some(error) = cause.downcast_ref::<kernel::Error>() {
        return Some(match error {
            kernel::Error::Interrupted => Exit::Interrupted,
            kernel::Error::Input(_) => Exit::Usage,
            _ => Exit::Lacking,
        });
    }
    if let Some(error) = cause.downcast_ref::<workload::Error>() {
        return Some(if error.is_input() {
            Exit::Usage
        } else {
            Exit::Lacking
        });
    }
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(Exit::known(failure.exit));
    }
    if cause.is::<GuestError>() {
        return Some(Exit::Lacking);
    }
    // A full disk or a machine without memory is the machine's; any other path is the user's.
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some(match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::OutOfMemory => Exit::Lacking,
            _ => Exit::Usage,
        });
    }
    if cause.is::<probe::WrongProbe>() {
        return Some(Exit::Usage);
    }
    if let Some(error) = cause.downcast_ref::<bpfcost_bpf::Error>() {
        let is_input = matches!(error, bpfcost_bpf::Error::UserObject { is_input: true, .. });
        return Some(if is_input { Exit::Usage } else { Exit::Lacking });
    }
    if cause.is::<InputError>() {
        return Some(Exit::Usage);
    }
    let input = cause.is::<record::FileError>()
        || cause.is::<record::JournalError>()
        || cause.is::<record::CompareError>();
    // Their own cause comes first where there is one: it may be a full disk.
    (input && cause.source().is_none()).then_some(Exit::Usage)
}

/// The error and its causes as one text, none of them said twice. Its further lines are indented, so that none
/// of what others wrote passes for a message of its own.
pub(super) fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| indented(&cause.to_string())) {
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text += ": ";
        }
        text += &cause;
    }
    text
}

fn indented(text: &str) -> String {
    let further = || text.lines().skip(1).filter(|line| !line.is_empty());
    if further().all(|line| line.starts_with("  ")) {
        text.to_owned()
    } else {
        text.replace('\n', "\n  ")
    }
}
