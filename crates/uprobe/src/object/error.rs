//! Errors of objects.

use std::io;

/// A result with the objects' [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Reason for which an object can't be used. Each message has libbpf's own text, or the verifier's last lines.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing, or no BPF object.
    #[error("{object} can't be opened: {source}{}", lines(.messages))]
    Open {
        /// The object's file or name.
        object: String,
        /// libbpf's answer.
        source: libbpf_rs::Error,
        /// The text that libbpf printed.
        messages: String,
    },
    /// The object has no such constant, or one of another size.
    #[error("{object}: {reason}")]
    Constant {
        /// The object's file or name.
        object: String,
        /// The reason.
        reason: String,
    },
    /// The verifier rejected a program.
    #[error("the kernel's verifier rejected {program} of {object}:{}", lines(.log))]
    Rejected {
        /// The object's file or name.
        object: String,
        /// The program's name.
        program: String,
        /// The end of the verifier's log: source line, instruction, reason.
        log: String,
    },
    /// The kernel rejected a map, or a program before its verification.
    #[error("the kernel can't load {object}: {source}{}", lines(.messages))]
    Load {
        /// The object's file or name.
        object: String,
        /// libbpf's answer.
        source: libbpf_rs::Error,
        /// The text that libbpf printed.
        messages: String,
    },
    /// The pages of a map can't be mapped.
    #[error("the map {map} can't be mapped: {source}")]
    Pages {
        /// The map's name.
        map: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// An arena of the object can't be used.
    #[error("the arena {map} can't be used in user space: {reason}")]
    Arena {
        /// The map's name.
        map: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// The kernel does not say what is in an array of programs, or does not change it.
    #[error("the programs of the map {map} can't be read or changed: {source}")]
    Slots {
        /// The map's name.
        map: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// An array of programs holds one that is not known.
    #[error(
        "slot {index} of the map {map} holds a program that isn't of this object\n  only programs of the object can be called by tail calls"
    )]
    OtherProgram {
        /// The map's name.
        map: String,
        /// The slot.
        index: u32,
    },
}

impl Error {
    /// Returns whether the kernel refused the object for want of a permission.
    pub fn is_denied(&self) -> bool {
        matches!(self, Error::Load { source, .. } if source.kind() == libbpf_rs::ErrorKind::PermissionDenied)
    }
}

/// Text on lines of its own, indented.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("\n  {line}")).collect()
}
