//! Facts of a typical event, for the record.

use std::collections::{BTreeMap, BTreeSet};

use bpfcost_bpf::program::SourceLine;
use bpfcost_model::{EventFacts, HotCall, HotLine, HotSpots, ReachedLines};
use bpfcost_program::{Event, ProgramTrace};

use super::kernel::Kernel;

/// The facts of a program's events, as far as the trace tells them.
pub(super) fn facts(kernel: &Kernel, traced: &ProgramTrace, stimulus: String) -> EventFacts {
    let event = &traced.typical;
    let mut dispatch: BTreeMap<&str, u64> = BTreeMap::new();
    for (&address, count) in &event.dispatch {
        *dispatch.entry(kernel.function(address)).or_default() += count;
    }
    let mut helpers: BTreeMap<&str, u64> = BTreeMap::new();
    for (site, count) in &event.called {
        let callee = event.callees.get(site).copied().unwrap_or_default();
        *helpers.entry(kernel.function(callee)).or_default() += count;
    }
    EventFacts {
        stimulus,
        dispatch: sorted(dispatch),
        helpers: sorted(helpers),
        slept: traced.slept,
        ..EventFacts::default()
    }
}

/// The lines that events reached.
pub(super) fn reached(
    lines: &BTreeMap<u64, SourceLine>,
    traced: &ProgramTrace,
) -> Option<ReachedLines> {
    let place = |line: &SourceLine| (line.file.clone(), line.line);
    let all: BTreeSet<_> = lines.values().map(place).collect();
    let at = |&address: &u64| line_at(lines, address).map(place);
    let reached: BTreeSet<_> = traced.reached.iter().filter_map(at).collect();
    let missed = lines.values().find(|line| !reached.contains(&place(line)));
    (!all.is_empty()).then(|| ReachedLines {
        reached: reached.len(),
        all: all.len(),
        first_missed: missed.map(|line| format!("{}:{}", line.file, line.line)),
    })
}

/// The lines and calls of an event.
pub(super) fn hot_spots(
    lines: &BTreeMap<u64, SourceLine>,
    event: &Event,
    helpers: &[HotCall],
) -> HotSpots {
    let mut counts: BTreeMap<SourceLine, (u64, u64)> = BTreeMap::new();
    let line = |address| line_at(lines, address).cloned().unwrap_or_default();
    for (&address, count) in &event.own {
        counts.entry(line(address)).or_default().0 += count;
    }
    for (&address, count) in &event.called {
        counts.entry(line(address)).or_default().1 += count;
    }
    let hot = |(SourceLine { file, line, text }, (own, called))| HotLine {
        file,
        line,
        text,
        own,
        called,
    };
    let mut lines: Vec<HotLine> = counts.into_iter().map(hot).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.own + line.called));
    let parts = event.parts();
    HotSpots {
        instructions: parts.body + parts.helpers,
        lines,
        calls: helpers.to_vec(),
    }
}

fn line_at(lines: &BTreeMap<u64, SourceLine>, address: u64) -> Option<&SourceLine> {
    lines.range(..=address).next_back().map(|(_, line)| line)
}

/// The most instructions first.
fn sorted(counts: BTreeMap<&str, u64>) -> Vec<HotCall> {
    let mut all: Vec<HotCall> = counts
        .into_iter()
        .map(|(name, instructions)| HotCall {
            name: name.to_owned(),
            instructions,
        })
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.instructions));
    all
}
