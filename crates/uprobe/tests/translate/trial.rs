//! One program: through the kernel and through a backend, on the same inputs.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use bpfcost_uprobe::translate::{
    ArrayPlace, Backend, Error, HelperTable, Instruction, MapLayout, MapPlace, Program,
    helpers::{self, Blob, Environment},
};

use crate::{
    btf, decode, input,
    kernel::{self, Array},
    machine::Machine,
};

/// Bytes of a program's context.
pub(crate) const CONTEXT_BYTES: usize = 320;
/// Bytes of the one value of the first map.
pub(crate) const VALUE_BYTES: u32 = 256;
/// Bytes of each value of the second map, and their number.
pub(crate) const ENTRY_BYTES: u32 = 40;
pub(crate) const ENTRIES: u32 = 4;

/// Bytes of the constants, whose map is frozen.
pub(crate) const CONSTANT_BYTES: usize = 192;

/// Offset of the values in `struct bpf_array` of 6.18, for the kernel's image.
pub(crate) const VALUES_OFFSET: u64 = 0x138;

/// Report for a run that crashes.
pub(crate) static CURRENT: AtomicU64 = AtomicU64::new(0);

/// The maps that all programs share, and where they run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) value: Array,
    pub(crate) entries: Array,
    handles: [u64; 2],
    /// A map with constants, and their copy here.
    pub(crate) constant_map: OwnedFd,
    pub(crate) constants: Vec<u8>,
    pub(crate) machine: Machine,
    pub(crate) btf: OwnedFd,
    pub(crate) helpers: HelperTable,
}

/// Reason for which a program has no comparison, or a bad one.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The verifier's log.
    Rejected(String),
    /// The kernel's machine code can't be moved.
    NoImage(String),
    /// The translation gave another result.
    Different(String),
}

/// A generated or written program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    pub(crate) instructions: Vec<Instruction>,
    /// The first instruction of each function, the main program's too.
    pub(crate) functions: Vec<usize>,
}

/// One input of a program.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) context: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) entries: Vec<u8>,
}

/// Result of a run of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) result: u32,
    pub(crate) context: Vec<u8>,
    pub(crate) value: Vec<u8>,
    entries: Vec<u8>,
}

impl Output {
    /// The same with another one's context.
    pub(crate) fn with_context(self, other: &Output) -> Self {
        let context = other.context.clone();
        Output { context, ..self }
    }
}

impl Bench {
    pub(crate) fn new() -> io::Result<Self> {
        let mut value = Array::new(VALUE_BYTES, 1)?;
        let mut entries = Array::new(ENTRY_BYTES, ENTRIES)?;
        let mut machine = Machine::new()?;
        let mut handles = [0; 2];
        for (handle, array) in handles.iter_mut().zip([&mut value, &mut entries]) {
            let descriptor = helpers::MapDescriptor::array(place(array));
            *handle = array.put_descriptor(VALUES_OFFSET, &descriptor.to_bytes());
        }
        let constants = input::constants();
        let blob = Blob::at(machine.helpers(), Environment::default());
        machine.put_helpers(&blob.bytes);
        Ok(Bench {
            value,
            entries,
            handles,
            constant_map: kernel::read_only(&constants)?,
            constants,
            machine,
            btf: btf::load()?,
            helpers: blob.helpers,
        })
    }

    /// Runs a program on inputs, both ways.
    pub(crate) fn compare(
        &mut self,
        backend: &dyn Backend,
        subject: &Subject,
        inputs: &[Input],
    ) -> Result<(), Failure> {
        let types = (subject.functions.len() > 1).then_some((&self.btf, &*subject.functions));
        let fd = kernel::load(&subject.instructions, types).map_err(Failure::Rejected)?;
        let program = Program {
            instructions: &subject.instructions,
            fd: fd.as_raw_fd(),
        };
        let at = self.machine.address();
        let code = backend
            .translate(&program, at, &self.helpers, self)
            .map_err(|error| match error {
                Error::KernelImage(why) => Failure::NoImage(why),
                other => Failure::Different(other.to_string()),
            })?;
        if backend.name() == "translator"
            && let Some(why) = decode::program_violation(&code, at)
        {
            return Err(Failure::Different(why));
        }
        self.machine.put(&code.bytes);
        for (index, input) in inputs.iter().enumerate() {
            let expected = self.in_kernel(&fd, input);
            let (output, outcome) = self.in_process(input, index == 0);
            if !outcome.kept_registers {
                return Err(Failure::Different("a register was not kept".to_owned()));
            }
            if outcome.stack_bytes > code.stack_bytes as usize {
                let (used, promised) = (outcome.stack_bytes, code.stack_bytes);
                return Err(Failure::Different(format!(
                    "{used} bytes of stack, not {promised}"
                )));
            }
            if expected != output {
                return Err(Failure::Different(difference(&expected, &output)));
            }
        }
        Ok(())
    }

