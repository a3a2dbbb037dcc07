//! Facts of an event, for the record.

use std::collections::{BTreeMap, BTreeSet};

use bpfcost_bpf::program::{MachineCode, SourceLine};
use bpfcost_model::{Elsewhere, EventFacts, FoldedStack, ReachedLines};
use bpfcost_program::{EventCall, ProgramTrace, hot_calls, hot_spots};

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
        stacks: Vec::new(),
        other_ways: Vec::new(),
    }
}

/// In the names of code by which functions behind pointers are called.
const THUNK: &str = "x86_indirect_thunk";

/// Calls of the event, with the program by its own name.
pub(super) fn stacks(
    kernel: &Kernel,
    program: &str,
    code: &MachineCode,
    calls: &[EventCall],
) -> Vec<FoldedStack> {
    let name = |address| match code.function(address) {
        Some(_) => program,
        None => kernel.function(address),
    };
    let mut names: Vec<String> = Vec::new();
    let mut folded: BTreeMap<String, u64> = BTreeMap::new();
    for call in calls {
        let own = match name(call.entry) {
            thunk if thunk.contains(THUNK) => name(call.last),
            function => function,
        };
        let whole = match call.caller.map(|caller| &names[caller]) {
            None => own.to_owned(),
            // It only jumps on.
            Some(caller) if own.contains(THUNK) => caller.clone(),
            Some(caller) => format!("{caller};{own}"),
        };
        *folded.entry(whole.clone()).or_default() += call.instructions;
        names.push(whole);
    }
    let stack = |(functions, instructions)| FoldedStack {
        functions,
        instructions,
    };
    let spent = folded.into_iter().filter(|(_, count)| *count > 0);
    spent.map(stack).collect()
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
