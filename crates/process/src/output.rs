//! Output of child processes: read as it comes, from pipes, by a thread for each process. The last of it is kept, and no
//! more, in memory alone: a process that prints much takes neither memory nor room on a disk.
//!
//! The thread sleeps between two readings, so that a process that prints often does not wake it, at its own cost, each time.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use anyhow::{Context, Result};
use regex::bytes::Regex;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{OFlags, fcntl_setfl},
    io::{Errno, read, retry_on_intr, write},
    time::{ClockId, clock_gettime},
};

/// Bytes of each stream that are kept if nothing else is asked for.
const KEPT: usize = 64 << 10;
/// Bytes of each stream that are kept if numbers are read from it.
const READ: usize = 16 << 20;
/// Bytes that a pipe takes: what fills it sooner than it is read waits.
const PIPE: usize = 64 << 10;
/// Between two readings.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of a line that are searched; what is longer is searched in parts.
const LONGEST_LINE: usize = 4 << 10;

/// The handling of a process's output.
#[derive(Debug)]
pub struct Capture {
    /// Bytes of each stream that are kept: the last ones.
    pub kept: usize,
    /// A search of all output, of what is not kept too.
    pub search: Option<Search>,
}

impl Default for Capture {
    fn default() -> Self {
        Capture {
            kept: KEPT,
            search: None,
        }
    }
}

impl Capture {
    /// Keeps output from which numbers are read: all of it, or the reading fails.
    pub fn to_read() -> Self {
        Capture {
            kept: READ,
            search: None,
        }
    }
}

/// A search of the output.
#[derive(Clone, Debug)]
pub enum Search {
    /// Adds up the numbers that the group of this expression finds, line by line.
    Sum(Regex),
    /// Counts 1 once this expression matches in what is kept.
    Match(Regex),
}

/// The output of a process.
#[derive(Debug)]
pub(super) struct Output {
    streams: Arc<Mutex<Streams>>,
    /// CPU time of the thread that reads, in nanoseconds.
    reading_ns: Arc<AtomicU64>,
    /// Ends the thread when written to.
    stop: Arc<OwnedFd>,
    reader: Option<JoinHandle<()>>,
}

/// Standard output, then standard error.
#[derive(Debug)]
struct Streams {
    all: [Stream; 2],
    search: Option<Search>,
    /// What the search found.
    sum: u64,
}

#[derive(Debug)]
struct Stream {
    /// `None` once its end was read, or if it is read elsewhere.
    pipe: Option<Arc<OwnedFd>>,
    last: VecDeque<u8>,
    kept: usize,
    /// Bytes that were read and are not kept.
    dropped: u64,
    /// The begin of a line whose end has not come.
    line: Vec<u8>,
}

impl Output {
    /// Starts reading; a stream without a pipe is empty.
    pub(super) fn read(pipes: [Option<OwnedFd>; 2], capture: Capture) -> Result<Self> {
        let stream = |pipe: Option<OwnedFd>| -> io::Result<Stream> {
            if let Some(pipe) = &pipe {
                fcntl_setfl(pipe, OFlags::NONBLOCK)?;
            }
            Ok(Stream {
                pipe: pipe.map(Arc::new),
                last: VecDeque::new(),
                kept: capture.kept,
                dropped: 0,
                line: Vec::new(),
            })
        };
        let [out, err] = pipes;
        let context = "cannot read the output of a program";
        let streams = Streams {
            all: [stream(out).context(context)?, stream(err).context(context)?],
            search: capture.search,
            sum: 0,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC).context(context)?;
        let mut output = Output {
            streams: Arc::new(Mutex::new(streams)),
            reading_ns: Arc::default(),
            stop: Arc::new(stop),
            reader: None,
        };
        let (streams, stop) = (Arc::clone(&output.streams), Arc::clone(&output.stop));
        let reading_ns = Arc::clone(&output.reading_ns);
        let reader = thread::Builder::new().name("output".to_owned());
        let reader = reader.spawn(move || follow(&streams, &stop, &reading_ns));
        output.reader = Some(reader.context(context)?);
        Ok(output)
    }

