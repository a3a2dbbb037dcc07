//! A process that calls routines, for probes in user space: a fork of this one. While a probe is placed inside of a
//! process, it stands still, and so it can't be the one that asks for that. It ends with this process.

use std::{
    io::{Read as _, Write as _},
    iter,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{Mutex, RwLock, mpsc},
    thread,
};

use bpfcost_uprobe::process::Child;

use super::{BatchRequest, BatchResult, stopwatch};
use crate::{
    cpu::CpuPin,
    error::{Error, Result, failed},
    routine::{self, Routine, SITE_BYTES},
};

const NAME: &str = "the process that calls functions";

#[derive(Debug)]
pub(super) struct Caller {
    channel: UnixStream,
    child: Child,
}

impl Caller {
    pub(super) fn start() -> Result<Self> {
        let (ours, theirs) = UnixStream::pair().map_err(failed(NAME, "making its socket"))?;
        let child = Child::fork(&[theirs.as_fd()], || serve(&theirs));
        Ok(Caller {
            channel: ours,
            child: child.map_err(failed(NAME, "starting it"))?,
        })
    }

    /// The process's ID.
    pub(super) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Reads the code at a routine's beginning in that process.
    pub(super) fn code(&self, routine: Routine) -> Result<[u8; SITE_BYTES]> {
        let words = self.ask(&[ask::CODE, routine as u64])?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.try_into().map_err(|_| ended())
    }

    /// Has it call a routine, and time that.
    pub(super) fn time(&self, routine: Routine, request: &BatchRequest) -> Result<BatchResult> {
        let BatchRequest {
            events,
            cpu,
            after_tick,
        } = *request;
        let words = [
            ask::TIME,
            routine as u64,
            events,
            u64::from(cpu),
            u64::from(after_tick),
        ];
        match self.ask(&words)?[..] {
            [elapsed_ns, ticks, waits, ref slices @ ..] => Ok(BatchResult {
                events,
                made: events,
                elapsed_ns: f64::from_bits(elapsed_ns),
                ticks,
                waits,
                slices: slices.iter().map(|&bits| f64::from_bits(bits)).collect(),
            }),
            _ => Err(ended()),
        }
    }

    /// Has threads call a routine, one for each of `cpus`, so often each, and once before: nanoseconds from the first
    /// one's beginning to the last one's end.
    pub(super) fn time_threads(&self, routine: Routine, calls: u64, cpus: &[u32]) -> Result<u64> {
        let words = [ask::THREADS, routine as u64, calls];
        let cpus = cpus.iter().map(|&cpu| u64::from(cpu));
        let words: Vec<u64> = words.into_iter().chain(cpus).collect();
        match self.ask(&words)?[..] {
            [elapsed_ns] => Ok(elapsed_ns),
            _ => Err(ended()),
        }
    }

