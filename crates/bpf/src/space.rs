//! Where programs at functions of processes run.

/// Where programs at functions of processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// In the kernel, behind a trap.
    #[default]
    Kernel,
    /// In the process.
    User,
}
