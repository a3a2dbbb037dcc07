//! An object whose programs are loaded for their hooks, attached and detached.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use bpfcost_uprobe::object::{self, forget_pins, load_object, open_object, programs_in_slots};
use libbpf_rs::{Iter, Link, MapCore as _, Object, OpenObject, ProgramMut};

use super::{
    attaching,
    congestion::{self, CongestionControl},
    kind::HookKind,
    map_defaults,
    section::Hook,
    struct_ops::{self, Placed},
};
use crate::{
    attach::Buffers,
    error::{Error, Result, failed},
    links,
    object::{last_log, listen},
    program::{
        Figures, MachineCode, MachineFunction, ObjectFile, PinnedMaps, Settings, SourceLine,
        effects_at_hook, figures, hook_program, lines, places, program_type, source_line, wrong,
    },
    stats::RunStats,
};

/// Programs of an object, loaded together. Dropping it detaches and unloads them.
#[derive(Debug)]
pub struct HookedObject {
    file: ObjectFile,
    hooks: Vec<Hook>,
    /// Before the links: the kernel's own one is chosen again while it is still there.
    congestion: Option<CongestionControl>,
    /// Before the object, whose programs they hold. Each has the name of its program.
    links: Vec<(String, Link)>,
    buffers: Option<Buffers>,
    object: Object,
    structs: Vec<Placed>,
    /// The program without which the others are of no use.
    chosen: String,
    left_out: Vec<(Hook, String)>,
}

impl HookedObject {
    /// Loads a program and its [`companions`](super::companions()), in their order, which has it, and those that they make tail
    /// calls to. Companions that are not for this kernel or that it rejects are left out, here and by
    /// [`attach`](Self::attach). Maps get the sizes that the object leaves to its loader, and none is pinned.
    pub fn load(
        file: &ObjectFile,
        chosen: &Hook,
        companions: &[Hook],
        settings: &Settings,
    ) -> Result<Self> {
        let (mut hooks, mut left_out) = (Vec::new(), Vec::new());
        let opened = file.opened()?;
        let forbidden = |hook: &Hook| {
            let program = opened.progs().find(|one| one.name() == &*hook.program)?;
            effects_at_hook(file, &hook.program, program.insns(), settings)
        };
        for hook in companions {
            let why = match hook.absent()? {
                _ if hook.program == chosen.program => None,
                None => forbidden(hook),
                absent => absent,
            };
            match why {
                Some(words) => left_out.push((hook.clone(), words)),
                None => hooks.push(hook.clone()),
            }
        }
        loop {
            match Self::try_load(file, chosen, &hooks, settings)? {
                Ok(loaded) => {
                    return Ok(HookedObject { left_out, ..loaded });
                }
                Err(Rejected { program, error }) => {
                    let rejected = hooks.iter().position(|hook| {
                        hook.program != chosen.program
                            && program.as_ref().is_some_and(|name| hook.program == *name)
                    });
                    let Some(rejected) = rejected else {
                        return Err(
                            match reason(std::slice::from_ref(chosen), program.as_deref()) {
                                Some(words) => file.refused(words),
                                None => file.unusable(error),
                            },
                        );
                    };
                    let words = file.unusable(error).to_string();
                    left_out.push((hooks.remove(rejected), words));
                }
            }
        }
    }

