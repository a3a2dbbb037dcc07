//! Output formats of commands that measure nothing.

/// For people or for programs.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(super) enum ListFormat {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}
