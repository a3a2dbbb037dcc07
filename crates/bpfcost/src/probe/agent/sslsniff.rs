//! `builtin:sslsniff[:user][:breakpoints]`: captures the plain text that the server's processes pass to OpenSSL and get
//! from it, and hashes it. Source: study 004, whose sniffer printed it.
//!
//! It watches only the processes of the server, as `sslsniff -p` does: a client on the same machine uses the same
//! library, and breakpoints would slow it down, which does not happen to a client elsewhere.
//!
//! `breakpoints`: captures nothing and only counts its hits, so that the cost of breakpoints is separated from the
//! work done at them. `user`: the same programs run in the server's processes, without the kernel's trap; then
//! `breakpoints` are jumps.
//!
//! The hash is XXH3. It uses every captured byte and costs some 0.1 ns per byte, so that the measured cost is that
//! of capturing them. A cryptographic hash costs ten times that, in a process that shares CPUs with the client.

mod library;

use std::{cell::RefCell, hash::Hasher as _, rc::Rc, thread::sleep, time::Duration};

use anyhow::{Result, bail};
use bpfcost_bpf::{
    Feature, Space, real_time,
    sslsniff::{Capture, Direction, Sniffer, SslCounts, SslPayload},
};
use twox_hash::XxHash3_64;

use super::{Agent, AgentInfo, EVERY};
use crate::{
    probe::{BuiltIn, WindowCounts},
    process::RunContext,
};

/// Its entry.
pub(in crate::probe) const AGENT: BuiltIn = BuiltIn::agent("sslsniff", needs, open);

/// What has it take nothing.
const BREAKPOINTS: &str = "breakpoints";
/// What has it run in user space.
const USER: &str = "user";

/// The sniffer, and what it has taken.
struct SslSniff {
    sniffer: Sniffer,
    /// What the kernel had counted when it was attached.
    before: SslCounts,
    capture: Capture,
    taken: Rc<RefCell<CaptureCounts>>,
}

/// What was taken since it was attached.
#[derive(Default)]
struct CaptureCounts {
    read: Stream,
    written: Stream,
}

/// All payload in one direction.
#[derive(Default)]
struct Stream {
    bytes: u64,
    hash: XxHash3_64,
}

impl CaptureCounts {
    fn take(&mut self, record: SslPayload<'_>) {
        let stream = match record.direction {
            Direction::Read => &mut self.read,
            Direction::Written => &mut self.written,
        };
        stream.bytes += record.payload.len() as u64;
        stream.hash.write(record.payload);
    }
}

/// What it takes, and where its programs run.
fn form(arguments: &[String]) -> Result<(Capture, Space)> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Ok(match words[..] {
        [] => (Capture::Payload, Space::Kernel),
        [BREAKPOINTS] => (Capture::Nothing, Space::Kernel),
        [USER] => (Capture::Payload, Space::User),
        [USER, BREAKPOINTS] => (Capture::Nothing, Space::User),
        _ => bail!(
            "builtin:sslsniff[:{USER}][:{BREAKPOINTS}] are the only forms; got {}",
            arguments.join(":")
        ),
    })
}

/// What the kernel must have: the sniffer finds a way on each.
fn needs(arguments: &[String]) -> Result<Vec<Feature>> {
    form(arguments).map(|_| Vec::new())
}

/// Loads it.
fn open(arguments: &[String]) -> Result<Box<dyn Agent>> {
    let (capture, space) = form(arguments)?;
    if capture == Capture::Payload {
        real_time();
    }
    let taken = Rc::new(RefCell::new(CaptureCounts::default()));
    let into = Rc::clone(&taken);
    let sniffer = Sniffer::load(capture, space, move |record| {
        into.borrow_mut().take(record);
    })?;
    Ok(Box::new(SslSniff {
        sniffer,
        before: SslCounts::default(),
        capture,
        taken,
    }))
}

impl Agent for SslSniff {
    fn loaded(&self) -> Result<AgentInfo> {
        Ok(AgentInfo {
            idle: self.capture == Capture::Nothing,
            ..AgentInfo::default()
        })
    }

    fn attach(&mut self, context: &RunContext) -> Result<()> {
        *self.taken.borrow_mut() = CaptureCounts::default();
        self.before = self.sniffer.counts()?;
        let attached = library::attach(&mut self.sniffer, &context.pids);
        if attached.is_err() {
            self.sniffer.detach()?;
        }
        attached
    }

    fn consume(&mut self, patience: Duration) -> Result<()> {
        self.sniffer.take()?;
        sleep(patience.min(EVERY));
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        self.sniffer.detach()?;
        self.sniffer.take()?;
        let counted = self.sniffer.counts()?.since(self.before);
        let taken = self.taken.borrow();
        let counts: &[(&str, u64)] = match self.capture {
            Capture::Payload => &[
                ("bytes_read", taken.read.bytes),
                ("bytes_written", taken.written.bytes),
                ("calls_read", counted.read.calls),
                ("calls_written", counted.written.calls),
            ],
            Capture::Nothing => &[],
        };
        Ok(WindowCounts {
            hits: Some(counted.hits),
            lost: counted.read.lost + counted.written.lost + counted.missed,
            counts: counts
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
        })
    }
}
