//! Opens an object and has the kernel load it.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, OsStr},
    fs, io,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    ptr,
};

use libbpf_rs::{
    AsRawLibbpf as _, MapCore as _, MapType, ObjectBuilder, OpenMapMut, OpenObject,
    libbpf_sys::{self, BPF_F_MMAPABLE},
};

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use super::{
    arena,
    error::{Error, Result},
    map::LoadedMap,
    messages,
    printk::load_quietly,
    verifier_log,
};
use crate::translate::{Instruction, Program, without_dead_code};

/// Bytes of a program's log. Of a longer one, the kernel keeps the end (since 6.4), which is what matters.
const LOG_BYTES: usize = 1 << 20;

/// Choice of an object's programs, and values of its constants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// The programs by name; none: those that the object marks for it.
    pub programs: &'a [&'a str],
    /// Values of `const volatile` variables, by name.
    pub constants: &'a [(&'a str, &'a [u8])],
}

/// A loaded object. Dropping it frees its programs and maps, in the kernel too if nothing else has them.
#[derive(Debug)]
pub struct LoadedObject {
    programs: Vec<LoadedProgram>,
    maps: Vec<LoadedMap>,
    /// True if programs come later.
    grows: bool,
}

/// A program that the verifier has accepted. It is attached to nothing.
#[derive(Debug)]
pub struct LoadedProgram {
    /// The name of its function.
    pub name: String,
    /// The section, such as `uprobe//usr/bin/app:main`.
    pub section: String,
    /// The instructions: CO-RE relocations made, maps by the file descriptors of [`LoadedObject::maps`]. Those that are
    /// never executed are jumps to the next one ([`without_dead_code`]).
    pub instructions: Vec<Instruction>,
    fd: OwnedFd,
}

impl LoadedProgram {
    /// A program that another process has loaded. `instructions` are those that it was loaded with, maps by the file
    /// descriptors of [`LoadedMap::fd`].
    pub fn from_parts(name: String, instructions: Vec<Instruction>, fd: OwnedFd) -> Self {
        LoadedProgram {
            name,
            section: String::new(),
            instructions,
            fd,
        }
    }

    /// The loaded program's file descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns whether its instructions name a map.
    pub fn uses(&self, map: &LoadedMap) -> bool {
        let fd = map.number();
        self.instructions.iter().any(|one| one.map() == Some(fd))
    }

    /// Returns whether it makes tail calls.
    pub fn makes_tail_calls(&self) -> bool {
        self.instructions.iter().any(Instruction::is_tail_call)
    }

    /// Returns whether it writes lines of text (`bpf_trace_printk`, `bpf_trace_vprintk`).
    pub fn writes_lines(&self) -> bool {
        self.instructions.iter().any(Instruction::writes_line)
    }

    /// Returns what backends translate.
    pub fn program(&self) -> Program<'_> {
        Program {
            instructions: &self.instructions,
            fd: self.fd.as_raw_fd(),
        }
    }
}

impl LoadedObject {
    /// One without programs and maps yet.
    pub(crate) fn empty() -> Self {
        LoadedObject {
            programs: Vec::new(),
            maps: Vec::new(),
            grows: true,
        }
    }

    /// Returns whether more programs may come.
    pub(crate) fn grows(&self) -> bool {
        self.grows
    }

    pub(crate) fn add_map(&mut self, map: LoadedMap) {
        self.maps.push(map);
    }

    pub(crate) fn add_program(&mut self, program: LoadedProgram) {
        self.programs.push(program);
    }

    /// Loads an object file.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let bytes = fs::read(path).map_err(|source| Error::Open {
            object: name.clone(),
            source: source.into(),
            messages: String::new(),
        })?;
        LoadedObject::from_bytes(&name, &bytes, &Choice::default())
    }

    /// Loads an object from memory; `name` stands in messages.
    pub fn from_bytes(name: &str, bytes: &[u8], choice: &Choice<'_>) -> Result<Self> {
        check_constants(name, bytes, choice)?;
        let object = open_object(name, bytes, |object| choose(object, bytes, choice))?;
        arena::check(&object, bytes)?;
        let object = load_object(name, object)?;
        read(&object).map_err(|source| Error::Load {
            object: name.to_owned(),
            source: source.into(),
            messages: String::new(),
        })
    }

    /// Returns the programs, in the order of the object.
    pub fn programs(&self) -> &[LoadedProgram] {
        &self.programs
    }

    /// Returns the maps, in the order of the object.
    pub fn maps(&self) -> &[LoadedMap] {
        &self.maps
    }

    /// The map that instructions mean by a file descriptor.
    pub fn map(&self, fd: i32) -> Option<&LoadedMap> {
        self.maps.iter().find(|map| map.number() == fd)
    }
}

