//! Where the instructions of one run of a program are spent, from its trace.

use std::collections::BTreeMap;

use bpfcost_bpf::program::SourceLine;
use bpfcost_model::{HotCall, HotLine, HotSpots};

use super::span::Event;

/// The hot spots of an event, without its dispatch. `line` finds the line at an address of the program, `call` the name of
/// what is called from there.
pub fn hot_spots<'a>(
    event: &Event,
    line: impl Fn(u64) -> Option<&'a SourceLine>,
    call: impl Fn(u64) -> String,
) -> HotSpots {
    let mut lines: BTreeMap<SourceLine, (u64, u64)> = BTreeMap::new();
    let line = |address| line(address).cloned().unwrap_or_default();
    for (&address, count) in &event.own {
        lines.entry(line(address)).or_default().0 += count;
    }
    for (&address, count) in &event.called {
        lines.entry(line(address)).or_default().1 += count;
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
    let parts = event.parts();
    HotSpots {
        instructions: parts.body + parts.helpers,
        lines,
        calls: hot_calls(&event.called, call),
    }
}

/// Functions with their instructions, the most first. `name` finds the function of an address.
pub fn hot_calls(counts: &BTreeMap<u64, u64>, name: impl Fn(u64) -> String) -> Vec<HotCall> {
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for (&address, count) in counts {
        *calls.entry(name(address)).or_default() += count;
    }
    let hot = |(name, instructions)| HotCall { name, instructions };
    let mut calls: Vec<HotCall> = calls.into_iter().map(hot).collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.instructions));
    calls
}
