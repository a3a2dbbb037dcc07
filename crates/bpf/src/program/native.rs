//! A person's program, loaded as it is: what the verifier did with it, and what it does with a packet.

#![allow(unsafe_code)]

use std::{collections::BTreeSet, ffi::CString, io, os::fd::AsFd as _};

use bpfcost_uprobe::object::{forget_pins, load_object, open_object, programs_in_slots};
use libbpf_rs::{
    AsRawLibbpf as _, Object, ProgramAttachType, ProgramMut, ProgramType,
    libbpf_sys::{self as sys, bpf_insn},
};

use super::{
    code::Code,
    effects,
    figures::Figures,
    file::{ObjectFile, lines, wrong},
    form::LoopForm,
    kind::ProgramKind,
    map_state::MapState,
    pins::PinnedMaps,
    raw::{self, RawError, RawProgram},
    settings::{Settings, layout},
    spliced::Driver,
};
use crate::{
    error::{Result, failed},
    globals::GlobalsLayout,
    mapping,
    run::{self, BesidePacket, SharedProgram, TestRun},
    timing::Loop,
};

/// Runs of a packet, of which the last one counts: the first may find empty maps.
const RUNS: usize = 3;

/// A loaded program, with its object. Dropping it frees both.
#[derive(Debug)]
pub struct NativeProgram {
    pub(super) file: ObjectFile,
    pub(super) name: String,
    pub(super) kind: ProgramKind,
    pub(super) raw: RawProgram,
    /// Offset of the type numbers of drivers: their types follow those of the object. `None` without BTF.
    pub(super) shift: Option<u32>,
    pub(super) program: SharedProgram,
    /// The context of its packets.
    pub(super) beside: BesidePacket,
    figures: Figures,
    /// Layout of the variables; `None` without types.
    layout: Option<GlobalsLayout>,
    /// Object with the maps that all loads of its instructions share.
    pub(super) object: Object,
}

/// Outcome of a program's run on a packet, outside of any loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oracle {
    /// Return code.
    pub code: u32,
    /// The packet that it leaves.
    pub output: Vec<u8>,
    /// The tables to which its first run added entries, and the later ones more.
    pub grew: BTreeSet<String>,
}

impl NativeProgram {
    /// Pins all maps that have names.
    pub fn pin_maps(&self) -> Result<PinnedMaps> {
        PinnedMaps::of_object(&self.object)
    }

    /// Loads one program of an object. One that can't be run in a loop is an error, and so is one with effects outside
    /// of its maps and packets, unless they are allowed.
    pub fn load(file: &ObjectFile, name: &str, settings: &Settings) -> Result<Self> {
        let entry = file.program(name)?;
        let kind = entry.kind.clone().map_err(|words| file.refused(words))?;
        // Before it is loaded: the kernel acts on some of these calls when it loads them.
        if let Some(words) = entry.forbidden(settings) {
            return Err(wrong(file.path(), words));
        }
        let flags = kind.flags(&entry.section);
        let driver = Driver::open(kind, Loop::probe()?)?;
        let opened = open_object(&file.name(), file.bytes(), |object| {
            forget_pins(object);
            let mut slots = programs_in_slots(file.bytes())?;
            slots.extend(settings.slots.iter().map(|slot| slot.program.clone()));
            for mut program in object.progs_mut() {
                let own = program.name();
                let is_chosen = own == name || slots.iter().any(|slot| own == slot.as_str());
                program.set_autoload(is_chosen);
                // Those that it makes tail calls to have its type.
                if is_chosen && program.prog_type() == ProgramType::Unspec {
                    let section = program.section().to_string_lossy().into_owned();
                    program.set_prog_type(kind.program_type());
                    program.set_flags(kind.flags(&section));
                    if kind == ProgramKind::Xdp {
                        program.set_attach_type(ProgramAttachType::Xdp);
                    }
                }
            }
            Ok(())
        });
        let mut opened = opened.map_err(|error| file.unusable(error))?;
        settings.apply(file, &mut opened)?;
        // Before types of the driver are among its own.
        let layout = layout(file, &opened).ok();
        let shift = driver.join(&mut opened);
        let shift = shift.map_err(failed(file.name(), "adding types to it"))?;
        let object = load_object(&file.name(), opened).map_err(|error| file.unusable(error))?;
        settings.fill(file, &object)?;
        let program = object.progs_mut().find(|one| one.name() == name);
        let program = program.ok_or_else(|| file.refused(format!("{name} was not loaded")))?;
        let raw = RawProgram {
            name: short_name(name),
            kind: program.prog_type() as u32,
            attach: program.attach_type() as u32,
            flags,
            target: 0,
            btf: btf_of(&object),
            code: code(&program),
            lines: Vec::new(),
        };
        // What it makes tail calls to is run as well.
        let called = object
            .progs_mut()
            .filter(|_| entry.form == LoopForm::Windows);
        let called = called.filter(|one| one.autoload());
        let called: Vec<(String, Code)> = called
            .map(|one| (one.name().to_string_lossy().into_owned(), code(&one)))
            .chain([(name.to_owned(), raw.code.clone())])
            .collect();
        for (name, code) in &called {
            if let Some(why) = effects::unspliceable_loaded(&code.instructions) {
                return Err(file.refused(format!("{name} can't be run in a loop: {why}")));
            }
            refuse_effects(file, name, settings, &code.instructions)?;
        }
        let beside = settings.context.beside(kind);
        let shared = SharedProgram::new(&program)?
            .taking_context(kind.takes_context())
            .beside(beside.clone());
        let figures = figures(file, name, &raw, &object)?;
        Ok(NativeProgram {
            file: file.clone(),
            name: name.to_owned(),
            kind,
            raw,
            shift,
            program: shared,
            beside,
            figures,
            layout,
            object,
        })
    }

