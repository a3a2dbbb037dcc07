//! Kernel stacks of a running system, as `bpfcost stack` shows them: addresses become names, and names text, folded
//! lines or JSON.

mod frame;
mod profile;
mod symbols;
mod text;

pub use frame::Frame;
pub use profile::{Profile, ProfileInput, ProfiledStack};
pub use symbols::SymbolHistory;
pub use text::{end, event, frames, summary, table};
