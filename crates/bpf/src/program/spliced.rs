//! A driver with a person's program in it.

#![allow(unsafe_code)]

use libbpf_rs::{
    AsRawLibbpf as _, MapCore as _, MapFlags, OpenObject, ReferencesType as _,
    btf::types::Func,
    libbpf_sys::{self as sys},
};

use super::{
    code::Code,
    form::LoopForm,
    kind::ProgramKind,
    native::{self, NativeProgram, Oracle},
    raw::RawProgram,
    restore::{self, Change, Restore},
    windows,
};
use crate::{
    error::{Error, Result, failed, lacks},
    run::SharedProgram,
    timed::{self, MapOverrides},
    timing::{Loop, Observation, Request},
};

/// Words of a state (`PROGRAM_STATE_WORDS`).
pub const STATE_WORDS: usize = 12;
/// Room for packets (`PROGRAM_PACKET_BYTES`).
pub(super) const PACKET_BYTES: usize = 16384;
/// The map of packets that take turns, and bytes of a value before the packet's.
const INPUTS: &str = "program_inputs";
const INPUT_HEAD: usize = 8;
/// The function that a program takes the place of.
const TARGET: &str = "program_target";

/// Body of a driver's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Body {
    /// The program.
    Program,
    /// Nothing, with this code: the floor.
    Return(u32),
}

/// Outcome of a batch.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Times of the batch, and the packet that its last run left.
    pub seen: Observation,
    /// Runs that the driver counted.
    pub runs: u64,
    /// Those that returned another code than they should.
    pub wrong: u64,
    /// Code that the last of them returned.
    pub wrong_code: u32,
    /// The packet of that run, where several take turns.
    pub wrong_turn: u32,
    /// Returns to the first packet, where several take turns.
    pub rounds: u64,
    /// Tail calls that the kernel did not make, in a window that had none left.
    pub fallen: u64,
    /// Difference of each word of the context's state from before the batch.
    pub changes: [i64; STATE_WORDS],
    /// The same when the last reset began, of the words that are lengths or places.
    pub undone: [i64; STATE_WORDS],
}

/// A driver that is not loaded yet.
pub(super) struct Driver {
    name: &'static str,
    open: timed::OpenObject,
    types: Types,
}

/// Numbers of types of a driver.
#[derive(Clone, Copy)]
pub(super) struct Types {
    /// That of the function that a program takes the place of.
    pub(super) target: u32,
    /// That of any function that only its own program calls: of a program without types, which need not be true.
    pub(super) part: u32,
}

impl Driver {
    pub(super) fn open(kind: ProgramKind, looping: Loop) -> Result<Self> {
        let (object, name) = kind.driver();
        let mut open = timed::OpenObject::open(object, looping)?;
        open.time(name)?;
        let (target, signature) = {
            let btf = open.btf()?;
            let target = btf.type_by_name::<Func<'_>>(TARGET);
            let target = target.ok_or_else(|| lacks(object, TARGET))?;
            let signature = target.referenced_type().type_id();
            (u32::from(target.type_id()), u32::from(signature))
        };
        // SAFETY: the object is open, and outlives the calls; nothing borrows its types.
        let part = unsafe {
            let types = sys::bpf_object__btf(open.libbpf().as_ptr());
            sys::btf__add_func(
                types,
                c"program_part".as_ptr(),
                sys::BTF_FUNC_STATIC,
                signature.cast_signed(),
            )
        };
        let part = u32::try_from(part);
        let part = part.map_err(|_| Error::Refused(format!("{object}: no type can be added")))?;
        let types = Types { target, part };
        Ok(Driver { name, open, types })
    }

