//! An archive: one suite of one mirror, for one architecture, with everything checked from its signature on.

use std::path::{Component, Path};

use super::{
    Client, Error, Keyring, Observer, Package, Url, Wanted,
    openpgp::signed_text,
    packages,
    release::{ListedFile, Release},
    time,
    unpack::Packing,
};

/// Descriptions of suites have 0.2 MB.
const MAX_RELEASE_BYTES: u64 = 8 << 20;
/// Lists and packages are larger than any that archives have.
const MAX_LIST_BYTES: u64 = 256 << 20;
const MAX_PACKAGE_BYTES: u64 = 2 << 30;
/// Forms of a list, the smallest first.
const LIST_ENDINGS: [&str; 2] = [".xz", ""];

/// A suite of an archive, with a valid signature.
#[derive(Debug)]
pub struct Archive {
    client: Client,
    mirror: Url,
    suite: String,
    architecture: String,
    release: Release,
}

impl Archive {
    /// Fetches the description of a suite and checks its signature. `architecture` is Debian's name of it.
    pub fn open(
        client: Client,
        mirror: &Url,
        suite: &str,
        architecture: &str,
        keyring: &Keyring,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let folder = mirror.join(&format!("dists/{suite}"));
        let url = folder.join("InRelease");
        let untrusted = |why: String| Error::Untrusted {
            what: url.to_string(),
            why,
        };
        let fetch = |url: &Url| {
            let wanted = Wanted {
                url,
                bytes: None,
                max_bytes: MAX_RELEASE_BYTES,
                sha256: None,
            };
            client.to_memory(&wanted, observer)
        };
        let message = fetch(&url).map_err(|error| match error {
            Error::Missing { .. } => match fetch(&folder.join("Release")) {
                Ok(_) => untrusted("it does not exist, so the suite is not signed".to_owned()),
                Err(Error::Missing { .. }) => Error::NoSuite {
                    mirror: mirror.to_string(),
                    suite: suite.to_owned(),
                },
                Err(error) => error,
            },
            error => error,
        })?;
        let now = time::now();
        let text = signed_text(&message, keyring, now).map_err(&untrusted)?;
        let text = String::from_utf8_lossy(&text);
        let release = Release::parse(&text, suite, now).and_then(|release| {
            if !client.accepts_expired() {
                release.check_end(now)?;
            }
            Ok(release)
        });
        let release = release.map_err(|why| untrusted(bpfcost_text::line(&why)))?;
        if !release.has_architecture(architecture) {
            return Err(Error::NoArchitecture {
                mirror: mirror.to_string(),
                suite: suite.to_owned(),
                architecture: architecture.to_owned(),
            });
        }
        Ok(Archive {
            client,
            mirror: mirror.clone(),
            suite: suite.to_owned(),
            architecture: architecture.to_owned(),
            release,
        })
    }

    /// Returns the newest versions of the packages with such names. Needs a folder for a file.
    pub fn packages(
        &self,
        is_wanted: &dyn Fn(&str) -> bool,
        folder: &Path,
        observer: &dyn Observer,
    ) -> Result<Vec<Package>, Error> {
        let list = format!("main/binary-{}/Packages", self.architecture);
        let found = LIST_ENDINGS.iter().find_map(|ending| {
            let packing = Packing::from_ending(ending)?;
            Some((self.release.file(&format!("{list}{ending}"))?, packing))
        });
        let (file, packing) = found.ok_or_else(|| Error::Missing {
            url: self.folder().join(&list).to_string(),
            why: "the suite's description does not list it, as .xz or plain".to_owned(),
        })?;
        let path = folder.join("Packages");
        self.fetch_list(file, &path, observer)?;
        let packages = packages::read(&path, packing, is_wanted, observer);
        let _ = std::fs::remove_file(path);
        packages
    }

    /// Fetches the file of a package to a path.
    pub fn fetch(
        &self,
        package: &Package,
        path: &Path,
        observer: &dyn Observer,
    ) -> Result<(), Error> {
        let is_below = Path::new(&package.path)
            .components()
            .all(|component| matches!(component, Component::Normal(_)));
        if !is_below {
            return Err(Error::Untrusted {
                what: bpfcost_text::line(&package.path),
                why: "a package's file must lie below its archive".to_owned(),
            });
        }
        let wanted = Wanted {
            url: &self.mirror.join(&package.path),
            bytes: Some(package.bytes),
            max_bytes: MAX_PACKAGE_BYTES,
            sha256: Some(&package.sha256),
        };
        self.client.to_file(&wanted, path, observer)
    }

    /// The suite's name.
    pub fn suite(&self) -> &str {
        &self.suite
    }

    /// The archive's address.
    pub fn mirror(&self) -> &Url {
        &self.mirror
    }

    fn folder(&self) -> Url {
        self.mirror.join(&format!("dists/{}", self.suite))
    }

    /// Under the name of its hash a list is there even while a mirror changes to the next one.
    fn fetch_list(
        &self,
        file: &ListedFile,
        path: &Path,
        observer: &dyn Observer,
    ) -> Result<(), Error> {
        let fetch = |url: &Url| {
            let wanted = Wanted {
                url,
                bytes: Some(file.bytes),
                max_bytes: MAX_LIST_BYTES,
                sha256: Some(&file.sha256),
            };
            self.client.to_file(&wanted, path, observer)
        };
        let plain = self.folder().join(&file.path);
        let list_folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let by_hash = format!("{list_folder}/by-hash/SHA256/{}", file.sha256);
        if !self.release.by_hash {
            return fetch(&plain);
        }
        match fetch(&self.folder().join(&by_hash)) {
            Err(Error::Missing { .. }) => fetch(&plain),
            fetched => fetched,
        }
    }
}
