//! Takes the stack of one event again and again, by the kernel's helpers or by `unwind.bpf.h`, in the timed loop of
//! `timing.bpf.h`. `bpf/stack.bpf.c` says what the number includes.

mod records;
mod taker;

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    rc::Rc,
};

pub use records::{ReadStacks, StackPrint};
pub use taker::{Delivery, StackTaker};

use self::{records::StackRecords, taker::Walk};

use crate::{
    attach::{AttachMethod, MethodAttachment, Toolbox},
    cpu::CpuPin,
    error::{Error, Result, failed},
    feature::Feature,
    timed::{MapOverrides, OpenObject, TimedObject},
    timing::{Loop, Observation, Request},
    unwind::{RuleTable, UnwindLosses, Unwinder},
};

/// The longest stack that is taken: what the kernel's helper takes by default.
pub const WHOLE: u32 = 127;

/// The function, and the tracepoint within it, where the event is.
const FUNCTION: &str = "tcp_rcv_established";
const TRACEPOINT: &str = "tcp:tcp_probe";

/// Most tries to make the event happen in the thread that makes it: a busy machine may leave it to another.
const TRIES: u32 = 200;

/// Ways to attach, with the end of their programs' names.
pub const METHODS: [(AttachMethod, &str); 4] = [
    (AttachMethod::RawTp, "raw_tp"),
    (AttachMethod::TpBtf, "tp_btf"),
    (AttachMethod::Kprobe, "kprobe"),
    (AttachMethod::Fentry, "fentry"),
];

/// A taker of stacks, attached in some way.
pub type StackProgram = (StackTaker, AttachMethod);

/// A batch of stacks.
#[derive(Clone, Debug)]
pub struct StackBatch {
    /// Timing of the batch.
    pub seen: Observation,
    /// The addresses that the last body took, the innermost first; those of generated code left out.
    pub addresses: Vec<u64>,
    /// All addresses that it took.
    pub depth: usize,
    /// Stacks that were counted, where it counts.
    pub counted: Option<u64>,
    /// Records that were read from the ring buffer, where the taker writes some.
    pub read: Option<ReadStacks>,
    /// Helpers that failed, and records without room.
    pub failures: u64,
    /// Walks of this batch that did not go as they should.
    pub losses: UnwindLosses,
}

/// The programs, loaded. One is attached at a time.
pub struct StackPrograms {
    held: Option<(StackProgram, MethodAttachment)>,
    tools: Toolbox,
    object: TimedObject,
    unwinder: Rc<Unwinder>,
    records: StackRecords,
    rules: RuleTable,
    connection: Connection,
    cpu: u32,
    _pinned: CpuPin,
}

impl StackPrograms {
    /// Returns the features that the kernel must have.
    pub fn needs(method: AttachMethod) -> Vec<Feature> {
        let further = [
            Feature::Btf,
            Feature::SyscallProgram,
            Feature::BpfLoop,
            Feature::StackMap,
            Feature::RingBuffer,
            Feature::MmapableArray,
        ];
        [&method.needs(), &further[..]].concat()
    }

    /// Loads programs, whose events will be on that CPU. `print` is called with the addresses of each stack that is to be
    /// printed.
    ///
    /// # Errors
    ///
    /// Where the kernel rejects one.
    pub fn load(
        programs: &[StackProgram],
        rules: RuleTable,
        looping: Loop,
        cpu: u32,
        print: StackPrint,
    ) -> Result<Self> {
        let pinned = CpuPin::to(cpu)?;
        let mut open = OpenObject::open("stack", looping)?;
        open.with("note_thread")?;
        for &program in programs {
            open.time(&name(program)?)?;
        }
        for map in ["stack_ids", "id_counts", "records"] {
            open.map(map, MapOverrides::default())?;
        }
        open.unwind(&rules)?;
        let mut object = open.load()?;
        let unwinder = Rc::new(object.unwinder(&rules)?);
        let records =
            StackRecords::new(&object.map("records")?, Rc::clone(&unwinder), print, &rules)?;
        object.run("note_thread", cpu, &[])?;
        Ok(StackPrograms {
            held: None,
            tools: Toolbox::default(),
            records,
            unwinder,
            object,
            rules,
            connection: Connection::open()?,
            cpu,
            _pinned: pinned,
        })
    }

    /// Attaches a program, and no other.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses.
    pub fn attach(&mut self, program: StackProgram) -> Result<()> {
        if self.held.as_ref().is_some_and(|(one, _)| *one == program) {
            return Ok(());
        }
        self.held = None;
        let (_, method) = program;
        let event = if method.takes_tracepoints() {
            TRACEPOINT
        } else {
            FUNCTION
        };
        let loaded = self.object.timed_program(&name(program)?)?;
        let held = MethodAttachment::attach(method, &loaded, event, &mut self.tools)?;
        self.held = Some((program, held));
        Ok(())
    }

