//! Messages between the tool and its tracer process: numbers, then a text.

#![allow(
    unsafe_code,
    reason = "registers are sent as the numbers that they are"
)]

use super::{
    error::{Error, Result},
    memory::Write,
    stopped::Registers,
};
use rustix::net::SendFlags;
use std::{
    io::{self, Read},
    mem,
    os::unix::net::UnixStream,
};

/// Stop all threads, or a single one. The reply has their registers.
pub(super) const STOP_ALL: u64 = 1;
pub(super) const STOP_ONE: u64 = 2;
/// The same, of a single thread that has used the least CPU time.
pub(super) const STOP_IDLE: u64 = 11;
/// Give threads other registers.
pub(super) const SET_REGISTERS: u64 = 3;
/// Make a system call. The reply has its result.
pub(super) const CALL: u64 = 4;
/// Give the thread that makes the system calls its own registers back, and let all threads go on.
pub(super) const FINISH: u64 = 5;
/// Restore the functions of forked children, those of the jumps at these addresses, while nothing is stopped.
pub(super) const RESTORE_CHILDREN: u64 = 6;
/// Restore what was replaced besides jumps: signal handlers, and instructions of the vDSO.
pub(super) const RESTORE_OTHERS: u64 = 7;
/// Write bytes: code that no thread executes yet.
pub(super) const WRITE: u64 = 8;
/// Write bytes that threads executed before, and have each CPU forget instructions that it read ahead.
pub(super) const PATCH: u64 = 9;
/// Map memory that belongs to the tool, by `mmap` with these arguments. The reply has its address.
pub(super) const MAP: u64 = 10;

/// The first number of replies.
const DONE: u64 = 0;
const FAILED: u64 = 1;

/// Number of words in the registers of a thread.
const REGISTERS: usize = size_of::<Registers>() / 8;
/// Longest message, in bytes: the registers of 100,000 threads are 23 MB.
const MAX_MESSAGE: usize = 64 << 20;
/// Between the two texts of an error.
const SEPARATOR: char = '\0';

/// A request, or a reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) numbers: Vec<u64>,
    pub(super) text: String,
}

impl Message {
    /// A message without text.
    pub(super) fn new(numbers: impl Into<Vec<u64>>) -> Self {
        let (numbers, text) = (numbers.into(), String::new());
        Message { numbers, text }
    }

