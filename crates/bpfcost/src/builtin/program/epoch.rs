//! An epoch: programs loaded as they are, and in loops; trials of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    rc::Rc,
    slice,
};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    program::{Body, Change, Figures, LoopForm, MapChanges, MapState, Ran, Restore, Spliced},
    timing::{Observation, Request},
};
use serde_json::Value;

use super::{
    Part, Programs, Work, expected, hot,
    loaded::LoadedProgram,
    maps,
    proof::{self, Expected},
};
use crate::builtin::{
    batch,
    timed::{TimedCases, proved},
};
use bpfcost_model::{Behaviour, Case, Fault, Observed, Setup, Trial, prove};
use bpfcost_pages::program::HOT_SPOTS;
use bpfcost_program::{Input, InstructionTracer, behaviour};

/// Runs of the batches that preparation compares: after an even number, a byte that is flipped and not restored
/// is as it was, and after an odd number it is as one run leaves it.
const REPLAYED: [u64; 3] = [1, 2, 3];

/// A program, by the place of its object and its name.
type Key = (usize, String);

/// Loaded programs. Dropping it frees them.
pub(super) struct ProgramEpoch {
    programs: BTreeMap<Key, LoadedProgram>,
    entries: BTreeMap<String, Entry>,
    /// Amount by which each run of a new program must change a number in maps and variables, by place.
    per_run: BTreeMap<String, i64>,
    /// Tables whose drift was said, with their program.
    drifted: BTreeSet<(Key, String)>,
    /// Programs in windows of which that was said.
    in_windows: BTreeSet<String>,
    tracer: Option<Rc<dyn InstructionTracer>>,
    cpu: u32,
    exact: bool,
}

struct Entry {
    key: Key,
    /// Packet of the case, or the first of those that take turns.
    packet: Vec<u8>,
    /// A batch is as many runs, or twice as many, …: each packet has as many as the others.
    cycle: u64,
    looped: (Body, Change),
    expected: Expected,
    part: Part,
    /// Recorded behaviour of the program on the packet.
    expectation: Option<Behaviour>,
    /// Facts and warnings from the preparation of the case.
    observed: Observed,
    /// Time of one run during the preparation, in nanoseconds.
    ns_per_run: f64,
}

/// A batch of a program.
pub(super) struct ProgramBatch(Ran);

impl AsRef<[Observation]> for ProgramBatch {
    fn as_ref(&self) -> &[Observation] {
        slice::from_ref(&self.0.seen)
    }
}

impl ProgramEpoch {
    pub(super) fn load(programs: &Programs, setup: &Setup) -> Result<Self> {
        let cpu = *setup.cpus.first().context("no CPU was chosen")?;
        let mut epoch = ProgramEpoch {
            programs: BTreeMap::new(),
            entries: BTreeMap::new(),
            per_run: programs.subject.expected.per_run.clone(),
            drifted: BTreeSet::new(),
            in_windows: BTreeSet::new(),
            tracer: programs.tracer.clone(),
            cpu,
            exact: setup.exact,
        };
        for case in &setup.cases {
            let work = programs.named(case)?;
            epoch.add(programs, &work)?;
        }
        Ok(epoch)
    }

    /// The program of a work, loaded once.
    fn loaded(&mut self, programs: &Programs, work: &Work) -> Result<&mut LoadedProgram> {
        let key = (work.object, work.program.clone());
        let form = programs.form(&work.program);
        if !self.programs.contains_key(&key) {
            let native = match work.part {
                Part::Empty if form == LoopForm::Spliced => {
                    programs.of_type(work)?.map_err(anyhow::Error::msg)?
                }
                Part::Empty | Part::Program | Part::Floor => programs.native(work)?,
            };
            self.programs
                .insert(key.clone(), LoadedProgram::new(native));
        }
        self.programs.get_mut(&key).context("it was just loaded")
    }

    /// The runs of a window of a program on a packet: the same for both objects, or they could not be compared.
    fn window(&mut self, programs: &Programs, work: &Work, packet: &[u8]) -> Result<u32> {
        let form = programs.form(&work.program);
        let mut least = u32::MAX;
        for object in 0..programs.subject.objects.len() {
            let version = Work {
                object,
                part: Part::Program,
                ..work.clone()
            };
            if programs.refusal(&version)?.is_some() {
                continue;
            }
            let cpu = self.cpu;
            let program = self.loaded(programs, &version)?;
            let (_, change) = program.observe(form, cpu, work.inputs[0], packet)?;
            least = least.min(change.window);
        }
        Ok(least)
    }

