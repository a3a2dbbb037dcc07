//! What goes wrong with a workload, by who can help it.

use thiserror::Error;

/// Why a workload does not run. Its text says what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// The server failed: it ended, or does not do what its definition says.
    #[error("{0}")]
    Server(String),
    /// The client failed.
    #[error("{0}")]
    Client(String),
    /// The definition or the command line is wrong, as far as only a run can show.
    #[error("{0}")]
    Definition(String),
    /// The machine lacks something, such as a free port.
    #[error("{0}")]
    Machine(String),
}
