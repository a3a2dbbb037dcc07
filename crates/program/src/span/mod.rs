//! Events of programs, cut out of a trace of the instructions that a machine executes: each from the first instruction of
//! its hook to the last, with what each part of it takes.

mod event;
mod instruction;
mod log;
mod reader;
mod stack;
mod watch;

#[cfg(test)]
mod tests;

pub use event::{Event, EventCall, EventParts, ProgramTrace, Trace};
pub use instruction::{Flow, Instruction};
pub use reader::TraceReader;
pub use watch::{KernelPlaces, Span, Watch, WatchedProgram};