    /// Adds its types to those of an object that is not loaded yet, so that one set has all. Returns by how much their
    /// numbers grew; `None` if the object has no types.
    pub(super) fn join(&self, object: &mut OpenObject) -> libbpf_rs::Result<Option<u32>> {
        let ours = self.open.libbpf().as_ptr();
        // SAFETY: both objects are open and outlive the calls; the types of `object` are borrowed by nothing else.
        let first = unsafe {
            let theirs = sys::bpf_object__btf(object.as_libbpf_object().as_ptr());
            if theirs.is_null() {
                return Ok(None);
            }
            sys::btf__add_btf(theirs, sys::bpf_object__btf(ours))
        };
        match u32::try_from(first) {
            // Numbers begin with 1.
            Ok(first) => Ok(Some(first - 1)),
            Err(_) => Err(libbpf_rs::Error::from_raw_os_error(-first)),
        }
    }
}

/// A loaded driver, with its program. Dropping it frees both.
#[derive(Debug)]
pub struct Spliced {
    object: timed::TimedObject,
    program: SharedProgram,
    /// The most runs of a window; 0 if it is spliced.
    window: u32,
}

impl Spliced {
    /// Loads a driver that undoes so much. With the program, it uses the maps of `native`.
    pub fn load(native: &NativeProgram, body: Body, change: &Change) -> Result<Self> {
        if change.window > 0 {
            let (object, program) = windows::load(native, body, change)?;
            return Ok(Spliced {
                object,
                program,
                window: change.window,
            });
        }
        let looping = Loop::probe()?;
        let Driver {
            name,
            mut open,
            types: numbers,
        } = Driver::open(native.kind, looping)?;
        for (name, value) in change.constants(native.kind) {
            open.set(name, value)?;
        }
        if change.turns > 0 {
            let shape = MapOverrides {
                max_entries: Some(change.turns),
                ..MapOverrides::default()
            };
            open.map(INPUTS, shape)?;
        }
        let object = open.load()?;
        let driver = native::code(&object.timed_program(name)?);
        // SAFETY: the object is loaded and outlives the call.
        let own_types = unsafe { sys::bpf_object__btf_fd(object.libbpf().as_ptr()) };
        let (program, types, shift) = match (body, native.shift) {
            (Body::Return(code), _) => (Code::returning(code), own_types, 0),
            (Body::Program, None) => (native.raw.code.clone(), own_types, 0),
            (Body::Program, Some(shift)) => {
                let types = native.raw.btf.unwrap_or(own_types);
                (native.raw.code.clone(), types, shift)
            }
        };
        let code = driver.with(&program, numbers, shift);
        let code = code.ok_or_else(|| lacks(name, TARGET))?;
        let raw = RawProgram {
            btf: Some(types),
            code,
            ..native.raw.clone()
        };
        let fd = raw.load_explained();
        let fd = fd.map_err(|error| native.rejected(&error))?;
        Ok(Spliced {
            object,
            program: SharedProgram::of_fd(&native.name, fd)
                .taking_context(native.kind.takes_context())
                .beside(native.beside.clone()),
            window: 0,
        })
    }

