//! The saved state of a booted guest, from which later guests continue: with emulation, a boot takes as long as
//! most measurements. It is QEMU's migration state, saved when the guest has its modules and nothing else: no file
//! system, no program of this machine. If it can't be saved or restored, guests boot.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::json;

use super::{Acceleration, GuestSpec, command::GuestCommand, monitor::Monitor};
use bpfcost_process::{reaper::Scratch, xdg::Folder};

/// Its name in the guest's folder, which is where QEMU runs: a link, so that no shell reads a user's path.
const LINK: &str = "snapshot";

/// Maximum number of snapshots kept: some 100 MB each. Each is of one kernel, exact or not, with so many CPUs.
const MAX_KEPT: usize = 12;

/// The path of a guest's snapshot, whether it exists or not.
#[derive(Debug)]
pub(super) struct Snapshot(PathBuf);

impl Snapshot {
    /// The snapshot of a guest in `folder`; `None` where the guest must boot: KVM is quick, a card is not there this
    /// early, and a test's changes to the boot must take effect.
    pub(super) fn for_guest(
        shape: &GuestSpec,
        composed: &GuestCommand,
        folder: &Path,
    ) -> Option<Self> {
        let plain = shape.hooks.kernel.is_none() && shape.hooks.memory_mib.is_none();
        if shape.acceleration != Acceleration::Emulated || shape.port.is_some() || !plain {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        composed.emulator.hash(&mut hasher);
        // But for what lies in its folder, which has another name each time.
        let folder_path = folder.to_str()?;
        for arg in &composed.args {
            arg.split(folder_path).next().hash(&mut hasher);
        }
        for file in [&shape.kernel.image, &folder.join("initramfs")] {
            fs::read(file).ok()?.hash(&mut hasher);
        }
        let kept = Folder::Cache.of_user()?.join("guests");
        Some(Snapshot(kept.join(format!(
            "{}-{:016x}",
            shape.kernel.release,
            hasher.finish()
        ))))
    }

    /// QEMU's arguments to restore it; `None` where there is none.
    pub(super) fn incoming(&self, folder: &Path) -> Option<[String; 2]> {
        let file = fs::File::open(&self.0).ok()?;
        symlink(&self.0, folder.join(LINK)).ok()?;
        // The one that was not used for longest goes first.
        let _ = file.set_modified(SystemTime::now());
        Some(["-incoming".to_owned(), format!("exec:cat {LINK}")])
    }

    /// Forgets it: QEMU does not take it.
    pub(super) fn forget(&self, folder: &Path) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(folder.join(LINK));
    }

    /// Takes and keeps it. The guest goes on.
    pub(super) fn take(&self, monitor: &mut Monitor, folder: &Path) -> io::Result<()> {
        let kept = self.0.parent().ok_or(io::ErrorKind::NotFound)?;
        fs::create_dir_all(kept)?;
        // What a run that is killed has begun goes with this folder.
        let begun = Scratch::make_in(kept, 0o700)?;
        let file = begun.path().join("state");
        symlink(&file, folder.join(LINK))?;
        let taken = write(monitor);
        let _ = fs::remove_file(folder.join(LINK));
        taken?;
        fs::rename(&file, &self.0)?;
        prune(kept)
    }
}

/// Has QEMU write it, while the guest stands still.
fn write(monitor: &mut Monitor) -> io::Result<()> {
    monitor.ask("stop", json!({}))?;
    let written = move_out(monitor);
    monitor.ask("cont", json!({}))?;
    written
}

fn move_out(monitor: &mut Monitor) -> io::Result<()> {
    let unlimited = json!({ "max-bandwidth": 1u64 << 40 });
    monitor.ask("migrate-set-parameters", unlimited)?;
    let uri = format!("exec:cat >{LINK}");
    monitor.ask("migrate", json!({ "uri": uri }))?;
    let passing = ["", "none", "setup", "active", "device"];
    match monitor
        .ask_until_not("query-migrate", "status", &passing)?
        .as_str()
    {
        "completed" => Ok(()),
        state => Err(io::Error::other(state.to_owned())),
    }
}

/// Removes what is too much.
fn prune(kept: &Path) -> io::Result<()> {
    let mut all = Vec::new();
    for entry in fs::read_dir(kept)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(data) if data.is_file() => all.push((data.modified()?, entry.path())),
            // What another run has begun, or removed meanwhile.
            _ => {}
        }
    }
    all.sort_unstable();
    let surplus = all.len().saturating_sub(MAX_KEPT);
    all[..surplus]
        .iter()
        .try_for_each(|(_, path)| fs::remove_file(path))
}
