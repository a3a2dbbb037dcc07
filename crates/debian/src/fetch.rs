//! Downloads: of http, https and file addresses, bounded in size and time, hashed while they arrive.
//!
//! A thread reads from the server; this one writes, shows progress and looks several times a second whether to end.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use ring::digest;

use super::{
    Error, Observer, Url,
    error::failed,
    http::{self, Answer},
    settings::Settings,
    url::Scheme,
};

/// Interval between looks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Downloads are tried so often.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
/// A server that sends nothing for so long is given up. Longer than the limits of [`http`], whose reasons say more.
const STALL_TIMEOUT: Duration = Duration::from_secs(100);
const CHUNK_BYTES: usize = 1 << 16;

/// Fetches files.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
}

/// A file that is asked for.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The address.
    pub url: &'a Url,
    /// The size that it must have, where that is known.
    pub bytes: Option<u64>,
    /// No more than that is read.
    pub max_bytes: u64,
    /// The SHA-256 that it must have, in lower-case hexadecimal digits, where that is known.
    pub sha256: Option<&'a str>,
}

/// Reason for which one try failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server has no such file.
    Missing(String),
    /// Another try would end alike.
    Final(String),
    /// Another try may end otherwise.
    Transient(String),
}

/// Takes pieces of a file; `None` stands for a new beginning.
type Sink<'a> = &'a mut dyn FnMut(Option<&[u8]>) -> Result<(), Error>;

enum Message {
    /// The file's size, where the server says it.
    Start(Option<u64>),
    Chunk(Vec<u8>),
    End,
    Failed(Failure),
}

impl Client {
    /// Follows the proxies of the environment and, for a system that is this one, apt's settings.
    pub fn new(system: &Path) -> Self {
        Client {
            settings: Settings::of_system(system),
        }
    }

    /// Returns whether a suite may be used after its end.
    pub(crate) fn accepts_expired(&self) -> bool {
        self.settings.accept_expired()
    }

    /// Fetches a file into memory.
    pub fn to_memory(
        &self,
        wanted: &Wanted<'_>,
        observer: &dyn Observer,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.fetch(wanted, observer, &mut |chunk| match chunk {
            Some(chunk) => {
                bytes.extend(chunk);
                Ok(())
            }
            None => {
                bytes.clear();
                Ok(())
            }
        })?;
        Ok(bytes)
    }

    /// Fetches a file to a path.
    pub fn to_file(
        &self,
        wanted: &Wanted<'_>,
        path: &Path,
        observer: &dyn Observer,
    ) -> Result<(), Error> {
        let mut file = None;
        self.fetch(wanted, observer, &mut |chunk| {
            match (chunk, &mut file) {
                (Some(chunk), Some(file)) => File::write_all(file, chunk),
                (Some(_), None) => Ok(()),
                (None, file) => File::create(path).map(|new| *file = Some(new)),
            }
            .map_err(failed("write", path))
        })
    }

    /// Fetches a file in pieces.
    fn fetch(
        &self,
        wanted: &Wanted<'_>,
        observer: &dyn Observer,
        take: Sink<'_>,
    ) -> Result<(), Error> {
        let url = || wanted.url.to_string();
        let mut tries = 1;
        loop {
            take(None)?;
            let failure = match self.attempt(wanted, observer, take)? {
                Ok(sha256) => return check(wanted, &sha256),
                Err(failure) => failure,
            };
            let why = match failure {
                Failure::Missing(why) => return Err(Error::Missing { url: url(), why }),
                Failure::Transient(_) if tries < TRIES => {
                    pause(PAUSE * tries, observer)?;
                    tries += 1;
                    continue;
                }
                Failure::Final(why) | Failure::Transient(why) => why,
            };
            return Err(Error::Unreachable { url: url(), why });
        }
    }

