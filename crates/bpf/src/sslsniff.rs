//! A TLS sniffer: the complete plain text that processes pass to OpenSSL and get from it. The programs are in
//! `bpf/sslsniff.bpf.c`.

mod library;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use bpfcost_uprobe::{object::Choice, process::Function};
use libbpf_rs::ProgramAttachType;

use crate::{
    Feature, Space,
    agent_programs::{AgentPrograms, KernelPrograms, ProcessPrograms},
    error::Result,
    object::OpenNamed,
    plain, shared,
};

/// The part of calls that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// All that they move.
    Payload,
    /// Nothing: the programs only count their runs.
    Nothing,
}

/// Which way a payload went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The process got it: `SSL_read`.
    Read,
    /// The process sent it: `SSL_write`.
    Written,
}

/// A payload, or the next 16 KiB of one.
#[derive(Clone, Copy, Debug)]
pub struct SslPayload<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// When the call returned (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// Duration of the call.
    pub took_ns: u64,
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The connection, by a number that the process has for one at a time.
    pub connection: u64,
    /// Offset of the payload in what the call moved, in bytes.
    pub offset: u64,
    /// Bytes of the payload.
    pub payload: &'a [u8],
}

/// Counts from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SslCounts {
    /// Runs of a program: two a call.
    pub hits: u64,
    /// Calls that a probe in user space saw but could not run its program for.
    pub missed: u64,
    /// Counts of what was read.
    pub read: DirectionCounts,
    /// Counts of what was written.
    pub written: DirectionCounts,
}

/// Counts in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Calls that moved something.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Bytes of them that are in no record.
    pub lost: u64,
}

impl SslCounts {
    /// Returns what was added since those before.
    pub fn since(self, before: Self) -> Self {
        let since = |now: DirectionCounts, before: DirectionCounts| DirectionCounts {
            calls: now.calls - before.calls,
            bytes: now.bytes - before.bytes,
            lost: now.lost - before.lost,
        };
        SslCounts {
            hits: self.hits - before.hits,
            missed: self.missed - before.missed,
            read: since(self.read, before.read),
            written: since(self.written, before.written),
        }
    }
}

/// Functions that every version of OpenSSL has, and those that came with 1.1.1.
const READ: &str = "SSL_read";
const WRITE: &str = "SSL_write";
const READ_EX: &str = "SSL_read_ex";
const WRITE_EX: &str = "SSL_write_ex";

/// Programs by the functions at whose entry they run, and the kind of functions at whose return.
const ENTER: &str = "sslsniff_enter";
const ENTER_EX: &str = "sslsniff_enter_ex";
const LEAVE_READ: &str = "sslsniff_read";
const LEAVE_WRITE: &str = "sslsniff_written";

const RECORDS: &str = "records";

/// Loaded programs. Dropping them detaches them.
pub struct Sniffer {
    programs: AgentPrograms,
    /// True where they are attached by `uprobe.multi`.
    multi: bool,
    /// The functions of each file of each process: no file is read twice.
    functions: BTreeMap<(u32, PathBuf), Vec<Function>>,
}

impl Sniffer {
    /// Loads the programs; `take` is given every record, in [`Sniffer::take`].
    pub fn load(
        capture: Capture,
        space: Space,
        mut take: impl FnMut(SslPayload<'_>) + 'static,
    ) -> Result<Self> {
        let take = move |bytes: &[u8]| {
            if let Some(record) = record(bytes) {
                take(record);
            }
        };
        let counts_only = u32::from(capture == Capture::Nothing).to_ne_bytes();
        let choice = Choice {
            constants: &[("counts_only", &counts_only)],
            ..Choice::default()
        };
        let multi = space == Space::Kernel && Feature::UprobeMulti.missing()?.is_none();
        let programs = match space {
            Space::Kernel => {
                let mut open = OpenNamed::open("sslsniff")?;
                open.make_choice(&choice)?;
                if multi {
                    for mut program in open.object().progs_mut() {
                        program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
                    }
                }
                AgentPrograms::Kernel(KernelPrograms::load(open, RECORDS, take)?)
            }
            Space::User => {
                let programs = ProcessPrograms::load("sslsniff", &choice, RECORDS, take)?;
                AgentPrograms::Processes(programs)
            }
        };
        Ok(Sniffer {
            programs,
            multi,
            functions: BTreeMap::new(),
        })
    }

    /// Attaches them to a library, or a program that contains it, for one process. `false`: it has no
    /// `SSL_read` or no `SSL_write` that can be found.
    pub fn attach(&mut self, process: u32, library: &Path) -> Result<bool> {
        match &mut self.programs {
            AgentPrograms::Kernel(programs) => {
                library::uprobes(programs, self.multi, process, library)
            }
            AgentPrograms::Processes(programs) => {
                let key = (process, library.to_owned());
                if !self.functions.contains_key(&key) {
                    let functions = library::functions(process, library)?;
                    self.functions.insert(key.clone(), functions);
                }
                match library::places(&self.functions[&key]) {
                    Some(places) => programs.attach(process, &places).map(|()| true),
                    None => Ok(false),
                }
            }
        }
    }

    /// Detaches them from everything.
    pub fn detach(&mut self) -> Result<()> {
        self.programs.detach()
    }

    /// Takes the records that are there. They come without waking anybody.
    pub fn take(&mut self) -> Result<()> {
        self.programs.take()
    }

    /// Calls that began and have not returned, as far as the programs know; none where nothing is captured.
    pub fn under_way(&self) -> Result<usize> {
        self.programs.entries("calls")
    }

    /// Returns the counts since they were loaded.
    pub fn counts(&self) -> Result<SslCounts> {
        let mut all = SslCounts {
            missed: self.programs.missed(),
            ..SslCounts::default()
        };
        for one in self.programs.counts::<shared::sslsniff_counts>("counts")? {
            all.hits += one.hits;
            for (direction, moved) in [&mut all.read, &mut all.written].into_iter().enumerate() {
                moved.calls += one.calls[direction];
                moved.bytes += one.bytes[direction];
                moved.lost += one.lost[direction];
            }
        }
        Ok(all)
    }
}

/// A record as it lies in the ring buffer; behind its payload there may be room that is not used.
fn record(bytes: &[u8]) -> Option<SslPayload<'_>> {
    let head = plain::read::<shared::sslsniff_head>(bytes)?;
    let (_, rest) = bytes.split_at_checked(size_of::<shared::sslsniff_head>())?;
    Some(SslPayload {
        direction: match head.written {
            0 => Direction::Read,
            _ => Direction::Written,
        },
        time_ns: head.time_ns,
        took_ns: head.took_ns,
        process: head.process,
        thread: head.thread,
        connection: head.connection,
        offset: head.offset,
        payload: rest.get(..head.length as usize)?,
    })
}
