//! Chooses what runs a guest: KVM if it really works, else QEMU's emulation.
//!
//! The existence of `/dev/kvm` proves little: inside some virtual machines it exists, and no guest finishes its
//! boot. So the first guest is tried with KVM, and the result is kept until the machine boots again.

use std::{
    fs,
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::Tools;
use bpfcost_process::xdg::Folder;

/// The executor of a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acceleration {
    /// The CPU, by KVM.
    Kvm,
    /// QEMU, which translates them (TCG).
    Emulated,
}

/// Knowledge of KVM on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvmSupport {
    /// A guest has booted with it.
    Usable,
    /// KVM can't be used, for this reason.
    Unusable(String),
    /// KVM is there, and has not been tried since the machine booted.
    Untried,
}

impl Acceleration {
    /// CPU time that a boot may take. Emulated ones take 5 to 20 s; with KVM 2 s, and one that hangs must not be waited for
    /// long.
    pub fn boot_limit(self) -> Duration {
        match self {
            Acceleration::Kvm => Duration::from_secs(18),
            Acceleration::Emulated => Duration::from_secs(240),
        }
    }
}

/// The answer, as the cache keeps it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KvmCacheEntry {
    /// The boot, kernel and QEMU that it holds for.
    key: String,
    /// Reason that KVM can't be used; null if it can.
    why: Option<String>,
}

impl KvmSupport {
    /// Reads what is known of this machine.
    pub fn here(tools: &Tools) -> KvmSupport {
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/kvm") {
            return KvmSupport::Unusable(format!("/dev/kvm: {error}"));
        }
        cache().map_or(KvmSupport::Untried, |file| {
            KvmSupport::read(&file, &key(tools))
        })
    }

    fn read(file: &Path, key: &str) -> KvmSupport {
        let answer = fs::read(file)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<KvmCacheEntry>(&bytes).ok())
            .filter(|answer| answer.key == key);
        match answer {
            None => KvmSupport::Untried,
            Some(KvmCacheEntry { why: None, .. }) => KvmSupport::Usable,
            Some(KvmCacheEntry { why: Some(why), .. }) => KvmSupport::Unusable(why),
        }
    }

    /// Keeps what was found out. Where it can't be kept, it is found out again.
    pub fn keep(&self, tools: &Tools) {
        let why = match self {
            KvmSupport::Untried => return,
            KvmSupport::Usable => None,
            KvmSupport::Unusable(why) => Some(why.clone()),
        };
        let answer = KvmCacheEntry {
            key: key(tools),
            why,
        };
        if let Some(file) = cache()
            && let Some(folder) = file.parent()
        {
            let _ = write(&answer, folder, &file);
        }
    }
}

/// Another run sees it whole, or not at all.
fn write(answer: &KvmCacheEntry, folder: &Path, file: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut named = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut named, answer)?;
    named.persist(file)?;
    Ok(())
}

/// An answer holds for one boot of one kernel, and one QEMU.
fn key(tools: &Tools) -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let boot = read("/proc/sys/kernel/random/boot_id");
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{} {} {}", boot.trim(), kernel.trim(), tools.qemu_version)
}

/// The file in the user's cache; `None` for a user without a home.
fn cache() -> Option<PathBuf> {
    Some(Folder::Cache.of_user()?.join("kvm.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_boot_alone() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("kvm.json");
        let keep = |why: Option<&str>| {
            let answer = KvmCacheEntry {
                key: "boot 1".into(),
                why: why.map(str::to_owned),
            };
            fs::write(&file, serde_json::to_vec(&answer).expect("JSON")).expect("a file");
        };
        assert_eq!(KvmSupport::read(&file, "boot 1"), KvmSupport::Untried);
        keep(None);
        assert_eq!(KvmSupport::read(&file, "boot 1"), KvmSupport::Usable);
        assert_eq!(KvmSupport::read(&file, "boot 2"), KvmSupport::Untried);
        keep(Some("it hangs"));
        assert_eq!(
            KvmSupport::read(&file, "boot 1"),
            KvmSupport::Unusable("it hangs".into())
        );
        fs::write(&file, "half").expect("a file");
        assert_eq!(KvmSupport::read(&file, "boot 1"), KvmSupport::Untried);
    }
}