/// Opens an object from memory; `name` stands in messages. `choose` decides what of it will be loaded.
pub fn open_object(
    name: &str,
    bytes: &[u8],
    choose: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<OpenObject> {
    let open = || {
        let mut object = ObjectBuilder::default().open_memory(bytes)?;
        choose(&mut object)?;
        Ok(object)
    };
    let (opened, messages) = messages::collect(open);
    opened.map_err(|source| Error::Open {
        object: name.to_owned(),
        source,
        messages,
    })
}

/// With all arrays mappable: user space writes them where the kernel has them.
fn choose(object: &mut OpenObject, bytes: &[u8], choice: &Choice<'_>) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        if map.map_type() == MapType::Array {
            let flags = map.map_flags() | BPF_F_MMAPABLE;
            map.set_map_flags(flags)?;
        }
        if map.map_type() == MapType::Arena {
            arena::set_address(&mut map)?;
        }
        set_constants(&mut map, bytes, choice)?;
    }
    keep_private(object);
    let slots = programs_in_slots(bytes)?;
    for mut program in object.progs_mut() {
        program.set_autoattach(false);
        if !choice.programs.is_empty() {
            let mut chosen = choice
                .programs
                .iter()
                .copied()
                .chain(slots.iter().map(String::as_str));
            let is_chosen = chosen.any(|name| program.name() == name);
            program.set_autoload(is_chosen);
        }
    }
    Ok(())
}

/// Forgets where maps are pinned: none is shared with others, or left behind.
pub fn forget_pins(object: &mut OpenObject) {
    for map in object.maps_mut() {
        // SAFETY: the map lives as long as the object, which is borrowed, and null makes libbpf not pin the map.
        unsafe {
            libbpf_sys::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), ptr::null());
        }
    }
}

/// The programs that the object's source puts into arrays of programs: libbpf needs all of them.
pub fn programs_in_slots(bytes: &[u8]) -> libbpf_rs::Result<Vec<String>> {
    let file = object::File::parse(bytes).map_err(io::Error::other)?;
    let maps = file.section_by_name(".maps");
    let functions = maps.iter().flat_map(|maps| functions_in(&file, maps));
    Ok(functions.map(|(_, name)| name).collect())
}

/// A program of an object that the object's source puts into a struct for the kernel (struct_ops).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructSlot {
    /// Name of the program.
    pub program: String,
    /// ELF section of the struct.
    pub section: String,
    /// Place in the section, in bytes.
    pub offset: usize,
}

/// The programs that the object's source puts into structs for the kernel, in the order of their places.
pub fn struct_slots(bytes: &[u8]) -> libbpf_rs::Result<Vec<StructSlot>> {
    let file = object::File::parse(bytes).map_err(io::Error::other)?;
    let mut slots = Vec::new();
    for section in file.sections() {
        let name = section.name().unwrap_or_default();
        if name.trim_start_matches('?').starts_with(".struct_ops") {
            let functions = functions_in(&file, &section);
            slots.extend(functions.map(|(offset, program)| StructSlot {
                program,
                section: name.to_owned(),
                offset: offset as usize,
            }));
        }
    }
    slots.sort_by_key(|slot| slot.offset);
    Ok(slots)
}

/// Places of a section that hold functions, and the names of these.
fn functions_in<'a>(
    file: &'a object::File<'a>,
    section: &object::Section<'a, 'a>,
) -> impl Iterator<Item = (u64, String)> {
    section.relocations().filter_map(|(offset, relocation)| {
        let object::RelocationTarget::Symbol(index) = relocation.target() else {
            return None;
        };
        let symbol = file.symbol_by_index(index).ok()?;
        let is_function = symbol.kind() == object::SymbolKind::Text;
        let name = symbol.name().ok().filter(|_| is_function)?;
        Some((offset, name.to_owned()))
    })
}

/// Prevents new pins of maps: a pin would stay when all else is gone. Maps that are pinned already are shared, as the
/// object's own loader would do.
pub fn keep_private(object: &mut OpenObject) {
    for map in object.maps_mut() {
        let map = map.as_libbpf_object().as_ptr();
        // SAFETY: the map lives as long as the object, which is borrowed; its path is null or a string that it owns,
        // read before it is replaced; and null makes libbpf not pin the map.
        unsafe {
            let path = libbpf_sys::bpf_map__pin_path(map);
            if !path.is_null() {
                let path = OsStr::from_bytes(CStr::from_ptr(path).to_bytes());
                if !Path::new(path).exists() {
                    libbpf_sys::bpf_map__set_pin_path(map, ptr::null());
                }
            }
        }
    }
}

/// An error where a constant is no variable of the object, or of another size. Bytes that are no object are left to libbpf.
fn check_constants(name: &str, bytes: &[u8], choice: &Choice<'_>) -> Result<()> {
    let Ok(file) = object::File::parse(bytes) else {
        return Ok(());
    };
    for (constant, value) in choice.constants {
        let mut symbols = file.symbols().filter(|one| one.name() == Ok(constant));
        let symbol = symbols.find(|one| one.kind() == object::SymbolKind::Data);
        let reason = match symbol.map(|one| one.size()) {
            None => format!("there is no constant {constant}"),
            Some(size) if size != value.len() as u64 => {
                let given = value.len();
                format!("the constant {constant} has {size} bytes, not {given}")
            }
            Some(_) => continue,
        };
        return Err(Error::Constant {
            object: name.to_owned(),
            reason,
        });
    }
    Ok(())
}