    fn ask(&self, words: &[u64]) -> Result<Vec<u64>> {
        let sent = send(&self.channel, words).ok();
        let answer = sent.and_then(|()| receive(&self.channel));
        match answer.as_deref() {
            Some([0, answer @ ..]) => Ok(answer.to_vec()),
            Some([_, words @ ..]) => {
                let text: Vec<u8> = words.iter().map(|&byte| byte as u8).collect();
                let text = String::from_utf8_lossy(&text);
                Err(Error::Refused(format!("{NAME}: {text}")))
            }
            _ => Err(ended()),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.child.kill();
    }
}

fn ended() -> Error {
    Error::Refused(format!(
        "{NAME} has ended; was it killed?\n  Run it again; dmesg tells if memory was short"
    ))
}

/// Kinds of requests to the process: the first word.
mod ask {
    /// For the code of a routine.
    pub(super) const CODE: u64 = 0;
    /// To call a routine: how often, on which CPU, whether after a tick.
    pub(super) const TIME: u64 = 1;
    /// To have threads call it: how often each, and the CPU of each.
    pub(super) const THREADS: u64 = 2;
}

/// Answers requests in the process until nobody asks. An answer begins with 0; else it is an error's
/// text, a byte a word.
fn serve(channel: &UnixStream) {
    let mut pinned = None;
    while let Some(asked) = receive(channel) {
        let answer = answer(&asked, &mut pinned);
        let words: Vec<u64> = match answer {
            Ok(words) => iter::once(0).chain(words).collect(),
            Err(error) => {
                let text = error.to_string();
                iter::once(1).chain(text.bytes().map(u64::from)).collect()
            }
        };
        if send(channel, &words).is_err() {
            return;
        }
    }
}

fn answer(asked: &[u64], pinned: &mut Option<(u64, CpuPin)>) -> Result<Vec<u64>> {
    match *asked {
        [ask::CODE, routine] => {
            let code = routine::code(named(routine)?);
            let (words, _) = code.as_chunks::<8>();
            Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
        }
        [ask::TIME, routine, events, cpu, after_tick] => {
            let routine = named(routine)?;
            if pinned.as_ref().is_none_or(|(on, _)| *on != cpu) {
                *pinned = None;
                *pinned = Some((cpu, CpuPin::to(cpu as u32)?));
            }
            let request = BatchRequest {
                events,
                cpu: cpu as u32,
                after_tick: after_tick != 0,
            };
            let timed = stopwatch::time(&request, |events| {
                routine::call(routine, events);
                Ok(())
            });
            let timed = timed?;
            let whole = [timed.elapsed_ns.to_bits(), timed.ticks, timed.waits];
            let slices = timed.slices.iter().map(|ns| ns.to_bits());
            Ok(whole.into_iter().chain(slices).collect())
        }
        [ask::THREADS, routine, calls, ref cpus @ ..] => {
            *pinned = None;
            threads(named(routine)?, calls, cpus).map(|elapsed_ns| vec![elapsed_ns])
        }
        _ => Err(unknown()),
    }
}

fn threads(routine: Routine, calls: u64, cpus: &[u64]) -> Result<u64> {
    let (first, gate) = (Mutex::new(()), RwLock::new(()));
    let (arrived, arrivals) = mpsc::channel();
    let one = |cpu: u64, arrived: mpsc::Sender<()>| {
        let pinned = CpuPin::to(cpu as u32);
        // What the kernel, or a probe, makes for a thread's first call is there before the time begins. One after the
        // other: a probe misses the calls of threads that ask for their memory at the same moment.
        let turn = first.lock();
        routine::call(routine, 1);
        drop(turn);
        drop(arrived);
        drop(gate.read());
        let begun = stopwatch::monotonic_ns();
        routine::call(routine, calls);
        let ended = stopwatch::monotonic_ns();
        pinned.map(|_pinned| (begun, ended))
    };
    let times = thread::scope(|scope| {
        let closed = gate.write();
        let started: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let (one, arrived) = (&one, arrived.clone());
                let thread = thread::Builder::new();
                thread.spawn_scoped(scope, move || one(cpu, arrived))
            })
            .collect();
        drop(arrived);
        // Until all that there are have arrived.
        while arrivals.recv().is_ok() {}
        drop(closed);
        let ended = started.into_iter().map(|thread| {
            let thread = thread.map_err(failed("a thread", "starting it"))?;
            thread.join().unwrap_or_else(|_| Err(unknown()))
        });
        ended.collect::<Result<Vec<_>>>()
    })?;
    let begun = times.iter().map(|(begun, _)| *begun).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    Ok(ended.unwrap_or(0).saturating_sub(begun.unwrap_or(0)))
}

fn named(routine: u64) -> Result<Routine> {
    let mut all = Routine::ALL.into_iter();
    all.find(|one| *one as u64 == routine).ok_or_else(unknown)
}

fn unknown() -> Error {
    Error::Refused("it does not know what it was asked".to_owned())
}

/// A number of words, and the words.
fn send(mut channel: &UnixStream, words: &[u64]) -> std::io::Result<()> {
    let all = iter::once(words.len() as u64).chain(words.iter().copied());
    let bytes: Vec<u8> = all.flat_map(u64::to_ne_bytes).collect();
    channel.write_all(&bytes)
}

fn receive(mut channel: &UnixStream) -> Option<Vec<u64>> {
    let mut word = || {
        let mut bytes = [0; 8];
        channel.read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    let length = word()?;
    (0..length).map(|_| word()).collect()
}
