//! The server of a workload: starts it, waits until it is ready, and ends it when dropped.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result};
use procfs::{
    net::{TcpNetEntry, TcpState},
    process::{self, FDTarget},
};
use regex::bytes::Regex;
use thiserror::Error as ThisError;

use super::{Error, ServerSpec};
use bpfcost_process::{
    Capture, Process, ProcessClock, RunContext, Search, describe_exit, holds, process_name,
};

/// How often a server is asked whether it is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What servers print whose port is taken, where that can't be seen from outside.
const IN_USE: &str = "address already in use";

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    process: Process,
    program: String,
    /// Where it must listen.
    port: Option<u16>,
    /// Whether it must have printed something.
    must_print: bool,
    within: Duration,
}

/// Another process has the port.
#[derive(Debug, ThisError)]
#[error("{source}")]
pub(super) struct PortTaken {
    /// That port.
    pub(super) port: u16,
    source: Error,
}

/// A port of 127.0.0.1 that is free at the moment.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

impl Server {
    /// Starts it and waits until it is ready.
    pub fn start(spec: &ServerSpec, context: &RunContext) -> Result<Self> {
        let command = context.command(&spec.command)?;
        let env: Vec<(String, String)> = spec
            .env
            .iter()
            .map(|(name, value)| Ok((name.clone(), context.fill(value)?)))
            .collect::<Result<_>>()?;
        let ready = spec.ready.as_ref();
        let port = match ready.and_then(|ready| ready.tcp.as_deref()) {
            Some(port) => Some(port_of(&context.fill(port)?)?),
            None => None,
        };
        let output = ready.and_then(|ready| ready.output.as_deref());
        let output = output.map(pattern).transpose()?;
        let capture = Capture {
            search: output.map(Search::Match),
            ..Capture::default()
        };
        let mut server = Server {
            port,
            must_print: capture.search.is_some(),
            within: Duration::try_from_secs_f64(ready.map_or(0.0, |ready| ready.within_s))?,
            process: Process::start_captured(&command, &context.server_cpus, &env, capture)?,
            program: command.join(" "),
        };
        match server.ready() {
            Ok(()) => Ok(server),
            Err(error) if !error.is::<PortTaken>() && server.finds_port_taken() => {
                let printed = server.process.tail();
                let port = port.unwrap_or(context.port);
                Err(server.taken(port, "another process", &format!("\n{printed}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until it takes load: at its start, and before each window, for some close their port meanwhile.
    /// That is checked without connecting.
    pub fn ready(&mut self) -> Result<()> {
        let clock = ProcessClock::start(self.process.id());
        loop {
            self.alive()?;
            let listens = match self.port {
                Some(port) => self.listens(port)?,
                None => true,
            };
            let printed = !self.must_print || self.process.found() > 0;
            if listens && printed {
                return Ok(());
            }
            if clock.exceeds(self.process.id(), self.within) {
                let lacks = match (listens, self.port) {
                    (false, Some(port)) => format!("it does not listen on port {port}"),
                    _ => "its output does not match ready.output".to_owned(),
                };
                return Err(Error::Server(format!(
                    "the server {} is not ready after {} s: {lacks}\n{}",
                    self.program,
                    self.within.as_secs_f64(),
                    self.process.tail()
                ))
                .into());
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Whether it says so itself.
    fn finds_port_taken(&self) -> bool {
        let printed = self.process.printed();
        printed.to_lowercase().contains(IN_USE)
    }

    /// Fails where it has ended, with the last of what it said.
    pub fn alive(&mut self) -> Result<(), Error> {
        let ended = self.process.ended();
        match ended.map_err(|error| Error::Server(format!("{error:#}")))? {
            None => Ok(()),
            Some(status) => Err(Error::Server(format!(
                "the server {} {}\n{}",
                self.program,
                describe_exit(status),
                self.process.tail()
            ))),
        }
    }

    /// The address that it listens on at its port; `None` without such a port, or while it does not listen.
    pub fn address(&self) -> Option<IpAddr> {
        Some(listener(self.process.id(), self.port?)?.local_address.ip())
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.process.pids()
    }

    /// CPU time of all its processes ever, in nanoseconds, where its control group reports it.
    pub fn cpu_ns(&self) -> Option<f64> {
        self.process.cpu_ns()
    }

    /// Whether it listens on this port; an error if another process does.
    fn listens(&self, port: u16) -> Result<bool> {
        let socket = || Some(listener(self.process.id(), port)?.inode);
        let Some(listens) = socket() else {
            return Ok(false);
        };
        let held = FDTarget::Socket(listens);
        if self.pids().iter().any(|pid| holds(*pid, &held)) {
            return Ok(true);
        }
        if socket() != Some(listens) {
            // It was its own, and closed meanwhile: iperf3's between two tests.
            return Ok(false);
        }
        let mut all = process::all_processes().into_iter().flatten().flatten();
        let who = match all.find(|one| holds(one.pid.cast_unsigned(), &held)) {
            None => "another process".to_owned(),
            Some(one) => {
                let name = process_name(one.pid.cast_unsigned()).unwrap_or_default();
                format!("{name} (process {})", one.pid)
            }
        };
        Err(self.taken(port, &who, ""))
    }

    fn taken(&self, port: u16, who: &str, printed: &str) -> anyhow::Error {
        let source = Error::Machine(format!(
            "port {port} is taken by {who}, so the server {} cannot listen there\n  End that \
             process, or write {{port}} for a free port{printed}",
            self.program
        ));
        PortTaken { port, source }.into()
    }
}

fn port_of(text: &str) -> Result<u16, Error> {
    text.parse().map_err(|_| {
        Error::Definition(format!(
            "{text} is not a port: ready.tcp is a port or {{port}}"
        ))
    })
}

fn pattern(text: &str) -> Result<Regex, Error> {
    Regex::new(text).map_err(|error| {
        Error::Definition(format!("ready.output is not a regular expression: {error}"))
    })
}

/// The socket that listens on a TCP port in the network of a process.
fn listener(pid: u32, port: u16) -> Option<TcpNetEntry> {
    let process = process::Process::new(pid.cast_signed()).ok()?;
    let sockets = [process.tcp(), process.tcp6()];
    let mut sockets = sockets.into_iter().flatten().flatten();
    let listens = |socket: &TcpNetEntry| {
        socket.state == TcpState::Listen && socket.local_address.port() == port
    };
    sockets.find(listens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_seen_without_a_connection() {
        let listener_here = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener_here.local_addr().expect("an address").port();
        let me = std::process::id();
        let socket = listener(me, port).expect("it listens");
        assert_eq!(socket.local_address.ip(), Ipv4Addr::LOCALHOST);
        let held = FDTarget::Socket(socket.inode);
        assert!(holds(me, &held));
        assert!(!holds(1, &held));
        drop(listener_here);
        assert!(listener(me, port).is_none());
    }
}