    fn add(&mut self, programs: &Programs, work: &Work) -> Result<()> {
        let key = (work.object, work.program.clone());
        let form = programs.form(&work.program);
        let first = &programs.subject.inputs[work.inputs[0]].bytes;
        let window = match form {
            LoopForm::Spliced => 0,
            LoopForm::Windows => self.window(programs, work, first)?,
        };
        let cpu = self.cpu;
        let program = self.loaded(programs, work)?;
        let inputs = work
            .inputs
            .iter()
            .map(|&place| &programs.subject.inputs[place]);
        let inputs: Vec<&Input> = inputs.collect();
        let packet = &inputs.first().context("a case has a packet")?.bytes;
        let (looped, expected) = match (work.part, inputs.as_slice()) {
            (Part::Empty, _) => {
                let nothing = Expected::of_nothing(program.native.kind(), packet, 0);
                let change = Change {
                    window,
                    ..Change::NOTHING
                };
                ((Body::Return(0), change), nothing)
            }
            (part, [_]) => {
                let (expected, change) = program.observe(form, cpu, work.inputs[0], packet)?;
                let change = Change { window, ..change };
                program.alone(part, packet, expected, change)
            }
            (part, several) => {
                let (mut expected, mut changes) = (Vec::new(), Vec::new());
                for (place, input) in work.inputs.iter().zip(several) {
                    let (alone, change) = program.observe(form, cpu, *place, &input.bytes)?;
                    expected.push((input.name.clone(), alone));
                    changes.push(change);
                }
                let last = several.last().map_or(&[][..], |input| &input.bytes);
                program.in_turn(part, last, expected, &changes)
            }
        };
        if !program.loops.contains_key(&looped) {
            let (body, change) = looped;
            let mut spliced = Spliced::load(&program.native, body, &change)?;
            if !expected.turns.is_empty() {
                let codes = expected.turns.iter().map(|turn| turn.code);
                let packets = inputs.iter().map(|input| input.bytes.as_slice());
                spliced.take_turns(&packets.zip(codes).collect::<Vec<_>>())?;
            }
            program.loops.insert(looped, spliced);
        }
        let input = work.case.factors.get("packet").map_or("", String::as_str);
        let known = programs.subject.expected.behaviour(&work.program, input);
        let entry = Entry {
            key,
            packet: packet.clone(),
            cycle: inputs.len() as u64,
            looped,
            expected,
            part: work.part,
            expectation: known.map(|known| known.behaviour.clone()),
            observed: Observed::default(),
            ns_per_run: 0.0,
        };
        self.entries.insert(work.case.name.clone(), entry);
        Ok(())
    }
}

impl ProgramEpoch {
    /// Has a program run untimed, and compares what its maps hold before, between and after.
    fn watch(&mut self, case: &Case, request: &Request<'_>, ns_per_run: f64) -> Result<(), Fault> {
        let runs = maps::watched_runs(ns_per_run, self.exact);
        let runs = runs.map(|ops| self.whole(case, ops));
        let requests = runs.map(|ops| Request { ops, ..*request });
        let first = self.map_state(case)?;
        proved(self, case, &requests[0])?;
        let second = self.map_state(case)?;
        proved(self, case, &requests[1])?;
        let third = self.map_state(case)?;
        let entry = self.entries.get_mut(&case.name).context("it ran")?;
        let Expected {
            code,
            output,
            grew,
            turns,
            ..
        } = &entry.expected;
        // The output is that of the last packet in turn, so its return code is taken too.
        let code = turns.last().map_or(*code, |turn| turn.code);
        // Packets that take turns differ in what they change, and a cycle of them does not.
        let cycles = runs.map(|ops| ops / entry.cycle);
        let changes = MapChanges::between([&first, &second, &third], cycles, grew);
        let drifts = maps::warnings(&entry.key.1, &changes);
        let program = self.programs.get(&entry.key).context("it ran")?;
        let kind = program.native.kind();
        let returned = || {
            let code = code.cast_signed();
            kind.code_name(code)
                .map_or_else(|| code.to_string(), str::to_owned)
        };
        let behaviour = Behaviour {
            returned: (entry.cycle == 1).then(returned),
            ..behaviour(code, output, changes, entry.looped.1.window)
        };
        // The other object is what it is compared with: it may do something else.
        let is_new = entry.key.0 == 0;
        let known = entry.expectation.as_ref();
        let amounts = &self.per_run;
        if is_new {
            let amounts_apply = entry.cycle == 1;
            let problem = amounts_apply
                .then(|| expected::amounts(amounts, &behaviour, |place| third.has(place)))
                .flatten()
                .or_else(|| known.and_then(|known| expected::behaviour(known, &behaviour)));
            prove(problem)?;
        }
        let mut warnings = Vec::new();
        let window = entry.looped.1.window;
        if window > 0 && self.in_windows.insert(entry.key.1.clone()) {
            warnings.push((maps::WINDOWS, maps::window_warning(&entry.key.1, window)));
        }
        for (table, text) in drifts {
            let named = amounts.contains_key(&table)
                || known.is_some_and(|known| known.per_run.contains_key(&table));
            if !(is_new && named) && self.drifted.insert((entry.key.clone(), table)) {
                warnings.push((maps::MAP_DRIFT, text));
            }
        }
        entry.observed = Observed {
            facts: Some(serde_json::to_value(behaviour)?),
            warnings,
        };
        Ok(())
    }

    fn map_state(&self, case: &Case) -> Result<MapState> {
        let entry = self.entries.get(&case.name).context("it was loaded")?;
        let program = self.programs.get(&entry.key).context("it was loaded")?;
        Ok(program.native.map_state())
    }
}