    fn prepare(&mut self, input: &Input) {
        self.value.bytes().copy_from_slice(&input.value);
        self.entries.bytes().copy_from_slice(&input.entries);
    }

    fn output(&mut self, result: u32, context: Vec<u8>) -> Output {
        Output {
            result,
            context,
            value: self.value.bytes().to_vec(),
            entries: self.entries.bytes().to_vec(),
        }
    }

    pub(crate) fn in_kernel(&mut self, program: &OwnedFd, input: &Input) -> Output {
        self.prepare(input);
        let mut context = input.context.clone();
        let result = kernel::run(program, &mut context).expect("a loaded program can be run");
        self.output(result, context)
    }

    pub(crate) fn in_process(
        &mut self,
        input: &Input,
        measures_stack: bool,
    ) -> (Output, crate::machine::Outcome) {
        self.prepare(input);
        let mut context = input.context.clone();
        let outcome = self.machine.run(&mut context, measures_stack);
        (self.output(outcome.result as u32, context), outcome)
    }
}

impl MapLayout for Bench {
    fn place(&self, fd: i32) -> Result<MapPlace, Error> {
        if fd == self.constant_map.as_raw_fd() {
            return Ok(MapPlace {
                handle: 0,
                array: Some(ArrayPlace {
                    values: self.constants.as_ptr() as u64,
                    value_size: self.constants.len() as u32,
                    entries: 1,
                }),
                arena: None,
            });
        }
        let arrays = [&self.value, &self.entries];
        let index = arrays.iter().position(|array| array.fd() == fd);
        let index = index.ok_or(Error::UnsupportedMap {
            map: fd.to_string(),
            kind: "unknown".to_owned(),
        })?;
        Ok(MapPlace {
            handle: self.handles[index],
            array: Some(place(arrays[index])),
            arena: None,
        })
    }

    fn constants(&self, fd: i32) -> Option<Vec<u8>> {
        (fd == self.constant_map.as_raw_fd()).then(|| self.constants.clone())
    }
}

fn place(array: &Array) -> ArrayPlace {
    ArrayPlace {
        values: array.address(),
        value_size: array.value_size,
        entries: array.entries,
    }
}

pub(crate) fn difference(expected: &Output, output: &Output) -> String {
    let first = |name, left: &[u8], right: &[u8]| {
        let at = left
            .iter()
            .zip(right)
            .position(|(left, right)| left != right)?
            & !7;
        let word =
            |bytes: &[u8]| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Some(format!(
            "{name}+{at}: kernel {:#x}, here {:#x}",
            word(left),
            word(right)
        ))
    };
    let parts = [
        (expected.result != output.result).then(|| {
            format!(
                "result: kernel {:#x}, here {:#x}",
                expected.result, output.result
            )
        }),
        first("context", &expected.context, &output.context),
        first("value", &expected.value, &output.value),
        first("entries", &expected.entries, &output.entries),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Says which program ran where one crashes: the run is over then.
pub(crate) fn report_crashes() {
    extern "C" fn report(_: i32) {
        let seed = CURRENT.load(Ordering::Relaxed);
        let mut text = *b"crash at seed 0x................\n";
        for (index, digit) in text[16..32].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(seed >> (60 - 4 * index)) as usize & 15];
        }
        // SAFETY: both calls may be made in a signal handler.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(139);
        }
    }
    for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGBUS] {
        // SAFETY: the handler only makes calls that a handler may make.
        unsafe { libc::signal(signal, report as *const () as usize) };
    }
}