    fn try_load(
        file: &ObjectFile,
        chosen: &Hook,
        hooks: &[Hook],
        settings: &Settings,
    ) -> Result<std::result::Result<Self, Rejected>> {
        let mut forbidden = None;
        let mut structs = Vec::new();
        let opened = open_object(&file.name(), file.bytes(), |object| {
            forget_pins(object);
            map_defaults::set(object)?;
            let mut slots = programs_in_slots(file.bytes())?;
            slots.extend(settings.slots.iter().map(|slot| slot.program.clone()));
            structs = struct_ops::placed(file, object).map_err(io::Error::other)?;
            structs.retain(|one| hooks.iter().any(|hook| hook.program == one.program));
            struct_ops::choose(object, &structs)?;
            forbidden = choose(file, object, hooks, &slots, settings)?;
            Ok(())
        });
        let mut opened = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(Rejected::new(error))),
        };
        if let Some(words) = forbidden {
            return Err(wrong(file.path(), words));
        }
        settings.apply(file, &mut opened)?;
        let object = match load_object(&file.name(), opened) {
            Ok(object) => object,
            Err(error) => return Ok(Err(Rejected::new(error))),
        };
        settings.fill(file, &object)?;
        let buffers = Buffers::open(&object)
            .map_err(|error| file.refused(format!("cannot read its buffers: {error}")))?;
        Ok(Ok(HookedObject {
            file: file.clone(),
            hooks: hooks.to_vec(),
            links: Vec::new(),
            congestion: None,
            buffers,
            object,
            structs,
            chosen: chosen.program.clone(),
            left_out: Vec::new(),
        }))
    }

    /// The programs and their hooks.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Companions that this kernel did not take, each with the reason.
    pub fn left_out(&self) -> &[(Hook, String)] {
        &self.left_out
    }

    /// Attaches all of them. Where the program itself can't be attached, none is.
    pub fn attach(&mut self) -> Result<()> {
        for hook in self.hooks.clone() {
            listen();
            let program = &hook.program;
            let links = match hook.kind {
                HookKind::StructOps => self.attach_struct(program),
                _ => attaching::attach(&self.program(program)?, &hook),
            };
            match links {
                Ok(links) => {
                    let named = links.into_iter().map(|link| (program.clone(), link));
                    self.links.extend(named);
                }
                Err(error) => {
                    let words = match error {
                        Error::Unattachable { words, .. } => words,
                        other => format!("{other}{}", lines(&last_log())),
                    };
                    let words = format!("{program} cannot be attached at {hook}: {words}");
                    if self.chosen == *program {
                        self.detach();
                        return Err(self.file.refused(words));
                    }
                    self.hooks.retain(|one| one.program != *program);
                    self.left_out.push((hook, words));
                }
            }
        }
        Ok(())
    }

    /// Has the kernel call the functions of the struct that a program is in; one link for all of its programs.
    fn attach_struct(&mut self, program: &str) -> Result<Vec<Link>> {
        let mut structs = self.structs.iter();
        let Some(placed) = structs.find(|one| one.program == program) else {
            return Ok(Vec::new());
        };
        let is_attached = |(linked, _): &(String, Link)| {
            let mut same = self.structs.iter().filter(|one| one.map == placed.map);
            same.any(|one| one.program == *linked)
        };
        if self.links.iter().any(is_attached) {
            return Ok(Vec::new());
        }
        let before = placed.is_congestion_control().then(congestion::available);
        let mut maps = self.object.maps_mut();
        let mut map = maps
            .find(|map| map.name() == placed.map.as_str())
            .ok_or_else(|| self.file.refused(format!("{} was not made", placed.map)))?;
        let link = map.attach_struct_ops();
        let link = link.map_err(failed(&placed.map, "attaching it"))?;
        if let Some(before) = before
            && let Some(name) = congestion::available().difference(&before).next()
        {
            let chosen = CongestionControl::choose(name);
            self.congestion = Some(chosen.map_err(failed(name, "choosing it for TCP"))?);
        }
        Ok(vec![link])
    }

    /// Pins all maps that have names.
    pub fn pin_maps(&self) -> Result<PinnedMaps> {
        PinnedMaps::of_object(&self.object)
    }

    /// True if new connections have a congestion control that is of its programs. They keep it after that is detached.
    pub fn has_congestion_control(&self) -> bool {
        self.congestion.is_some()
    }

    /// Detaches all of them.
    pub fn detach(&mut self) {
        self.congestion = None;
        let mut links = self.links.drain(..).map(|(_, link)| link).collect();
        links::close(&mut links);
    }

    /// Reads the attached iterators to their ends, which runs their programs; bytes that they wrote.
    pub fn read_iterators(&self) -> Result<u64> {
        let mut bytes = 0;
        for (program, link) in &self.links {
            let is_iterator = |hook: &Hook| hook.program == *program && hook.kind == HookKind::Iter;
            if self.hooks.iter().any(is_iterator) {
                let opened = Iter::new(link);
                let mut opened = opened.map_err(failed(program, "opening its iterator"))?;
                let read = std::io::copy(&mut opened, &mut std::io::sink());
                bytes += read.map_err(failed(program, "reading its iterator"))?;
            }
        }
        Ok(bytes)
    }

    /// Machine code of a program, its main function first.
    pub fn code(&self, program: &str) -> Result<MachineCode> {
        let places = places(&self.owned(program)?);
        let places = places.map_err(failed(program, "asking for its addresses"))?;
        let functions = places.functions.iter().zip(&places.lengths);
        let function = |(&start, &length): (&u64, &u32)| MachineFunction {
            start,
            end: start + u64::from(length),
        };
        Ok(MachineCode {
            functions: functions.map(function).collect(),
        })
    }

    /// Lines of a program's source, by the first addresses of their machine code; none of an object without them.
    pub fn lines(&self, program: &str) -> Result<BTreeMap<u64, SourceLine>> {
        let places = places(&self.owned(program)?);
        let places = places.map_err(failed(program, "asking for its addresses"))?;
        let addresses = places.line_addresses.into_iter();
        let line = |record| source_line(&self.object, record);
        Ok(addresses.zip(places.lines.iter().map(line)).collect())
    }

    /// Takes what programs wrote to buffers, and discards it. A full buffer is a shorter way for a program.
    pub fn drain(&mut self) -> Result<()> {
        if let Some(buffers) = &self.buffers {
            let taken = buffers.take();
            taken.map_err(failed(self.file.name(), "reading its buffers"))?;
        }
        Ok(())
    }

    /// Runs of each program, counted while [`StatsOn`](crate::stats::StatsOn) is held.
    pub fn runs(&self) -> Result<BTreeMap<String, u64>> {
        let runs = |hook: &Hook| {
            let stats = RunStats::read(&self.program(&hook.program)?)?;
            Ok((hook.program.clone(), stats.run_cnt))
        };
        self.hooks.iter().map(runs).collect()
    }

    /// Costs of a program beside its time. Loads it once more.
    pub fn figures(&self, program: &str) -> Result<Figures> {
        let hook = self.hooks.iter().find(|hook| hook.program == program);
        let is_sleepable = hook.is_some_and(|hook| hook.sleepable);
        let raw = hook_program(&self.program(program)?, &self.object, is_sleepable);
        let raw = raw.map_err(failed(program, "asking what it was loaded for"))?;
        figures(&self.file, program, &raw, &self.object)
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let mut programs = self.object.progs_mut().filter(|one| one.autoload());
        let program = programs.find(|one| one.name() == name);
        program.ok_or_else(|| self.file.refused(format!("{name} was not loaded")))
    }

    fn owned(&self, program: &str) -> Result<OwnedFd> {
        let fd = self.program(program)?.as_fd().try_clone_to_owned();
        fd.map_err(failed(program, "copying its descriptor"))
    }
}

