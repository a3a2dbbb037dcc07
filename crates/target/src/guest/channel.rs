//! The channel between host and guest: a shared folder.
//!
//! The host writes `now` (the time), `job.json` and, for a resumed run, `earlier.journal`. The guest
//! appends to `stream`, a line of JSON in one write each. A file `stop` asks it to end, and files `answer-N`
//! answer its requests. Only this user can open the folder, and it is removed with the run; see [`Scratch`].

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{GuestError, Hooks, Job, Message};
use bpfcost_guest::BEFORE;
use bpfcost_process::reaper::Scratch;

/// The file that the guest writes to.
const STREAM: &str = "stream";

/// The journal of the run's earlier parts.
const JOURNAL: &str = "earlier.journal";

/// What is read of a stream in one go, and how long a line of it may be, in bytes: a guest must not fill
/// the host's memory. A machine with all its features takes some ten thousand.
const MAX_AT_ONCE: u64 = 4 << 20;
const LONGEST_LINE: u64 = 16 << 20;

/// How often the guest looks whether it is to end, by its own clock: a look is a message to the host.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The host's end of the channel.
#[derive(Debug)]
pub struct HostChannel(Scratch);

impl HostChannel {
    /// An empty folder, guarded.
    pub fn new() -> Result<Self, GuestError> {
        let base = base();
        if base.to_string_lossy().contains([',', '=', '\'', '"', '\\']) {
            return Err(GuestError::Lacking(format!(
                "guests cannot use the folder {}: its name has a comma, an =, a quote or a \\\n  \
                 Use another one: TMPDIR=DIR",
                base.display()
            )));
        }
        let scratch = Scratch::make_in(&base, 0o700).map_err(GuestError::io(format!(
            "making a folder for the guest in {}",
            base.display()
        )))?;
        let channel = HostChannel(scratch);
        channel.put(STREAM, b"")?;
        Ok(channel)
    }

    /// Where it is here.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The file that the guest writes to.
    pub(super) fn stream(&self) -> PathBuf {
        self.folder().join(STREAM)
    }

    /// Writes what the guest is to do: the job, the journal that it goes on with, and a script of a test that starts this
    /// program there.
    pub fn fill(
        &self,
        job: &Job,
        journal: Option<&Path>,
        before: Option<&str>,
    ) -> Result<(), GuestError> {
        let text = serde_json::to_vec(job).map_err(unreadable)?;
        self.put("job.json", &text)?;
        if let Some(journal) = journal {
            fs::copy(journal, self.folder().join(JOURNAL))
                .map_err(|error| self.unwritten(JOURNAL, error))?;
        }
        before.map_or(Ok(()), |script| self.put(BEFORE, script.as_bytes()))
    }

    /// Asks the guest to end after the trial under way.
    pub fn stop(&self) -> Result<(), GuestError> {
        // Never through what the guest may have put there.
        let made = File::create_new(self.folder().join("stop")).map(drop);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(self.unwritten("stop", error))
            }
            _ => Ok(()),
        }
    }

    /// Answers what the guest asked for.
    pub fn answer(&self, number: u32, answer: &impl Serialize) -> Result<(), GuestError> {
        put_answer(self.folder(), number, answer)
            .map_err(|error| self.unwritten(&answer_name(number), error))
    }

    /// Whether nothing more can be written into the folder.
    pub fn is_full(&self) -> bool {
        rustix::fs::statvfs(self.folder()).is_ok_and(|disk| disk.f_bavail == 0)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), GuestError> {
        fs::write(self.folder().join(name), bytes).map_err(|error| self.unwritten(name, error))
    }

    fn unwritten(&self, name: &str, error: io::Error) -> GuestError {
        if error.kind() == io::ErrorKind::StorageFull {
            return GuestError::no_room(self.folder());
        }
        GuestError::io(format!("writing {name} to {}", self.folder().display()))(error)
    }
}

/// The shared folder holds what this program does not write.
fn unreadable(what: impl ToString) -> GuestError {
    let what = what.to_string();
    GuestError::Lacking(format!(
        "the guest's output cannot be read: {what}; please report it"
    ))
}

/// The file that answers what a guest asked for.
pub(super) fn answer_name(number: u32) -> String {
    format!("answer-{number}")
}

/// Writes an answer: whole at once, and never through what the guest may have put there.
pub(super) fn put_answer(folder: &Path, number: u32, answer: &impl Serialize) -> io::Result<()> {
    let partial = folder.join("partial");
    File::create_new(&partial)?.write_all(&serde_json::to_vec(answer)?)?;
    fs::rename(&partial, folder.join(answer_name(number)))?;
    // It has read the one before.
    if let Some(before) = number.checked_sub(1) {
        let _ = fs::remove_file(folder.join(answer_name(before)));
    }
    Ok(())
}

