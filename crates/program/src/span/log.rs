//! Log of the instructions since the beginning of a span, which are given to its parts once its end is known.

use super::{
    event::{Event, EventCall},
    watch::WatchedProgram,
};

/// A frame that the log knows: where in the log it begins, and in which frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) parent: Option<u32>,
    pub(super) entry: u64,
    pub(super) site: u64,
    /// True for an interrupt or exception.
    pub(super) is_context: bool,
    pub(super) begin: usize,
}

/// An executed instruction.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    node: u32,
    /// True if it is of another event.
    is_taken: bool,
}

/// The log. Empty while nothing that is executed can be of an event.
#[derive(Debug, Default)]
pub(super) struct Log {
    nodes: Vec<Node>,
    entries: Vec<Entry>,
}

/// The part of an event that an instruction is of, as seen from one run of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Dispatch,
    Body,
    /// Called from the program by this frame.
    Helper(u32),
    Interrupt,
    Other,
    /// The function with the hook, which a trampoline calls.
    Function,
}

impl Log {
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.entries.clear();
    }

    /// Adds a frame, and returns its number.
    pub(super) fn node(
        &mut self,
        parent: Option<u32>,
        entry: u64,
        site: u64,
        is_context: bool,
    ) -> u32 {
        self.nodes.push(Node {
            parent,
            entry,
            site,
            is_context,
            begin: self.entries.len(),
        });
        (self.nodes.len() - 1) as u32
    }

    /// Number of instructions.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an instruction of a frame.
    pub(super) fn push(&mut self, address: u64, node: u32) {
        self.entries.push(Entry {
            address,
            node,
            is_taken: false,
        });
    }

    /// The event of a program, of this number, in the span that began with `root`: all of its runs there. `runs` are those of all
    /// programs in it, by their first frames. Beside it, the instructions of the span that are of no event within it.
    pub(super) fn event(
        &self,
        root: u32,
        number: usize,
        runs: &[(usize, u32)],
        program: &WatchedProgram,
    ) -> (Event, u64) {
        let begin = self.nodes[root as usize].begin;
        let mut parts = self.parts(root, number, runs);
        let (mut event, mut spent) = (Event::default(), 0);
        for entry in &self.entries[begin..] {
            let part = self.part(entry.node, program, &mut parts);
            let is_own = !matches!(part, None | Some(Part::Function | Part::Interrupt));
            spent += u64::from(is_own && !entry.is_taken);
            match part {
                Some(Part::Function) | None => {}
                Some(_) if entry.is_taken => event.others += 1,
                Some(Part::Dispatch) => *event.dispatch.entry(entry.address).or_default() += 1,
                Some(Part::Body) => *event.own.entry(entry.address).or_default() += 1,
                Some(Part::Helper(frame)) => {
                    let Node { site, entry, .. } = self.nodes[frame as usize];
                    *event.called.entry(site).or_default() += 1;
                    event.callees.insert(site, entry);
                }
                Some(Part::Interrupt) => event.interrupts += 1,
                Some(Part::Other) => event.others += 1,
            }
        }
        (event, spent)
    }

    /// The part of the event that a frame is; `None` outside of it. `known` holds those of frames that were asked for.
    fn part(
        &self,
        node: u32,
        program: &WatchedProgram,
        known: &mut [Option<Part>],
    ) -> Option<Part> {
        // The frames from here to one that is known, which is no more than the depth of a stack.
        let mut way = Vec::new();
        let mut at = node;
        while known[at as usize].is_none() {
            way.push(at);
            at = self.nodes[at as usize].parent?;
        }
        while let Some(inner) = way.pop() {
            let outer = known[at as usize]?;
            let Node {
                entry,
                site,
                is_context,
                ..
            } = self.nodes[inner as usize];
            known[inner as usize] = Some(match outer {
                _ if is_context => Part::Interrupt,
                Part::Interrupt | Part::Function | Part::Other => outer,
                Part::Dispatch if program.hook(entry).is_some_and(|hook| !hook.has(site)) => {
                    Part::Function
                }
                Part::Dispatch => Part::Dispatch,
                Part::Body | Part::Helper(_) if program.code.function(entry).is_some() => {
                    Part::Body
                }
                Part::Body => Part::Helper(inner),
                Part::Helper(frame) => Part::Helper(frame),
            });
            at = inner;
        }
        known[node as usize]
    }

    /// Calls of such an event, from the one that the span began with.
    pub(super) fn calls(
        &self,
        root: u32,
        number: usize,
        runs: &[(usize, u32)],
        program: &WatchedProgram,
    ) -> Vec<EventCall> {
        let mut parts = self.parts(root, number, runs);
        let mut own = vec![0; self.nodes.len()];
        let mut last: Vec<u64> = self.nodes.iter().map(|node| node.entry).collect();
        for entry in &self.entries[self.nodes[root as usize].begin..] {
            let part = self.part(entry.node, program, &mut parts);
            let is_own = matches!(part, Some(Part::Dispatch | Part::Body | Part::Helper(_)));
            if is_own && !entry.is_taken {
                own[entry.node as usize] += 1;
                last[entry.node as usize] = entry.address;
            }
        }
        // Frames have greater numbers than those that they are in.
        let mut places: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut calls = Vec::new();
        for (number, node) in self.nodes.iter().enumerate().skip(root as usize) {
            let caller = node.parent.and_then(|parent| places[parent as usize]);
            if number != root as usize && caller.is_none() {
                continue;
            }
            places[number] = Some(calls.len());
            calls.push(EventCall {
                caller,
                entry: node.entry,
                last: last[number],
                instructions: own[number],
            });
        }
        calls
    }

    /// The parts that frames are known to be: the one that a span began with, and the first of each run of a program.
    fn parts(&self, root: u32, number: usize, runs: &[(usize, u32)]) -> Vec<Option<Part>> {
        let mut parts = vec![None; self.nodes.len()];
        parts[root as usize] = Some(Part::Dispatch);
        for &(program, run) in runs {
            let is_own = program == number;
            parts[run as usize] = Some(if is_own { Part::Body } else { Part::Other });
        }
        parts
    }

    /// From now on, the instructions of a span are not of the events around it.
    pub(super) fn take(&mut self, root: u32) {
        let begin = self.nodes[root as usize].begin;
        for entry in &mut self.entries[begin..] {
            entry.is_taken = true;
        }
    }
}
