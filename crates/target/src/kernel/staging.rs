//! The staging folder: a kernel is made in a hidden folder beside the stored ones, then renamed, so that a kill at any moment
//! leaves no half kernel. A lock lets one process at a time do that.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::{CWD, RenameFlags, renameat_with, statvfs};
use tempfile::TempDir;

use super::{
    Error, Manifest, Origin, StepObserver,
    command::Step,
    error::failed,
    image::Image,
    manifest::{image_in, modules_in},
};
use bpfcost_process::program::{DEPMOD, find};

/// Prefix of staging folders, unchanged since the first version so that old ones are removed too.
const PREFIX: &str = ".draft-";
const LOCK: &str = ".lock";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A kernel that is being made, in a folder that goes when this is dropped.
#[derive(Debug)]
pub(super) struct Staging {
    store: PathBuf,
    /// Removed with all that is in it when the staging is dropped.
    folder: TempDir,
    /// Held until then.
    _lock: File,
}

impl Staging {
    /// Waits for other processes that add or remove kernels here, and removes what killed ones left.
    pub(super) fn begin(store: &Path, observer: &dyn StepObserver) -> Result<Self, Error> {
        fs::create_dir_all(store).map_err(failed("make", store))?;
        let lock = lock(store, observer)?;
        for entry in fs::read_dir(store)
            .map_err(failed("read", store))?
            .flatten()
        {
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(PREFIX.as_bytes())
            {
                let left = entry.path();
                fs::remove_dir_all(&left).map_err(failed("remove", &left))?;
            }
        }
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(store)
            .map_err(failed("make a folder in", store))?;
        Ok(Staging {
            store: store.to_owned(),
            folder,
            _lock: lock,
        })
    }

    /// Where to work; all of it goes away in the end.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What becomes the folder of the kernel.
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder().join("kernel")
    }

    /// Where the image belongs, with a folder made for it.
    pub(super) fn image(&self, release: &str) -> Result<PathBuf, Error> {
        made(image_in(&self.kernel(), release))
    }

    /// Where the modules belong, with a folder made for that.
    pub(super) fn modules(&self, release: &str) -> Result<PathBuf, Error> {
        made(modules_in(&self.kernel(), release))
    }

    /// Refuses a disk without that much room.
    pub(super) fn need_room(&self, needed: u64) -> Result<(), Error> {
        let free = statvfs(self.folder())
            .map_err(|error| failed("look at", self.folder())(error.into()))?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        if free >= needed {
            return Ok(());
        }
        Err(Error::Lacking(format!(
            "not enough disk space for a kernel: {} has {} MB free, and {} MB are needed\n  Make \
             room (bpfcost kernel remove NAME), or store kernels elsewhere: XDG_CACHE_HOME=FOLDER",
            self.store.display(),
            free / 1_000_000,
            needed.div_ceil(1_000_000)
        )))
    }

    /// Makes the index that modprobe looks into, where depmod is installed.
    pub(super) fn index_modules(
        &self,
        release: &str,
        observer: &dyn StepObserver,
    ) -> Result<(), Error> {
        if find(DEPMOD.name).is_err() {
            return Ok(());
        }
        let mut command = DEPMOD.command();
        command.arg("-b").arg(self.kernel()).arg(release);
        DEPMOD
            .succeed(&mut command, &self.kernel(), observer)
            .map(drop)
    }

    /// Gives it its name. A kernel that has that name already is exchanged in one step.
    pub(super) fn keep(self, image: &Image, origin: Origin) -> Result<Manifest, Error> {
        let manifest = Manifest::from_folder(&self.kernel(), image, origin)?;
        manifest.write(&self.kernel())?;
        let place = self.store.join(&image.release);
        let flags = if place.exists() {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::NOREPLACE
        };
        renameat_with(CWD, self.kernel(), CWD, &place, flags)
            .map_err(|error| failed("make", &place)(error.into()))?;
        Ok(manifest)
    }

    /// Takes a kept kernel out of the store.
    pub(super) fn discard(self, release: &str) -> Result<(), Error> {
        let place = self.store.join(release);
        fs::rename(&place, self.kernel()).map_err(failed("remove", &place))?;
        fs::remove_dir_all(self.kernel()).map_err(failed("remove", self.kernel()))
    }
}

fn made(path: PathBuf) -> Result<PathBuf, Error> {
    let folder = path.parent().unwrap_or(&path);
    fs::create_dir_all(folder).map_err(failed("make", folder))?;
    Ok(path)
}

fn lock(store: &Path, observer: &dyn StepObserver) -> Result<File, Error> {
    let path = store.join(LOCK);
    let file = File::create(&path).map_err(failed("write", &path))?;
    let mut notified = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
            Err(TryLockError::WouldBlock) => {}
        }
        if !notified {
            notified = true;
            observer.notice("another bpfcost is adding or removing a kernel; waiting for it");
        }
        if observer.interrupted() {
            return Err(Error::Interrupted);
        }
        thread::sleep(POLL_INTERVAL);
    }
}
