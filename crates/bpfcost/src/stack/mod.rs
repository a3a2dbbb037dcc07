//! Kernel stacks of a running system, as `bpfcost stack` shows them: addresses become names, and names text, folded
//! lines, a flame graph or JSON.

mod flame;
mod profile;
mod text;

pub use profile::{Frame, Profile, ProfileInput, ProfiledStack, SymbolHistory};
pub use text::{event, summary};