impl TimedCases for ProgramEpoch {
    type Batch = ProgramBatch;

    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<ProgramBatch, Fault> {
        let entry = self.entries.get(&case.name);
        let entry = entry.with_context(|| format!("{} was not loaded", case.name))?;
        let program = self.programs.get_mut(&entry.key);
        let looped = program.and_then(|program| program.loops.get_mut(&entry.looped));
        let looped = looped.context("its loop was not loaded")?;
        let ran = looped.batch(request, &entry.packet, entry.expected.code)?;
        Ok(ProgramBatch(ran))
    }

    fn check(
        &mut self,
        case: &Case,
        request: &Request<'_>,
        batch: &ProgramBatch,
    ) -> Result<(), Fault> {
        let entry = self.entries.get(&case.name).context("it ran")?;
        prove(proof::problem(&entry.expected, &batch.0, request.ops))
    }

    fn has_reset(&self, case: &Case) -> bool {
        let entry = self.entries.get(&case.name);
        entry.is_some_and(|entry| {
            entry.part == Part::Program && entry.looped.1.restore != Restore::None
        })
    }

    /// In whole cycles of the packets that take turns.
    fn whole(&self, case: &Case, ops: u64) -> u64 {
        let entry = self.entries.get(&case.name);
        ops.next_multiple_of(entry.map_or(1, |entry| entry.cycle))
    }

    fn prepare(&mut self, case: &Case, request: &Request<'_>) -> Result<(), Fault> {
        let mut ns_per_run = 0.0;
        for ops in REPLAYED {
            let batch = proved(self, case, &Request { ops, ..*request })?;
            ns_per_run = batch.0.seen.ns_per_op();
        }
        let entry = self.entries.get_mut(&case.name).context("it ran")?;
        entry.ns_per_run = ns_per_run;
        if entry.part != Part::Program {
            return Ok(());
        }
        self.watch(case, request, ns_per_run)
    }

    fn observed(&mut self, case: &Case) -> Result<Observed, Fault> {
        let entry = self.entries.get_mut(&case.name).context("it ran")?;
        let mut observed = mem::take(&mut entry.observed);
        let Some(tracer) = &self.tracer else {
            return Ok(observed);
        };
        // Each packet that takes turns has a case of its own.
        if entry.part != Part::Program || entry.cycle > 1 {
            return Ok(observed);
        }
        let native = &self.programs.get(&entry.key).context("it ran")?.native;
        let spots = if entry.looped.1.window > 0 {
            Err("it makes tail calls, or leaves a loop no stack")
        } else if entry.ns_per_run > hot::LONGEST {
            Err("one run takes more than 10,000,000 instructions")
        } else {
            hot::spots(&**tracer, native, self.cpu, &entry.packet, &entry.expected)?
        };
        match spots {
            Ok(spots) => {
                let facts = observed.facts.as_mut().and_then(Value::as_object_mut);
                let facts = facts.context("preparing it showed what it does")?;
                facts.insert(HOT_SPOTS.to_owned(), serde_json::to_value(spots)?);
            }
            Err(why) => {
                let text = format!("no hot spots of {}: {why}", entry.key.1);
                observed.warnings.push((hot::NONE, text));
            }
        }
        Ok(observed)
    }

    /// Adds what the verifier did with the program.
    fn complete(
        &mut self,
        case: &Case,
        batch: &ProgramBatch,
        trial: &mut Trial,
    ) -> Result<(), Fault> {
        let entry = self.entries.get(&case.name).context("it ran")?;
        if entry.part != Part::Program {
            return Ok(());
        }
        // Undoing nothing twice costs the same.
        if !self.exact && !self.has_reset(case) {
            batch::add_reset_twice(trial, batch.as_ref());
        }
        let program = self.programs.get(&entry.key).context("it ran")?;
        trial.secondary.extend(secondary(program.native.figures()));
        Ok(())
    }

    fn kernel_bytes(&self) -> Option<u64> {
        let programs = self.programs.values();
        let bytes = |program: &LoadedProgram| {
            let drivers = program.loops.values().map(Spliced::kernel_bytes);
            program.native.figures().map_bytes + drivers.sum::<u64>()
        };
        Some(programs.map(bytes).sum())
    }
}

/// Figures as values of a trial, which views show.
pub(in crate::builtin) fn secondary(figures: &Figures) -> Vec<(String, f64)> {
    let named = [
        ("instructions", figures.processed),
        ("states", figures.states),
        ("us", figures.verified_us),
        ("xlated_bytes", figures.xlated_bytes),
        ("jited_bytes", figures.jited_bytes),
        ("map_bytes", figures.map_bytes),
    ];
    let named = named.map(|(name, value)| (format!("verified_{name}"), value));
    let stacks = (0..).zip(&figures.stack_bytes);
    let stacks =
        stacks.map(|(number, &bytes): (u32, &u64)| (format!("verified_stack_{number:03}"), bytes));
    let all = named.into_iter().chain(stacks);
    all.map(|(name, value)| (name, value as f64)).collect()
}
