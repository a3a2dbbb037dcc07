//! A program as an epoch holds it: loaded as it is, and in loops.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use bpfcost_bpf::program::{Body, Change, LoopForm, NativeProgram, ProgramKind, Spliced};

use super::{
    Part,
    proof::{Expected, Turn},
};

/// A program, and the loops in which it or its floor runs: packets share them.
pub(super) struct LoadedProgram {
    /// Before what it has the maps of.
    pub(super) loops: BTreeMap<(Body, Change), Spliced>,
    pub(super) native: NativeProgram,
    /// Expected result of a run on each packet, and the change to undo, by the packet's index.
    packets: BTreeMap<usize, (Expected, Change)>,
}

impl LoadedProgram {
    /// A program whose loops are to be loaded.
    pub(super) fn new(native: NativeProgram) -> Self {
        LoadedProgram {
            loops: BTreeMap::new(),
            native,
            packets: BTreeMap::new(),
        }
    }

    /// Returns the loop body for a part of a case on one packet, and the expected result of each run.
    pub(super) fn alone(
        &self,
        part: Part,
        packet: &[u8],
        expected: Expected,
        change: Change,
    ) -> ((Body, Change), Expected) {
        if part == Part::Program {
            return ((Body::Program, change), expected);
        }
        let code = expected.code;
        let nothing = Expected::of_nothing(self.native.kind(), packet, code);
        ((Body::Return(code), change), nothing)
    }

    /// The same on packets that take turns, of which a batch ends with the last.
    pub(super) fn in_turn(
        &self,
        part: Part,
        last: &[u8],
        each: Vec<(String, Expected)>,
        changes: &[Change],
    ) -> ((Body, Change), Expected) {
        let change = Change::to_next(changes);
        let is_floor = part != Part::Program;
        let turn = |(name, expected): &(String, Expected)| Turn {
            name: name.clone(),
            code: if is_floor { 0 } else { expected.code },
        };
        let turns: Vec<Turn> = each.iter().map(turn).collect();
        let grew = each.iter().flat_map(|(_, expected)| expected.grew.clone());
        let grew = grew.collect();
        let left = match each.into_iter().next_back() {
            Some((_, expected)) if !is_floor => expected,
            _ => Expected::of_nothing(self.native.kind(), last, 0),
        };
        let body = if is_floor {
            Body::Return(0)
        } else {
            Body::Program
        };
        let code = turns.first().map_or(0, |turn| turn.code);
        let expected = Expected {
            code,
            grew,
            turns,
            ..left
        };
        ((body, change), expected)
    }

    /// Runs the program alone on a packet, and returns its result and the change that must be undone after each run.
    pub(super) fn observe(
        &mut self,
        form: LoopForm,
        cpu: u32,
        input: usize,
        packet: &[u8],
    ) -> Result<(Expected, Change)> {
        if let Some(known) = self.packets.get(&input) {
            return Ok(known.clone());
        }
        let oracle = self.native.oracle(cpu, packet)?;
        let (once, change) = self.native.change(form, cpu, packet, &oracle)?;
        let expected = Expected {
            code: oracle.code,
            output: oracle.output,
            changes: once.changes,
            grew: oracle.grew,
            turns: Vec::new(),
        };
        let known = (expected, change);
        self.packets.insert(input, known.clone());
        Ok(known)
    }
}

impl Expected {
    /// Expected result of a program that does nothing but return `code`.
    pub(super) fn of_nothing(kind: ProgramKind, packet: &[u8], code: u32) -> Self {
        let mut output = packet.to_vec();
        if matches!(kind, ProgramKind::CgroupSkb | ProgramKind::SocketFilter) {
            // A test run takes it away, and hands back zeros.
            output.iter_mut().take(14).for_each(|byte| *byte = 0);
        }
        Expected {
            code,
            output,
            changes: Default::default(),
            grew: BTreeSet::new(),
            turns: Vec::new(),
        }
    }
}
