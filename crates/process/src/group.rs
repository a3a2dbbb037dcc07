//! The control group of processes that run already: its account of CPU time has what came and went, too.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use procfs::process::Process;

use crate::{cgroup, process_tree};

/// Processes that start or end meanwhile look like strangers; then it is looked again.
const ATTEMPTS: u32 = 10;
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// The control group in which these processes are, with what they started and nothing else; `None` where they share
/// theirs with others, as in a user's session, or where none has an account of CPU time.
pub fn group_of(pids: &[u32]) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", pids.first()?)).ok()?;
    let mut groups = places(&mounts, &cgroups).into_iter();
    groups.find(|group| {
        let attempt = |number| {
            sleep(POLL_INTERVAL * u32::from(number > 0));
            belongs_to(group, pids)
        };
        cgroup::cpu_ns(group).is_some() && (0..ATTEMPTS).any(attempt)
    })
}

/// Whether a group holds these processes, and none but those that they started.
fn belongs_to(group: &Path, pids: &[u32]) -> bool {
    // What has ended, and was not waited for yet, is a child still, and no member any more.
    let lives = |pid: &u32| {
        let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat());
        stat.is_ok_and(|stat| stat.state != 'Z')
    };
    let members: BTreeSet<u32> = cgroup::all_pids(group).into_iter().collect();
    let family: BTreeSet<u32> = pids.iter().flat_map(|pid| process_tree(*pid)).collect();
    pids.iter().all(|pid| members.contains(pid))
        && !members.difference(&family).any(lives)
        && !family.difference(&members).any(lives)
}

/// Where a process's groups are that may have an account, of either version, by mountinfo(5) and cgroups(7). The
/// group of all processes is left out.
fn places(mounts: &str, cgroups: &str) -> Vec<PathBuf> {
    let mount = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1).unwrap_or_default());
            wanted(kind, options).then(|| before.split(' ').nth(4))?
        })
    };
    let of_version_2 = mount(&|kind, _| kind == "cgroup2");
    let of_version_1 =
        mount(&|kind, options| kind == "cgroup" && options.split(',').any(|one| one == "cpuacct"));
    let places = cgroups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let mount = match controllers {
            "" => of_version_2,
            _ if controllers.split(',').any(|one| one == "cpuacct") => of_version_1,
            _ => None,
        };
        let path = path.strip_prefix('/')?;
        // One outside of what this namespace may see begins with `..`.
        let own = !path.is_empty() && !path.starts_with("..");
        own.then(|| Some(Path::new(mount?).join(path)))?
    });
    places.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 20 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
40 31 0:37 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn groups_of_either_version_are_found() {
        let found = |cgroups: &str| -> Vec<String> {
            let places = places(MOUNTS, cgroups).into_iter();
            places.map(|path| path.display().to_string()).collect()
        };
        let service = "9:name=systemd:/a.service\n4:cpu,cpuacct:/a.service\n0::/b/a.service\n";
        assert_eq!(
            found(service),
            [
                "/sys/fs/cgroup/cpu,cpuacct/a.service",
                "/sys/fs/cgroup/unified/b/a.service"
            ]
        );
        assert_eq!(found("4:cpu,cpuacct:/\n0::/\n"), [""; 0]);
        assert_eq!(found("0::/../other\n"), [""; 0]);
        assert_eq!(found("5:memory:/a\n"), [""; 0]);
    }
}
