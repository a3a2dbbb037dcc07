//! The user-space half of `bpf/unwind.bpf.h`, which takes kernel stacks without the kernel's helper: the rule table of
//! the kernel and its modules, the maps of an object that includes it, and the stacks that its programs counted.
//!
//! ```no_run
//! # fn main() -> bpfcost_bpf::Result<()> {
//! # let (mut open, object): (libbpf_rs::OpenObject, libbpf_rs::Object) = unimplemented!();
//! use bpfcost_bpf::unwind::{KernelSymbols, RuleTable, Unwinder};
//!
//! let symbols = KernelSymbols::read()?;
//! let rules = RuleTable::read(&symbols)?;
//! Unwinder::size(&mut open, &rules)?; // before the object is loaded
//! let unwinder = Unwinder::fill(&object, &rules)?; // after
//! // Attach its programs; later:
//! for stack in unwinder.stacks() {
//!     println!("{} times", stack.count);
//!     for address in unwinder.addresses(stack.leaf) {
//!         println!("    {:?}", symbols.symbol(address));
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod frame_pointers;
mod kernel;
mod memory;
mod orc;
mod rule;
mod self_test;
mod stack_object;
mod symbols;
mod table;
mod truth;
mod unwinder;

pub(crate) use kernel::rules_of_bytes;
pub(crate) use stack_object::{StackObject, note_modules, stack_program};
pub(crate) use symbols::KALLSYMS;
pub use symbols::{KernelSymbols, SymbolRef};
pub use table::RuleTable;
pub use truth::{StackDifference, StackTruth, Timed, TruthCounts};
pub(crate) use unwinder::read_addresses;
pub use unwinder::{CountedStack, Generation, UnwindLosses, Unwinder};

#[cfg(test)]
mod tests;
