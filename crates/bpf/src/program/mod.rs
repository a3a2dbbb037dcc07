//! A person's own BPF programs, unmodified, timed per operation.
//!
//! [`ObjectFile`] lists the programs of an object. [`NativeProgram`] loads one as it is: what the verifier did with
//! it, and what it does with a packet ([`Oracle`]). [`Spliced`] is a driver of ours (`bpf/program_*.bpf.c`) with the
//! program's instructions in place of an empty function; it runs the program in a loop, undoes each run
//! ([`Restore`]), and compares the code of each with the oracle's.

mod code;
mod effects;
mod figures;
mod file;
mod form;
mod kind;
mod map_state;
mod native;
mod packet_context;
mod pins;
mod raw;
mod restore;
mod settings;
mod spliced;
mod traceable;
mod windows;

pub(crate) use effects::effects_at_hook;
pub use figures::Figures;
pub use file::{ObjectFile, ProgramEntry};
pub(crate) use file::{lines, wrong};
pub use form::LoopForm;
pub use kind::ProgramKind;
pub(crate) use kind::program_type;
pub use map_state::{Drift, MapChanges, MapState};
pub use native::{NativeProgram, Oracle};
pub(crate) use native::{figures, hook_program};
pub use packet_context::PacketContext;
pub use pins::PinnedMaps;
pub(crate) use raw::places;
pub use restore::{Change, Restore};
pub(crate) use settings::types;
pub use settings::{MapContents, MapEntry, ProgramSlot, Settings};
pub use spliced::{Body, Ran, STATE_WORDS, Spliced};
pub(crate) use traceable::source_line;
pub use traceable::{CodePlace, MachineCode, MachineFunction, SourceLine, Traceable};