    /// Program type.
    pub fn kind(&self) -> ProgramKind {
        self.kind
    }

    /// Costs beside its time.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Runs a packet a few times; what the program did with it the last time.
    pub fn oracle(&self, cpu: u32, packet: &[u8]) -> Result<Oracle> {
        let mut ran = self.run(cpu, packet)?;
        let first = self.map_state();
        for _ in 1..RUNS {
            ran = self.run(cpu, packet)?;
        }
        Ok(Oracle {
            code: ran.code,
            output: ran.output,
            grew: self.map_state().fuller_than(&first),
        })
    }

    /// Current contents of its maps and variables.
    pub fn map_state(&self) -> MapState {
        MapState::from_object(&self.object, self.layout.as_ref())
    }

    fn run(&self, cpu: u32, packet: &[u8]) -> Result<TestRun> {
        let ran = run::on_cpu(&self.program, cpu, packet);
        ran.map_err(|error| match self.beside.bytes.is_empty() {
            true => error,
            false => self.file.refused(format!(
                "{error}\n  Or the kernel does not take what --context gives, such as an interface that it has not"
            )),
        })
    }

    /// The error where something with its instructions could not be loaded.
    pub(super) fn rejected(&self, error: &RawError) -> crate::Error {
        let log = bpfcost_uprobe::object::shorten_log(&error.log);
        let stack = log.contains("combined stack size");
        let advice = if stack {
            "\n  It leaves the loop around it no stack: of 512 bytes, the loop needs up to 88"
        } else {
            ""
        };
        self.file.refused(format!(
            "the kernel rejected {} in a loop, and takes it alone: {}{}{advice}",
            self.name,
            error.source,
            lines(&log)
        ))
    }
}

/// Refuses instructions with effects outside of maps and packets, unless they are allowed.
fn refuse_effects(
    file: &ObjectFile,
    name: &str,
    settings: &Settings,
    instructions: &[bpf_insn],
) -> Result<()> {
    let forbidden = effects::forbidden(name, &effects::effects(instructions), settings);
    forbidden.map_or(Ok(()), |words| Err(wrong(file.path(), words)))
}

/// The instructions and functions of a loaded program.
pub(super) fn code(program: &ProgramMut<'_>) -> Code {
    let program_ptr = program.as_libbpf_object().as_ptr();
    // SAFETY: a loaded program, which lives as long as its object, and owns the records.
    let functions = unsafe {
        records(
            sys::bpf_program__func_info(program_ptr),
            sys::bpf_program__func_info_cnt(program_ptr),
        )
    };
    Code {
        instructions: program.insns().to_vec(),
        functions,
    }
}

/// Copies of so many records; none where there is no first one.
///
/// # Safety
///
/// `first` is null, or points to `count` records that stay where they are during the call.
pub(super) unsafe fn records<T: Copy>(first: *const T, count: u32) -> Vec<T> {
    if first.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, count as usize) }.to_vec()
}

/// The error where a program was loaded once, and not again as it is.
pub(super) fn taken_once(file: &ObjectFile, name: &str, error: &RawError) -> crate::Error {
    let log = bpfcost_uprobe::object::shorten_log(&error.log);
    file.refused(format!(
        "the kernel took {name} only once: {}{}",
        error.source,
        lines(&log)
    ))
}

/// A program at a hook, as the kernel took it.
pub(crate) fn hook_program(
    program: &ProgramMut<'_>,
    object: &Object,
    is_sleepable: bool,
) -> io::Result<RawProgram> {
    let info = raw::info(&program.as_fd().try_clone_to_owned()?)?;
    let name = program.name().to_string_lossy();
    // SAFETY: a program, which lives as long as its object. (libbpf-rs does not know all types of attachment.)
    let attach =
        unsafe { sys::bpf_program__expected_attach_type(program.as_libbpf_object().as_ptr()) };
    Ok(RawProgram {
        name: short_name(&name),
        kind: program.prog_type() as u32,
        attach,
        // Libbpf adds this one on its own.
        flags: program.flags()
            | if is_sleepable {
                sys::BPF_F_SLEEPABLE
            } else {
                0
            },
        target: info.attach_btf_id,
        btf: btf_of(object),
        code: code(program),
        lines: Vec::new(),
    })
}

/// A name as long as the kernel keeps it.
fn short_name(name: &str) -> CString {
    CString::new(name.chars().take(15).collect::<String>()).unwrap_or_default()
}

/// Descriptor of the object's types.
fn btf_of(object: &Object) -> Option<i32> {
    // SAFETY: the object is loaded, and outlives the call.
    Some(unsafe { sys::bpf_object__btf_fd(object.as_libbpf_object().as_ptr()) })
        .filter(|fd| *fd >= 0)
}

/// Reads the verifier's counts, in a load of its own: libbpf's does not ask for them.
pub(crate) fn figures(
    file: &ObjectFile,
    name: &str,
    raw: &RawProgram,
    object: &Object,
) -> Result<Figures> {
    let (program, log) = raw
        .load(raw::LOG_COUNTS)
        .map_err(|error| taken_once(file, name, &error))?;
    let info = raw::info(&program).map_err(failed(name, "asking for its size"))?;
    let maps = object.maps().filter(|map| map.autocreate());
    Ok(Figures {
        xlated_bytes: u64::from(info.xlated_prog_len),
        jited_bytes: u64::from(info.jited_prog_len),
        map_bytes: maps.map(|map| mapping::memlock(&map)).sum(),
        ..Figures::of_log(&log)
    })
}
