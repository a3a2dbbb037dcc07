//! What goes wrong with a workload, by who can help it.

use thiserror::Error;

/// Why a workload does not run. Its text says what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// The server does not do what its definition says.
    #[error("{0}")]
    Server(String),
    /// The client does not, or what it prints can't be read.
    #[error("{0}")]
    Client(String),
    /// The definition itself.
    #[error("{0}")]
    Definition(String),
}

impl Error {
    /// Whether the command line or a definition is at fault, not the machine.
    pub fn is_input(&self) -> bool {
        matches!(self, Error::Definition(_) | Error::Client(_))
    }
}
