//! `hook`: what does a person's own program cost at the hook that it is made for, in instructions per event?
//!
//! The programs are attached unmodified, in a guest that counts instructions. A stimulus makes events, and all that the
//! kernel executes meanwhile is traced: an event is what lies between the first and the last instruction of the hook, and
//! consists of dispatch, the program itself, and what it calls. Nothing is subtracted and no clock is read, so that two
//! boots have the same figures.

mod attached;
mod choice;
mod epoch;
mod facts;
mod kernel;
pub mod menu;
mod other_ways;

use std::{
    cell::{Cell, OnceCell, RefCell, RefMut},
    collections::BTreeMap,
    rc::Rc,
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::hook::{Hook, HookKind, companions};
use serde::Deserialize as _;

use self::{
    attached::AttachedPrograms,
    choice::{Tried, TriedKey},
    epoch::HookEpoch,
    kernel::Kernel,
};
use super::program::setting;
use bpfcost_model::{
    Case, Description, Experiment, LoadedEpoch, Overhead, Pair, Setup, Sizing, Subject,
};
use bpfcost_pages::program::OLD;
use bpfcost_program::{HookedPrograms, InstructionTracer, StimulusSource};

/// Operations of the stimulus in a trial. Each makes the same calls; those of a few show what differs all the same.
const OPERATIONS: u64 = 4;

/// Trials in each load: as many as show that the figures repeat.
const ROUNDS: u32 = 2;

/// Fewest events of a trial.
const FEWEST_EVENTS: usize = 3;

/// The factor of cases that differ by their stimuli.
const STIMULUS: &str = "stimulus";

/// The experiment.
#[derive(Debug)]
pub struct Hooks(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    subject: HookedPrograms,
    /// All programs of each object.
    hooks: Vec<Vec<Hook>>,
    tracer: Option<Rc<dyn InstructionTracer>>,
    kernel: OnceCell<Kernel>,
    /// Reasons why works can't be done here; each is determined once.
    refusals: RefCell<BTreeMap<Work, Option<String>>>,
    /// Stimuli that were found, by the names of programs: the same for both objects and in each load.
    chosen: RefCell<BTreeMap<String, String>>,
    /// The programs that are attached now.
    attached: RefCell<Option<AttachedPrograms>>,
    /// Number of times that programs were attached in place of others.
    attachments: Cell<u64>,
    /// Stimuli that were tried, all or the one at this place, by the programs that were attached together.
    tried: RefCell<BTreeMap<TriedKey, Tried>>,
}

/// The program of a case, and the object that it is from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    object: usize,
    program: String,
    /// The place of its stimulus among those that were named.
    stimulus: Option<usize>,
}

impl Hooks {
    /// The programs that a plan is for.
    pub fn data_of(subject: &Subject) -> Result<Option<HookedPrograms>> {
        match subject {
            Subject::HookedPrograms(programs) => Ok(Some(HookedPrograms::deserialize(programs)?)),
            _ => Ok(None),
        }
    }

    /// Opens the objects, which needs no privilege.
    pub fn new(subject: HookedPrograms) -> Result<Self> {
        let objects = 0..subject.objects.len();
        let hooks: Result<Vec<Vec<Hook>>> = objects.map(|object| subject.hooks(object)).collect();
        Ok(Hooks(Rc::new(Inner {
            hooks: hooks?,
            subject,
            tracer: None,
            kernel: OnceCell::new(),
            refusals: RefCell::default(),
            chosen: RefCell::default(),
            attached: RefCell::default(),
            attachments: Cell::default(),
            tried: RefCell::default(),
        })))
    }

    /// The same, with what traces instructions.
    pub fn with_tracer(subject: HookedPrograms, tracer: Rc<dyn InstructionTracer>) -> Result<Self> {
        let Hooks(mut inner) = Hooks::new(subject)?;
        let own = Rc::get_mut(&mut inner).context("it was just made")?;
        own.tracer = Some(tracer);
        Ok(Hooks(inner))
    }
}

impl Inner {
    /// True if a program of the machine is started, or one of its files is probed.
    fn needs_files(&self) -> bool {
        let is_command = |one: &StimulusSource| matches!(one, StimulusSource::Command(_));
        let has_command = self.subject.stimuli.iter().any(is_command);
        let chosen = self
            .works()
            .filter_map(|(work, _)| self.hook(&work).cloned());
        has_command
            || self.subject.setup.is_some()
            || chosen.into_iter().any(|hook| hook.kind.is_in_file())
    }

    /// The programs of one object after those of the other: to attach others takes longer than a trial. All of a stimulus
    /// before those of the next: a trace serves each of them.
    fn works(&self) -> impl Iterator<Item = (Work, Case)> {
        let named = 0..self.subject.stimuli.len();
        let stimuli: Vec<Option<usize>> = match named.is_empty() {
            true => vec![None],
            false => named.map(Some).collect(),
        };
        let objects = 0..self.hooks.len();
        let of_object = move |object| stimuli.clone().into_iter().map(move |one| (object, one));
        objects
            .flat_map(of_object)
            .flat_map(move |(object, stimulus)| {
                self.subject.programs.iter().filter_map(move |program| {
                    let work = Work {
                        object,
                        program: program.clone(),
                        stimulus,
                    };
                    let case = self.case(&work)?;
                    Some((work, case))
                })
            })
    }

    /// The stimulus that was named for a work.
    fn source(&self, work: &Work) -> Option<&StimulusSource> {
        self.subject.stimuli.get(work.stimulus?)
    }

