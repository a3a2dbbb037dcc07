//! Where the instructions of one run of a program are spent, as records hold it.

use std::collections::BTreeMap;

use bpfcost_bpf::program::{SourceLine, Traceable};
use serde::{Deserialize, Serialize};

use super::RunTrace;

/// What a call is named by that no instruction makes: whatever interrupted the program.
const NO_CALL: &str = "interrupts";

/// Where the instructions of one run are spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSpots {
    /// All instructions of the run.
    pub instructions: u64,
    /// Lines of the source, those with the most instructions first.
    pub lines: Vec<HotLine>,
    /// Functions of the kernel that were called, those with the most instructions first.
    pub calls: Vec<HotCall>,
}

/// A line, and the instructions of one run that it is compiled to or calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotLine {
    /// The source file, as the compiler was given it.
    pub file: String,
    /// The line's number; 0 if it is not known.
    pub line: u32,
    /// What it says.
    pub text: String,
    /// Instructions of the program.
    pub own: u64,
    /// Instructions of what it calls in the kernel.
    pub called: u64,
}

/// A function of the kernel, and its instructions in one run, with all that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCall {
    /// Its name: for a helper without `bpf_`.
    pub name: String,
    /// The instructions.
    pub instructions: u64,
}

impl HotSpots {
    /// Of a traced run of this program.
    pub fn new(run: &RunTrace, program: &Traceable) -> Self {
        let mut lines: BTreeMap<SourceLine, (u64, u64)> = BTreeMap::new();
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        let line = |address| {
            let line = program.place(address).and_then(|place| place.line);
            line.cloned().unwrap_or_default()
        };
        for (&address, count) in &run.own {
            lines.entry(line(address)).or_default().0 += count;
        }
        for (&address, count) in &run.called {
            lines.entry(line(address)).or_default().1 += count;
            let name = program.place(address).and_then(|place| place.call);
            *calls
                .entry(name.unwrap_or_else(|| NO_CALL.to_owned()))
                .or_default() += count;
        }
        let hot = |(SourceLine { file, line, text }, (own, called))| HotLine {
            file,
            line,
            text,
            own,
            called,
        };
        let mut lines: Vec<HotLine> = lines.into_iter().map(hot).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.own + line.called));
        let hot = |(name, instructions)| HotCall { name, instructions };
        let mut calls: Vec<HotCall> = calls.into_iter().map(hot).collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.instructions));
        HotSpots {
            instructions: run.instructions(),
            lines,
            calls,
        }
    }
}
