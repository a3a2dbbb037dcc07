//! Trees of modules: a digest that is cheap to check, and copies.

use std::{
    fs::{self, Metadata},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Error, StepObserver, error::failed, image::hex};

/// The outside of a module tree: names and sizes, not contents. It shows damage by a kill, a full disk or
/// a cleaning tool, in milliseconds for thousands of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Number of files.
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// SHA-256 over names and sizes, in hexadecimal digits.
    pub sha256: String,
}

impl Digest {
    /// Of all files under a folder.
    pub(super) fn from_folder(folder: &Path) -> Result<Self, Error> {
        let mut seen = Vec::new();
        walk(folder, &mut |path, metadata| {
            let name = path.strip_prefix(folder).unwrap_or(path);
            seen.push((
                name.as_os_str().as_encoded_bytes().to_owned(),
                metadata.len(),
            ));
            Ok(())
        })?;
        seen.sort();
        let mut hash = Sha256::new();
        for (name, bytes) in &seen {
            hash.update(name);
            hash.update([0]);
            hash.update(bytes.to_le_bytes());
        }
        Ok(Digest {
            files: seen.len() as u64,
            bytes: seen.iter().map(|(_, bytes)| bytes).sum(),
            sha256: hex(&hash.finalize()),
        })
    }
}

/// Visits each file. Links are left out: `build` and `source` lead into a source tree.
pub(super) fn walk(
    folder: &Path,
    visit: &mut dyn FnMut(&Path, &Metadata) -> Result<(), Error>,
) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let path = entry.map_err(failed("read", folder))?.path();
        let metadata = fs::symlink_metadata(&path).map_err(failed("read", &path))?;
        if metadata.is_dir() {
            walk(&path, visit)?;
        } else if metadata.is_file() {
            visit(&path, &metadata)?;
        }
    }
    Ok(())
}

/// The size of all files under a folder; what can't be read counts nothing.
pub(super) fn size(folder: &Path) -> u64 {
    let mut bytes = 0;
    let _ = walk(folder, &mut |_, metadata| {
        bytes += metadata.len();
        Ok(())
    });
    bytes
}

/// Copies all files under a folder.
pub(super) fn copy(from: &Path, to: &Path, observer: &dyn StepObserver) -> Result<(), Error> {
    let total = size(from).max(1);
    let mut done = 0;
    let mut made = PathBuf::new();
    walk(from, &mut |path, metadata| {
        if observer.interrupted() {
            return Err(Error::Interrupted);
        }
        let target = to.join(path.strip_prefix(from).unwrap_or(path));
        let folder = target.parent().unwrap_or(to);
        if folder != made {
            fs::create_dir_all(folder).map_err(failed("make", folder))?;
            made = folder.to_owned();
        }
        fs::copy(path, &target).map_err(failed("write", &target))?;
        done += metadata.len();
        observer.progress(done as f64 / total as f64);
        Ok(())
    })
}
