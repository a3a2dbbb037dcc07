//! Restores what a run changes on the machine (units, sysctls), however the run ends.
//!
//! Before a change, the old value is written to a file in the user's state folder; the file is removed when the
//! value is restored. If a run is killed, its reaper restores the values in the files. If the reaper was killed
//! too, the next start of this program does, whatever its command.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context, Result, anyhow, bail};
use procfs::process::Process;
use serde::{Deserialize, Serialize};

use crate::{
    reaper::{Duty, Reaper},
    xdg::Folder,
};

/// Something of the machine, and how it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "of")]
pub enum SavedState {
    /// A systemd unit.
    Unit {
        /// Its name, `agent.service`.
        name: String,
        /// Whether it ran.
        active: bool,
    },
    /// A sysctl.
    Setting {
        /// Its name, `kernel.bpf_stats_enabled`.
        name: String,
        /// What it was set to.
        value: String,
    },
}

/// What is written down of a state.
#[derive(Debug, Serialize, Deserialize)]
struct SavedStateFile {
    /// The process that changes it, and when that was started, in ticks since the boot: numbers are used again.
    pid: u32,
    started: u64,
    /// The boot; the next one begins anew.
    boot: String,
    state: SavedState,
}

/// A state that is put back when this is dropped; else by the reaper, or by the next start of this program.
#[derive(Debug)]
pub struct RestoreGuard {
    state: SavedState,
    note: PathBuf,
    reaper: Arc<Reaper>,
}

impl SavedStateFile {
    fn read(path: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
    }
}

impl SavedState {
    /// How a unit is now.
    pub fn of_unit(name: &str) -> Result<Self> {
        let load_state = systemctl(&["show", "--property", "LoadState", "--value", name]);
        let load_state = load_state.map_err(|error| {
            anyhow!("{error:#}\n  Without systemd, give the command of {name} instead")
        })?;
        if load_state.trim() == "not-found" {
            bail!(
                "there is no unit {name}\n  See what there is: systemctl list-unit-files --type service"
            );
        }
        let active = systemctl(&["show", "--property", "ActiveState", "--value", name])?;
        Ok(SavedState::Unit {
            name: name.to_owned(),
            active: matches!(active.trim(), "active" | "activating" | "reloading"),
        })
    }

    /// The current value of a sysctl; `None` where there is none of that name.
    pub fn of_setting(name: &str) -> Option<Self> {
        Some(SavedState::Setting {
            name: name.to_owned(),
            value: fs::read_to_string(setting(name)).ok()?.trim().to_owned(),
        })
    }

    /// Whether it is so now.
    fn holds(&self) -> Result<bool> {
        Ok(match self {
            SavedState::Unit { name, .. } => SavedState::of_unit(name)? == *self,
            SavedState::Setting { name, .. } => SavedState::of_setting(name).as_ref() == Some(self),
        })
    }

    /// Makes it so; whether it was otherwise.
    fn put_back(&self) -> Result<bool> {
        if self.holds()? {
            return Ok(false);
        }
        match self {
            SavedState::Unit { name, active } => {
                systemctl(&[if *active { "start" } else { "stop" }, name]).map(drop)?;
            }
            SavedState::Setting { name, value } => fs::write(setting(name), value)
                .with_context(|| format!("cannot set {name} back to {value}"))?,
        }
        Ok(true)
    }
}

impl std::fmt::Display for SavedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SavedState::Unit { name, active: true } => write!(f, "{name} is started"),
            SavedState::Unit {
                name,
                active: false,
            } => write!(f, "{name} is stopped"),
            SavedState::Setting { name, value } => write!(f, "{name} is {value}"),
        }
    }
}

impl RestoreGuard {
    /// Writes the values of sysctls down; those that this kernel lacks are left out.
    pub fn of_settings<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Self>> {
        let settings = names.into_iter().filter_map(SavedState::of_setting);
        settings.map(RestoreGuard::new).collect()
    }

    /// Writes a state down. What changes it comes after.
    pub fn new(state: SavedState) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let reaper = Reaper::of_process()?;
        let folder = folder()?;
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let pid = std::process::id();
        let note = SavedStateFile {
            pid,
            started: started(pid).unwrap_or(0),
            boot: boot(),
            state: state.clone(),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{pid}-{number}.json"));
        let mut file = tempfile::NamedTempFile::new_in(&folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        serde_json::to_writer(&mut file, &note).context("saving the state to restore")?;
        // It must be there before anything is changed, also where the machine dies.
        file.as_file().sync_all()?;
        file.persist(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        reaper.owe(Duty::PutBack(path.clone()))?;
        Ok(RestoreGuard {
            state,
            note: path,
            reaper,
        })
    }
}

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        // Where it fails the file stays, and the next start tries again.
        if self.state.put_back().is_ok() {
            let _ = fs::remove_file(&self.note);
            self.reaper.done(Duty::PutBack(self.note.clone()));
        }
    }
}