/// Chooses the programs to load, and aims those that are for another target. Returns the reason not to load one, if any.
fn choose(
    file: &ObjectFile,
    object: &mut OpenObject,
    hooks: &[Hook],
    slots: &[String],
    settings: &Settings,
) -> libbpf_rs::Result<Option<String>> {
    let mut forbidden = None;
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let hook = hooks.iter().find(|hook| hook.program == name);
        let is_chosen = hook.is_some() || slots.contains(&name);
        program.set_autoload(is_chosen);
        if is_chosen && forbidden.is_none() {
            forbidden = effects_at_hook(file, &name, program.insns(), settings);
        }
        let kind = program_type(program.prog_type(), &program.section().to_string_lossy());
        program.set_prog_type(kind);
        if let Some(target) = hook.and_then(Hook::load_target) {
            program.set_attach_target(0, Some(target.to_owned()))?;
        }
    }
    Ok(forbidden)
}

/// The kernel's refusal to load an object, and the program that it is about, where that is known.
struct Rejected {
    program: Option<String>,
    error: object::Error,
}

impl Rejected {
    fn new(error: object::Error) -> Self {
        let program = match &error {
            object::Error::Rejected { program, .. } => Some(program.clone()),
            _ => None,
        };
        Rejected { program, error }
    }
}

/// The reason why one of these hooks is not there, if that is known. A program that the verifier rejected has its own.
fn reason(hooks: &[Hook], rejected: Option<&str>) -> Option<String> {
    if rejected.is_some() {
        return None;
    }
    hooks.iter().find_map(|hook| {
        let words = hook.absent().ok().flatten()?;
        Some(format!(
            "{} cannot be attached at {hook}: {words}",
            hook.program
        ))
    })
}