    /// Gives it the packets that take turns, as many as it was loaded for, and the code that each should return. Batches
    /// begin with the first.
    pub fn take_turns(&mut self, inputs: &[(&[u8], u32)]) -> Result<()> {
        let map = self.object.map(INPUTS)?;
        for (turn, (bytes, code)) in (0u32..).zip(inputs) {
            check_room(bytes)?;
            let mut value = vec![0; INPUT_HEAD + PACKET_BYTES];
            value[..4].copy_from_slice(&(bytes.len() as u32).to_ne_bytes());
            value[4..INPUT_HEAD].copy_from_slice(&code.to_ne_bytes());
            value[INPUT_HEAD..INPUT_HEAD + bytes.len()].copy_from_slice(bytes);
            map.update(&turn.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(failed(INPUTS, "writing a packet"))?;
        }
        Ok(())
    }

    /// Runs a packet in a batch; each run should return `code`. Where packets take turns, both are those of the first.
    pub fn batch(&mut self, request: &Request<'_>, packet: &[u8], code: u32) -> Result<Ran> {
        self.probed_batch(request, packet, code, 1)
    }

    /// The same, with so many more tail calls behind each window.
    fn probed_batch(
        &mut self,
        request: &Request<'_>,
        packet: &[u8],
        code: u32,
        probes: u64,
    ) -> Result<Ran> {
        check_room(packet)?;
        let object = &mut self.object;
        object.set_bytes("program_packet", packet)?;
        object.set_variable("program_length", packet.len() as u64)?;
        object.set_variable("program_code", u64::from(code))?;
        object.set_variable("program_runs", 0)?;
        object.set_variable("program_wrong", 0)?;
        object.set_variable("program_resets", 0)?;
        object.set_variable("program_turn", 0)?;
        object.set_variable("program_rounds", 0)?;
        object.set_variable("program_fallen", 0)?;
        object.set_variable("program_probes", probes)?;
        let seen = if self.window > 0 {
            let window = u64::from(self.window);
            object.windows_of(&self.program, request, packet, window)?
        } else {
            let seen = object.batch_of(&self.program, request, &[packet.to_vec()])?;
            let [seen] = <[Observation; 1]>::try_from(seen)
                .map_err(|_| Error::Refused("a program is run on one CPU at a time".to_owned()))?;
            seen
        };
        let words = |name| -> Result<Vec<u64>> {
            let bytes = object.bytes(name)?;
            let (words, _) = bytes.as_chunks::<8>();
            Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
        };
        let start = words("program_start")?;
        let difference = |words: Vec<u64>| {
            let mut differences = [0; STATE_WORDS];
            for (difference, (word, start)) in differences.iter_mut().zip(words.iter().zip(&start))
            {
                *difference = word.wrapping_sub(*start).cast_signed();
            }
            differences
        };
        Ok(Ran {
            seen,
            runs: object.variable("program_runs")?,
            wrong: object.variable("program_wrong")?,
            wrong_code: object.variable("program_wrong_code")? as u32,
            wrong_turn: object.variable("program_wrong_turn")? as u32,
            rounds: object.variable("program_rounds")?,
            fallen: object.variable("program_fallen")?,
            changes: difference(words("program_left")?),
            undone: difference(words("program_now")?),
        })
    }

    /// Memory of the driver's own maps, in bytes.
    pub fn kernel_bytes(&self) -> u64 {
        self.object.kernel_bytes()
    }
}

/// Refuses a packet that drivers have no room for.
fn check_room(packet: &[u8]) -> Result<()> {
    if packet.len() >= PACKET_BYTES {
        return Err(Error::Refused(format!(
            "a packet has {} bytes, and drivers take less than {PACKET_BYTES}",
            packet.len()
        )));
    }
    Ok(())
}

impl NativeProgram {
    /// Finds what one run changes in a context, by a driver that undoes nothing; returns that run, too.
    pub fn change(
        &self,
        form: LoopForm,
        cpu: u32,
        packet: &[u8],
        oracle: &Oracle,
    ) -> Result<(Ran, Change)> {
        let alone = Change {
            window: u32::from(form == LoopForm::Windows),
            ..Change::NOTHING
        };
        let mut once = Spliced::load(self, Body::Program, &alone)?;
        let request = Request {
            ops: 1,
            resets: 1,
            cpus: &[cpu],
            after_tick: false,
        };
        let ran = once.probed_batch(&request, packet, oracle.code, windows::PROBES)?;
        let window = match form {
            LoopForm::Spliced => 0,
            LoopForm::Windows => windows::runs(self, once.object.variable("program_spare")?)?,
        };
        // The last of those that were tried behind it.
        let ran = Ran { fallen: 0, ..ran };
        let context = match self.kind {
            ProgramKind::Syscall => packet.len() as u64,
            _ => 0,
        };
        let change = Change {
            restore: Restore::new(self.kind, packet, &ran.seen.output, &ran.changes),
            moved: restore::moved(self.kind, &ran.changes),
            context_words: context / 8,
            context_rest: context % 8,
            turns: 0,
            window,
        };
        Ok((ran, change))
    }
}
