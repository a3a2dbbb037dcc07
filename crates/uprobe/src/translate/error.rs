//! Errors of translation.

/// A result with the translator's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Reason for which a program can't run in user space. `instruction` is the index of the BPF instruction, from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The program calls a helper that has no form in user space.
    #[error("instruction {instruction}: the helper {helper} is not supported in user space")]
    UnsupportedHelper {
        /// The instruction.
        instruction: usize,
        /// The helper's name, such as `bpf_perf_event_output`.
        helper: String,
    },
    /// The program calls a kernel function.
    #[error(
        "instruction {instruction}: kernel functions are not supported in user space (BTF id {btf_id})"
    )]
    UnsupportedKfunc {
        /// The instruction.
        instruction: usize,
        /// The function's id in the kernel's BTF.
        btf_id: i32,
    },
    /// The program uses a map that has no form in user space.
    #[error("the map {map} is of a type that is not supported in user space: {kind}")]
    UnsupportedMap {
        /// The map's name.
        map: String,
        /// The type, such as `stack_trace`.
        kind: String,
    },
    /// The program uses an instruction that the translator does not have.
    #[error("instruction {instruction}: {what} is not supported in user space")]
    UnsupportedInstruction {
        /// The instruction.
        instruction: usize,
        /// The kind of instruction.
        what: String,
    },
    /// Not what the verifier lets through.
    #[error("instruction {instruction}: {what}; no verifier accepts this program")]
    Malformed {
        /// The instruction.
        instruction: usize,
        /// The fault.
        what: &'static str,
    },
    /// The kernel's image of a program can't be moved to user space.
    #[error("the kernel's machine code can't run in user space: {0}")]
    KernelImage(String),
}
