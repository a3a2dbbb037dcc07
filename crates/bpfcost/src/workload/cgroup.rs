//! Control groups (version 2): all that a process starts stays in its group, whatever it does, so that it can be
//! counted and ended as one. No controller is needed for that: the kernel counts CPU time in any group.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// What the names of our groups begin with.
const PREFIX: &str = "bpfcost-";
/// How long a group may resist being removed, after all in it was killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often that is tried.
const LOOK: Duration = Duration::from_millis(2);

/// A control group, removed with all in it when dropped.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// A group for what this process starts, below its own; `None` where that can't be had: no hierarchy of
    /// version 2, or none that may be written.
    pub(super) fn of_process() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = place(&mounts, &own)?.join(format!("{PREFIX}{}", std::process::id()));
        // One of an earlier process with this number, whose guard was killed as well.
        let _ = clear(&path);
        fs::create_dir(&path).ok()?;
        Some(Cgroup(path))
    }

    /// A group within this one.
    pub(super) fn within(&self, name: &str) -> io::Result<Self> {
        let path = self.0.join(name);
        fs::create_dir(&path)?;
        Ok(Cgroup(path))
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The file whose readers and writers are its processes.
    pub(super) fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        pids(&self.0)
    }

    /// CPU time of all that ever ran in it, in nanoseconds, to the microsecond. What runs just now is counted up
    /// to its last tick.
    pub(super) fn cpu_ns(&self) -> Option<f64> {
        cpu_ns(&self.0)
    }

    /// Kills all that is in it.
    pub(super) fn kill(&self) {
        kill(&self.0);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = clear(&self.0);
    }
}

/// The folder of the own group of version 2, by mountinfo(5) and cgroups(7).
fn place(mounts: &str, own: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mount = before.split(' ').nth(4)?;
        (after.split(' ').next() == Some("cgroup2")).then_some(mount)
    })?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A group outside of what this namespace may see.
    (!own.starts_with("..")).then(|| Path::new(mount).join(own))
}

/// CPU time of all that ever ran in a group, in nanoseconds; see [`Cgroup::cpu_ns`].
pub(crate) fn cpu_ns(group: &Path) -> Option<f64> {
    let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
    let usage = stat
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(usage.trim().parse::<f64>().ok()? * 1e3)
}

fn pids(group: &Path) -> Vec<u32> {
    let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    procs.lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// Groups within a group.
fn inner(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn kill(group: &Path) {
    // Linux 5.14 and newer do it in one step.
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for pid in pids(group) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    inner(group).iter().for_each(|group| kill(group));
}

/// Kills all in a group of ours, and removes it.
pub(super) fn clear(group: &Path) -> io::Result<()> {
    let ours = group
        .components()
        .any(|part| part.as_os_str().to_string_lossy().starts_with(PREFIX));
    if !ours {
        return Err(io::Error::other("this is no control group of ours"));
    }
    let begun = Instant::now();
    while group.exists() {
        kill(group);
        inner(group).iter().try_for_each(|inner| clear(inner))?;
        match fs::remove_dir(group) {
            Err(error) if group.exists() && begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => sleep(LOOK),
            Ok(()) => {}
        }
    }
    Ok(())
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

    #[test]
    fn nothing_but_our_own_is_removed() {
        let folder = tempfile::TempDir::with_prefix("other-").expect("a folder");
        assert!(clear(folder.path()).is_err());
        assert!(folder.path().exists());
    }
}
