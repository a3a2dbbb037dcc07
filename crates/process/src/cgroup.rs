//! Control groups (version 2) of bpfcost's own. All that a process starts stays in its group, so the group can be
//! counted and ended as one. No controller is needed.
//!
//! A group is locked while it is in use. A killed process leaves its group unlocked; the next group created beside
//! it removes it, with all processes that still run there.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Prefix of the names of our groups; the process and a count follow.
const PREFIX: &str = "bpfcost-";
/// Names to try, where a sweep of another process takes the first one for left over.
const TRIES: u32 = 8;
/// Longest time that a group may resist being removed, after all in it was killed.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two tries to remove it.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A control group, locked while this lives; its folder goes with it, unless a process is still in there.
#[derive(Debug)]
pub struct LockedCgroup {
    path: PathBuf,
    folder: File,
}

impl LockedCgroup {
    /// Makes one in the group at `parent`, and removes those that processes left there which were killed.
    pub fn make_in(parent: &Path) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        sweep(parent);
        let mut refused = io::Error::from(io::ErrorKind::WouldBlock);
        for _ in 0..TRIES {
            let count = MADE.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{count}", process::id()));
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Err(error) => refused = error,
                Ok(()) => match lock(&path) {
                    Ok(folder) => return Ok(LockedCgroup { path, folder }),
                    Err(error) => {
                        let _ = fs::remove_dir(&path);
                        refused = error;
                    }
                },
            }
        }
        Err(refused)
    }

    /// Returns the path of the group's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open folder, as programs are attached to it.
    pub fn folder(&self) -> &File {
        &self.folder
    }
}

impl Drop for LockedCgroup {
    fn drop(&mut self) {
        // Where it stays after all, the next one to be made removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Opens and locks a folder that is still there then.
fn lock(path: &Path) -> io::Result<File> {
    let folder = File::open(path)?;
    folder.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::from(io::ErrorKind::WouldBlock),
        TryLockError::Error(error) => error,
    })?;
    if fs::metadata(path)?.ino() == folder.metadata()?.ino() {
        Ok(folder)
    } else {
        Err(io::Error::from(io::ErrorKind::NotFound))
    }
}

/// Ends and removes what processes left that are gone.
fn sweep(parent: &Path) {
    for left in inner(parent).iter().filter(|path| is_ours(path)) {
        if let Ok(_locked) = lock(left)
            && !holds(left, process::id())
        {
            let _ = clear(left);
        }
    }
}

/// Processes in a group, those of groups within it aside.
pub fn pids(group: &Path) -> Vec<u32> {
    let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    procs.lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// Processes in a group, and in those within it.
pub fn all_pids(group: &Path) -> Vec<u32> {
    let within = inner(group);
    let within = within.iter().flat_map(|group| all_pids(group));
    pids(group).into_iter().chain(within).collect()
}

/// CPU time of all that ever ran in a group, in nanoseconds: the scheduler's runtime, to the microsecond in version 2
/// of control groups, to the nanosecond in version 1. What runs just now is counted up to its last tick. `None` where
/// there is no such group.
pub fn cpu_ns(group: &Path) -> Option<f64> {
    if let Ok(stat) = fs::read_to_string(group.join("cpu.stat")) {
        let usage = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        if let Some(usage) = usage {
            return Some(usage.trim().parse::<f64>().ok()? * 1e3);
        }
    }
    let usage = fs::read_to_string(group.join("cpuacct.usage")).ok()?;
    usage.trim().parse().ok()
}

/// Waits until all in a group, and in those within it, has ended, or for so long.
pub fn wait_until_empty(group: &Path, limit: Duration) {
    let begun = Instant::now();
    while !all_pids(group).is_empty() && begun.elapsed() < limit {
        sleep(POLL_INTERVAL);
    }
}

/// Kills all that is in a group, and in groups within it.
pub fn kill(group: &Path) {
    // Linux 5.14 and newer do it in one step.
    let door = File::options().write(true).open(group.join("cgroup.kill"));
    if door.and_then(|mut door| door.write_all(b"1")).is_ok() {
        return;
    }
    for pid in pids(group) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    inner(group).iter().for_each(|group| kill(group));
}

/// Kills all in a group of ours, and removes it. Anything else is refused.
pub fn clear(group: &Path) -> io::Result<()> {
    if !group.ancestors().any(is_ours) {
        return Err(io::Error::other("bpfcost did not make this control group"));
    }
    let begun = Instant::now();
    while group.exists() {
        kill(group);
        inner(group).iter().try_for_each(|inner| clear(inner))?;
        match fs::remove_dir(group) {
            Err(error) if group.exists() && begun.elapsed() > REMOVE_TIMEOUT => return Err(error),
            Err(_) => sleep(POLL_INTERVAL),
            // From here on, a group of this name belongs to another process.
            Ok(()) => break,
        }
    }
    Ok(())
}

/// Returns true if a folder's name is one of ours: others may call theirs `bpfcost-ci`.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbers = name.strip_prefix(PREFIX).and_then(|n| n.split_once('-'));
    let whole = |text: &str| text.parse::<u32>().is_ok();
    numbers.is_some_and(|(pid, count)| whole(pid) && whole(count))
}

