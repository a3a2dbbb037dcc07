//! Programs that belong together, loaded and attached, and their traces.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use bpfcost_bpf::{
    hook::{Hook, HookedObject},
    program::Figures,
};
use rustix::{process::getgroups, thread::membarrier_query};

use super::{Inner, Work};
use crate::builtin::program::loader;
use bpfcost_model::Elsewhere;
use bpfcost_program::{InstructionTracer, Trace, Watch, WatchedProgram};

/// Operations before those that are traced: what comes with a first time is not of the events that count.
const REHEARSED: usize = 2;

/// Programs of an object, attached. Dropping it detaches them.
#[derive(Debug)]
pub(super) struct AttachedPrograms {
    pub(super) object: HookedObject,
    /// The place of the object, and the names of the programs.
    key: (usize, Vec<String>),
    watch: Watch,
    /// The last trace, by its stimulus, and the programs whose trials it was used in.
    last: Option<(String, Trace, BTreeSet<String>)>,
    /// Costs outside of events, by stimulus.
    elsewhere: BTreeMap<String, Option<Elsewhere>>,
    /// Costs beside events, by program.
    figures: BTreeMap<String, Figures>,
}

impl AttachedPrograms {
    /// Attaches the program of a work, and those that belong to it.
    pub(super) fn new(inner: &Inner, work: &Work) -> Result<Self> {
        let (chosen, companions) = inner.together(work)?;
        let file = &inner.subject.objects[work.object];
        let settings = &inner.subject.settings;
        let mut object = HookedObject::load(file, chosen, &companions, settings)?;
        if let Some(setup) = &inner.subject.setup {
            loader::run(setup, &object.pin_maps()?)?;
        }
        object.attach()?;
        let kernel = inner.kernel()?;
        let watched = |hook: &Hook| -> Result<WatchedProgram> {
            Ok(WatchedProgram {
                code: object.code(&hook.program)?,
                spans: kernel.spans(hook)?,
            })
        };
        let programs: Result<Vec<WatchedProgram>> = object.hooks().iter().map(watched).collect();
        let watch = Watch {
            programs: programs?,
            kernel: kernel.places.clone(),
            window: Some(kernel.window),
            calls: inner.subject.calls,
        };
        let names = object
            .hooks()
            .iter()
            .map(|hook| hook.program.clone())
            .collect();
        Ok(AttachedPrograms {
            object,
            key: (work.object, names),
            watch,
            last: None,
            elsewhere: BTreeMap::new(),
            figures: BTreeMap::new(),
        })
    }

    /// True if these are the programs of a work and those that belong to it.
    pub(super) fn is_for(&self, inner: &Inner, work: &Work) -> Result<bool> {
        // One that was left out as a companion has its own reason, which only it is asked for.
        if !self.key.1.contains(&work.program) {
            return Ok(false);
        }
        let (_, companions) = inner.together(work)?;
        let is_left_out = |hook: &Hook| {
            let mut left_out = self.object.left_out().iter();
            left_out.any(|(one, _)| one.program == hook.program)
        };
        let wanted = companions.iter().filter(|hook| !is_left_out(hook));
        let wanted: Vec<String> = wanted.map(|hook| hook.program.clone()).collect();
        Ok(self.key == (work.object, wanted))
    }

    /// The place of the object, and the names of the programs.
    pub(super) fn key(&self) -> &(usize, Vec<String>) {
        &self.key
    }

    /// The place of a program in traces.
    pub(super) fn place(&self, program: &str) -> Result<usize> {
        let place = self.key.1.iter().position(|name| name == program);
        place.with_context(|| format!("{program} was not attached"))
    }

    /// A trace of so many operations, each by `operate`, behind two that do not count. One trace serves each program once, if
    /// the stimulus of this name is the same.
    pub(super) fn trace(
        &mut self,
        tracer: &dyn InstructionTracer,
        program: &str,
        stimulus: &str,
        operations: u64,
        operate: &mut dyn FnMut(&HookedObject) -> Result<()>,
    ) -> Result<Trace> {
        if let Some((of, trace, used)) = &mut self.last
            && of == stimulus
            && used.insert(program.to_owned())
        {
            return Ok(trace.clone());
        }
        let trace = traced(tracer, &self.watch, &mut self.object, operations, operate)?;
        let used = BTreeSet::from([program.to_owned()]);
        self.last = Some((stimulus.to_owned(), trace.clone(), used));
        Ok(trace)
    }

    /// Costs of a program beside its events.
    pub(super) fn figures(&mut self, program: &str) -> Result<&Figures> {
        if !self.figures.contains_key(program) {
            let figures = self.object.figures(program)?;
            self.figures.insert(program.to_owned(), figures);
        }
        self.figures.get(program).context("they were asked for")
    }

    /// The cost outside of events of so many operations; `None` where two traces of the same differ.
    pub(super) fn elsewhere(
        &mut self,
        tracer: &dyn InstructionTracer,
        stimulus: &str,
        operations: u64,
        operate: &mut dyn FnMut(&HookedObject) -> Result<()>,
    ) -> Result<Option<Elsewhere>> {
        if let Some(known) = self.elsewhere.get(stimulus) {
            return Ok(known.clone());
        }
        if self.object.has_congestion_control() {
            // Connections of the stimulus keep it when it is detached: there is no trace without it.
            return Ok(None);
        }
        let mut window = |watch: &Watch, object: &mut HookedObject| -> Result<Option<Trace>> {
            let mut twice = Vec::new();
            for _ in 0..2 {
                twice.push(traced(tracer, watch, object, operations, operate)?);
            }
            let is_same = twice[0].window == twice[1].window && twice[0].spent == twice[1].spent;
            Ok(twice.pop().filter(|_| is_same))
        };
        let on = window(&self.watch, &mut self.object)?;
        let nothing = Watch {
            programs: Vec::new(),
            ..self.watch.clone()
        };
        self.object.detach();
        let off = window(&nothing, &mut self.object);
        self.object.attach()?;
        let per_operation = |(on, off): (Trace, Trace)| Elsewhere {
            programs: self.key.1.clone(),
            instructions: (on.window as f64 - on.spent as f64 - off.window as f64)
                / operations as f64,
        };
        let elsewhere = on.zip(off?).map(per_operation);
        self.elsewhere
            .insert(stimulus.to_owned(), elsewhere.clone());
        Ok(elsewhere)
    }
}

/// A trace of so many operations, behind two that do not count.
fn traced(
    tracer: &dyn InstructionTracer,
    watch: &Watch,
    object: &mut HookedObject,
    operations: u64,
    operate: &mut dyn FnMut(&HookedObject) -> Result<()>,
) -> Result<Trace> {
    for _ in 0..REHEARSED {
        operate(object)?;
    }
    tracer.trace(watch, &mut || {
        for _ in 0..operations {
            object.drain()?;
            // The window lies between these two system calls.
            getgroups()?;
            let operated = operate(object);
            membarrier_query();
            operated?;
        }
        Ok(())
    })
}
