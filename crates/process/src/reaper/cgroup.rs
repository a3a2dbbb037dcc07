//! The control groups of this process: one below its own group, and within that one for each process that it
//! starts.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::cgroup;

/// A control group, removed with all in it when dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// Marks it, and the groups within it, as in use.
    _lock: Option<cgroup::LockedCgroup>,
}

impl Cgroup {
    /// A group for what this process starts, below its own; `None` where that can't be had: no hierarchy of
    /// version 2, or none that may be written.
    pub(crate) fn of_process() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let made = cgroup::LockedCgroup::make_in(&place(&mounts, &cgroups)?).ok()?;
        Some(Cgroup {
            path: made.path().to_owned(),
            _lock: Some(made),
        })
    }

    /// A group within this one.
    pub(crate) fn within(&self, name: &str) -> io::Result<Self> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        Ok(Cgroup { path, _lock: None })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file whose readers and writers are its processes.
    pub(crate) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        cgroup::pids(&self.path)
    }

    /// CPU time of all that ever ran in it, in nanoseconds; see [`cgroup::cpu_ns`].
    pub(crate) fn cpu_ns(&self) -> Option<f64> {
        cgroup::cpu_ns(&self.path)
    }

    /// Waits until all that is in it has ended, or for so long.
    pub(crate) fn wait_until_empty(&self, limit: Duration) {
        cgroup::wait_until_empty(&self.path, limit);
    }

    /// Kills all that is in it.
    pub(crate) fn kill(&self) {
        cgroup::kill(&self.path);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = cgroup::clear(&self.path);
    }
}

/// The folder of the own group of version 2, by mountinfo(5) and cgroups(7).
fn place(mounts: &str, cgroups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mount = before.split(' ').nth(4)?;
        (after.split(' ').next() == Some("cgroup2")).then_some(mount)
    })?;
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A group outside of what this namespace may see.
    (!path.starts_with("..")).then(|| Path::new(mount).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 20 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn the_own_group_is_found_in_any_layout() {
        let found =
            |mounts: &str, own: &str| place(mounts, own).map(|path| path.display().to_string());
        let own = "9:name=systemd:/x\n0::/user.slice/session-1.scope\n";
        assert_eq!(
            found(HYBRID, own).as_deref(),
            Some("/sys/fs/cgroup/unified/user.slice/session-1.scope")
        );
        let pure = "24 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(found(pure, "0::/\n").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(found(pure, "0::/../other\n"), None);
        let first = "31 20 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(found(first, "1:cpu:/\n"), None);
    }
}
