//! The side on which programs at functions of processes run.

/// The side on which programs at functions of processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// In the kernel, behind a trap.
    #[default]
    Kernel,
    /// In the process.
    User,
}
