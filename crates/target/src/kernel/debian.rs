//! Debian's kernels: the packages of a suite's newest kernel, and their layout.
//!
//! Until Linux 7 one package has it all: `boot/vmlinuz-RELEASE` and `lib/modules/RELEASE`. Later ones are
//! split into `linux-binary-*`, `linux-modules-*` and `linux-base-*`, all under `usr/lib/modules/RELEASE`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Error, Origin, Package, StepObserver,
    apt::Apt,
    command::Step,
    error::{ANOTHER, failed, no_architecture},
    image,
    staging::Staging,
};
use bpfcost_process::program::{DPKG, DPKG_DEB};

/// What suites are known to have: a version, and the suite.
pub const KNOWN_SUITES: [(&str, &str); 3] = [("6.1", "bookworm"), ("6.12", "trixie"), ("7", "sid")];

/// What lists, packages and the unpacked kernel take together at most.
const ROOM_BYTES: u64 = 600_000_000;

/// The kernel of a suite, ready to be fetched.
pub(super) struct Suite<'a> {
    name: &'a str,
    apt: Apt<'a>,
    staging: &'a Staging,
    observer: &'a dyn StepObserver,
}

impl<'a> Suite<'a> {
    /// Reads the suite's lists.
    pub(super) fn open(
        name: &'a str,
        system: &Path,
        staging: &'a Staging,
        observer: &'a dyn StepObserver,
    ) -> Result<Self, Error> {
        staging.need_room(ROOM_BYTES)?;
        let folder = staging.folder().join("apt");
        fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
        let apt = Apt::prepare(folder, system, name, observer)?;
        observer.doing(&format!(
            "{name}: reading the package lists of {}",
            apt.mirror()
        ));
        apt.update()?;
        Ok(Suite {
            name,
            apt,
            staging,
            observer,
        })
    }

    /// The packages of its newest kernel; the one with the release in its name comes first.
    pub(super) fn newest(&self) -> Result<Vec<Package>, Error> {
        let arch = DPKG.succeed(
            DPKG.command().arg("--print-architecture"),
            self.staging.folder(),
            self.observer,
        )?;
        let arch = arch.trim();
        if !matches!(arch, "amd64" | "arm64") {
            return Err(no_architecture(arch));
        }
        let named = format!("linux-image-{arch}");
        let newest = self
            .apt
            .show(&named)?
            .ok_or_else(|| self.apt.no_package(&named))?;
        let image = newest
            .depends
            .into_iter()
            .find(|one| is_part(one) && one.starts_with("linux-image-"))
            .ok_or_else(|| self.apt.no_package("linux-image-VERSION"))?;
        let mut open = vec![image];
        let mut packages: Vec<Package> = Vec::new();
        while let Some(name) = open.pop() {
            if packages.iter().any(|package| package.name == name) {
                continue;
            }
            let listed = self
                .apt
                .show(&name)?
                .ok_or_else(|| self.apt.no_package(&name))?;
            open.extend(listed.depends.into_iter().filter(|one| is_part(one)));
            packages.push(Package {
                name,
                version: listed.version,
            });
        }
        Ok(packages)
    }

    /// Fetches packages, and makes a kernel of what is in them.
    pub(super) fn unpack(&self, packages: &[Package]) -> Result<String, Error> {
        let tree = self.extract(packages)?;
        let missing = |what: &str| {
            let names: Vec<&str> = packages.iter().map(|one| &*one.name).collect();
            Error::Lacking(format!(
                "{} of {} contain no usable kernel: {what}\n  {ANOTHER}",
                names.join(", "),
                self.name
            ))
        };
        let image = image_of(&tree).ok_or_else(|| missing("there is no image in them"))?;
        let release = image::release(&image)?;
        fs::rename(&image, self.staging.image(&release)?).map_err(failed("move", &image))?;
        let modules = ["lib/modules", "usr/lib/modules"]
            .map(|folder| tree.join(folder).join(&release))
            .into_iter()
            .find(|folder| folder.join("kernel").is_dir())
            .ok_or_else(|| missing("there are no modules in them"))?;
        fs::rename(&modules, self.staging.modules(&release)?).map_err(failed("move", &modules))?;
        self.staging.index_modules(&release, self.observer)?;
        Ok(release)
    }

    /// Fetches packages and unpacks them into one tree.
    pub(super) fn extract(&self, packages: &[Package]) -> Result<PathBuf, Error> {
        let first = packages.first().map_or("", |package| &package.name);
        self.observer
            .doing(&format!("{}: fetching {first}", self.name));
        let files = self.apt.download(packages)?;
        self.observer
            .doing(&format!("{}: unpacking {first}", self.name));
        let tree = self.staging.folder().join("unpacked");
        for file in &files {
            let mut command = DPKG_DEB.command();
            command.arg("--extract").arg(file).arg(&tree);
            DPKG_DEB.succeed(&mut command, &tree, self.observer)?;
            // Its room may be needed for what comes next.
            fs::remove_file(file).map_err(failed("remove", file))?;
        }
        Ok(tree)
    }

    /// The newest version of a package.
    pub(super) fn package(&self, name: &str) -> Result<Package, Error> {
        let listed = self.apt.show(name)?;
        Ok(Package {
            version: listed.ok_or_else(|| self.apt.no_package(name))?.version,
            name: name.to_owned(),
        })
    }
}

/// Where what was fetched of a suite came from.
pub(super) fn origin(suite: &str, packages: Vec<Package>) -> Origin {
    Origin::Debian {
        suite: suite.to_owned(),
        packages,
    }
}

/// Whether a word can be the name of a suite.
pub(super) fn can_be_suite(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase())
        && word
            .chars()
            .all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-')
}

/// Whether a package is a part of a kernel of one release, as `linux-base-7.2.13+deb14-amd64` is and
/// `linux-base` is not.
fn is_part(package: &str) -> bool {
    [
        "linux-image-",
        "linux-binary-",
        "linux-modules-",
        "linux-base-",
    ]
    .iter()
    .filter_map(|prefix| package.strip_prefix(prefix))
    .any(|release| release.starts_with(|first: char| first.is_ascii_digit()))
}

/// The image in an unpacked tree.
fn image_of(tree: &Path) -> Option<PathBuf> {
    let entries = |folder: &str| {
        fs::read_dir(tree.join(folder))
            .into_iter()
            .flatten()
            .flatten()
    };
    let in_boot = entries("boot").find(|entry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(b"vmlinuz-")
    });
    in_boot.map(|entry| entry.path()).or_else(|| {
        entries("usr/lib/modules")
            .chain(entries("lib/modules"))
            .map(|entry| entry.path().join("vmlinuz"))
            .find(|path| path.is_file())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_kernel() {
        for part in [
            "linux-image-6.1.0-50-amd64",
            "linux-modules-7.2.13+deb14-amd64",
            "linux-base-7.2.13+deb14-amd64",
        ] {
            assert!(is_part(part), "{part}");
        }
        for other in [
            "linux-base",
            "linux-base-amd64",
            "kmod",
            "linux-image-amd64",
            "linux-headers-6.1.0",
        ] {
            assert!(!is_part(other), "{other}");
        }
    }

    #[test]
    fn words_that_can_be_suites() {
        for suite in ["trixie", "sid", "bookworm-backports", "rc-buggy"] {
            assert!(can_be_suite(suite), "{suite}");
        }
        for other in ["", "6.12", "Trixie", "trixie main", "-o", "a/b", "trixie\n"] {
            assert!(!can_be_suite(other), "{other}");
        }
    }
}
