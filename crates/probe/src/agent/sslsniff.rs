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
    sslsniff::{Capture, Direction, DirectionCounts, Sniffer, SslCounts, SslPayload},
};
use twox_hash::XxHash3_64;

use super::{
    Agent, AgentInfo, READ_INTERVAL,
    watched::{Watched, in_first_namespace},
};
use crate::{BuiltIn, WindowCounts};
use bpfcost_model::{Problem, differs};
use bpfcost_process::RunContext;

/// The entry of `builtin:sslsniff`.
pub(crate) const AGENT: BuiltIn = BuiltIn::agent("sslsniff", needs, open);

/// Argument for breakpoints that take nothing.
const BREAKPOINTS: &str = "breakpoints";
/// Argument for programs in user space.
const USER: &str = "user";

/// The sniffer, and what it has taken.
struct SslSniff {
    sniffer: Sniffer,
    /// Counts in the kernel when it was attached.
    before: SslCounts,
    capture: Capture,
    taken: Rc<RefCell<CaptureCounts>>,
}

/// Payload taken since it was attached.
#[derive(Default)]
struct CaptureCounts {
    watched: Watched,
    read: Stream,
    written: Stream,
}

/// All payload in one direction.
#[derive(Default)]
struct Stream {
    bytes: u64,
    /// Records that a call begins with.
    calls: u64,
    hash: XxHash3_64,
}

impl CaptureCounts {
    fn take(&mut self, record: SslPayload<'_>) {
        self.watched.see(record.process, record.time_ns);
        if record.connection == 0 || record.thread == 0 {
            let got = || format!("{}, {}", record.connection, record.thread);
            self.watched
                .reject("connection and thread", || ("none is 0".to_owned(), got()));
        }
        if record.took_ns == 0 || record.took_ns > record.time_ns {
            let got = || format!("{} ns", record.took_ns);
            self.watched
                .reject("length", || ("more than 0 ns".to_owned(), got()));
        }
        let stream = match record.direction {
            Direction::Read => &mut self.read,
            Direction::Written => &mut self.written,
        };
        stream.calls += u64::from(record.offset == 0);
        stream.bytes += record.payload.len() as u64;
        stream.hash.write(record.payload);
    }
}

/// Contradictions in a window where payload was taken: the programs count what records hold.
fn problem_of(taken: &CaptureCounts, counted: &SslCounts) -> Option<Problem> {
    let of = |name: &str, stream: &Stream, counted: &DirectionCounts| {
        let bytes = differs(
            &format!("bytes {name}"),
            counted.bytes,
            stream.bytes + counted.lost,
            "records and losses are not what the programs counted",
        );
        let calls = (counted.lost == 0).then(|| {
            differs(
                &format!("calls {name}"),
                counted.calls,
                stream.calls,
                "another number of calls has records than the programs counted",
            )
        });
        bytes.or(calls.flatten())
    };
    let least = 2 * (counted.read.calls + counted.written.calls);
    let hits = (counted.hits < least).then(|| Problem {
        check: "hits".to_owned(),
        expected: format!("at least {least}, two of each call"),
        got: counted.hits.to_string(),
        detail: "a program did not count each of its runs".to_owned(),
    });
    let read = of("read", &taken.read, &counted.read);
    read.or_else(|| of("written", &taken.written, &counted.written))
        .or(hits)
}

/// Parses the arguments: what it takes, and where its programs run.
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

/// Needs no feature of the kernel: the sniffer finds a way on each.
fn needs(arguments: &[String]) -> Result<Vec<Feature>> {
    form(arguments).map(|_| Vec::new())
}

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
        let processes = in_first_namespace()?.then_some(&context.pids[..]);
        self.taken.borrow_mut().watched.begin(processes);
        let attached = library::attach(&mut self.sniffer, &context.pids);
        if attached.is_err() {
            self.sniffer.detach()?;
        }
        attached
    }

    fn consume(&mut self, timeout: Duration) -> Result<()> {
        self.sniffer.take()?;
        sleep(timeout.min(READ_INTERVAL));
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        self.sniffer.detach()?;
        self.sniffer.take()?;
        let counted = self.sniffer.counts()?.since(self.before);
        let mut taken = self.taken.borrow_mut();
        let problem = match self.capture {
            Capture::Payload => taken
                .watched
                .problem()
                .or_else(|| problem_of(&taken, &counted)),
            Capture::Nothing => differs(
                "calls in the map",
                0,
                self.sniffer.under_way()?,
                "programs that only count remembered calls",
            ),
        };
        if let Some(problem) = problem {
            return Err(problem.into());
        }
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

#[cfg(test)]
mod tests {
    use super::{super::watched::monotonic_ns, *};

    const RECORD: SslPayload<'static> = SslPayload {
        direction: Direction::Written,
        time_ns: u64::MAX / 2,
        took_ns: 5,
        process: 7,
        thread: 7,
        connection: 9,
        offset: 0,
        payload: b"four",
    };

    /// Returns the problem found after two records, with the programs' counts changed so.
    fn check(second: SslPayload<'_>, change: impl FnOnce(&mut SslCounts)) -> Option<String> {
        let mut taken = CaptureCounts::default();
        taken.watched.begin(Some(&[7]));
        let mut records = [RECORD, second];
        let now = monotonic_ns();
        for record in &mut records {
            record.time_ns = record.time_ns.min(now);
            taken.take(*record);
        }
        let mut counted = SslCounts {
            hits: 6,
            ..SslCounts::default()
        };
        (counted.written.calls, counted.written.bytes) = (2, 8);
        change(&mut counted);
        let problem = taken.watched.problem();
        let problem = problem.or_else(|| problem_of(&taken, &counted));
        problem.map(|problem| problem.check)
    }

    #[test]
    fn records_and_counts_must_agree() {
        let counts = |change: fn(&mut SslCounts)| check(RECORD, change);
        assert_eq!(counts(|_| ()), None);
        let wrong = |change| counts(change).expect("a problem");
        assert_eq!(wrong(|one| one.hits = 3), "hits");
        assert_eq!(wrong(|one| one.written.bytes = 9), "bytes written");
        assert_eq!(wrong(|one| one.written.lost = 8), "bytes written");
        assert_eq!(wrong(|one| one.written.calls = 1), "calls written");
        let lost = |one: &mut SslCounts| (one.written.bytes, one.written.lost) = (9, 1);
        assert_eq!(check(RECORD, lost), None);
    }

    #[test]
    fn a_record_must_be_of_a_call_of_the_server() {
        let record = |change: fn(&mut SslPayload<'static>)| {
            let mut record = RECORD;
            change(&mut record);
            check(record, |_| ()).expect("a problem")
        };
        assert_eq!(record(|one| one.time_ns = 6), "time of a record");
        assert_eq!(record(|one| one.process = 3), "process of a record");
        assert_eq!(record(|one| one.took_ns = 0), "length of a record");
        let of_whom = "connection and thread of a record";
        assert_eq!(record(|one| one.connection = 0), of_whom);
        assert_eq!(record(|one| one.thread = 0), of_whom);
        assert_eq!(record(|one| one.offset = 4), "calls written");
    }
}
