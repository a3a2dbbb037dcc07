//! A control group of the tool's own, for a socket: programs on the group's packets see that socket's alone.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::fs::{FlockOperation, FsWord, flock, statfs};

use super::failed;
use crate::{error::Result, mount::Opened};

const WHAT: &str = "a control group (cgroup2)";

/// Folders of this tool begin so; the process and a count follow.
const PREFIX: &str = "bpfcost-";

/// How often another name is tried, where a sweep of another process takes the first one for left over.
const TRIES: u32 = 8;

/// A control group, locked as long as it is in use. A process that is killed leaves it without lock, and
/// [`sweep`] removes it.
pub(super) struct Group {
    hierarchy: Hierarchy,
    path: PathBuf,
    folder: File,
}

impl Group {
    /// Makes one, and removes those that are left of processes that were killed.
    pub(super) fn make() -> Result<Self> {
        let hierarchy = Hierarchy::find()?;
        sweep(&hierarchy.0);
        let (path, folder) = make_in(&hierarchy.0).map_err(failed(WHAT, "making one"))?;
        Ok(Group {
            hierarchy,
            path,
            folder,
        })
    }

    /// Does `work` with this process in it. What is made there, as a socket, belongs to it for good.
    pub(super) fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        /// It is the whole process that moves, so one thread at a time.
        static MOVING: Mutex<()> = Mutex::new(());
        let _moving = MOVING.lock().unwrap_or_else(PoisonError::into_inner);
        // The door back is opened first: who may not come back does not go.
        let home = home()
            .and_then(|home| door(&self.hierarchy.0.join(home.trim_start_matches('/'))))
            .map_err(failed(WHAT, "opening the one that this process is in"))?;
        let own = door(&self.path).map_err(failed(WHAT, "opening the new one"))?;
        enter(own).map_err(failed(WHAT, "moving this process into the new one"))?;
        let done = work();
        enter(home).map_err(failed(WHAT, "moving this process back to where it was"))?;
        done
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody is in it. Where it stays after all, the next start removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// The root of the hierarchy, and what keeps it there.
struct Hierarchy(
    PathBuf,
    #[allow(dead_code, reason = "the path goes through it")] Option<Opened>,
);

impl Hierarchy {
    /// Where it is mounted. Only where it isn't, it is opened apart: opening it anew sets options of the
    /// hierarchy for everyone (`nsdelegate`, `memory_recursiveprot`).
    fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(failed(WHAT, "asking where they are"))?;
        if let Some(path) = mounts.lines().find_map(mounted_at) {
            return Ok(Hierarchy(path, None));
        }
        let opened = Opened::new("cgroup2")?;
        Ok(Hierarchy(opened.path(""), Some(opened)))
    }
}

/// Where a line of mountinfo says that the whole hierarchy is mounted, if it does.
fn mounted_at(line: &str) -> Option<PathBuf> {
    /// CGROUP2_SUPER_MAGIC
    const CGROUP2: FsWord = 0x6367_7270;
    let (mount, kind) = line.split_once(" - ")?;
    let mut words = mount.split(' ');
    let (root, path) = (words.nth(3)?, words.next()?);
    let whole = kind.starts_with("cgroup2 ") && root == "/";
    // Something else may be mounted over it.
    let seen = whole && statfs(path).is_ok_and(|found| found.f_type == CGROUP2);
    seen.then(|| PathBuf::from(path))
}

/// The control group of this process, as a path from the root.
fn home() -> io::Result<String> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    // Beyond the root that this process may see, there is no way.
    own.filter(|path| !path.starts_with("/.."))
        .map(str::to_owned)
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Through which processes come into a control group.
fn door(group: &Path) -> io::Result<File> {
    File::options().write(true).open(group.join("cgroup.procs"))
}

fn enter(mut door: File) -> io::Result<()> {
    door.write_all(process::id().to_string().as_bytes())
}

fn make_in(root: &Path) -> io::Result<(PathBuf, File)> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let mut refused = io::Error::from(io::ErrorKind::WouldBlock);
    for _ in 0..TRIES {
        let count = MADE.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{PREFIX}{}-{count}", process::id()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(error) => refused = error,
            Ok(()) => match lock(&path) {
                Ok(folder) => return Ok((path, folder)),
                Err(error) => refused = error,
            },
        }
    }
    Err(refused)
}

/// Opens and locks a folder that is still there then.
fn lock(path: &Path) -> io::Result<File> {
    let folder = File::open(path)?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    match fs::metadata(path)?.ino() == folder.metadata()?.ino() {
        true => Ok(folder),
        false => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

/// Removes control groups of processes that are gone.
fn sweep(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && let Ok(_locked) = lock(&entry.path()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require;

    /// One, or why there is none.
    fn made() -> Option<Group> {
        Group::make().inspect_err(|error| require::skip(error)).ok()
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_is_in_use_stays() {
        let Some(group) = made() else {
            return;
        };
        let root = group.hierarchy.0.clone();
        // As it is after a kill: a folder of ours that nobody has locked.
        let left = root.join(format!("{PREFIX}left"));
        fs::create_dir(&left).expect("a control group");
        let other = Group::make().expect("another one");
        assert!(!left.exists());
        assert!(group.path.exists() && other.path.exists());
        let paths = [group.path.clone(), other.path.clone()];
        drop((group, other));
        assert!(!paths.iter().any(|path| path.exists()));
    }

    #[test]
    fn a_process_goes_in_and_comes_back() {
        let Some(group) = made() else {
            return;
        };
        let before = home().expect("a control group");
        let inside = group.inside(|| Ok(home().expect("a control group")));
        let name = group.path.file_name().expect("a name").to_string_lossy();
        assert!(inside.expect("moved").ends_with(&*name));
        assert_eq!(home().expect("a control group"), before);
    }
}