/// Restores what a note says, whose writer is gone; there is nobody to report a failure to.
pub fn put_back(note: &Path) {
    // On failure the file stays, and the next start reports it.
    if let Some(read) = SavedStateFile::read(note)
        && read.state.put_back().is_ok()
    {
        let _ = fs::remove_file(note);
    }
}

/// Restores what killed runs have left; returns a sentence for each setting that was or could not be restored.
pub fn after_the_dead() -> Vec<String> {
    let Ok(folder) = folder() else {
        return Vec::new();
    };
    let notes = fs::read_dir(folder).into_iter().flatten().flatten();
    notes.filter_map(|note| after(&note.path())).collect()
}

/// The same of one note.
fn after(path: &Path) -> Option<String> {
    path.extension().filter(|extension| *extension == "json")?;
    let note = SavedStateFile::read(path)?;
    if started(note.pid) == Some(note.started) && note.boot == boot() {
        return None; // the process that changed it is alive, and restores it
    }
    let outcome = if note.boot == boot() {
        note.state.put_back()
    } else {
        Ok(false)
    };
    match outcome {
        Ok(changed) => {
            let _ = fs::remove_file(path);
            changed.then(|| {
                format!(
                    "{} again, as before a run that was killed (process {})",
                    note.state, note.pid
                )
            })
        }
        Err(error) => Some(format!(
            "a run that was killed (process {}) changed the machine, and this cannot be undone: \
             {error:#}\n  Restore it by hand: {}. Then remove {}",
            note.pid,
            note.state,
            path.display()
        )),
    }
}

fn folder() -> Result<PathBuf> {
    let state = Folder::State.of_user().context(
        "bpfcost must save the machine's state before it changes it, and this user has no home\n  \
         Give it a folder: XDG_STATE_HOME=/var/lib bpfcost …",
    )?;
    Ok(state.join("restore"))
}

/// Asks systemd for something; what it prints.
pub fn systemctl(arguments: &[&str]) -> Result<String> {
    let asked = || format!("systemctl {}", arguments.join(" "));
    let output = Command::new("systemctl")
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}: does this machine use systemd?", asked()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}", asked(), stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn setting(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

/// When a process was started, in ticks since the boot; `None` where there is none, or one that has ended and
/// whose parent has not asked how.
pub fn started(pid: u32) -> Option<u64> {
    let stat = Process::new(pid.cast_signed()).ok()?.stat().ok()?;
    (!matches!(stat.state, 'Z' | 'X')).then_some(stat.starttime)
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(folder: &Path, pid: u32, started: u64, boot: &str) -> PathBuf {
        let path = folder.join("1-0.json");
        let note = SavedStateFile {
            pid,
            started,
            boot: boot.to_owned(),
            // Of a sysctl that can't be set: restoring it fails and is reported.
            state: SavedState::Setting {
                name: "kernel.osrelease".to_owned(),
                value: "0.1".to_owned(),
            },
        };
        fs::write(&path, serde_json::to_vec(&note).expect("JSON")).expect("a file");
        path
    }

    #[test]
    fn only_notes_of_the_dead_of_this_boot_are_acted_on() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let me = std::process::id();
        let mine = started(me).expect("a start");
        let path = note(folder.path(), me, mine, &boot());
        assert_eq!(after(&path), None, "its owner lives");
        assert!(path.exists());
        // The same number, used again by another process.
        let path = note(folder.path(), me, mine + 1, &boot());
        let told = after(&path).expect("it can't be put back");
        assert!(
            told.contains("by hand") && told.contains("kernel.osrelease is 0.1"),
            "{told}"
        );
        assert!(path.exists(), "the next start tries again");
        let path = note(folder.path(), me, mine + 1, "another boot");
        assert_eq!(after(&path), None, "a boot begins anew");
        assert!(!path.exists());
    }

    #[test]
    fn what_is_as_it_was_needs_nothing() {
        let state = SavedState::of_setting("kernel.osrelease").expect("every kernel has one");
        assert!(!state.put_back().expect("nothing is written"));
        assert_eq!(SavedState::of_setting("kernel.there_is_none"), None);
    }
}