/// Where scratch folders go: the place that the user names, else one of theirs that is never on a disk.
fn base() -> PathBuf {
    let set = |name| env::var_os(name).map(PathBuf::from);
    set("TMPDIR")
        .or_else(|| set("XDG_RUNTIME_DIR"))
        .filter(|path| path.is_absolute() && path.is_dir())
        .unwrap_or_else(env::temp_dir)
}

/// Reads the stream as it grows.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
    partial: Vec<u8>,
}

impl Tail {
    /// From the beginning of the stream in this folder.
    pub fn new(folder: &Path) -> Self {
        Tail {
            file: File::open(folder.join(STREAM)).ok(),
            path: folder.join(STREAM),
            partial: Vec::new(),
        }
    }

    /// The messages that have become whole since the last call. A last line without an end waits for it.
    pub fn read(&mut self) -> Result<Vec<Message>, GuestError> {
        let failed = || GuestError::io("reading what the guest writes");
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path).map_err(failed())?),
        };
        file.take(MAX_AT_ONCE)
            .read_to_end(&mut self.partial)
            .map_err(failed())?;
        if self.partial.len() as u64 > LONGEST_LINE + MAX_AT_ONCE {
            return Err(unreadable("a line has no end"));
        }
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        whole
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).map_err(unreadable))
            .collect()
    }
}

/// The guest's end of the channel.
#[derive(Debug)]
pub struct GuestChannel {
    pub(super) folder: PathBuf,
    stream: File,
    looked: Instant,
    doze: Duration,
}

impl GuestChannel {
    /// The shared folder, as the guest sees it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Ok(GuestChannel {
            stream: OpenOptions::new().append(true).open(folder.join(STREAM))?,
            folder: folder.to_owned(),
            looked: Instant::now(),
            doze: Hooks::or(Hooks::of_environment()?.doze_s, Duration::ZERO),
        })
    }

    /// The job.
    pub fn job(&self) -> io::Result<Job> {
        Ok(serde_json::from_slice(&fs::read(
            self.folder.join("job.json"),
        )?)?)
    }

    /// The journal of the run's earlier parts.
    pub fn journal(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    /// Sends a message, in one write.
    pub fn say(&mut self, message: &Message) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line)?;
        if !self.doze.is_zero() {
            std::thread::sleep(self.doze);
        }
        Ok(())
    }

    /// Whether the host asks for an end, checked at most every 100 ms. Call it between trials: a thread that
    /// polled on its own would disturb what is measured.
    pub fn stop_asked(&mut self) -> bool {
        if self.looked.elapsed() < STOP_POLL_INTERVAL {
            return false;
        }
        self.looked = Instant::now();
        self.folder.join("stop").exists()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn lines_come_whole_whatever_the_writes() {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("stream");
        let mut tail = Tail::new(folder.path());
        assert!(tail.read().is_err(), "there is none yet");
        let mut file = File::create(&path).expect("a file");
        let mut written = |text: &str| file.write_all(text.as_bytes()).expect("a write");
        assert_eq!(tail.read().expect("nothing"), []);
        written("{\"gone\":");
        assert_eq!(tail.read().expect("half a line"), []);
        written("7}\n{\"gone\":8}\n{\"go");
        let both = [Message::Gone(7), Message::Gone(8)];
        assert_eq!(tail.read().expect("two lines"), both);
        assert_eq!(tail.read().expect("no more"), []);
        written("ne\":9}\n\n");
        assert_eq!(tail.read().expect("the third"), [Message::Gone(9)]);
        written("nonsense\n");
        let error = tail.read().expect_err("no message").to_string();
        assert!(error.contains("report it"), "{error}");
    }

    #[test]
    fn a_guest_writes_what_a_tail_reads() {
        let folder = TempDir::new().expect("a folder");
        File::create(folder.path().join("stream")).expect("a file");
        let mut channel = GuestChannel::open(folder.path()).expect("a channel");
        channel.say(&Message::Gone(1)).expect("a line");
        assert_eq!(
            Tail::new(folder.path()).read().expect("a line"),
            [Message::Gone(1)]
        );
        assert!(!channel.stop_asked());
        File::create(folder.path().join("stop")).expect("a file");
        channel.looked = Instant::now()
            .checked_sub(2 * STOP_POLL_INTERVAL)
            .expect("the machine is up for longer");
        assert!(channel.stop_asked());
    }
}
