//! Kernels in packages: the image, and the modules that guests can use.
//!
//! Until Linux 7 one package has it all: `boot/vmlinuz-RELEASE` and `lib/modules/RELEASE`. Later ones are
//! split into `linux-binary-*`, `linux-modules-*` and `linux-base-*`, all under `usr/lib/modules/RELEASE`.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    Error, StepObserver,
    debian::{Watch, refused},
    error::failed,
    image::{self, Image},
    keep::{is_kept, module_name},
    modules,
    staging::Staging,
};
use bpfcost_guest::module_needs;

/// Places of the folder of a release in packages.
const MODULES: [&str; 2] = ["lib/modules", "usr/lib/modules"];
/// Modules need modules that need modules; no kernel has longer chains across the folders that are not kept.
const MAX_PASSES: usize = 8;

/// Makes a kernel in the staging folder of the packages in some files. `why_not` makes an error of what they lack.
pub(super) fn unpack(
    files: &[PathBuf],
    staging: &Staging,
    observer: &dyn StepObserver,
    why_not: &dyn Fn(&str) -> Error,
) -> Result<Image, Error> {
    let tree = staging.folder().join("unpacked");
    fs::create_dir_all(&tree).map_err(failed("make", &tree))?;
    extract(files, &tree, observer, &mut |path| is_usable(path))?;
    let file = image_of(&tree).ok_or_else(|| why_not("there is no image in them"))?;
    let image = image::read(&file)?;
    let release = &image.release;
    fs::rename(&file, staging.image(release)?).map_err(failed("move", &file))?;
    add_needed(files, &tree, observer)?;
    let folders: Vec<PathBuf> = MODULES
        .iter()
        .map(|folder| tree.join(folder).join(release))
        .filter(|folder| folder.join("kernel").is_dir())
        .collect();
    let [modules] = folders.as_slice() else {
        return Err(why_not("there are no modules in them"));
    };
    fs::rename(modules, staging.modules(release)?).map_err(failed("move", modules))?;
    staging.index_modules(release, observer)?;
    Ok(image)
}

/// Writes the files of packages that are accepted into one tree.
pub(super) fn extract(
    files: &[PathBuf],
    tree: &Path,
    observer: &dyn StepObserver,
    accept: &mut dyn FnMut(&Path) -> bool,
) -> Result<(), Error> {
    for file in files {
        bpfcost_debian::extract(file, tree, accept, &Watch(observer)).map_err(refused)?;
    }
    Ok(())
}

/// The path below the folder of a release.
fn below_release(path: &Path) -> Option<&Path> {
    let below = MODULES
        .iter()
        .find_map(|folder| path.strip_prefix(folder).ok())?;
    let mut parts = below.components();
    parts.next()?;
    Some(parts.as_path())
}

fn is_usable(path: &Path) -> bool {
    if let Ok(name) = path.strip_prefix("boot") {
        return name.as_os_str().as_encoded_bytes().starts_with(b"vmlinuz-");
    }
    let Some(below) = below_release(path) else {
        return false;
    };
    let name = below.as_os_str().as_encoded_bytes();
    name == b"vmlinuz"
        || name.starts_with(b"modules.")
        || below.strip_prefix("kernel").is_ok_and(is_kept)
}

/// Adds modules that the kept ones need, and those that these need.
fn add_needed(files: &[PathBuf], tree: &Path, observer: &dyn StepObserver) -> Result<(), Error> {
    let mut looked_at = HashSet::new();
    let mut wanted = HashSet::new();
    for _ in 0..MAX_PASSES {
        let before = looked_at.len();
        let mut needed = HashSet::new();
        modules::walk(tree, &mut |path, _| {
            if observer.interrupted() {
                return Err(Error::Interrupted);
            }
            if let Some(name) = module_name(path)
                && looked_at.insert(name)
            {
                needed.extend(module_needs(path).unwrap_or_default());
            }
            Ok(())
        })?;
        needed.retain(|name| !looked_at.contains(name) && wanted.insert(name.clone()));
        if needed.is_empty() || looked_at.len() == before {
            return Ok(());
        }
        extract(files, tree, observer, &mut |path| {
            below_release(path).is_some()
                && module_name(path).is_some_and(|name| needed.contains(&name))
        })?;
    }
    Ok(())
}

/// The image in an unpacked tree.
fn image_of(tree: &Path) -> Option<PathBuf> {
    let entries = |folder: &str| {
        fs::read_dir(tree.join(folder))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let in_boot = entries("boot").next();
    in_boot.or_else(|| {
        let releases = MODULES.iter().flat_map(|folder| entries(folder));
        let mut images = releases.map(|release| release.join("vmlinuz"));
        images.find(|path| path.is_file())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_guest_needs() {
        for path in [
            "boot/vmlinuz-6.1.0-50-amd64",
            "lib/modules/6.1.0-50-amd64/modules.builtin",
            "lib/modules/6.1.0-50-amd64/kernel/drivers/net/veth.ko",
            "usr/lib/modules/7.2.13+deb14-amd64/vmlinuz",
            "usr/lib/modules/7.2.13+deb14-amd64/kernel/net/tls/tls.ko.xz",
        ] {
            assert!(is_usable(Path::new(path)), "{path}");
        }
        for path in [
            "boot/System.map-6.1.0-50-amd64",
            "boot/config-6.1.0-50-amd64",
            "lib/modules/6.1.0-50-amd64/kernel/sound/core/snd.ko",
            "usr/lib/modules/7.2.13+deb14-amd64/config",
            "usr/share/doc/vmlinuz",
            "net/tls/tls.ko",
        ] {
            assert!(!is_usable(Path::new(path)), "{path}");
        }
    }
}
