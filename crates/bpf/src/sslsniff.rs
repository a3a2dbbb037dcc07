//! A TLS sniffer: the complete plain text that processes pass to OpenSSL and get from it. The programs are in
//! `bpf/sslsniff.bpf.c`.

use std::path::Path;

use libbpf_rs::{
    ErrorKind, Link, ProgramAttachType, ProgramMut, RingBuffer, UprobeMultiOpts, UprobeOpts,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use crate::{
    Feature,
    error::{Result, failed, map_failed},
    links, maps,
    object::OwnedSkeleton,
    plain,
    skel::sslsniff::{SslsniffSkel, SslsniffSkelBuilder, types},
};

/// What is taken of calls.
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
    /// The process.
    pub process: u32,
    /// The connection, by a number that the process has for one at a time.
    pub connection: u64,
    /// Where it begins in what the call moved, in bytes.
    pub offset: u64,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// What was counted in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SslCounts {
    /// Runs of a program: two a call.
    pub hits: u64,
    /// What was read.
    pub read: DirectionCounts,
    /// What was written.
    pub written: DirectionCounts,
}

/// What was counted in one direction.
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
    /// What was added since those before.
    pub fn since(self, before: Self) -> Self {
        let since = |now: DirectionCounts, before: DirectionCounts| DirectionCounts {
            calls: now.calls - before.calls,
            bytes: now.bytes - before.bytes,
            lost: now.lost - before.lost,
        };
        SslCounts {
            hits: self.hits - before.hits,
            read: since(self.read, before.read),
            written: since(self.written, before.written),
        }
    }
}

/// Loaded programs. Dropping them detaches them.
pub struct Sniffer {
    /// Dropped first, and what they feed after them.
    links: Vec<Link>,
    /// Whether they go by `uprobe.multi`.
    multi: bool,
    ring: RingBuffer<'static>,
    skeleton: OwnedSkeleton<SslsniffSkel<'static>>,
}

/// What every version of OpenSSL has, and what came with 1.1.1.
const READ: &str = "SSL_read";
const WRITE: &str = "SSL_write";
const READ_EX: &str = "SSL_read_ex";
const WRITE_EX: &str = "SSL_write_ex";

impl Sniffer {
    /// Loads the programs; `take` is given every record, in [`Sniffer::take`].
    pub fn load(capture: Capture, mut take: impl FnMut(SslPayload<'_>) + 'static) -> Result<Self> {
        let multi = Feature::UprobeMulti.missing()?.is_none();
        let skeleton = OwnedSkeleton::new("sslsniff", |storage| {
            let mut open = SslsniffSkelBuilder::default().open(storage)?;
            if let Some(chosen) = open.maps.rodata_data.as_deref_mut() {
                chosen.counts_only = u32::from(capture == Capture::Nothing);
            }
            if multi {
                for mut program in open.open_object_mut().progs_mut() {
                    program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
                }
            }
            open.load()
        })?;
        let ring = maps::ring(&skeleton.maps.records, "records", move |bytes| {
            if let Some(record) = record(bytes) {
                take(record);
            }
        })?;
        Ok(Sniffer {
            links: Vec::new(),
            multi,
            ring,
            skeleton,
        })
    }

    /// Attaches them to a library, or a program that contains it, for one process. `false`: it has no
    /// `SSL_read` or no `SSL_write` that can be found.
    pub fn attach(&mut self, process: u32, library: &Path) -> Result<bool> {
        let programs = &self.skeleton.progs;
        let at = |program: &ProgramMut<'_>, returns: bool, functions: &[&str]| {
            let link =
                |function: &&str| link(program, self.multi, returns, process, library, function);
            let links: libbpf_rs::Result<Vec<Link>> = functions.iter().map(link).collect();
            match links {
                Ok(links) => Ok(Some(links)),
                // So it says of a file that is not there, too.
                Err(error) if error.kind() == ErrorKind::NotFound && library.exists() => Ok(None),
                Err(source) => {
                    let what = format!("{} of {}", functions.join(", "), library.display());
                    Err(failed(what, "attaching a uprobe")(source))
                }
            }
        };
        let Some(mut links) = at(&programs.sslsniff_enter, false, &[READ, WRITE])? else {
            return Ok(false);
        };
        let (mut reads, mut writes) = (vec![READ], vec![WRITE]);
        if let Some(newer) = at(&programs.sslsniff_enter_ex, false, &[READ_EX, WRITE_EX])? {
            links.extend(newer);
            reads.push(READ_EX);
            writes.push(WRITE_EX);
        }
        links.extend(
            at(&programs.sslsniff_read, true, &reads)?
                .into_iter()
                .flatten(),
        );
        links.extend(
            at(&programs.sslsniff_written, true, &writes)?
                .into_iter()
                .flatten(),
        );
        self.links.append(&mut links);
        Ok(true)
    }

    /// Detaches them from everything.
    pub fn detach(&mut self) {
        links::close(&mut self.links);
    }

    /// Takes the records that are there. They come without waking anybody.
    pub fn take(&self) -> Result<()> {
        self.ring
            .consume()
            .map_err(map_failed("records", "reading the ring buffer"))
    }

    /// What was counted since they were loaded.
    pub fn counts(&self) -> Result<SslCounts> {
        let mut all = SslCounts::default();
        for one in maps::of_cpus(&self.skeleton.maps.counts, "counts")? {
            let Some(one) = plain::read::<types::sslsniff_counts>(&one) else {
                continue;
            };
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

/// One link. Those of `uprobe.multi` are let go side by side; others wait for each other.
fn link(
    program: &ProgramMut<'_>,
    multi: bool,
    returns: bool,
    process: u32,
    library: &Path,
    function: &str,
) -> libbpf_rs::Result<Link> {
    let process = process.cast_signed();
    if multi {
        let options = UprobeMultiOpts {
            retprobe: returns,
            ..Default::default()
        };
        // By a pattern, which its name is too: by names, libbpf 1.7 finds none in a stripped library.
        return program.attach_uprobe_multi_with_opts(process, library, function, options);
    }
    let options = UprobeOpts {
        retprobe: returns,
        func_name: Some(function.to_owned()),
        ..Default::default()
    };
    program.attach_uprobe_with_opts(process, library, 0, options)
}

/// A record as it lies in the ring buffer; behind its payload there may be room that is not used.
fn record(bytes: &[u8]) -> Option<SslPayload<'_>> {
    let head = plain::read::<types::sslsniff_head>(bytes)?;
    let (_, rest) = bytes.split_at_checked(size_of::<types::sslsniff_head>())?;
    Some(SslPayload {
        direction: match head.written {
            0 => Direction::Read,
            _ => Direction::Written,
        },
        process: head.process,
        connection: head.connection,
        offset: head.offset,
        payload: rest.get(..head.length as usize)?,
    })
}
