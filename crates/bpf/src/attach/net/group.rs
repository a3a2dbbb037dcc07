//! A control group of bpfcost's own, for a socket: programs on the group's packets see only that socket's packets.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    process,
    sync::{Mutex, PoisonError},
};

use bpfcost_process::cgroup::LockedCgroup;
use rustix::fs::{FsWord, statfs};

use crate::{
    error::{Result, failed},
    mount::{self, MountedFs},
};

const WHAT: &str = "a control group (cgroup2)";

/// A control group, directly below the root.
pub(super) struct SenderCgroup {
    // Removed first: the path to it goes through the hierarchy.
    cgroup: LockedCgroup,
    hierarchy: Hierarchy,
}

impl SenderCgroup {
    /// Makes one, and removes those that are left of processes that were killed.
    pub(super) fn make() -> Result<Self> {
        let hierarchy = Hierarchy::find()?;
        let cgroup = LockedCgroup::make_in(&hierarchy.0).map_err(failed(WHAT, "making one"))?;
        Ok(SenderCgroup { cgroup, hierarchy })
    }

    /// Does `work` with this process in it. What is made there, as a socket, belongs to it for good.
    pub(super) fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        /// The whole process moves, so one thread at a time.
        static MOVING: Mutex<()> = Mutex::new(());
        let _moving = MOVING.lock().unwrap_or_else(PoisonError::into_inner);
        // The door back is opened first: who may not come back does not go.
        let home = home()
            .and_then(|home| door(&self.hierarchy.0.join(home.trim_start_matches('/'))))
            .map_err(failed(WHAT, "opening the one that this process is in"))?;
        let procs = door(self.cgroup.path()).map_err(failed(WHAT, "opening the new one"))?;
        enter(procs).map_err(failed(WHAT, "moving this process into the new one"))?;
        let done = work();
        enter(home).map_err(failed(WHAT, "moving this process back to where it was"))?;
        done
    }
}

impl AsFd for SenderCgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.cgroup.folder().as_fd()
    }
}

/// The root of the hierarchy, and what keeps it there.
pub(crate) struct Hierarchy(
    PathBuf,
    #[allow(dead_code, reason = "the path goes through it")] Option<MountedFs>,
);

impl Hierarchy {
    /// Path of the root, while this is held.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Finds the mounted hierarchy. Only where none is mounted, it is opened apart: opening it anew sets options
    /// of the hierarchy for everyone (`nsdelegate`, `memory_recursiveprot`).
    fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(failed(WHAT, "asking where they are"))?;
        if let Some(path) = mounts.lines().find_map(mounted_at) {
            return Ok(Hierarchy(path, None));
        }
        let opened = mount::open("cgroup2")?;
        Ok(Hierarchy(opened.path(""), Some(opened)))
    }
}

/// The hierarchy of control groups.
pub(crate) fn cgroup_root() -> Result<Hierarchy> {
    Hierarchy::find()
}

/// Returns the mount point of the whole hierarchy, if this line of mountinfo is about it.
fn mounted_at(line: &str) -> Option<PathBuf> {
    /// CGROUP2_SUPER_MAGIC
    const CGROUP2: FsWord = 0x6367_7270;
    let (mount, kind) = line.split_once(" - ")?;
    let mut words = mount.split(' ');
    let (root, path) = (words.nth(3)?, words.next()?);
    let whole = kind.starts_with("cgroup2 ") && root == "/";
    // Something else may be mounted over it.
    let seen = whole && statfs(path).is_ok_and(|fs| fs.f_type == CGROUP2);
    seen.then(|| PathBuf::from(path))
}

/// The control group of this process, as a path from the root.
fn home() -> io::Result<String> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
    // Beyond the root that this process may see, there is no way.
    path.filter(|path| !path.starts_with("/.."))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require;

    /// One, or why there is none.
    fn made() -> Option<SenderCgroup> {
        SenderCgroup::make()
            .inspect_err(|error| require::skip(error))
            .ok()
    }

    #[test]
    fn a_process_goes_in_and_comes_back() {
        let Some(group) = made() else {
            return;
        };
        let before = home().expect("a control group");
        let inside = group.inside(|| Ok(home().expect("a control group")));
        let name = group
            .cgroup
            .path()
            .file_name()
            .expect("a name")
            .to_string_lossy();
        assert!(inside.expect("moved").ends_with(&*name));
        assert_eq!(home().expect("a control group"), before);
    }
}