/// Writes the constants that are of a section's map. A symbol's value is its place in the section.
fn set_constants(
    map: &mut OpenMapMut<'_>,
    bytes: &[u8],
    choice: &Choice<'_>,
) -> libbpf_rs::Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    let Some((_, section)) = name
        .split_once('.')
        .filter(|_| !choice.constants.is_empty())
    else {
        return Ok(());
    };
    let file = object::File::parse(bytes).map_err(io::Error::other)?;
    let Some(values) = map.initial_value_mut() else {
        return Ok(());
    };
    for symbol in file.symbols() {
        let constant = choice
            .constants
            .iter()
            .find(|(name, _)| symbol.name() == Ok(name));
        let index = symbol.section_index();
        let in_section = index.and_then(|index| file.section_by_index(index).ok());
        let is_here = in_section.is_some_and(|one| one.name().ok() == Some(&format!(".{section}")));
        if let (Some((_, value)), true) = (constant, is_here) {
            values[symbol.address() as usize..][..value.len()].copy_from_slice(value);
        }
    }
    Ok(())
}

/// Has the kernel load an object. If the verifier rejects a program, the error has the part of its log that says why.
pub fn load_object(name: &str, mut object: OpenObject) -> Result<libbpf_rs::Object> {
    let mut logs: Vec<(String, Vec<u8>)> = Vec::new();
    for program in object.progs_mut().filter(|program| program.autoload()) {
        // Empty, and not filled with zeros: a megabyte of them for each program takes longer than the verifier.
        let mut log = Vec::with_capacity(LOG_BYTES);
        log.push(0);
        // SAFETY: the buffer is as long as it says, and its memory stays in place until the object is loaded: `logs`
        // only moves the vector that owns it.
        unsafe {
            libbpf_sys::bpf_program__set_log_buf(
                program.as_libbpf_object().as_ptr(),
                log.as_mut_ptr().cast(),
                log.capacity() as u64,
            );
        }
        logs.push((program.name().to_string_lossy().into_owned(), log));
    }
    // Only if a program writes lines: looking at the switch takes a file system.
    let writes = |program: libbpf_rs::OpenProgram<'_>| {
        let instructions = program.insns().iter();
        instructions
            .map(Instruction::from)
            .any(|one| one.writes_line())
    };
    let writes = object.progs().filter(|one| one.autoload()).any(writes);
    let load = || messages::collect(|| object.load());
    let (loaded, text) = if writes { load_quietly(load) } else { load() };
    loaded.map_err(|source| {
        let log = |(program, log): &(String, Vec<u8>)| {
            // SAFETY: the first byte is zero, or the kernel wrote a text here that ends with a zero within the capacity.
            let log = unsafe { CStr::from_ptr(log.as_ptr().cast()) }.to_string_lossy();
            (!log.is_empty()).then(|| Error::Rejected {
                object: name.to_owned(),
                program: program.clone(),
                log: verifier_log::shorten(&log),
            })
        };
        logs.iter().find_map(log).unwrap_or_else(|| Error::Load {
            object: name.to_owned(),
            source,
            messages: text,
        })
    })
}

/// Returns what is loaded, with file descriptors of its own: at the numbers that the instructions have, until `object` goes.
fn read(object: &libbpf_rs::Object) -> std::io::Result<LoadedObject> {
    let mut numbers = Vec::new();
    let mut maps = Vec::new();
    for map in object.maps() {
        // Maps that only other kernels need are not made.
        if !map.autocreate() {
            continue;
        }
        let fd = map.as_fd().try_clone_to_owned()?;
        numbers.push((map.as_fd().as_raw_fd(), fd.as_raw_fd()));
        // The kernel cuts names at 15 bytes.
        let name = map.name().to_string_lossy().into_owned();
        maps.push(LoadedMap::from_fd(fd)?.with_name(name));
    }
    let constants = |fd: i32| maps.iter().find(|map| map.number() == fd)?.constants();
    let mut programs = Vec::new();
    for program in object.progs_mut() {
        if !program.autoload() {
            continue;
        }
        let instructions = program.insns().iter().map(Instruction::from);
        let instructions: Vec<_> = instructions.map(|one| one.with_map(&numbers)).collect();
        programs.push(LoadedProgram {
            name: program.name().to_string_lossy().into_owned(),
            section: program.section().to_string_lossy().into_owned(),
            instructions: without_dead_code(&instructions, &constants),
            fd: program.as_fd().try_clone_to_owned()?,
        });
    }
    Ok(LoadedObject {
        programs,
        maps,
        grows: false,
    })
}
