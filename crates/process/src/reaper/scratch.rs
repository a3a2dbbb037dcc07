//! A temporary folder of a run. Its owner removes it; if the owner is killed, the reaper; and if the reaper was
//! killed too, or the machine crashed, the next run.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use tempfile::{Builder, TempDir};

use super::{Duty, Reaper};

/// Prefix of such folders, and of no others.
const PREFIX: &str = "bpfcost-scratch-";
/// An older folder without a lock was left behind: between its making and its locking lie
/// milliseconds.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// A folder, locked by the process that it belongs to.
#[derive(Debug)]
pub struct Scratch {
    /// `None` once it is removed.
    dir: Option<TempDir>,
    _lock: File,
    reaper: Arc<Reaper>,
}

impl Scratch {
    /// An empty folder within another, with these permissions; those that no process has any more are removed from
    /// there.
    pub fn make_in(base: &Path, mode: u32) -> io::Result<Self> {
        let guarded = |error: anyhow::Error| io::Error::other(format!("{error:#}"));
        // It ends what was left running, too: that could still write to what is removed next.
        let reaper = Reaper::of_process().map_err(guarded)?;
        remove_left_behind(base);
        let dir = Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(mode))
            .tempdir_in(base)?;
        let lock = File::open(dir.path())?;
        // No other process tries it while the folder is young. Without locks, none will.
        let _ = lock.try_lock();
        reaper
            .owe(Duty::Folder(dir.path().to_owned()))
            .map_err(guarded)?;
        Ok(Scratch {
            dir: Some(dir),
            _lock: lock,
            reaper,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            let path = dir.path().to_owned();
            // What can't be removed now is left to the reaper, which tries for longer.
            if dir.close().is_ok() {
                self.reaper.done(Duty::Folder(path));
            }
        }
    }
}

/// Whether this is one of ours.
pub(super) fn is_scratch(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(PREFIX)
}

/// Removes this user's folders that no process has any more.
fn remove_left_behind(base: &Path) {
    let me = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else {
            continue;
        };
        if !about.is_dir() || about.uid() != me || !is_scratch(&entry.path()) {
            continue;
        }
        let old = about
            .modified()
            .ok()
            .and_then(|at| at.elapsed().ok())
            .is_some_and(|age| age > LEFT_BEHIND);
        // A lock that is tried is held for that moment, and its owner must not meet it so.
        if !old {
            continue;
        }
        let locked = File::open(entry.path()).map(|folder| (folder.try_lock(), folder));
        if let Ok((Ok(()), _folder)) = locked {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_no_process_has_are_removed() {
        let base = TempDir::new().expect("a folder");
        let folder = |name: &str, seconds_ago: u64| {
            let path = base.path().join(name);
            fs::create_dir(&path).expect("a folder");
            fs::write(path.join("file"), "x").expect("a file");
            let lock = File::open(&path).expect("a folder");
            let at = std::time::SystemTime::now() - Duration::from_secs(seconds_ago);
            lock.set_modified(at).expect("its age");
            (path, lock)
        };
        let (dead, _) = folder("bpfcost-scratch-dead", 120);
        let (young, _) = folder("bpfcost-scratch-young", 0);
        let (other, _) = folder("bpfcost-results", 120);
        let (alive, lock) = folder("bpfcost-scratch-alive", 120);
        lock.try_lock().expect("a lock");
        remove_left_behind(base.path());
        assert!(!dead.exists());
        assert!(young.exists() && other.exists() && alive.exists());
    }
}
