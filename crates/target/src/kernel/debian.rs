//! Debian's kernels: the packages of a suite's newest kernel.

use std::path::{Path, PathBuf};

use super::{
    Architecture, Error, Origin, Package, StepObserver,
    error::{ANOTHER, OTHER_MIRROR, WORDS, failed},
    image::Image,
    package,
    staging::Staging,
};
use bpfcost_debian::{Archive, Client, Keyring, Observer, Url};

/// What suites are known to have: a version, and the suite.
pub const KNOWN_SUITES: [(&str, &str); 3] = [("6.1", "bookworm"), ("6.12", "trixie"), ("7", "sid")];

/// What lists, packages and the unpacked kernel take together at most.
pub(super) const ROOM_BYTES: u64 = 300_000_000;

/// A suite with its packages of kernels.
pub(super) struct Suite<'a> {
    archive: Archive,
    packages: Vec<bpfcost_debian::Package>,
    architecture: Architecture,
    staging: &'a Staging,
    observer: &'a dyn StepObserver,
}

impl<'a> Suite<'a> {
    /// Reads the suite's lists: the packages of kernels, and `more`. The mirror is that of the system unless it is named.
    pub(super) fn open(
        name: &str,
        more: Option<&str>,
        mirror: Option<&str>,
        architecture: Architecture,
        system: &Path,
        staging: &'a Staging,
        observer: &'a dyn StepObserver,
    ) -> Result<Self, Error> {
        staging.need_room(ROOM_BYTES)?;
        let mirror = match mirror {
            Some(mirror) => Url::parse(mirror).map_err(refused)?,
            None => mirror_of(system)?,
        };
        let keyring = Keyring::of_system(system).map_err(|error| match error {
            bpfcost_debian::Error::Untrusted { .. } => Error::Lacking(format!(
                "{error}\n  Install Debian's keys again (package debian-archive-keyring)"
            )),
            other => refused(other),
        })?;
        let client = Client::new(system);
        observer.doing(&format!("{name}: reading the package lists of {mirror}"));
        let watch = Watch(observer);
        let refused = |error| refused_by(&mirror, name, error);
        let archive = Archive::open(client, &mirror, name, architecture.name(), &keyring, &watch)
            .map_err(refused)?;
        let leading = leading(architecture);
        let is_wanted = |name: &str| name == leading || Some(name) == more || is_part(name);
        let packages = archive
            .packages(&is_wanted, staging.folder(), &watch)
            .map_err(refused)?;
        Ok(Suite {
            archive,
            packages,
            architecture,
            staging,
            observer,
        })
    }

    /// The packages of its newest kernel; the one with the release in its name comes first.
    pub(super) fn newest(&self) -> Result<Vec<Package>, Error> {
        let newest = self.listed(&leading(self.architecture))?;
        let mut depends = newest.depends.iter();
        let image = depends
            .find(|one| is_part(one) && one.starts_with("linux-image-"))
            .ok_or_else(|| self.no_package("linux-image-VERSION"))?;
        let mut open = vec![image];
        let mut packages: Vec<Package> = Vec::new();
        while let Some(name) = open.pop() {
            if packages.iter().any(|package| package.name == *name) {
                continue;
            }
            let listed = self.listed(name)?;
            open.extend(listed.depends.iter().filter(|one| is_part(one)));
            packages.push(package_of(listed));
        }
        Ok(packages)
    }

    /// Fetches packages, and makes a kernel of what is in them.
    pub(super) fn unpack(&self, packages: &[Package]) -> Result<Image, Error> {
        let files = self.fetch(packages)?;
        let names: Vec<&str> = packages.iter().map(|one| &*one.name).collect();
        self.observer
            .doing(&format!("{}: unpacking {}", self.archive.suite(), names[0]));
        package::unpack(&files, self.staging, self.observer, &|what| {
            Error::Lacking(format!(
                "{} of {} contain no usable kernel: {what}\n  {ANOTHER}",
                names.join(", "),
                self.archive.suite()
            ))
        })
    }

