//! The host as a target: its files under `/proc` and `/sys`, read tolerantly.
//!
//! What can't be read is unknown, never an error: a fingerprint with a gap is better than a
//! measurement that doesn't start.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::cpus;

/// The machine that this program runs on, seen through its `/proc` and `/sys`.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Host::at("/")
    }
}

impl Host {
    /// A machine whose `proc` and `sys` lie under `root`: the real one, or a test's.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Host { root: root.into() }
    }

    /// Whether this is the machine that the program runs on, so that it can ask the CPU itself.
    pub(super) fn is_real(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a path of the machine lies.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without white space at its ends; `None` where it is missing, unreadable or
    /// empty.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The names in a folder, sorted; none where it can't be read.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Online CPUs; empty where the kernel doesn't list them.
    pub fn online_cpus(&self) -> Vec<u32> {
        self.cpu_list("/sys/devices/system/cpu/online")
    }

    /// CPUs that the machine has, offline ones included.
    pub fn possible_cpus(&self) -> Vec<u32> {
        self.cpu_list("/sys/devices/system/cpu/possible")
    }

    fn cpu_list(&self, path: &str) -> Vec<u32> {
        self.read(path)
            .and_then(|text| cpus::parse_cpus(&text).ok())
            .unwrap_or_default()
    }

    /// Refuses CPUs that are offline or that the machine doesn't have.
    pub fn usable_cpus(&self, asked: &[u32]) -> Result<(), super::CpuError> {
        cpus::usable_cpus(asked, &self.online_cpus(), &self.possible_cpus())
    }
}