    /// Has the attached program take so many stacks of one event.
    ///
    /// # Errors
    ///
    /// Where nothing is attached, or the event does not come in this thread.
    pub fn batch(&mut self, depth: u32, ops: u64, after_tick: bool) -> Result<StackBatch> {
        let Some(((taker, _), _)) = &self.held else {
            return Err(Error::NotLoaded("a program that takes stacks".to_owned()));
        };
        let taker = *taker;
        let counts_before = self.counts(taker)?;
        let losses_before = self.unwinder.losses();
        for (variable, value) in [("depth", depth.into()), ("failures", 0), ("last", 0)] {
            self.object.set_variable(variable, value)?;
        }
        let request = Request {
            ops,
            resets: 1,
            cpus: &[self.cpu],
            after_tick,
        };
        let fired = self.object.variable("fired")?;
        let mut tries = 0;
        let seen = loop {
            self.object.set_variable("armed", 1)?;
            let connection = &mut self.connection;
            let seen = self.object.batch_by(&request, || connection.make_event())?;
            let came = self.object.variable("fired")? > fired;
            self.object.set_variable("armed", 0)?;
            self.connection.drain()?;
            if came {
                break seen;
            }
            tries += 1;
            if tries == TRIES {
                return Err(Error::Refused(format!(
                    "{FUNCTION} was not called in the thread that wrote to a TCP connection, in {TRIES} tries\n  \
                     Another program may receive all packets elsewhere (RPS, a busy softirq thread)"
                )));
            }
        };
        let last = self.object.variable("last")?;
        let read = taker
            .has_records()
            .then(|| {
                let timed_after_tick = after_tick && taker.has_reader();
                self.records.read(taker.delivery(), timed_after_tick)
            })
            .transpose()?;
        let all = match &read {
            Some(read) => read.last.clone(),
            None => self.taken(taker, last)?,
        };
        let counted = self.counts(taker)?.map(|after| {
            let before = counts_before.unwrap_or_default();
            let grown = |(key, count): (u64, u64)| count - before.get(&key).copied().unwrap_or(0);
            after.into_iter().map(grown).sum()
        });
        Ok(StackBatch {
            depth: all.len(),
            addresses: all
                .into_iter()
                .filter(|address| self.rules.covers(*address))
                .collect(),
            counted,
            read,
            failures: self.object.variable("failures")?,
            losses: self.unwinder.losses().since(losses_before),
            seen,
        })
    }

    /// Nodes of the tree that are in use.
    pub fn nodes(&self) -> u64 {
        self.unwinder.nodes_used()
    }

    /// Memory that the kernel accounts for the maps, in bytes.
    pub fn kernel_bytes(&self) -> u64 {
        self.object.kernel_bytes()
    }

    /// Returns the count of each stack, by leaf or number; `None` where stacks are not counted.
    fn counts(&self, taker: StackTaker) -> Result<Option<BTreeMap<u64, u64>>> {
        match taker.walk() {
            Walk::Count => Ok(Some(
                self.unwinder
                    .stacks()
                    .into_iter()
                    .map(|stack| (stack.leaf.into(), stack.count))
                    .collect(),
            )),
            Walk::StackidCount => {
                let entries = self.object.map_entries("id_counts")?.into_iter();
                let words = entries.filter_map(|(key, value)| {
                    let key = u32::from_ne_bytes(key.try_into().ok()?);
                    Some((key.into(), u64::from_ne_bytes(value.try_into().ok()?)))
                });
                Ok(Some(words.collect()))
            }
            _ => Ok(None),
        }
    }

    /// The addresses of the last stack that stayed in the kernel. `last` is what its body returned.
    fn taken(&self, taker: StackTaker, last: u64) -> Result<Vec<u64>> {
        let words = |bytes: &[u8]| -> Vec<u64> {
            let words = bytes.chunks_exact(8);
            words
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
                .collect()
        };
        match taker.walk() {
            Walk::Count => Ok(self.unwinder.addresses(last as u32)),
            Walk::GetStack | Walk::GetTaskStack | Walk::Frames => {
                let taken = words(self.object.bytes("taken")?);
                // The first word is the walk's own depth, and the helper's result that in bytes.
                let depth = match taker.walk() {
                    Walk::Frames => taken.first().map_or(0, |word| *word as u32 as usize),
                    _ => last as usize / 8,
                };
                Ok(taken.into_iter().skip(1).take(depth).collect())
            }
            Walk::Stackid | Walk::StackidCount => {
                let stack = self
                    .object
                    .map_value("stack_ids", &(last as u32).to_ne_bytes())?;
                let words = words(&stack.unwrap_or_default());
                Ok(words.into_iter().take_while(|word| *word != 0).collect())
            }
            Walk::Nothing => Ok(Vec::new()),
        }
    }
}

/// The name of a program, without that of its loop.
fn name((taker, method): StackProgram) -> Result<String> {
    let named = METHODS.iter().find(|(one, _)| *one == method);
    let named = named.filter(|_| taker.runs_in(method));
    named
        .map(|(_, attach)| format!("{}_{attach}", taker.program()))
        .ok_or_else(|| {
            let attach = method.attach();
            Error::Refused(format!(
                "{} is not part of the programs of {attach}",
                taker.name()
            ))
        })
}

/// A TCP connection of this process with itself. The kernel receives what is written to it within the same call.
struct Connection {
    writer: TcpStream,
    reader: TcpStream,
}

impl Connection {
    fn open() -> Result<Self> {
        let failed = || failed("a TCP connection on 127.0.0.1", "opening it");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let writer = TcpStream::connect(address).map_err(failed())?;
        let (reader, _) = listener.accept().map_err(failed())?;
        writer.set_nodelay(true).map_err(failed())?;
        Ok(Connection { writer, reader })
    }

    fn make_event(&mut self) -> Result<()> {
        let written = self.writer.write_all(&[0]);
        written.map_err(failed("a TCP connection on 127.0.0.1", "writing to it"))
    }

    fn drain(&mut self) -> Result<()> {
        let read = self.reader.read_exact(&mut [0]);
        read.map_err(failed("a TCP connection on 127.0.0.1", "reading from it"))
    }
}
