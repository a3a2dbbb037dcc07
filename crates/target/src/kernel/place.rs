//! Kernels that are not in the store: those under /boot, and images that are named by their path.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Architecture, Error, Kernel, image, release};

/// The kernel in an image, used where it lies.
pub(super) fn at(path: &Path, system: &Path) -> Result<Kernel, Error> {
    let image = image::read(path)?;
    let release = image.release;
    if let Some(own) = image.architecture.filter(|own| !own.is_here()) {
        return Err(other_architecture(&path.display().to_string(), own));
    }
    let modules = modules_of(path, &release, system);
    Ok(Kernel {
        image: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
        release,
        modules,
    })
}

/// Refuses a kernel that no guest of this machine can have.
pub(super) fn other_architecture(kernel: &str, own: Architecture) -> Error {
    Error::Input(format!(
        "{kernel} is a kernel for {own}, and guests here have the architecture of this machine\n  \
         Name another one: bpfcost kernel list"
    ))
}

/// Where the modules of an image lie: in the tree that it is part of, as distributions unpack it. An image without
/// such a tree, as a build makes it, has them where the system keeps those of all kernels.
pub(super) fn modules_of(image: &Path, release: &str, system: &Path) -> Option<PathBuf> {
    let image = fs::canonicalize(image).ok()?;
    let folder = image.parent()?;
    let tree = folder.parent()?.join("lib/modules");
    let modules = if folder.ends_with(Path::new("lib/modules").join(release)) {
        folder.to_owned()
    } else if tree.is_dir() {
        tree.join(release)
    } else {
        system.join("lib/modules").join(release)
    };
    modules.is_dir().then_some(modules)
}

/// The kernels under /boot, by their file names: `vmlinuz-RELEASE`.
pub(super) fn of_system(system: &Path) -> Vec<Kernel> {
    let boot = system.join("boot");
    let names = fs::read_dir(&boot).into_iter().flatten().flatten();
    let mut kernels: Vec<Kernel> = names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let release = name
                .strip_prefix("vmlinuz-")
                .filter(|one| release::is_valid(one))?;
            Some(Kernel {
                image: entry.path(),
                modules: Some(system.join("lib/modules").join(release))
                    .filter(|path| path.is_dir()),
                release: release.to_owned(),
            })
        })
        .collect();
    kernels.sort_by(|one, other| release::order(&one.release, &other.release));
    kernels
}
