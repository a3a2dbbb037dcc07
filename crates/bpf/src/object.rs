//! Loading objects by name, in the kernel or for processes, and the words of the verifier.

#![allow(unsafe_code)]

use std::{
    ptr::NonNull,
    sync::{Mutex, Once},
};

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{self, Probes},
};
use libbpf_rs::{
    AsRawLibbpf as _, Btf, Map, MapCore as _, MapFlags, Object, ObjectBuilder, OpenMapMut,
    OpenObject, OpenProgramMut, PrintLevel, ProgramMut, RingBuffer, libbpf_sys::bpf_object,
    set_print,
};

use crate::{
    attach::AttachMethod,
    error::{Error, Result, lacks, map_failed, no_area},
    globals::{Globals, GlobalsLayout},
    mapping, maps,
    plain::{self, Plain},
    run,
};

/// Last lines of libbpf's log that go into an error, at most.
const LOG_LINES: usize = 12;

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The compiled objects of `bpf/` by name.
const OBJECTS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The compiled `bpf/NAME.bpf.c`.
pub(crate) fn object_bytes(name: &str) -> Result<&'static [u8]> {
    let bytes = OBJECTS.iter().find(|(object, _)| *object == name);
    let &(_, bytes) = bytes.ok_or_else(|| lacks("this build", &format!("object {name}")))?;
    #[cfg(feature = "mutants")]
    let bytes = crate::mutant::object(name, bytes);
    Ok(bytes)
}

/// Loads an object of `bpf/` for processes, whose programs it will run in.
pub(crate) fn load_for_processes(name: &'static str, choice: &Choice<'_>) -> Result<Probes> {
    listen();
    let object = LoadedObject::from_bytes(name, object_bytes(name)?, choice);
    Ok(Probes::new(object.map_err(probes::Error::from)?)?)
}

/// An object of `bpf/` that is not loaded yet.
#[derive(Debug)]
pub struct OpenNamed {
    name: &'static str,
    object: OpenObject,
    layout: GlobalsLayout,
}

impl OpenNamed {
    /// Opens `bpf/NAME.bpf.c`.
    pub fn open(name: &'static str) -> Result<Self> {
        OpenNamed::from_bytes(name, object_bytes(name)?)
    }

    /// Opens a compiled object.
    pub(crate) fn from_bytes(name: &'static str, bytes: &[u8]) -> Result<Self> {
        listen();
        let mut builder = ObjectBuilder::default();
        let object = builder
            .name(name)
            .and_then(|builder| builder.open_memory(bytes))
            .map_err(|source| load_failed(name, source))?;
        let layout = GlobalsLayout::from_btf(name, &types(name, &object)?);
        Ok(OpenNamed {
            name,
            object,
            layout,
        })
    }

    /// The object as libbpf-rs has it.
    pub fn object(&mut self) -> &mut OpenObject {
        &mut self.object
    }

    pub(crate) fn libbpf(&self) -> NonNull<bpf_object> {
        self.object.as_libbpf_object()
    }

    /// Returns the object's types.
    pub(crate) fn types(&self) -> Result<Btf<'_>> {
        types(self.name, &self.object)
    }

    /// Changes a program before it is loaded.
    pub fn change_program(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut OpenProgramMut<'_>) -> libbpf_rs::Result<()>,
    ) -> Result<()> {
        let program = self.object.progs_mut().find(|one| one.name() == name);
        let mut program = program.ok_or_else(|| lacks(self.name, &format!("program {name}")))?;
        change(&mut program).map_err(|source| load_failed(self.name, source))
    }

    /// Has a program loaded.
    pub(crate) fn with(&mut self, program: &str) -> Result<()> {
        self.change_program(program, |program| {
            program.set_autoload(true);
            Ok(())
        })
    }

    pub(crate) fn change_map(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut OpenMapMut<'_>) -> libbpf_rs::Result<()>,
    ) -> Result<()> {
        let map = self.object.maps_mut().find(|one| one.name() == name);
        let mut map = map.ok_or_else(|| lacks(self.name, &format!("map {name}")))?;
        change(&mut map).map_err(|source| load_failed(self.name, source))
    }

    /// Gives a variable its first value, of at most 8 bytes: a constant (`const volatile`) has it for good, so that
    /// the verifier knows it.
    pub(crate) fn set(&mut self, variable: &str, value: u64) -> Result<()> {
        let value = self.layout.word(variable, value)?;
        self.set_bytes(variable, &value)
    }

    /// The same of a variable's first bytes.
    pub(crate) fn set_bytes(&mut self, variable: &str, value: &[u8]) -> Result<()> {
        self.layout.initialise(variable, value, &mut self.object)
    }

    /// Makes a choice as [`load_for_processes`] does.
    pub(crate) fn make_choice(&mut self, choice: &Choice<'_>) -> Result<()> {
        if !choice.programs.is_empty() {
            choose(&mut self.object, |name| choice.programs.contains(&name));
        }
        let mut constants = choice.constants.iter();
        constants.try_for_each(|(name, value)| self.set_bytes(name, value))
    }

    /// Loads what was chosen.
    pub fn load(self) -> Result<NamedObject> {
        let name = self.name;
        listen();
        let object = self.object.load();
        let object = object.map_err(|source| load_failed(name, source))?;
        Ok(NamedObject {
            name,
            globals: Globals::new(self.layout, &object)?,
            object,
        })
    }

    /// The same, with a program that will be attached so to that event.
    pub(crate) fn load_aimed(
        mut self,
        program: &str,
        method: AttachMethod,
        event: &str,
    ) -> Result<NamedObject> {
        let aim = |program: &mut OpenProgramMut<'_>| {
            program.set_autoload(true);
            method.aim(program, event)
        };
        self.change_program(program, aim)
            .and_then(|()| self.load())
            .map_err(|error| method.explain_load(event, error))
    }
}

