//! `kernel.json`: where a stored kernel came from, and the properties that are checked before each use.

use std::{
    fmt, fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Architecture, Error,
    error::failed,
    image::{self, Image},
    modules,
};
use bpfcost_record::now;

/// Its name in the folder of a kernel.
const NAME: &str = "kernel.json";

/// What `kernel.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this form.
    pub schema: u32,
    /// The kernel's release.
    pub release: String,
    /// The architecture; `None` is this machine's, as in manifests of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// Where it came from.
    pub origin: Origin,
    /// SHA-256 of the image, in hexadecimal digits.
    pub image_sha256: String,
    /// Its modules; `None` for a kernel without.
    pub modules: Option<modules::Digest>,
    /// When it was added, RFC 3339 in UTC.
    pub added: String,
}

/// Where a kernel came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A suite of the Debian archive.
    Debian {
        /// E.g. `trixie`.
        suite: String,
        /// Those that its files came from; the one with the image first.
        packages: Vec<Package>,
    },
    /// A file that the user named: an image or a package.
    Path(PathBuf),
    /// A file that was fetched from an address.
    Url {
        /// The address.
        url: String,
        /// SHA-256 of the file, in hexadecimal digits.
        sha256: String,
    },
    /// Built here, from the source in such a package.
    Built {
        /// The package with the source.
        source: Package,
        /// SHA-256 of the configuration that was asked for, in hexadecimal digits.
        config_sha256: String,
    },
}

/// A package in a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version, e.g. `6.12.107-1`.
    pub version: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Debian { suite, packages } => {
                write!(f, "{suite}")?;
                packages
                    .first()
                    .map_or(Ok(()), |one| write!(f, " ({})", one.version))
            }
            Origin::Path(path) => write!(f, "{}", path.display()),
            Origin::Url { url, .. } => f.write_str(url),
            Origin::Built { source, .. } => {
                write!(f, "built from {} ({})", source.name, source.version)
            }
        }
    }
}

/// The version of the form.
const SCHEMA: u32 = 1;

impl Manifest {
    /// Of a kernel as it lies in a folder now.
    pub(super) fn from_folder(folder: &Path, image: &Image, origin: Origin) -> Result<Self, Error> {
        let release = &image.release;
        let modules = modules_in(folder, release);
        Ok(Manifest {
            schema: SCHEMA,
            release: release.clone(),
            architecture: image.architecture,
            origin,
            image_sha256: image::sha256(&image_in(folder, release))?,
            modules: modules
                .is_dir()
                .then(|| modules::Digest::from_folder(&modules))
                .transpose()?,
            added: now(),
        })
    }

    /// Reads that of a folder; says what is wrong with it.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let text = fs::read(folder.join(NAME)).map_err(|error| format!("{NAME}: {error}"))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| format!("{NAME}: {error}"))?;
        if manifest.schema > SCHEMA {
            return Err(format!(
                "{NAME} was written by a newer bpfcost; update this one"
            ));
        }
        Ok(manifest)
    }

    /// Returns whether guests of this machine can have it.
    pub fn is_for_here(&self) -> bool {
        self.architecture.is_none_or(Architecture::is_here)
    }

    /// Writes it into a folder and flushes it.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(NAME);
        let write = || {
            let mut file = fs::File::create(&path)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()
        };
        write().map_err(failed("write", &path))
    }

    /// What differs from it in a folder; `None` where all is as it was added.
    pub(super) fn differs(&self, folder: &Path) -> Option<String> {
        if folder.file_name() != Some(self.release.as_ref()) {
            return Some(format!("its folder should be called {}", self.release));
        }
        let image = image_in(folder, &self.release);
        match image::sha256(&image) {
            Err(Error::File { source, .. }) => return Some(format!("its image: {source}")),
            Err(error) => return Some(error.to_string()),
            Ok(seen) if seen != self.image_sha256 => {
                return Some("its image differs from the one that was added".to_owned());
            }
            Ok(_) => {}
        }
        let wanted = self.modules.as_ref()?;
        let modules = modules_in(folder, &self.release);
        match modules::Digest::from_folder(&modules) {
            Err(Error::File { source, .. }) => Some(format!("its modules: {source}")),
            Err(error) => Some(error.to_string()),
            Ok(seen) if seen.files != wanted.files => Some(format!(
                "it has {} module files, and {} were added",
                seen.files, wanted.files
            )),
            Ok(seen) if seen != *wanted => {
                Some("its modules differ from those that were added".to_owned())
            }
            Ok(_) => None,
        }
    }
}

/// Where the image lies in the folder of a kernel.
pub(super) fn image_in(folder: &Path, release: &str) -> PathBuf {
    folder.join(format!("boot/vmlinuz-{release}"))
}

/// Where its modules lie.
pub(super) fn modules_in(folder: &Path, release: &str) -> PathBuf {
    folder.join("lib/modules").join(release)
}