    /// The streams, with all that was printed up to now.
    fn now(&self) -> MutexGuard<'_, Streams> {
        let mut streams = lock(&self.streams);
        streams.drain();
        streams
    }

    /// The last of standard output and of standard error.
    pub(super) fn last(&self) -> [String; 2] {
        let streams = self.now();
        [0, 1].map(|one| streams.all[one].text())
    }

    /// Bytes that were printed and are not kept, of each stream.
    pub(super) fn dropped(&self) -> [u64; 2] {
        let streams = self.now();
        [0, 1].map(|one| streams.all[one].dropped)
    }

    /// The result of the search: a sum, or 1 for a match; 0 without a search.
    pub(super) fn found(&self) -> u64 {
        self.now().sum
    }

    /// CPU time that reading has taken, in nanoseconds.
    pub(super) fn reading_ns(&self) -> f64 {
        self.reading_ns.load(Ordering::Relaxed) as f64
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Reads until both streams have ended, or `stop` is written to.
fn follow(streams: &Mutex<Streams>, stop: &OwnedFd, reading_ns: &AtomicU64) {
    loop {
        let pipes: Vec<Arc<OwnedFd>> = lock(streams)
            .all
            .iter()
            .filter_map(|stream| stream.pipe.clone())
            .collect();
        if pipes.is_empty() {
            return;
        }
        let files = pipes.iter().map(|pipe| &**pipe);
        let files = [stop].into_iter().chain(files);
        let mut waits: Vec<PollFd<'_>> =
            files.map(|file| PollFd::new(file, PollFlags::IN)).collect();
        if retry_on_intr(|| poll(&mut waits, None)).is_err() || !waits[0].revents().is_empty() {
            return;
        }
        let read = lock(streams).drain();
        let spent = clock_gettime(ClockId::ThreadCPUTime);
        let spent = spent.tv_sec.cast_unsigned() * 1_000_000_000 + spent.tv_nsec.cast_unsigned();
        reading_ns.store(spent, Ordering::Relaxed);
        // What comes fast must not wait for this.
        if read < PIPE / 2 {
            sleep(POLL_INTERVAL);
        }
    }
}

fn lock(streams: &Mutex<Streams>) -> MutexGuard<'_, Streams> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// Reads what has come, at most as much as pipes take; how much that was.
    fn drain(&mut self) -> usize {
        let mut all = 0;
        let mut chunk = vec![0; PIPE];
        for stream in &mut self.all {
            let mut of_this = 0;
            while of_this < PIPE
                && let Some(length) = stream.read(&mut chunk)
            {
                of_this += length;
                self.sum += stream.take(&chunk[..length], self.search.as_ref());
            }
            if stream.pipe.is_none() {
                // A last line may have no end.
                let line = std::mem::take(&mut stream.line);
                if let Some(Search::Sum(pattern)) = &self.search {
                    self.sum += sum(&line, pattern);
                }
            }
            all += of_this;
        }
        if matches!(self.search, Some(Search::Match(_))) && self.sum > 0 {
            self.search = None;
            self.sum = 1;
        }
        all
    }
}

impl Stream {
    /// Reads from the pipe; `None` if there is nothing (any more).
    fn read(&mut self, chunk: &mut [u8]) -> Option<usize> {
        let pipe = self.pipe.as_ref()?;
        match retry_on_intr(|| read(pipe, &mut *chunk)) {
            Ok(0) => {}
            Ok(length) => return Some(length),
            Err(Errno::AGAIN) => return None,
            Err(_) => {}
        }
        self.pipe = None;
        None
    }

    /// Keeps the last bytes, and searches all; what was found.
    fn take(&mut self, bytes: &[u8], search: Option<&Search>) -> u64 {
        self.last.extend(bytes);
        let more = self.last.len().saturating_sub(self.kept);
        let found = match search {
            None => 0,
            Some(Search::Match(pattern)) => {
                u64::from(pattern.is_match(self.last.make_contiguous()))
            }
            Some(Search::Sum(pattern)) => self.take_lines(bytes, pattern),
        };
        self.last.drain(..more);
        self.dropped += more as u64;
        found
    }

