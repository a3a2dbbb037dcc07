//! Programs to look for in a trace, the hooks at which they run, and places in the kernel by which a trace is read.

use std::collections::BTreeSet;

use bpfcost_bpf::program::MachineCode;
use serde::{Deserialize, Serialize};

/// Bytes from the first of a function in which the instruction lies that leads to its hooks: behind an `endbr64`, and
/// another one of up to 8 bytes.
const PROLOGUE: u64 = 16;

/// Programs in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The programs.
    pub programs: Vec<WatchedProgram>,
    /// Places in the kernel.
    pub kernel: KernelPlaces,
    /// True if the calls of events are wanted.
    #[serde(default)]
    pub calls: bool,
    /// The functions between whose calls events count; `None` if all do.
    pub window: Option<(u64, u64)>,
}

/// A loaded program, and the part of a trace that is an event of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedProgram {
    /// Machine code.
    pub code: MachineCode,
    /// Parts of a trace that are its events.
    pub spans: Vec<Span>,
}

impl WatchedProgram {
    /// True if its first instruction lies there.
    pub(super) fn begins(&self, address: u64) -> bool {
        let main = self.code.functions.first();
        main.is_some_and(|main| main.start == address)
    }

    /// The function that lies there, if the program has a hook at it.
    pub(super) fn hook(&self, address: u64) -> Option<&Span> {
        self.spans.iter().find(|span| span.has(address))
    }
}

/// The part of a trace that is an event of a program: from the first instruction of its hook to the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// The program alone.
    Program,
    /// Code that a function of the kernel, which lies there, calls or jumps to at its beginning; or a breakpoint in it.
    Function {
        /// First address.
        start: u64,
        /// The address behind it.
        end: u64,
    },
    /// Code to which a function of the kernel returns instead of to its caller.
    Return,
    /// The innermost call of one of these functions, and the calls around it that are of them too.
    Call(BTreeSet<u64>),
    /// The call that leads to what calls the program.
    Caller,
    /// All that the kernel does before it goes back to user mode.
    Visit,
}

/// Places in a kernel by which a trace of it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPlaces {
    /// Ranges in which interrupts begin, of devices and timers.
    pub interrupts: Vec<(u64, u64)>,
    /// First addresses of the handlers of exceptions.
    pub exceptions: Vec<u64>,
    /// That of breakpoints.
    pub breakpoint: Option<u64>,
    /// That of single steps.
    #[serde(default)]
    pub step: Option<u64>,
    /// The function that switches to another task.
    pub switch: Option<u64>,
    /// First addresses of code to which functions with return probes return.
    pub returns: Vec<u64>,
}

impl KernelPlaces {
    /// True if an interrupt of a device or timer begins there.
    pub(super) fn is_interrupt(&self, address: u64) -> bool {
        let mut interrupts = self.interrupts.iter();
        interrupts.any(|&(start, end)| (start..end).contains(&address))
    }

    /// True if an interrupt or an exception begins there.
    pub(super) fn is_entry(&self, address: u64) -> bool {
        self.exceptions.contains(&address) || self.is_interrupt(address)
    }
}

impl Span {
    /// True if what leads to the hook lies there.
    pub(super) fn leads_from(&self, address: u64) -> bool {
        match self {
            Span::Function { start, .. } => (*start..start + PROLOGUE).contains(&address),
            _ => false,
        }
    }

    /// True if the function with the hook lies there.
    pub(super) fn has(&self, address: u64) -> bool {
        match self {
            Span::Function { start, end } => (*start..*end).contains(&address),
            _ => false,
        }
    }
}
