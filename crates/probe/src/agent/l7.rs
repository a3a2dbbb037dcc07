//! `builtin:l7:MODE[:FILE]`: an agent that reconstructs the requests of a server, after the Go agent of study 004:
//! method, path, status and latency of each. FILE gets a line of JSON per endpoint each time the agent is switched
//! off. `CallSource` is where it gets the calls of requests from.

mod exchange;
mod flow;
mod golang;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    rc::Rc,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::{
    Feature, Space,
    l7::{L7, L7Counts, L7Watch, ServerFunctions},
    real_time,
};
use serde::Serialize;

use self::exchange::{Endpoint, Exchanges, Latency};
use super::{Agent, READ_INTERVAL, watched::Watched};
use crate::{BuiltIn, WindowCounts};
use bpfcost_model::Problem;
use bpfcost_process::RunContext;

/// The entry of `builtin:l7`.
pub(crate) const AGENT: BuiltIn = BuiltIn::agent("l7:MODE", needs, open);

/// The modes, each with what an agent watches in it.
const MODES: [(&str, L7Watch); 5] = [
    ("kernel", SOCKETS),
    (
        "uprobe",
        L7Watch {
            tls: Some(Space::Kernel),
            ..SOCKETS
        },
    ),
    (
        "goroutine",
        L7Watch {
            tls: Some(Space::Kernel),
            goroutines: true,
            ..SOCKETS
        },
    ),
    (
        "mixed",
        L7Watch {
            tls: Some(Space::User),
            ..SOCKETS
        },
    ),
    (
        "user",
        L7Watch {
            sockets: false,
            tls: Some(Space::User),
            ..SOCKETS
        },
    ),
];

/// System calls alone.
const SOCKETS: L7Watch = L7Watch {
    sockets: true,
    tls: None,
    goroutines: false,
};

struct L7Agent<S> {
    source: S,
    watch: L7Watch,
    exchanges: Rc<RefCell<Exchanges>>,
    watched: Rc<RefCell<Watched>>,
    file: Option<PathBuf>,
}

/// A source of calls: programs in the kernel, or whatever else delivers the same. It is made with what takes them,
/// and hands them over in each of its methods.
trait CallSource {
    /// Attaches to these processes: from here on it sees every call of theirs.
    fn attach(&mut self, processes: &[u32]) -> Result<()>;

    /// Hands over the calls that are there, and waits for more for about so long.
    fn poll(&mut self, timeout: Duration) -> Result<()>;

    /// Detaches, hands over what is left, and returns what was counted since it was attached.
    fn detach(&mut self) -> Result<L7Counts>;
}

struct L7Programs {
    programs: L7,
    watch: L7Watch,
    /// Places of the functions of servers, by process.
    places: HashMap<u32, ServerFunctions>,
}

/// Parses the arguments: what to watch, and the file for what it sees, if any.
fn parse_arguments(arguments: &[String]) -> Result<(L7Watch, Option<PathBuf>)> {
    let (mode, file) = match arguments {
        [mode] => (mode, None),
        [mode, file] => (mode, Some(PathBuf::from(file))),
        _ => bail!("builtin:l7 needs a mode: builtin:l7:MODE or builtin:l7:MODE:FILE"),
    };
    let Some((_, watch)) = MODES.iter().find(|(name, _)| name == mode) else {
        let names = MODES.map(|(name, _)| name).join(", ");
        bail!("builtin:l7 has no mode {mode}\n  Its modes: {names}");
    };
    Ok((*watch, file))
}

/// Kernel features that the mode needs.
fn needs(arguments: &[String]) -> Result<Vec<Feature>> {
    let watch = parse_arguments(arguments)?.0;
    let mut needs = Vec::new();
    if watch.sockets {
        needs.extend([Feature::Tracefs, Feature::Tracepoint, Feature::RingBuffer]);
    }
    if watch.tls.is_some() {
        needs.push(Feature::UprobeMulti);
    }
    Ok(needs)
}

fn open(arguments: &[String]) -> Result<Box<dyn Agent>> {
    let (watch, file) = parse_arguments(arguments)?;
    let exchanges = Rc::new(RefCell::new(Exchanges::default()));
    let watched = Rc::new(RefCell::new(Watched::default()));
    let (taken, seen) = (Rc::clone(&exchanges), Rc::clone(&watched));
    real_time();
    let programs = L7::load(watch, move |call| {
        seen.borrow_mut().see(call.connection.process, call.time_ns);
        taken.borrow_mut().take(call);
    })?;
    Ok(Box::new(L7Agent {
        source: L7Programs {
            programs,
            watch,
            places: HashMap::new(),
        },
        watch,
        exchanges,
        watched,
        file,
    }))
}

impl CallSource for L7Programs {
    fn attach(&mut self, processes: &[u32]) -> Result<()> {
        let mut placed = Vec::new();
        for process in processes {
            placed.push((*process, self.places(*process)?));
        }
        Ok(self.programs.attach(&placed)?)
    }

    fn poll(&mut self, timeout: Duration) -> Result<()> {
        self.programs.take()?;
        sleep(timeout.min(READ_INTERVAL));
        Ok(())
    }

    fn detach(&mut self) -> Result<L7Counts> {
        Ok(self.programs.detach()?)
    }
}

