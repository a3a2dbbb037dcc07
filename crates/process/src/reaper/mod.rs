//! The reaper: a small child process that outlives this program, however it ends, and cleans up after it: ends servers,
//! removes folders, restores settings. `bpfcost reaper` (hidden) is that process.
//!
//! It reads duties, and duties done, as lines of JSON from standard input. Once that is closed, it ends processes, then
//! does the other duties, the latest first. A process of this program has at most one reaper.

use std::{
    fs,
    io::{self, BufRead as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::{cgroup as groups, wait_until};

mod cgroup;
mod scratch;

pub use cgroup::Cgroup;
pub use scratch::Scratch;

/// This program, even where its file was replaced meanwhile.
const MYSELF: &str = "/proc/self/exe";
/// Limit for the removal of a folder, to which a process that dies at the same moment may still write, and for processes
/// that end by themselves.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Something to be done when this process is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duty {
    /// Kill all in this control group, and remove it.
    Cgroup(PathBuf),
    /// First let what is in this control group end by itself: it has noticed, and has things to put back.
    Await(PathBuf),
    /// Kill this group of processes.
    Group(u32),
    /// Remove this folder.
    Folder(PathBuf),
    /// Put back what this note says.
    PutBack(PathBuf),
    /// Write to the journal the messages that a guest left.
    Rescue {
        /// Folder that the guest shares.
        folder: PathBuf,
        /// Journal of the run.
        journal: PathBuf,
        /// Bytes of the journal before the guest booted.
        from: u64,
    },
}

/// A line to the reaper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ReaperMessage {
    /// To be done when this process has ended.
    Owed(Duty),
    /// Done already.
    Done(Duty),
}

/// A handle of the reaper. When the last one is dropped, the reaper does the duties that are left, and is waited for.
#[derive(Debug)]
pub struct Reaper {
    /// All that is started goes into groups within this one, where control groups can be had.
    cgroup: Option<Cgroup>,
    /// Groups made so far.
    made: AtomicU32,
    process: Child,
    /// Closing it is what the reaper waits for.
    pipe: Mutex<Option<ChildStdin>>,
}

/// The reaper of this process, while a handle exists.
static REAPER: Mutex<Weak<Reaper>> = Mutex::new(Weak::new());

impl Reaper {
    /// The reaper of this process.
    pub fn of_process() -> Result<Arc<Self>> {
        let mut shared = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reaper) = shared.upgrade() {
            return Ok(reaper);
        }
        let reaper = Arc::new(Reaper::start().context("cannot start the cleanup process")?);
        *shared = Arc::downgrade(&reaper);
        Ok(reaper)
    }

    /// It has its own process group, so that a kill of this one spares it.
    fn start() -> Result<Self> {
        let mut process = Command::new(MYSELF)
            // The name in process lists.
            .arg0("bpfcost")
            // With an option, so that a test's own program refuses it.
            .args(["reaper", "--stdin"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = process.stdin.take();
        let reaper = Reaper {
            cgroup: Cgroup::of_process(),
            made: AtomicU32::new(0),
            process,
            pipe: Mutex::new(pipe),
        };
        if let Some(cgroup) = &reaper.cgroup {
            reaper.owe(Duty::Cgroup(cgroup.path().to_owned()))?;
        }
        Ok(reaper)
    }

    /// A control group for a process about to start, where control groups are available.
    pub(crate) fn group(&self) -> Option<Cgroup> {
        let name = self.made.fetch_add(1, Ordering::Relaxed).to_string();
        self.cgroup.as_ref()?.within(&name).ok()
    }

    /// Registers a duty: the reaper does it if this process does not.
    pub fn owe(&self, duty: Duty) -> Result<()> {
        self.say(&ReaperMessage::Owed(duty))
    }

    /// Withdraws a duty. A reaper that is gone does nothing anyway.
    pub fn done(&self, duty: Duty) {
        let _ = self.say(&ReaperMessage::Done(duty));
    }

    fn say(&self, word: &ReaperMessage) -> Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = pipe.as_mut().context("the cleanup process has ended")?;
        pipe.write_all(&line)
            .context("cannot write to the cleanup process: was it killed?")
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // Ours first, so that the reaper finds nothing to do for long.
        self.cgroup = None;
        let pipe = self.pipe.get_mut();
        *pipe.unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.process.wait();
    }
}

/// Runs the reaper: reads duties until standard input is closed, then does those that are left. `put_back` does
/// what a note says, `rescue` writes what a guest sent.
pub fn serve(put_back: fn(&Path), rescue: fn(&Path, &Path, u64)) {
    let mut owed: Vec<Duty> = Vec::new();
    for line in io::stdin().lock().lines() {
        match line.map(|line| serde_json::from_str(&line)) {
            Ok(Ok(ReaperMessage::Owed(duty))) => owed.push(duty),
            Ok(Ok(ReaperMessage::Done(duty))) => owed.retain(|one| *one != duty),
            // A line cut off by the end of who wrote it.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    // What runs could change again what is put back, and write to folders.
    let (ends, others): (Vec<Duty>, Vec<Duty>) = owed.into_iter().rev().partition(Duty::ends);
    ends.iter()
        .chain(&others)
        .for_each(|duty| duty.act(put_back, rescue));
}

impl Duty {
    /// Whether it ends processes.
    fn ends(&self) -> bool {
        matches!(self, Duty::Cgroup(_) | Duty::Await(_) | Duty::Group(_))
    }

    /// Does the duty. Failures are ignored: there is no place to report them.
    fn act(&self, put_back: fn(&Path), rescue: fn(&Path, &Path, u64)) {
        match self {
            Duty::Cgroup(path) => {
                let _ = groups::clear(path);
            }
            Duty::Await(path) => groups::wait_until_empty(path, TIMEOUT),
            Duty::Group(leader) => {
                if let Some(leader) = i32::try_from(*leader).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(leader, Signal::KILL);
                }
            }
            Duty::Folder(path) => remove(path),
            Duty::PutBack(note) => put_back(note),
            Duty::Rescue {
                folder,
                journal,
                from,
            } => rescue(folder, journal, *from),
        }
    }
}

/// Removes a folder of ours.
fn remove(folder: &Path) {
    if !scratch::is_scratch(folder) {
        return;
    }
    wait_until(TIMEOUT, POLL_INTERVAL, || {
        fs::remove_dir_all(folder).is_ok() || !folder.exists()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ours_are_removed() {
        for (prefix, stays) in [("bpfcost-scratch-", false), ("bpfcost-", true)] {
            let folder = tempfile::TempDir::with_prefix(prefix).expect("a folder");
            fs::write(folder.path().join("file"), "x").expect("a file");
            Duty::Folder(folder.path().to_owned()).act(|_| {}, |_, _, _| {});
            assert_eq!(folder.path().exists(), stays, "{prefix}");
        }
    }
}
