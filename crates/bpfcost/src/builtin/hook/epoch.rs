//! An epoch of `hook`: programs are attached for a case, and stay so for the next one that needs the same.

use std::{
    collections::BTreeMap,
    io,
    process::{Command, Stdio},
    rc::Rc,
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::hook::{Hook, HookKind, HookedObject};
use bpfcost_stimulus::Prepared;

use super::{
    FEWEST_EVENTS, Inner, OPERATIONS, Work,
    attached::AttachedPrograms,
    choice::{self, READ},
    facts, menu,
    other_ways::other_ways,
};
use crate::builtin::program::secondary;
use bpfcost_model::{
    Batch, Case, Fault, LoadedEpoch, Observed, Problem, ReachedLines, Trial, differs, prove,
};
use bpfcost_pages::hook::{BODY, DISPATCH, EVENTS, HELPERS, LEAST, MOST, SLEPT};
use bpfcost_process::ChildFailed;
use bpfcost_program::{EventParts, InstructionTracer, LoaderCommand, ProgramTrace, StimulusSource};

/// Advice on a command that fails.
const BY_HAND: &str = "Try it by hand: it has to end, and to succeed, each time";

/// The epoch.
pub(super) struct HookEpoch {
    inner: Rc<Inner>,
    /// Stimuli by their names; `None` for the one that reads iterators.
    stimuli: BTreeMap<String, Option<Prepared>>,
    /// The attachment in which they were prepared: a connection keeps the congestion control that it began with.
    prepared_in: u64,
}

impl HookEpoch {
    pub(super) fn new(inner: Rc<Inner>) -> Self {
        HookEpoch {
            inner,
            stimuli: BTreeMap::new(),
            prepared_in: 0,
        }
    }

    /// The name of a case's stimulus.
    fn stimulus(&self, work: &Work) -> Result<String> {
        let hook = self.inner.hook(work).context("a case has a program")?;
        if hook.kind == HookKind::Iter {
            return Ok(READ.to_owned());
        }
        match self.inner.source(work) {
            Some(StimulusSource::Command(command)) => return Ok(command.command.join(" ")),
            Some(StimulusSource::Menu(name)) => return Ok(name.clone()),
            None => {}
        }
        let chosen = self.inner.chosen.borrow();
        let chosen = chosen.get(&work.program).cloned();
        chosen.with_context(|| format!("no stimulus was chosen for {}", work.program))
    }

    fn prepared(&self, work: &Work, stimulus: &str) -> Result<Option<Prepared>> {
        if stimulus == READ {
            return Ok(None);
        }
        if let Some(StimulusSource::Command(command)) = self.inner.source(work) {
            return command_stimulus(command).map(Some);
        }
        let known =
            menu::find(stimulus).with_context(|| format!("there is no stimulus {stimulus}"))?;
        Ok(Some(known.prepare(&choice::context()?)?))
    }

    /// Has the programs of a case attached and its stimulus ready, and hands them to `with`: the name of the stimulus, and
    /// what makes an operation.
    fn with_stimulus<T>(
        &mut self,
        work: &Work,
        with: impl FnOnce(
            &mut AttachedPrograms,
            &dyn InstructionTracer,
            &str,
            &mut dyn FnMut(&HookedObject) -> Result<()>,
        ) -> Result<T>,
    ) -> Result<T> {
        let stimulus = self.stimulus(work)?;
        let tracer = self.inner.tracer.clone();
        let tracer = tracer.context("nothing traces instructions here")?;
        let inner = Rc::clone(&self.inner);
        let mut attached = inner.attach(work)?;
        let attached = attached.as_mut().context("it was attached")?;
        let attachments = inner.attachments.get();
        if self.prepared_in != attachments {
            self.stimuli.clear();
            self.prepared_in = attachments;
        }
        if !self.stimuli.contains_key(&stimulus) {
            let prepared = self.prepared(work, &stimulus)?;
            self.stimuli.insert(stimulus.clone(), prepared);
        }
        let is_command = matches!(self.inner.source(work), Some(StimulusSource::Command(_)));
        let prepared = self.stimuli.get_mut(&stimulus).context("it was prepared")?;
        with(
            attached,
            &*tracer,
            &stimulus,
            &mut |object| match prepared {
                Some(prepared) => prepared.operate().map_err(|error| match is_command {
                    true => ChildFailed(format!("--stimulus: {error}\n  {BY_HAND}")).into(),
                    false => error.into(),
                }),
                None => Ok(object.read_iterators().map(drop)?),
            },
        )
    }

    /// Traces operations of a case's stimulus.
    fn trace(&mut self, work: &Work, operations: u64) -> Result<ProgramTrace> {
        let program = &work.program;
        self.with_stimulus(work, |attached, tracer, stimulus, operate| {
            let trace = attached.trace(tracer, program, stimulus, operations, operate)?;
            let mut programs = trace.programs.into_iter();
            programs
                .nth(attached.place(program)?)
                .context("a trace of each program")
        })
    }
}

impl LoadedEpoch for HookEpoch {
    /// Trials attach the programs, and prove that they have events.
    fn prepare(&mut self, _: &Case) -> Result<(), Fault> {
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let work = self.inner.named(case)?;
        let traced = self.trace(&work, batch.0)?;
        let hook = self.inner.hook(&work).context("a case has a program")?;
        prove(problem(&traced, hook))?;
        let mut trial = trial(&traced);
        let mut attached = self.inner.attach(&work)?;
        let attached = attached.as_mut().context("it was attached")?;
        let figures = attached.figures(&work.program)?;
        trial.secondary.extend(secondary(figures));
        Ok(trial)
    }

    fn observed(&mut self, case: &Case) -> Result<Observed, Fault> {
        let work = self.inner.named(case)?;
        let traced = self.trace(&work, OPERATIONS)?;
        let elsewhere = self.with_stimulus(&work, |attached, tracer, stimulus, operate| {
            attached.elsewhere(tracer, stimulus, OPERATIONS, operate)
        })?;
        let lines = {
            let attached = self.inner.attach(&work)?;
            let attached = attached.as_ref().context("it was attached")?;
            let lines = attached.object.lines(&work.program);
            lines.context("asking for the lines of a program")?
        };
        let (kernel, stimulus) = (self.inner.kernel()?, self.stimulus(&work)?);
        let mut facts = facts::facts(kernel, &traced, &lines, stimulus, elsewhere);
        if !self.inner.subject.hot_spots {
            facts.hot_spots = None;
        }
        if self.inner.subject.calls {
            let attached = self.inner.attach(&work)?;
            let attached = attached.as_ref().context("it was attached")?;
            let code = attached.object.code(&work.program)?;
            facts.stacks = facts::stacks(kernel, &work.program, &code, &traced.typical.calls);
        }
        let is_partly = |lines: &ReachedLines| lines.first_missed.is_some();
        if facts.reached.as_ref().is_some_and(is_partly) && work.stimulus.is_none() {
            let mut attached = self.inner.attach(&work)?;
            let attached = attached.as_mut().context("it was attached")?;
            facts.other_ways = other_ways(&self.inner, attached, &work, &traced, &lines)?;
        }
        Ok(Observed {
            facts: Some(serde_json::to_value(facts).context("plain data")?),
            warnings: Vec::new(),
        })
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.stimuli.clear();
        *self.inner.attached.borrow_mut() = None;
        Ok(())
    }
}

/// A stimulus that runs a command to its end.
fn command_stimulus(command: &LoaderCommand) -> Result<Prepared> {
    let LoaderCommand {
        command, folder, ..
    } = command.clone();
    let name = command.first().context("a command has a name")?.clone();
    let run = move || {
        let mut process = Command::new(&name);
        process.args(&command[1..]).current_dir(&folder);
        process
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = process
            .status()
            .map_err(|error| io::Error::other(format!("cannot start {name}: {error}")))?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("{name} failed: {status}")))
    };
    Ok(Prepared::new(run))
}