/// A loaded object of `bpf/`. Dropping it frees everything.
#[derive(Debug)]
pub struct NamedObject {
    name: &'static str,
    /// Its variables.
    pub(crate) globals: Globals,
    object: Object,
}

impl NamedObject {
    /// The object as libbpf-rs has it.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The loaded program of that name.
    pub fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        loaded_program(&self.object, name)
    }

    /// The same, to be run.
    pub fn runnable(&self, name: &str) -> Result<run::SharedProgram> {
        run::SharedProgram::new(&self.program(name)?)
    }

    /// The value of a variable of at most 8 bytes.
    pub fn variable(&self, name: &str) -> Result<u64> {
        self.globals.get(name)
    }

    /// Sets one.
    pub fn set_variable(&mut self, name: &str, value: u64) -> Result<()> {
        self.globals.set(name, value)
    }

    /// The bytes of a variable.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        self.globals.bytes(name)
    }

    /// All programs that were loaded.
    pub(crate) fn programs(&self) -> impl Iterator<Item = ProgramMut<'_>> {
        let programs = self.object.progs_mut();
        programs.filter(|program| program.autoload())
    }

    /// The map of that name.
    pub(crate) fn map(&self, name: &str) -> Result<Map<'_>> {
        let map = self.object.maps().find(|one| one.name() == name);
        map.ok_or_else(|| lacks(self.name, &format!("map {name}")))
    }

    /// The value of a key.
    pub(crate) fn value(&self, map: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.map(map)?.lookup(key, MapFlags::ANY);
        value.map_err(map_failed(map, "reading it"))
    }

    /// The values of a per-CPU array's only entry.
    pub(crate) fn of_cpus<T: Plain + Default>(&self, map: &'static str) -> Result<Vec<T>> {
        let values = maps::of_cpus(&self.map(map)?, map)?.into_iter();
        let values = values.map(|value| plain::read(&value).unwrap_or_default());
        Ok(values.collect())
    }

    /// Fills all of those values with a byte.
    pub(crate) fn fill_cpus(&self, map: &'static str, byte: u8) -> Result<()> {
        let array = self.map(map)?;
        maps::fill_cpus(&array, map, maps::of_cpus(&array, map)?, byte)
    }

    /// Puts a value in the place of a key.
    pub(crate) fn put<K: Plain, V: Plain>(
        &self,
        map: &'static str,
        key: &K,
        value: &V,
    ) -> Result<()> {
        maps::put(&self.map(map)?, map, key, value)
    }

    /// Removes every entry of a map.
    pub(crate) fn empty(&self, map: &'static str) -> Result<()> {
        maps::empty(&self.map(map)?, map)
    }

    /// Has `take` be given each record of a ring buffer.
    pub(crate) fn ring(
        &self,
        map: &'static str,
        take: impl FnMut(&[u8]) + 'static,
    ) -> Result<RingBuffer<'static>> {
        maps::ring(&self.map(map)?, map, take)
    }

    /// Memory that the kernel accounts for its maps, in bytes.
    pub(crate) fn kernel_bytes(&self) -> u64 {
        self.object.maps().map(|map| mapping::memlock(&map)).sum()
    }
}

fn loaded_program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>> {
    let mut programs = object.progs_mut();
    let program = programs.find(|one| one.autoload() && one.name() == name);
    program.ok_or_else(|| Error::NotLoaded(name.to_owned()))
}

fn types<'a>(name: &'static str, object: &'a OpenObject) -> Result<Btf<'a>> {
    // SAFETY: an open object is a valid `bpf_object`, which the types are borrowed from.
    let btf = Btf::from_bpf_object(unsafe { object.as_libbpf_object().as_ref() });
    let btf = btf.map_err(|source| load_failed(name, source))?;
    btf.ok_or_else(|| no_area(name))
}

/// An object that can't be opened or loaded, for what libbpf and the verifier said last.
pub(crate) fn load_failed(object: &'static str, source: libbpf_rs::Error) -> Error {
    Error::Load {
        object,
        source,
        log: last_log(),
    }
}

/// Has the programs loaded that are wanted, by name, and no others.
pub(crate) fn choose(object: &mut OpenObject, wanted: impl Fn(&str) -> bool) {
    for mut program in object.progs_mut() {
        let chosen = wanted(&program.name().to_string_lossy());
        program.set_autoload(chosen);
    }
}

/// Keeps what libbpf says for the error that may follow, off the terminal.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, |_, line| {
            if let Ok(mut log) = LOG.lock() {
                log.push(line.trim_end().to_owned());
            }
        })));
    });
    if let Ok(mut log) = LOG.lock() {
        log.clear();
    }
}

/// The last of it since [`listen`].
pub(crate) fn last_log() -> String {
    let Ok(log) = LOG.lock() else {
        return String::new();
    };
    let text = log.join("\n");
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
