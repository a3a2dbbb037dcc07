//! The loop: sends what is due where a connection is free, and reads responses, until nothing is left.

use std::{
    num::NonZeroU64,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
};
use rustls::ClientConfig;

use super::{
    LoadTarget, Pace, Report,
    connection::{self, Connection, ConnectionEvent},
    report::Latencies,
};

/// How long after it was due a request counts as late: more than a timer and a turn of the loop need.
const LATE: Duration = Duration::from_millis(1);
/// How long a server may be silent while it owes answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes read at once.
const BUFFER: usize = 64 << 10;

/// Makes the load and waits for all answers.
pub fn drive(target: &LoadTarget, pace: Pace, connections: usize) -> Result<Report> {
    // Timers may be late by 50 µs otherwise, to be taken together with others.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .context("cannot set exact timers")?;
    let mut drive = Drive::new(target, connections)?;
    drive.run(pace)?;
    Ok(drive.report(pace))
}

struct Drive<'a> {
    target: &'a LoadTarget,
    tls: Option<Arc<ClientConfig>>,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// When the request on each connection was due.
    due: Vec<Instant>,
    /// Connections without a request.
    free: Vec<usize>,
    opened: u64,
    answered: u64,
    late: u64,
    unsent: u64,
    errors: u64,
    error: Option<String>,
    bytes: u64,
    took: Duration,
    latencies: Latencies,
}

impl<'a> Drive<'a> {
    fn new(target: &'a LoadTarget, connections: usize) -> Result<Self> {
        let tls = target.tls.then(connection::tls).transpose()?;
        let mut drive = Drive {
            target,
            tls,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            due: vec![Instant::now(); connections],
            free: (0..connections).rev().collect(),
            opened: 0,
            answered: 0,
            late: 0,
            unsent: 0,
            errors: 0,
            error: None,
            bytes: 0,
            took: Duration::ZERO,
            latencies: Latencies::new()?,
        };
        for at in 0..connections {
            let connection = drive.open(at)?;
            drive.connections.push(connection);
        }
        Ok(drive)
    }

    /// A connection for that place.
    fn open(&mut self, at: usize) -> Result<Connection> {
        let connection = Connection::open(self.target, self.tls.as_ref())?;
        let edges = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let place = epoll::EventData::new_u64(at as u64);
        epoll::add(&self.epoll, &connection, place, edges)?;
        self.opened += 1;
        Ok(connection)
    }

    fn run(&mut self, pace: Pace) -> Result<()> {
        let mut requests = pace.requests();
        let mut events = Vec::with_capacity(self.connections.len());
        let mut buffer = vec![0; BUFFER];
        let begun = Instant::now();
        let mut heard = begun;
        let mut sent = 0;
        loop {
            let now = Instant::now();
            if pace.end().is_some_and(|end| now - begun > end) {
                self.unsent += requests - sent;
                requests = sent;
            }
            let mut next = None;
            while sent < requests && !self.free.is_empty() {
                let due = pace.due(sent).map_or(now, |due| begun + due);
                if due > now {
                    next = Some(due);
                    break;
                }
                self.send(due, now)?;
                sent += 1;
            }
            if self.answered == requests {
                break;
            }
            let until = next.unwrap_or(heard + ANSWER_TIMEOUT);
            self.wait(&mut events, until)?;
            if !events.is_empty() {
                heard = Instant::now();
            } else if next.is_none() && heard.elapsed() >= ANSWER_TIMEOUT {
                let owed = sent - self.answered;
                bail!(
                    "the server has left {owed} requests unanswered for {} s",
                    ANSWER_TIMEOUT.as_secs()
                );
            }
            for event in events.drain(..) {
                let (at, flags) = (event.data.u64() as usize, event.flags);
                self.turn(at, flags.contains(epoll::EventFlags::RDHUP), &mut buffer)?;
            }
        }
        self.took = begun.elapsed();
        Ok(())
    }

    /// Sends the next request, on any free connection.
    fn send(&mut self, due: Instant, now: Instant) -> Result<()> {
        let Some(at) = self.free.pop() else {
            return Ok(());
        };
        if now - due > LATE {
            self.late += 1;
        }
        self.due[at] = due;
        self.connections[at].send(&self.target.request)
    }

    /// Waits for what connections have to say, or until then.
    fn wait(&self, events: &mut Vec<epoll::Event>, until: Instant) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).context("the time is out of range")?;
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for answers"),
        }
    }

    /// A connection has something to say, or room to write.
    fn turn(&mut self, at: usize, hung_up: bool, buffer: &mut [u8]) -> Result<()> {
        let owed = self.connections[at].waits();
        let closes = match self.connections[at].turn(hung_up, buffer, &mut self.bytes)? {
            ConnectionEvent::Waits => return Ok(()),
            ConnectionEvent::Closed => true,
            ConnectionEvent::Answered(answered) => {
                if !owed {
                    bail!("the server sent more than was requested");
                }
                self.latencies.put(self.due[at].elapsed());
                self.answered += 1;
                if let Some(error) = answered.error {
                    self.errors += 1;
                    self.error.get_or_insert(error);
                }
                self.free.push(at);
                answered.closes
            }
        };
        if closes {
            self.connections[at] = self.open(at)?;
        }
        Ok(())
    }

    fn report(self, pace: Pace) -> Report {
        Report {
            ops: self.answered,
            seconds: self.took.as_secs_f64(),
            rate: match pace {
                Pace::Open { rate, .. } => Some(rate),
                Pace::Closed { .. } => None,
            },
            late: self.late as f64 / self.answered.max(1) as f64,
            unsent: self.unsent,
            errors: self.errors,
            error: self.error,
            bytes: self.bytes,
            connections: self.opened,
            latency_us: self.latencies.percentiles(),
        }
    }
}