/// Returns true if a process is in a group, or in one within it.
fn holds(group: &Path, pid: u32) -> bool {
    all_pids(group).contains(&pid)
}

/// Groups within a group.
fn inner(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders do for what is not of the kernel.
    fn folder() -> tempfile::TempDir {
        tempfile::TempDir::with_prefix("other-").expect("a folder")
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_is_in_use_stays() {
        let parent = folder();
        let left = parent.path().join(format!("{PREFIX}1-0"));
        fs::create_dir_all(left.join("0")).expect("a group within a group");
        let others = ["other", "bpfcost-ci", "bpfcost-1", "bpfcost-x-0"];
        let others = others.map(|name| parent.path().join(name));
        for other in &others {
            fs::create_dir(other).expect("a group of others");
        }
        let one = LockedCgroup::make_in(parent.path()).expect("a group");
        assert!(!left.exists());
        let two = LockedCgroup::make_in(parent.path()).expect("another one");
        assert!(one.path().exists() && two.path().exists());
        assert!(others.iter().all(|other| other.exists()));
        let paths = [one.path().to_owned(), two.path().to_owned()];
        drop((one, two));
        assert!(!paths.iter().any(|path| path.exists()));
    }

    #[test]
    fn a_group_holds_what_is_in_groups_within_it() {
        let folder = folder();
        let inner = folder.path().join("0");
        fs::create_dir(&inner).expect("a group within a group");
        fs::write(folder.path().join("cgroup.procs"), "7\n").expect("a list");
        fs::write(inner.join("cgroup.procs"), "8\n9\n").expect("a list");
        let held = [6, 7, 8, 9].map(|pid| holds(folder.path(), pid));
        assert_eq!(held, [false, true, true, true]);
        assert_eq!(all_pids(folder.path()), [7, 8, 9]);
    }

    #[test]
    fn cpu_time_is_read_in_either_version() {
        let folder = folder();
        assert_eq!(cpu_ns(folder.path()), None);
        fs::write(folder.path().join("cpuacct.usage"), "1234567\n").expect("a file");
        assert_eq!(cpu_ns(folder.path()), Some(1_234_567.0));
        // Version 1 has a file of that name too, with other lines.
        fs::write(folder.path().join("cpu.stat"), "nr_periods 0\n").expect("a file");
        assert_eq!(cpu_ns(folder.path()), Some(1_234_567.0));
        let stat = "usage_usec 42\nuser_usec 40\nsystem_usec 2\n";
        fs::write(folder.path().join("cpu.stat"), stat).expect("a file");
        assert_eq!(cpu_ns(folder.path()), Some(42_000.0));
    }

    #[test]
    fn nothing_but_our_own_is_removed() {
        let folder = folder();
        assert!(clear(folder.path()).is_err());
        assert!(folder.path().exists());
    }
}
