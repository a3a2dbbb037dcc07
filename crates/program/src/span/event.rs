//! Events of a program, as a trace has them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Numbers of instructions in the parts of an event. Interrupts, and other events within it, are not of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventParts {
    /// Those that lead from the hook to the program and back. They may also be those of other programs at that hook.
    pub dispatch: u64,
    /// Those of the program.
    pub body: u64,
    /// Those in what the program calls in the kernel.
    pub helpers: u64,
}

/// An event of a program, instruction by instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Those between the hook and the program, by their addresses.
    pub dispatch: BTreeMap<u64, u64>,
    /// Those of the program, by their addresses.
    pub own: BTreeMap<u64, u64>,
    /// Those elsewhere in the kernel, by the address in the program from which they were called.
    pub called: BTreeMap<u64, u64>,
    /// First addresses of what is called, by the same.
    #[serde(default)]
    pub callees: BTreeMap<u64, u64>,
    /// Those of interrupts and faults, which are not of the event.
    pub interrupts: u64,
    /// Those of other programs at this hook, and of other events, which are not of this one.
    pub others: u64,
    /// Calls of the event, each behind the one that it is in, if they are [wanted](super::Watch::calls).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<EventCall>,
}

/// A call in an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCall {
    /// The place of the call that it is in; `None` of the first.
    pub caller: Option<usize>,
    /// The first instruction.
    pub entry: u64,
    /// The last of its own: in the function that a thunk led to.
    pub last: u64,
    /// Instructions of the function itself.
    pub instructions: u64,
}

/// Events of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramTrace {
    /// Events in their order.
    pub events: Vec<EventParts>,
    /// The one in the middle by its instructions, the cheaper of two; `None` if there was no event.
    pub middle: Option<EventParts>,
    /// One like that, instruction by instruction.
    pub typical: Event,
    /// Addresses of the program at which an event was.
    #[serde(default)]
    pub reached: BTreeSet<u64>,
    /// Runs that no known way led to, or whose event had no end.
    pub unexplained: u64,
    /// Events in which the task slept.
    pub slept: u64,
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// For each program.
    pub programs: Vec<ProgramTrace>,
    /// Instructions of the kernel in the window, but for those of interrupts.
    pub window: u64,
    /// Those of them that are of events, of whichever program.
    pub spent: u64,
}

impl EventParts {
    /// All of its instructions.
    pub fn total(&self) -> u64 {
        self.dispatch + self.body + self.helpers
    }
}

impl Event {
    /// Numbers of instructions in its parts.
    pub fn parts(&self) -> EventParts {
        EventParts {
            dispatch: self.dispatch.values().sum(),
            body: self.own.values().sum(),
            helpers: self.called.values().sum(),
        }
    }
}

/// Events as they are found: all by their parts, the first instruction by instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    parts: Vec<EventParts>,
    first: Vec<Event>,
    reached: BTreeSet<u64>,
}

/// Events that are kept instruction by instruction.
const KEPT: usize = 256;

impl Events {
    pub(super) fn push(&mut self, event: Event) {
        self.parts.push(event.parts());
        self.reached.extend(event.own.keys());
        if self.first.len() < KEPT {
            self.first.push(event);
        }
    }

    pub(super) fn finish(self, unexplained: u64, slept: u64) -> ProgramTrace {
        let mut sorted = self.parts.clone();
        sorted.sort_unstable_by_key(|parts| (parts.total(), *parts));
        let middle = sorted.get(sorted.len().saturating_sub(1) / 2).copied();
        let total = middle.as_ref().map_or(0, EventParts::total);
        let off = |event: &Event| {
            let parts = event.parts();
            (Some(parts) != middle, parts.total().abs_diff(total))
        };
        ProgramTrace {
            middle,
            typical: self.first.into_iter().min_by_key(off).unwrap_or_default(),
            events: self.parts,
            reached: self.reached,
            unexplained,
            slept,
        }
    }
}
