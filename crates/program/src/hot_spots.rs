//! Where the instructions of one run of a program are spent, from its trace.

use std::collections::BTreeMap;

use bpfcost_bpf::program::{SourceLine, Traceable};
use bpfcost_model::{HotCall, HotLine, HotSpots};

use super::span::Event;

/// The name of a call of which the kernel does not tell the name.
const UNKNOWN: &str = "unknown";

/// The hot spots of a traced run of this program.
pub fn hot_spots(run: &Event, program: &Traceable) -> HotSpots {
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
            .entry(name.unwrap_or_else(|| UNKNOWN.to_owned()))
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
        instructions: run.parts().total(),
        lines,
        calls,
    }
}
