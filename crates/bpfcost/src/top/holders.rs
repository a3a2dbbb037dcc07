//! The holders of a program: processes with a descriptor of it or of a link to it, and names in BPF file systems. A
//! program without a holder is attached in the kernel itself: to a control group, an interface, a socket.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use bpfcost_bpf::{pins, programs_held};
use serde::{Deserialize, Serialize};

/// Those who hold a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Holders {
    /// Processes, by number.
    pub(crate) processes: Vec<Holder>,
    /// Paths at which it or a link to it is pinned.
    pub(crate) pins: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// Process number.
    pub(crate) pid: u32,
    /// Name, at most 15 characters.
    pub(crate) name: String,
}

/// Known holders of programs. All processes are asked only when there is a program that was not there before, for
/// that takes its time.
#[derive(Debug, Default)]
pub(super) struct HolderCache {
    known: BTreeSet<u32>,
    processes: BTreeMap<u32, BTreeSet<Holder>>,
    pins: BTreeMap<u32, Vec<PathBuf>>,
}

impl HolderCache {
    /// Makes sure that these programs are known.
    pub(super) fn know(&mut self, programs: &[u32]) {
        if programs.iter().all(|id| self.known.contains(id)) {
            return;
        }
        self.known = programs.iter().copied().collect();
        self.processes = processes(Path::new("/proc"));
        self.pins = pins();
    }

    /// Who holds that one.
    pub(super) fn by(&self, program: u32) -> Holders {
        Holders {
            processes: self
                .processes
                .get(&program)
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            pins: self.pins.get(&program).cloned().unwrap_or_default(),
        }
    }
}

/// The processes that hold each program. Those that end meanwhile are left out.
fn processes(proc: &Path) -> BTreeMap<u32, BTreeSet<Holder>> {
    let mut held: BTreeMap<u32, BTreeSet<Holder>> = BTreeMap::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let folder = process.path();
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|pid| pid.parse().ok())
        else {
            continue;
        };
        let programs = programs_held(&folder);
        if programs.is_empty() {
            continue;
        }
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let holder = Holder {
            pid,
            name: name.trim_end().to_owned(),
        };
        for program in programs {
            held.entry(program).or_default().insert(holder.clone());
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn descriptors_of_programs_and_links_count() {
        let proc = tempfile::tempdir().expect("a folder");
        let process = |pid: &str, name: &str, descriptors: &[(&str, &str)]| {
            let folder = proc.path().join(pid);
            for part in ["fd", "fdinfo"] {
                fs::create_dir_all(folder.join(part)).expect("a folder");
            }
            fs::write(folder.join("comm"), format!("{name}\n")).expect("a name");
            for (at, (kind, facts)) in descriptors.iter().enumerate() {
                symlink(kind, folder.join(format!("fd/{at}"))).expect("a descriptor");
                fs::write(folder.join(format!("fdinfo/{at}")), facts).expect("facts");
            }
        };
        process(
            "17",
            "bpftrace",
            &[
                ("/dev/null", "pos:\t0\n"),
                (
                    "anon_inode:bpf-prog",
                    "pos:\t0\nprog_type:\t2\nprog_id:\t5\n",
                ),
                (
                    "anon_inode:bpf_link",
                    "link_type:\tperf\nlink_id:\t1\nprog_id:\t6\n",
                ),
                ("anon_inode:bpf-map", "map_type:\t1\nmap_id:\t5\n"),
            ],
        );
        process("18", "agent", &[("anon_inode:bpf-prog", "prog_id:\t5\n")]);
        process(
            "self",
            "nobody",
            &[("anon_inode:bpf-prog", "prog_id:\t9\n")],
        );
        let held = processes(proc.path());
        let names = |id: u32| -> Vec<(u32, &str)> {
            held[&id]
                .iter()
                .map(|one| (one.pid, one.name.as_str()))
                .collect()
        };
        assert_eq!(held.len(), 2, "{held:?}");
        assert_eq!(names(5), [(17, "bpftrace"), (18, "agent")]);
        assert_eq!(names(6), [(17, "bpftrace")]);
    }
}