    /// Fetches packages; returns their files.
    pub(super) fn fetch(&self, packages: &[Package]) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::new();
        for package in packages {
            // Names are those of a list, which has no others than packages can have.
            let listed = self.listed(&package.name)?;
            let (suite, name) = (self.archive.suite(), &listed.name);
            self.observer.doing(&format!("{suite}: fetching {name}"));
            let file = self.staging.folder().join(format!("{name}.deb"));
            self.archive
                .fetch(listed, &file, &Watch(self.observer))
                .map_err(|error| refused_by(self.archive.mirror(), suite, error))?;
            files.push(file);
        }
        Ok(files)
    }

    /// The newest version of a package.
    pub(super) fn package(&self, name: &str) -> Result<Package, Error> {
        self.listed(name).map(package_of)
    }

    fn listed(&self, name: &str) -> Result<&bpfcost_debian::Package, Error> {
        let found = self.packages.iter().find(|package| package.name == name);
        found.ok_or_else(|| self.no_package(name))
    }

    fn no_package(&self, name: &str) -> Error {
        Error::NoPackage(format!(
            "{} has no package {name} on {}\n  {ANOTHER}",
            self.archive.suite(),
            self.archive.mirror()
        ))
    }
}

fn package_of(listed: &bpfcost_debian::Package) -> Package {
    Package {
        name: listed.name.clone(),
        version: listed.version.clone(),
    }
}

/// The package that depends on the newest kernel.
fn leading(architecture: Architecture) -> String {
    format!("linux-image-{architecture}")
}

fn mirror_of(system: &Path) -> Result<Url, Error> {
    let mirror = bpfcost_debian::mirror(system).map_err(refused)?;
    mirror.ok_or_else(|| {
        Error::Lacking(format!(
            "the package sources of this system name no Debian archive (looked in {})\n  Name one: \
             --mirror http://deb.debian.org/debian, or add a kernel by its path: bpfcost kernel add \
             PATH",
            system.join("etc/apt").display()
        ))
    })
}

/// Passes on progress of a step.
pub(super) struct Watch<'a>(pub(super) &'a dyn StepObserver);

impl Observer for Watch<'_> {
    fn progress(&self, share: f64) {
        self.0.progress(share);
    }

    fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}

/// Makes an error, with advice, of a failure with a suite of a mirror.
fn refused_by(mirror: &Url, suite: &str, error: bpfcost_debian::Error) -> Error {
    use bpfcost_debian::Error as Refusal;
    match error {
        Refusal::Unreachable { url, why } => Error::Lacking(format!(
            "the mirror {mirror} cannot be reached: {why} ({url})\n  Check the network and the \
             proxies (http_proxy, https_proxy and apt's), or name {OTHER_MIRROR}"
        )),
        Refusal::Missing { url, why } => Error::Lacking(format!(
            "the mirror {mirror} is not complete: {why} ({url})\n  Try again later, or name \
             {OTHER_MIRROR}"
        )),
        Refusal::Untrusted { what, why } => Error::Lacking(format!(
            "the files of {mirror} for {suite} cannot be trusted: {why} ({what})\n  Check this \
             machine's clock, update Debian's keys (package debian-archive-keyring), or name \
             {OTHER_MIRROR}"
        )),
        Refusal::NoSuite { .. } => Error::Input(format!("{error}\n  {WORDS}")),
        Refusal::NoArchitecture { .. } => Error::Lacking(format!("{error}\n  {ANOTHER}")),
        other => refused(other),
    }
}

/// Makes an error, with advice, of a failure with a file.
pub(super) fn refused(error: bpfcost_debian::Error) -> Error {
    use bpfcost_debian::Error as Refusal;
    match error {
        Refusal::File {
            doing,
            path,
            source,
        } => failed(doing, path)(source),
        Refusal::Interrupted => Error::Interrupted,
        Refusal::Url(_) => Error::Input(format!(
            "{error}\n  Write it in full, e.g. http://deb.debian.org/debian"
        )),
        Refusal::Sources { .. } => Error::Lacking(format!(
            "{error}\n  Correct it, or name a mirror: --mirror http://deb.debian.org/debian"
        )),
        Refusal::Package { .. } => Error::Lacking(format!(
            "{error}\n  Get it again, or take another one: bpfcost kernel add SUITE"
        )),
        Refusal::Untrusted { .. } => Error::Lacking(format!(
            "{error}\n  Nothing of it was kept. Check the address and --sha256"
        )),
        _ => Error::Lacking(format!(
            "{error}\n  Check the address and the network, and run the command again"
        )),
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