    /// One try; returns the SHA-256 of what came.
    fn attempt(
        &self,
        wanted: &Wanted<'_>,
        observer: &dyn Observer,
        take: Sink<'_>,
    ) -> Result<Result<String, Failure>, Error> {
        let lines = self.start(wanted.url);
        let mut hash = digest::Context::new(&digest::SHA256);
        let (mut total, mut done) = (wanted.bytes, 0u64);
        let mut last = Instant::now();
        loop {
            if observer.interrupted() {
                return Err(Error::Interrupted);
            }
            let message = match lines.recv_timeout(POLL_INTERVAL) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) if last.elapsed() < STALL_TIMEOUT => continue,
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(Err(Failure::Transient(
                        "the server does not answer".to_owned(),
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Err(Failure::Transient("the download ended".to_owned())));
                }
            };
            last = Instant::now();
            match message {
                Message::Start(length) => total = total.or(length),
                Message::Chunk(chunk) => {
                    done += chunk.len() as u64;
                    if done > wanted.bytes.unwrap_or(wanted.max_bytes) {
                        return Err(too_long(wanted));
                    }
                    hash.update(&chunk);
                    take(Some(&chunk))?;
                    if let Some(total) = total.filter(|total| *total > 0) {
                        observer.progress((done as f64 / total as f64).min(1.0));
                    }
                }
                Message::Failed(failure) => return Ok(Err(failure)),
                Message::End if wanted.bytes.is_some_and(|bytes| done < bytes) => {
                    return Err(untrusted(
                        wanted,
                        format!(
                            "it is truncated: it has {done} bytes instead of {}",
                            wanted.bytes.unwrap_or(0)
                        ),
                    ));
                }
                Message::End => return Ok(Ok(hex(hash.finish().as_ref()))),
            }
        }
    }

    fn start(&self, url: &Url) -> Receiver<Message> {
        let (sender, receiver) = sync_channel(16);
        let (url, settings) = (url.clone(), self.settings.clone());
        let refused = sender.clone();
        // It ends when it sees that the receiver is gone.
        let fetch = move || {
            let opened = match url.scheme {
                Scheme::File => open_file(&url),
                Scheme::Http | Scheme::Https => http::get(&url, &settings),
            };
            let end = match opened {
                Ok(answer) => send(answer, &sender),
                Err(failure) => Message::Failed(failure),
            };
            let _ = sender.send(end);
        };
        if let Err(error) = thread::Builder::new().spawn(fetch) {
            let why = format!("this user may not start another thread ({error}; see ulimit -u)");
            let _ = refused.send(Message::Failed(Failure::Final(why)));
        }
        receiver
    }
}

/// Sends all of a file; returns its last message.
fn send(mut answer: Answer, sender: &SyncSender<Message>) -> Message {
    if sender.send(Message::Start(answer.length)).is_err() {
        return Message::End;
    }
    let mut done = 0;
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        match answer.body.read(&mut chunk) {
            Ok(0) if answer.length.is_some_and(|length| done < length) => {
                let why = "the connection ended too early".to_owned();
                return Message::Failed(Failure::Transient(why));
            }
            Ok(0) => return Message::End,
            Ok(read) => {
                chunk.truncate(read);
                done += read as u64;
                if sender.send(Message::Chunk(chunk)).is_err() {
                    return Message::End;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let why = bpfcost_text::line(&error.to_string());
                return Message::Failed(Failure::Transient(why));
            }
        }
    }
}

fn open_file(url: &Url) -> Result<Answer, Failure> {
    let path = url.file();
    let failure = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Failure::Missing("no such file".to_owned())
        }
        _ => Failure::Final(error.to_string()),
    };
    let file = File::open(&path).map_err(failure)?;
    let metadata = file.metadata().map_err(failure)?;
    if !metadata.is_file() {
        return Err(Failure::Missing("it is no regular file".to_owned()));
    }
    Ok(Answer {
        length: Some(metadata.len()),
        body: Box::new(file),
    })
}

fn pause(length: Duration, observer: &dyn Observer) -> Result<(), Error> {
    let start = Instant::now();
    while start.elapsed() < length {
        if observer.interrupted() {
            return Err(Error::Interrupted);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn check(wanted: &Wanted<'_>, sha256: &str) -> Result<(), Error> {
    match wanted.sha256 {
        Some(expected) if expected != sha256 => Err(untrusted(
            wanted,
            format!("its SHA-256 is {sha256} instead of {expected}"),
        )),
        _ => Ok(()),
    }
}

fn too_long(wanted: &Wanted<'_>) -> Error {
    match wanted.bytes {
        Some(bytes) => untrusted(wanted, format!("it is longer than its {bytes} bytes")),
        None => Error::Unreachable {
            url: wanted.url.to_string(),
            why: format!(
                "it is longer than {} bytes, which no such file is",
                wanted.max_bytes
            ),
        },
    }
}

fn untrusted(wanted: &Wanted<'_>, why: String) -> Error {
    Error::Untrusted {
        what: wanted.url.to_string(),
        why,
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
