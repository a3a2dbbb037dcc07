//! Control groups (version 2): this process's own, and those that bpfcost makes below it.

use std::{fs, path::PathBuf};

/// Folders of the own group, below each mount of the hierarchy.
pub(crate) fn own_cgroups() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let places = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    let places = places.filter_map(|line| line.split(' ').nth(4));
    places
        .map(|place| PathBuf::from(place).join(own.unwrap_or_default()))
        .collect()
}

/// Control groups of a process of the program, wherever they are mounted.
pub(crate) fn groups(pid: u32) -> Vec<PathBuf> {
    let folders = own_cgroups().into_iter();
    let groups = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let name = format!("bpfcost-{pid}-");
    groups
        .filter(|group| group.file_name().to_string_lossy().starts_with(&name))
        .map(|group| group.path())
        .collect()
}