    /// Searches the lines that have ended, and keeps the begin of the last one.
    fn take_lines(&mut self, bytes: &[u8], pattern: &Regex) -> u64 {
        self.line.extend_from_slice(bytes);
        let end = self.line.iter().rposition(|byte| *byte == b'\n');
        let end = match end {
            Some(end) => end + 1,
            None if self.line.len() > LONGEST_LINE => self.line.len(),
            None => return 0,
        };
        let found = sum(&self.line[..end], pattern);
        self.line.drain(..end);
        found
    }

    fn text(&self) -> String {
        let (front, back) = self.last.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
}

/// Adds up the numbers that a pattern's group finds.
fn sum(text: &[u8], pattern: &Regex) -> u64 {
    let number = |digits: &[u8]| str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let numbers = pattern.captures_iter(text);
    let numbers = numbers.filter_map(|groups| number(groups.get(1)?.as_bytes()));
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write as _, pipe};

    use super::*;

    /// An output of one stream, and its writing end.
    fn output(capture: Capture) -> (Output, PipeWriter) {
        let (reader, writer) = pipe().expect("a pipe");
        let output = Output::read([Some(reader.into()), None], capture).expect("a thread");
        (output, writer)
    }

    /// That of a search of numbers.
    fn lost() -> Capture {
        Capture {
            search: Some(Search::Sum(
                Regex::new(r"lost (\d+) events").expect("valid"),
            )),
            ..Capture::default()
        }
    }

    #[test]
    fn the_last_bytes_are_kept_and_the_others_counted() {
        let (output, mut writer) = output(Capture {
            kept: 10,
            search: None,
        });
        writer.write_all(b"0123456").expect("room");
        assert_eq!(output.last(), ["0123456", ""]);
        assert_eq!(output.dropped(), [0, 0]);
        writer.write_all(b"789abcdef").expect("room");
        assert_eq!(output.last(), ["6789abcdef", ""]);
        assert_eq!(output.dropped(), [6, 0]);
        drop(writer);
        assert_eq!(output.last(), ["6789abcdef", ""]);
    }

    #[test]
    fn what_is_not_kept_was_searched() {
        let (output, mut writer) = output(Capture { kept: 16, ..lost() });
        // More than a pipe takes, with lines that end in later writes.
        let filler = "x".repeat(999);
        for _ in 0..10_000 {
            write!(writer, "lost 7 ev").expect("it is read");
            write!(writer, "ents, lost 1 events\n{filler}\n").expect("it is read");
        }
        assert_eq!(output.found(), 80_000);
        // The last line has no end.
        write!(writer, "lost 5 events").expect("room");
        assert_eq!(output.found(), 80_000);
        drop(writer);
        assert_eq!(output.found(), 80_005);
        let [dropped, _] = output.dropped();
        assert_eq!(dropped, 10_000 * (9 + 20 + 1_000) + 13 - 16);
        assert!(output.reading_ns() > 0.0);
    }

    #[test]
    fn what_matched_once_has_matched() {
        let ready = Regex::new("(?m)^ready\\.\nnow$").expect("valid");
        let (output, mut writer) = output(Capture {
            kept: 20,
            search: Some(Search::Match(ready)),
        });
        writer.write_all(b"not ready.\n").expect("room");
        assert_eq!(output.found(), 0);
        writer.write_all(b"ready.\nno").expect("room");
        assert_eq!(output.found(), 0);
        writer.write_all(b"w\n").expect("room");
        assert_eq!(output.found(), 1);
        writer.write_all(&[b'x'; 1000]).expect("room");
        assert_eq!(output.found(), 1);
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let (output, mut writer) = output(lost());
        writer.write_all(&vec![b'x'; 3 << 20]).expect("it is read");
        let streams = output.now();
        assert!(streams.all[0].line.len() <= LONGEST_LINE + PIPE);
        assert!(streams.all[0].last.len() <= KEPT);
    }

    #[test]
    fn the_reader_ends_though_a_writer_stays() {
        let (output, writer) = output(Capture::default());
        drop(output);
        drop(writer);
    }
}
