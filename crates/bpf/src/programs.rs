//! BPF programs and maps that are loaded on this machine, by anyone.

use libbpf_rs::query::{MapInfoIter, ProgInfoIter};

/// A BPF program in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadedProgram {
    /// The kernel's number of it.
    pub id: u32,
    /// Its type, e.g. `Kprobe`.
    pub kind: String,
    /// Its name, at most 15 characters.
    pub name: String,
}

/// Every BPF program in the kernel, by id. Empty without the privilege to ask.
pub fn loaded_programs() -> Vec<LoadedProgram> {
    ProgInfoIter::default()
        .map(|program| LoadedProgram {
            id: program.id,
            kind: format!("{:?}", program.ty),
            name: program.name.to_string_lossy().into_owned(),
        })
        .collect()
}

/// The kernel's number of every BPF map, in order. Empty without the privilege to ask.
pub fn loaded_maps() -> Vec<u32> {
    MapInfoIter::default().map(|map| map.id).collect()
}
