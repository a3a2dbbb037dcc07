//! All BPF programs and maps that are loaded on this machine.

#![allow(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use libbpf_rs::{
    libbpf_sys as sys,
    query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions},
};

use crate::stats::RunStats;

/// A BPF program in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadedProgram {
    /// The kernel's number of it.
    pub id: u32,
    /// Program type, e.g. `Kprobe`.
    pub kind: String,
    /// Program name, at most 15 characters.
    pub name: String,
}

/// A BPF program in the kernel, and what the kernel has written down of its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    /// The program.
    pub program: LoadedProgram,
    /// Runs while the account was kept.
    pub stats: RunStats,
}

/// Every BPF program in the kernel with its runs, by id. Empty without the privilege to ask.
pub fn program_stats() -> Vec<ProgramStats> {
    ProgInfoIter::default()
        .map(|info| ProgramStats {
            program: LoadedProgram {
                id: info.id,
                kind: format!("{:?}", info.ty),
                name: info.name.to_string_lossy().into_owned(),
            },
            stats: RunStats {
                run_time_ns: info.run_time_ns,
                run_cnt: info.run_cnt,
                recursion_misses: info.recursion_misses,
            },
        })
        .collect()
}

/// Every BPF program in the kernel, by id. Empty without the privilege to ask.
pub fn loaded_programs() -> Vec<LoadedProgram> {
    program_stats().into_iter().map(|one| one.program).collect()
}

/// The kernel's number of every BPF map, in order. Empty without the privilege to ask.
pub fn loaded_maps() -> Vec<u32> {
    MapInfoIter::default().map(|map| map.id).collect()
}

/// A BPF map in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadedMap {
    /// The kernel's number of it.
    pub id: u32,
    /// Map type, e.g. `Hash`.
    pub kind: String,
    /// Map name, at most 15 characters.
    pub name: String,
    /// Bytes of a key, bytes of a value, and the most entries.
    pub sizes: [u32; 3],
}

/// The maps that these programs use, by id.
pub fn maps_of(programs: &BTreeSet<u32>) -> Vec<LoadedMap> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let used: BTreeSet<u32> = ProgInfoIter::with_query_opts(options)
        .filter(|program| programs.contains(&program.id))
        .flat_map(|program| program.map_ids)
        .collect();
    MapInfoIter::default()
        .filter(|map| used.contains(&map.id))
        .map(|map| LoadedMap {
            id: map.id,
            kind: format!("{:?}", map.ty),
            name: map.name.to_string_lossy().into_owned(),
            sizes: [map.key_size, map.value_size, map.max_entries],
        })
        .collect()
}

/// Returns the paths at which programs are pinned, or links that hold one, by the program's id: in all BPF file systems
/// that this process sees.
pub fn pins() -> BTreeMap<u32, Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut pins = BTreeMap::new();
    for mount in mounts.lines() {
        let words: Vec<&str> = mount.split(' ').collect();
        if let [_, place, "bpf", ..] = words[..] {
            below(Path::new(place), &mut pins);
        }
    }
    pins
}

fn below(folder: &Path, pins: &mut BTreeMap<u32, Vec<PathBuf>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => below(&path, pins),
            Ok(kind) if kind.is_file() => {
                if let Some(id) = pinned(&path) {
                    pins.entry(id).or_default().push(path);
                }
            }
            _ => {}
        }
    }
}

/// The program that is pinned there; `None` where something else is, a map say.
fn pinned(path: &Path) -> Option<u32> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path outlives the call and ends with a zero.
    let answer = unsafe { sys::bpf_obj_get(path.as_ptr()) };
    if answer < 0 {
        return None;
    }
    // SAFETY: not negative, it is a descriptor that the kernel opened for this call alone.
    let object = unsafe { OwnedFd::from_raw_fd(answer) };
    let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", object.as_raw_fd())).ok()?;
    program_of(&facts)
}

/// The BPF programs that a process holds by its open files, by its folder in /proc: programs and links say which.
pub fn programs_held(folder: &Path) -> BTreeSet<u32> {
    let descriptors = fs::read_dir(folder.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors
        .filter(|descriptor| {
            // Most are files and sockets, and need not be asked: `anon_inode:bpf-prog`, `anon_inode:bpf_link`.
            let kind = fs::read_link(descriptor.path()).unwrap_or_default();
            kind.to_str().is_some_and(|kind| kind.contains("bpf"))
        })
        .filter_map(|descriptor| {
            let facts = folder.join("fdinfo").join(descriptor.file_name());
            program_of(&fs::read_to_string(facts).ok()?)
        })
        .collect()
}

/// The program that a descriptor is of, or of a link to it, by what `/proc/PID/fdinfo/FD` says of it.
fn program_of(fdinfo: &str) -> Option<u32> {
    fdinfo
        .lines()
        .find_map(|line| line.strip_prefix("prog_id:"))?
        .trim()
        .parse()
        .ok()
}