impl<S: CallSource> Agent for L7Agent<S> {
    fn attach(&mut self, context: &RunContext) -> Result<()> {
        if context.pids.is_empty() {
            bail!("builtin:l7 needs a server, and there is none");
        }
        self.exchanges.borrow_mut().tell();
        self.watched.borrow_mut().begin(Some(&context.pids));
        self.source.attach(&context.pids)
    }

    fn consume(&mut self, timeout: Duration) -> Result<()> {
        self.source.poll(timeout)
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        let counts = self.source.detach()?;
        if let Some(problem) = self.watched.borrow_mut().problem() {
            return Err(problem.into());
        }
        let (counted, endpoints) = self.exchanges.borrow_mut().tell();
        if self.watch.goroutines && counted.requests > 0 && counts.switches == 0 {
            return Err(Problem {
                check: "goroutine switches".to_owned(),
                expected: "at least 1".to_owned(),
                got: "0".to_owned(),
                detail: format!("{} requests were read meanwhile", counted.requests),
            }
            .into());
        }
        if let Some(file) = &self.file {
            write(file, &endpoints).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let mut counts_by_name = BTreeMap::from([
            ("opaque".to_owned(), counted.opaque),
            ("truncated".to_owned(), counted.truncated),
            ("requests".to_owned(), counted.requests),
            ("answered".to_owned(), counted.answered),
        ]);
        for (class, count) in counted.statuses.iter().enumerate().skip(1) {
            counts_by_name.insert(format!("status_{class}xx"), *count);
        }
        if self.watch.goroutines {
            counts_by_name.insert("by_one_goroutine".to_owned(), counted.by_one_goroutine);
            counts_by_name.insert("goroutine_switches".to_owned(), counts.switches);
        }
        Ok(WindowCounts {
            hits: Some(counted.calls),
            lost: counts.lost,
            counts: counts_by_name,
        })
    }
}

impl L7Programs {
    /// Finds the functions of a process's program; none where they are not watched.
    fn places(&mut self, process: u32) -> Result<ServerFunctions> {
        if self.watch.tls.is_none() {
            return Ok(ServerFunctions::default());
        }
        if let Some(places) = self.places.get(&process) {
            return Ok(places.clone());
        }
        let places = golang::places(Path::new(&format!("/proc/{process}/exe")))?;
        self.places.insert(process, places.clone());
        Ok(places)
    }
}

/// An endpoint as a line of JSON.
#[derive(Serialize)]
struct EndpointLine<'a> {
    #[serde(flatten)]
    endpoint: &'a Endpoint,
    #[serde(flatten)]
    latency: &'a Latency,
}

fn write(file: &Path, endpoints: &BTreeMap<Endpoint, Latency>) -> Result<()> {
    let mut lines = Vec::new();
    for (endpoint, latency) in endpoints {
        serde_json::to_writer(&mut lines, &EndpointLine { endpoint, latency })?;
        lines.push(b'\n');
    }
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(&lines)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use bpfcost_bpf::l7::{CallKind, ConnectionId, L7Call};

    use super::*;

    /// Calls from nowhere: one comes by each poll, the others at the end.
    struct FakeCalls {
        take: Box<dyn FnMut(&L7Call<'_>)>,
        calls: std::vec::IntoIter<(CallKind, &'static str)>,
        process: u32,
    }

    impl FakeCalls {
        fn next(&mut self) -> bool {
            let Some((act, payload)) = self.calls.next() else {
                return false;
            };
            (self.take)(&L7Call {
                connection: ConnectionId {
                    process: self.process,
                    tls: false,
                    number: 0,
                },
                act,
                time_ns: 0,
                goroutine: None,
                length: payload.len() as u64,
                payload: payload.as_bytes(),
            });
            true
        }
    }

    impl CallSource for FakeCalls {
        fn attach(&mut self, processes: &[u32]) -> Result<()> {
            self.process = processes[0];
            Ok(())
        }

        fn poll(&mut self, _patience: Duration) -> Result<()> {
            self.next();
            Ok(())
        }

        fn detach(&mut self) -> Result<L7Counts> {
            while self.next() {}
            Ok(L7Counts {
                lost: 3,
                switches: 0,
            })
        }
    }

    #[test]
    fn requests_are_the_same_wherever_their_calls_come_from() {
        let calls = vec![
            (CallKind::Read, "GET /a HTTP/1.1\r\n\r\n"),
            (CallKind::Write, "HTTP/1.1 204 No Content\r\n\r\n"),
            (CallKind::Read, "GET /b HTTP/1.1\r\n\r\n"),
            (
                CallKind::Write,
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            ),
        ];
        let exchanges = Rc::new(RefCell::new(Exchanges::default()));
        let taken = Rc::clone(&exchanges);
        let mut agent = L7Agent {
            source: FakeCalls {
                take: Box::new(move |call| taken.borrow_mut().take(call)),
                calls: calls.into_iter(),
                process: 0,
            },
            watch: SOCKETS,
            exchanges,
            watched: Rc::default(),
            file: None,
        };
        let context = RunContext {
            pids: vec![7],
            ..RunContext::default()
        };
        agent.attach(&context).expect("it takes them");
        agent.consume(Duration::ZERO).expect("a call");
        let seen = agent.detach().expect("the others");
        assert_eq!((seen.hits, seen.lost), (Some(4), 3));
        for (name, count) in [
            ("requests", 2),
            ("answered", 2),
            ("status_2xx", 1),
            ("status_4xx", 1),
            ("opaque", 0),
        ] {
            assert_eq!(seen.counts[name], count, "{name}");
        }
    }
}