    fn case(&self, work: &Work) -> Option<Case> {
        let Work { program, .. } = work;
        let hook = self.hook(work)?;
        let is_old = work.object > 0;
        let version = if is_old { OLD } else { "new" };
        let is_read = hook.kind == HookKind::Iter;
        if is_read && work.stimulus > Some(0) {
            return None;
        }
        let source = self.source(work).filter(|_| !is_read);
        let mut factors = vec![
            ("program", program.clone()),
            ("hook", hook.to_string()),
            ("version", version.to_owned()),
            ("given", self.subject.given(source)),
        ];
        let mut name = program.clone();
        if let Some(source) = source.filter(|_| self.subject.stimuli.len() > 1) {
            factors.push((STIMULUS, source.name().to_owned()));
            name = format!("{name}/{}", source.name());
        }
        if is_old {
            name = format!("{name}/{OLD}");
        }
        let factors = factors.into_iter();
        Some(Case {
            name,
            group: if is_old { "old programs" } else { "programs" }.into(),
            factors: factors
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            about: format!("an event at {hook}"),
            sizing: Sizing::Fixed(OPERATIONS),
            traced: true,
            ..Case::default()
        })
    }

    fn named(&self, case: &Case) -> Result<Work> {
        let mut works = self.works();
        let found = works.find(|(_, one)| one.name == case.name);
        let (work, _) = found.with_context(|| format!("hook has no case {}", case.name))?;
        Ok(work)
    }

    fn hook(&self, work: &Work) -> Option<&Hook> {
        let mut hooks = self.hooks[work.object].iter();
        hooks.find(|hook| hook.program == work.program)
    }

    /// The program of a work and those that belong to it.
    fn together(&self, work: &Work) -> Result<(&Hook, Vec<Hook>)> {
        let chosen = self.hook(work).context("a case has a program")?;
        Ok((chosen, companions(&self.hooks[work.object], chosen)))
    }

    /// The programs of a work, attached, where others were before.
    fn attach(&self, work: &Work) -> Result<RefMut<'_, Option<AttachedPrograms>>> {
        let mut attached = self.attached.borrow_mut();
        let is_there = match &*attached {
            Some(attached) => attached.is_for(self, work)?,
            None => false,
        };
        if !is_there {
            *attached = None;
            self.attachments.update(|before| before + 1);
            *attached = Some(AttachedPrograms::new(self, work)?);
        }
        Ok(attached)
    }

    fn kernel(&self) -> Result<&Kernel> {
        if let Some(kernel) = self.kernel.get() {
            return Ok(kernel);
        }
        let read = Kernel::read()?;
        Ok(self.kernel.get_or_init(|| read))
    }

    /// Returns why a program can't be measured here; `None` if it can.
    fn refusal(&self, work: &Work) -> Result<Option<String>> {
        if let Some(known) = self.refusals.borrow().get(work) {
            return Ok(known.clone());
        }
        let refusal = self.refused(work)?;
        let mut refusals = self.refusals.borrow_mut();
        refusals.insert(work.clone(), refusal.clone());
        Ok(refusal)
    }

    fn refused(&self, work: &Work) -> Result<Option<String>> {
        let hook = self.hook(work).context("a case has a program")?;
        if let Some(absent) = hook.absent()? {
            return Ok(Some(absent));
        }
        let tried = self.attach(work);
        let mut attached = match tried.map_err(anyhow::Error::downcast::<bpfcost_bpf::Error>) {
            Ok(attached) => attached,
            Err(Ok(error @ bpfcost_bpf::Error::UserObject { is_input: true, .. })) => {
                return Err(error.into());
            }
            Err(Ok(error)) => return Ok(Some(error.to_string())),
            Err(Err(error)) => return Err(error),
        };
        let attached = attached.as_mut().context("it was attached")?;
        choice::choose(self, attached, work)
    }
}

impl Experiment for Hooks {
    fn description(&self) -> Description {
        let inner = &self.0;
        let factors = [
            ("program", "the program, by the name of its function"),
            ("hook", "the hook that it is attached at"),
            ("version", "the object: new, or old where two are compared"),
            ("given", "a digest of --set, --map, --setup and --stimulus"),
            (STIMULUS, "what makes its events, where several are named"),
        ];
        Description {
            subject: Subject::hooked_programs(&inner.subject),
            most_cpus: Some(1),
            rounds: Some(ROUNDS),
            traces: true,
            host_files: inner.needs_files(),
            overhead: Overhead {
                load_s: 0.1,
                trial_s: 0.1,
                batches: 1.0,
            },
            ..Description::new("hook", "a program of your own at its hook", &factors)
        }
    }

    fn cases(&self) -> Vec<Case> {
        self.0.works().map(|(_, case)| case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let compared = self.0.works().filter(|(work, _)| work.object > 0);
        let pair = |(work, old): (Work, Case)| {
            let new = self.0.case(&Work { object: 0, ..work })?;
            Some(Pair {
                about: format!("{}: new against old", new.name),
                case: new.name,
                baseline: old.name,
            })
        };
        compared.filter_map(pair).collect()
    }

    fn set(&mut self, variable: &str, value: &str) -> Result<()> {
        let inner = Rc::get_mut(&mut self.0).context("no epoch is loaded yet")?;
        let setting = setting(&inner.subject.objects, variable, value)?;
        inner.subject.settings.variables.push(setting);
        Ok(())
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        self.0.refusal(&self.0.named(case)?)
    }

    fn programs(&self) -> Result<Option<String>> {
        Ok(Some("traced instruction by instruction".to_owned()))
    }

    fn load(&self, _: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        Ok(Box::new(HookEpoch::new(Rc::clone(&self.0))))
    }
}