    pub(super) fn send(&self, to: &UnixStream) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(16 + 8 * self.numbers.len() + self.text.len());
        for length in [self.numbers.len(), self.text.len()] {
            bytes.extend((length as u64).to_le_bytes());
        }
        bytes.extend(self.numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.text.as_bytes());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let sent =
                rustix::io::retry_on_intr(|| rustix::net::send(to, rest, SendFlags::NOSIGNAL))?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    pub(super) fn receive(mut from: &UnixStream) -> io::Result<Self> {
        let mut number = [0; 8];
        let mut length = || {
            from.read_exact(&mut number)?;
            io::Result::Ok(u64::from_le_bytes(number) as usize)
        };
        let (numbers, text) = (length()?, length()?);
        let bytes = numbers
            .checked_mul(8)
            .and_then(|some| some.checked_add(text));
        let bytes = bytes.filter(|bytes| *bytes <= MAX_MESSAGE);
        let bytes = bytes.ok_or_else(|| {
            let what = format!("a message of {numbers} numbers and {text} bytes is too long");
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        let mut bytes = vec![0; bytes];
        from.read_exact(&mut bytes)?;
        let (numbers, text) = bytes.split_at(8 * numbers);
        let numbers = numbers
            .chunks_exact(8)
            .map(|number| u64::from_le_bytes(number.try_into().expect("8 bytes")));
        Ok(Message {
            numbers: numbers.collect(),
            text: String::from_utf8_lossy(text).into_owned(),
        })
    }

    pub(super) fn reply(result: Result<Vec<u64>>) -> Self {
        match result {
            Ok(mut numbers) => {
                numbers.insert(0, DONE);
                Message::new(numbers)
            }
            Err(error) => {
                let ([kind, number], text) = encode(error);
                let numbers = vec![FAILED, kind, number];
                Message { numbers, text }
            }
        }
    }

    /// Returns what a reply says of a process. `call` is the system call that was asked for.
    pub(super) fn result(self, pid: i32, call: &'static str) -> Result<Vec<u64>> {
        match self.numbers[..] {
            [DONE, ref numbers @ ..] => Ok(numbers.to_vec()),
            [FAILED, kind, number] => Err(decode(pid, call, kind, number, &self.text)),
            _ => Err(Error::Code {
                what: call.to_owned(),
                reason: format!("the tracer process replied {:?}", self.numbers),
            }),
        }
    }
}

/// Threads and their registers, as numbers.
pub(super) fn from_registers(threads: &[(i32, Registers)]) -> Vec<u64> {
    let numbers = threads.iter().flat_map(|&(tid, registers)| {
        // SAFETY: the registers are as many numbers of 8 bytes, without gaps.
        let numbers = unsafe { mem::transmute::<Registers, [u64; REGISTERS]>(registers) };
        std::iter::once(tid as u64).chain(numbers)
    });
    numbers.collect()
}

pub(super) fn to_registers(numbers: &[u64]) -> Vec<(i32, Registers)> {
    let threads = numbers.chunks_exact(1 + REGISTERS).map(|thread| {
        let numbers: [u64; REGISTERS] = thread[1..].try_into().expect("as many as there are");
        // SAFETY: the registers are as many numbers of 8 bytes, of which any value is valid.
        (thread[0] as i32, unsafe {
            mem::transmute::<[u64; REGISTERS], Registers>(numbers)
        })
    });
    threads.collect()
}

/// Writes as numbers: the address, how many bytes, and those.
pub(super) fn from_writes(writes: &[Write]) -> Vec<u64> {
    let mut numbers = Vec::new();
    for Write { address, bytes } in writes {
        numbers.extend([*address, bytes.len() as u64]);
        numbers.extend(bytes.chunks(8).map(|some| {
            let mut eight = [0; 8];
            eight[..some.len()].copy_from_slice(some);
            u64::from_le_bytes(eight)
        }));
    }
    numbers
}

pub(super) fn to_writes(mut numbers: &[u64]) -> Vec<Write> {
    let mut writes = Vec::new();
    while let [address, length, rest @ ..] = numbers {
        let length = *length as usize;
        let (words, others) = rest.split_at(length.div_ceil(8).min(rest.len()));
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        let address = *address;
        writes.push(Write { address, bytes });
        numbers = others;
    }
    writes
}

/// An error as its kind, a number and a text.
fn encode(error: Error) -> ([u64; 2], String) {
    let number = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO) as u64;
    match error {
        Error::NoProcess { .. } => ([0, 0], String::new()),
        Error::Gone { .. } => ([1, 0], String::new()),
        Error::Permission { reason, .. } => ([2, 0], reason),
        Error::Traced { tracer, .. } => ([3, tracer as u64], String::new()),
        Error::Architecture { .. } => ([4, 0], String::new()),
        Error::Seccomp { source, .. } => ([5, number(&source)], String::new()),
        Error::Unstoppable { tid, .. } => ([6, tid as u64], String::new()),
        Error::Remote { source, .. } => ([7, number(&source)], String::new()),
        Error::System { what, source } => ([8, number(&source)], what),
        Error::Unpatchable { function, reason } => {
            ([9, 0], format!("{function}{SEPARATOR}{reason}"))
        }
        Error::Code { what, reason } => ([10, 0], format!("{what}{SEPARATOR}{reason}")),
        other => ([10, 0], format!("the tracer process{SEPARATOR}{other}")),
    }
}

fn decode(pid: i32, call: &'static str, kind: u64, number: u64, text: &str) -> Error {
    let source = || io::Error::from_raw_os_error(number as i32);
    let (first, second) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let (first, second) = (first.to_owned(), second.to_owned());
    match kind {
        0 => Error::NoProcess { pid },
        1 => Error::Gone { pid },
        2 => Error::Permission { pid, reason: first },
        3 => Error::Traced {
            pid,
            tracer: number as i32,
        },
        4 => Error::Architecture { pid },
        5 => Error::Seccomp {
            pid,
            source: source(),
        },
        6 => Error::Unstoppable {
            pid,
            tid: number as i32,
        },
        7 => Error::Remote {
            pid,
            call,
            source: source(),
        },
        8 => Error::System {
            what: first,
            source: source(),
        },
        9 => Error::Unpatchable {
            function: first,
            reason: second,
        },
        _ => Error::Code {
            what: first,
            reason: second,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn messages_arrive_as_they_were() {
        let (one, other) = UnixStream::pair().unwrap();
        let message = Message {
            numbers: vec![CALL, u64::MAX],
            text: "a text".into(),
        };
        for message in [message, Message::default()] {
            message.send(&one).unwrap();
            assert_eq!(Message::receive(&other).unwrap(), message);
        }
        drop(one);
        assert!(Message::receive(&other).is_err());
        assert!(Message::default().send(&other).is_err(), "no signal either");
    }

    #[test]
    fn no_message_is_longer_than_the_longest() {
        for lengths in [
            [u64::MAX, 0],
            [0, u64::MAX],
            [1 << 61, 0],
            [1, MAX_MESSAGE as u64],
        ] {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(&lengths.map(u64::to_le_bytes).concat())
                .unwrap();
            let error = Message::receive(&other).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{lengths:?}");
        }
    }

    #[test]
    fn writes_are_the_same_on_the_other_side() {
        let write = |address, bytes: &[u8]| Write {
            address,
            bytes: bytes.to_vec(),
        };
        let writes = [
            write(1, &[0xe9, 1, 2, 3, 4]),
            write(2, &[]),
            write(3, &[5; 16]),
            write(u64::MAX, &[6]),
        ];
        assert_eq!(to_writes(&from_writes(&writes)), writes);
    }

    #[test]
    fn registers_and_errors_are_the_same_on_the_other_side() {
        // SAFETY: all zeroes are valid registers.
        let mut registers: Registers = unsafe { mem::zeroed() };
        (registers.r15, registers.gs) = (1, 2);
        let threads = vec![(5, registers), (7, registers)];
        assert_eq!(to_registers(&from_registers(&threads)), threads);

        let pid = 3;
        let source = || io::Error::from_raw_os_error(libc::EPERM);
        let text = || "text".to_owned();
        for error in [
            Error::NoProcess { pid },
            Error::Gone { pid },
            Error::Permission {
                pid,
                reason: text(),
            },
            Error::Traced { pid, tracer: 9 },
            Error::Architecture { pid },
            Error::Seccomp {
                pid,
                source: source(),
            },
            Error::Unstoppable { pid, tid: 9 },
            Error::Remote {
                pid,
                call: "mmap",
                source: source(),
            },
            Error::System {
                what: text(),
                source: source(),
            },
            Error::Unpatchable {
                function: text(),
                reason: text(),
            },
            Error::Code {
                what: text(),
                reason: text(),
            },
        ] {
            let before = format!("{error:?}");
            let after = Message::reply(Err(error)).result(pid, "mmap").unwrap_err();
            assert_eq!(format!("{after:?}"), before);
        }
        assert_eq!(
            Message::reply(Ok(vec![4])).result(pid, "mmap").unwrap(),
            [4]
        );
    }
}
