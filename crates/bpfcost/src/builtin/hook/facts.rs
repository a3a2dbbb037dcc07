//! Facts of an event, for the record.

use std::collections::{BTreeMap, BTreeSet};

use bpfcost_bpf::program::SourceLine;
use bpfcost_model::{Elsewhere, EventFacts, ReachedLines};
use bpfcost_program::{ProgramTrace, hot_calls, hot_spots};

use super::kernel::Kernel;

/// Source lines of a program, by the first addresses of their machine code.
pub(super) type Lines = BTreeMap<u64, SourceLine>;

/// The facts of a program's events: of the one in the middle, and of all.
pub(super) fn facts(
    kernel: &Kernel,
    traced: &ProgramTrace,
    lines: &Lines,
    stimulus: String,
    elsewhere: Option<Elsewhere>,
) -> EventFacts {
    let event = &traced.typical;
    let function = |address| kernel.function(address).to_owned();
    let callee = |site| function(event.callees.get(&site).copied().unwrap_or_default());
    let spots = hot_spots(event, |address| line_at(lines, address), callee);
    EventFacts {
        stimulus,
        dispatch: hot_calls(&event.dispatch, function),
        helpers: spots.calls.clone(),
        reached: reached(lines, traced),
        hot_spots: (!lines.is_empty()).then_some(spots),
        elsewhere,
        other_ways: Vec::new(),
    }
}

/// File and number of a line.
type Place = (String, u32);

fn place(line: &SourceLine) -> Place {
    (line.file.clone(), line.line)
}

/// Lines of a program that events reached.
pub(super) fn reached_lines(lines: &Lines, traced: &ProgramTrace) -> BTreeSet<Place> {
    let at = |&address: &u64| line_at(lines, address).map(place);
    traced.reached.iter().filter_map(at).collect()
}

/// The lines that events reached, and all.
fn reached(lines: &Lines, traced: &ProgramTrace) -> Option<ReachedLines> {
    let all: BTreeSet<Place> = lines.values().map(place).collect();
    let reached = reached_lines(lines, traced);
    let missed = lines.values().find(|line| !reached.contains(&place(line)));
    (!all.is_empty()).then(|| ReachedLines {
        reached: reached.len(),
        all: all.len(),
        first_missed: missed.map(|line| format!("{}:{}", line.file, line.line)),
    })
}

fn line_at(lines: &Lines, address: u64) -> Option<&SourceLine> {
    lines.range(..=address).next_back().map(|(_, line)| line)
}