/// The reason why a trace has no figure.
fn problem(traced: &ProgramTrace, hook: &Hook) -> Option<Problem> {
    let unexplained = differs(
        "runs without a known event",
        0,
        traced.unexplained,
        "it ran, and no known way led to it, or the end of its hook was not seen: its events are not known",
    );
    unexplained.or_else(|| {
        (traced.events.len() < FEWEST_EVENTS).then(|| Problem {
            check: "events".to_owned(),
            expected: format!("at least {FEWEST_EVENTS}"),
            got: match traced.slept {
                0 => traced.events.len().to_string(),
                slept => format!(
                    "{}, and {slept} in which the task slept between the hook and its end",
                    traced.events.len()
                ),
            },
            detail: match hook.has_lost_its_scheduler() {
                true => choice::ENDED.to_owned(),
                false => "make more events by a command: --stimulus 'COMMAND'".to_owned(),
            },
        })
    })
}

/// The event in the middle, and the extremes.
fn trial(traced: &ProgramTrace) -> Trial {
    let middle = traced.middle.unwrap_or_default();
    let totals = || traced.events.iter().map(EventParts::total);
    let secondary = [
        (DISPATCH, middle.dispatch),
        (BODY, middle.body),
        (HELPERS, middle.helpers),
        (EVENTS, traced.events.len() as u64),
        (SLEPT, traced.slept),
        (LEAST, totals().min().unwrap_or_default()),
        (MOST, totals().max().unwrap_or_default()),
    ];
    Trial {
        value: middle.total() as f64,
        ops: traced.events.len() as u64,
        elapsed_ns: totals().sum::<u64>() as f64,
        secondary: secondary
            .map(|(name, value)| (name.to_owned(), value as f64))
            .into(),
        ..Trial::default()
    }
}
