//! The saved state of a booted guest, from which later guests continue: with emulation, a boot takes as long as
//! most measurements. It is QEMU's migration state, saved when the guest waits for the host: with its modules, with this
//! program, and without any other file of this machine. If it can't be saved or restored, guests boot.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{MetadataExt as _, symlink},
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::getuid;
use serde_json::json;

use super::{
    Acceleration, GuestCommand, GuestSpec, initramfs, monitor::Monitor, program, state_clock,
};
use bpfcost_process::{reaper::Scratch, xdg::Folder};

/// Name of the snapshot in the guest's folder, which is where QEMU runs: a link, so that no shell reads a user's path.
const LINK: &str = "snapshot";

/// Maximum number of snapshots kept, of 150 to 260 MB each. Each is of one kernel, exact or not, with so many CPUs.
const MAX_KEPT: usize = 12;

/// The most time for which a guest waits for another one's snapshot. Then it boots: nothing is wrong but the time.
const MAX_WAIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);

/// Held by the guest that boots to make a snapshot, so that others wait for it instead of booting too: a socket's name, which
/// is free again when the process ends, however it does. Nothing is sent there.
#[derive(Debug)]
pub(crate) struct BootLock {
    _name: UnixDatagram,
}

/// The path of a guest's snapshot, whether it exists or not.
#[derive(Debug)]
pub(crate) struct Snapshot(PathBuf);

impl Snapshot {
    /// The snapshot of a guest in `folder`; `None` where the guest must boot: KVM is quick, a card is not there this
    /// early, and a test's changes to the boot must take effect.
    pub(crate) fn for_guest(
        spec: &GuestSpec,
        composed: &GuestCommand,
        folder: &Path,
    ) -> Option<Self> {
        let plain = spec.kernel_words.is_none() && spec.memory_mib.is_none();
        if spec.acceleration != Acceleration::Emulated || spec.forward.is_some() || !plain {
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
        // What the initramfs is made of. depmod(8), where it is used, writes its index whenever modules change.
        let mut files = program::sources().ok()?;
        files.push(spec.kernel.image.clone());
        if let Some(modules) = &spec.kernel.modules {
            files.extend([modules.clone(), modules.join("modules.dep")]);
        }
        files
            .iter()
            .for_each(|file| identity(file).hash(&mut hasher));
        let kept = Folder::Cache.of_user()?.join("guests");
        Some(Snapshot(kept.join(format!(
            "{}-{:016x}",
            spec.kernel.release,
            hasher.finish()
        ))))
    }

    /// The right to make it, once no other guest is about to; `None` if it can't be had, or another one has made it.
    pub(crate) fn lock(&self, interrupt: &AtomicBool) -> Option<BootLock> {
        let mut hasher = DefaultHasher::new();
        (&self.0, getuid().as_raw()).hash(&mut hasher);
        let name = format!("bpfcost-guest-{:016x}", hasher.finish());
        let name = SocketAddr::from_abstract_name(name).ok()?;
        let began = Instant::now();
        loop {
            match UnixDatagram::bind_addr(&name) {
                Ok(_name) => return (!self.0.exists()).then_some(BootLock { _name }),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return None,
                Err(_) if interrupt.load(Ordering::Relaxed) => return None,
                Err(_) if began.elapsed() > MAX_WAIT => return None,
                Err(_) => sleep(POLL),
            }
        }
    }

    /// QEMU's arguments to restore it; `None` where there is none.
    pub(crate) fn incoming(&self, folder: &Path) -> Option<[String; 2]> {
        let file = File::open(&self.0).ok()?;
        symlink(&self.0, folder.join(LINK)).ok()?;
        initramfs::write_empty(folder).ok()?;
        // The one that was not used for longest goes first.
        let _ = file.set_modified(SystemTime::now());
        Some(["-incoming".to_owned(), format!("exec:cat {LINK}")])
    }

    /// Forgets it: QEMU does not take it.
    pub(crate) fn forget(&self, folder: &Path) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(folder.join(LINK));
    }

    /// Takes and keeps it: for a guest whose instructions take one nanosecond, where they take 2^`shift` in this one. The guest
    /// goes on.
    pub(crate) fn take(
        &self,
        monitor: &mut Monitor,
        folder: &Path,
        shift: Option<u32>,
    ) -> io::Result<()> {
        let kept = self.0.parent().ok_or(io::ErrorKind::NotFound)?;
        fs::create_dir_all(kept)?;
        // What a run that is killed has begun goes with this folder.
        let begun = Scratch::make_in(kept, 0o700)?;
        let file = begun.path().join("state");
        symlink(&file, folder.join(LINK))?;
        let taken = write(monitor);
        let _ = fs::remove_file(folder.join(LINK));
        taken?;
        shift.map_or(Ok(()), |shift| state_clock::slow_down(&file, shift))?;
        fs::rename(&file, &self.0)?;
        prune(kept)
    }
}

/// Which file it is, and in which state; `None` where there is none.
fn identity(file: &Path) -> Option<(u64, u64, u64, i64, i64)> {
    let data = fs::metadata(file).ok()?;
    let written = (data.mtime(), data.mtime_nsec());
    Some((data.dev(), data.ino(), data.len(), written.0, written.1))
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_guest_boots_and_the_others_wait_for_it() {
        let no_interrupt = AtomicBool::new(false);
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Snapshot(folder.path().join("6.12"));
        let first = kept.lock(&no_interrupt).expect("no other guest boots");
        // Who is interrupted does not wait.
        assert!(kept.lock(&AtomicBool::new(true)).is_none());
        thread::scope(|scope| {
            let second = scope.spawn(|| kept.lock(&no_interrupt).is_some());
            thread::sleep(3 * POLL);
            assert!(!second.is_finished());
            // It made none: the next one has to.
            drop(first);
            assert!(second.join().expect("it waited"));
        });
        let third = kept.lock(&no_interrupt).expect("no other guest boots");
        thread::scope(|scope| {
            let fourth = scope.spawn(|| kept.lock(&no_interrupt).is_some());
            fs::write(&kept.0, "state").expect("written");
            drop(third);
            assert!(!fourth.join().expect("it waited"));
        });
    }
}
