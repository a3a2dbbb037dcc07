//! The store: finds, lists and removes kernels that were added; finds kernels that can be used where they are.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use super::{
    Error, KNOWN_SUITES, Kernel, Manifest, Origin, StepObserver,
    error::{failed, here},
    manifest::{image_in, modules_in},
    modules, place, release,
    staging::Staging,
};
use bpfcost_process::xdg::Folder;

/// Where kernels for guests are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    pub(super) folder: PathBuf,
    pub(super) system: PathBuf,
}

/// What became of an addition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addition {
    /// It is new, or was made anew.
    New(Manifest),
    /// It was there, and is whole.
    Already(Manifest),
}

/// A kernel, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEntry {
    /// Its release, which is its name.
    pub release: String,
    /// What is known of it; `None` for one of the system, and where that can't be read.
    pub manifest: Option<Manifest>,
    /// Image and modules together.
    pub bytes: u64,
    /// Whether it can be used.
    pub state: KernelStatus,
}

/// Whether a kernel can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelStatus {
    /// It is as it was added.
    Ok,
    /// It is not, and how it differs.
    Damaged(String),
    /// It is the system's, used where it lies.
    OfTheSystem,
}

impl Store {
    /// The user's own: `$XDG_CACHE_HOME/bpfcost/kernels`, or under `~/.cache`. `BPFCOST_SYSTEM_ROOT`
    /// stands in for `/` in tests.
    pub fn of_user() -> Result<Self, Error> {
        let cache = Folder::Cache.of_user().ok_or_else(|| {
            let text = "there is no folder for kernels: neither XDG_CACHE_HOME nor HOME is set\n  \
                        Set one of them to a folder";
            Error::Lacking(text.to_owned())
        })?;
        let store = Store::at(cache.join("kernels"));
        Ok(match env::var_os("BPFCOST_SYSTEM_ROOT") {
            Some(root) => store.with_system(PathBuf::from(root)),
            None => store,
        })
    }

    /// In a folder, which is made when a kernel is added.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Store {
            folder: folder.into(),
            system: PathBuf::from("/"),
        }
    }

    /// With another place for the system's own files: `boot`, `lib/modules`, `etc/apt`, keyrings.
    pub fn with_system(mut self, root: impl Into<PathBuf>) -> Self {
        self.system = root.into();
        self
    }

    /// All kernels, each looked at: those that were added, oldest first, then those of the system.
    pub fn list(&self) -> Result<Vec<KernelEntry>, Error> {
        let mut kernels: Vec<KernelEntry> = self
            .releases()?
            .into_iter()
            .map(|one| self.kept(one))
            .collect();
        for kernel in place::of_system(&self.system) {
            if kernels.iter().all(|kept| kept.release != kernel.release) {
                let image = fs::metadata(&kernel.image).map_or(0, |image| image.len());
                kernels.push(KernelEntry {
                    bytes: image + kernel.modules.as_deref().map_or(0, modules::size),
                    release: kernel.release,
                    manifest: None,
                    state: KernelStatus::OfTheSystem,
                });
            }
        }
        Ok(kernels)
    }

    /// The kernel of that name, checked: a release, a part of one (the newest that has it), a suite (the
    /// newest that came from it), `6.12-fp` (the one built with frame pointers), or the path of an image.
    pub fn find(&self, name: &str) -> Result<Kernel, Error> {
        if name.contains('/') {
            return place::at(Path::new(name), &self.system);
        }
        let mut other = None;
        for release in self.named(name)?.into_iter().rev() {
            match Manifest::read(&self.folder.join(&release)).map(|one| one.architecture) {
                Ok(Some(own)) if !own.is_here() => other = other.or(Some((release, own))),
                _ => return self.checked(&release),
            }
        }
        let mut of_system = place::of_system(&self.system);
        of_system.retain(|kernel| release::names(name, &kernel.release));
        match (of_system.pop(), other) {
            // The name of a file proves nothing.
            (Some(kernel), _) => place::at(&kernel.image, &self.system),
            (None, Some((release, own))) => Err(place::other_architecture(&release, own)),
            (None, None) => Err(Error::Lacking(format!(
                "there is no kernel {name} in {}{}\n  {}",
                self.folder.display(),
                here(&self.names()?),
                how_to_get(name)
            ))),
        }
    }

    /// Removes a kernel that was added; gives its release.
    pub fn remove(&self, name: &str, observer: &dyn StepObserver) -> Result<String, Error> {
        let all = self.releases()?;
        let mut names: Vec<String> = if all.iter().any(|one| one == name) {
            vec![name.to_owned()]
        } else {
            self.named(name)?
        };
        let Some(release) = names.pop() else {
            let mut of_system = place::of_system(&self.system).into_iter();
            let of_host = of_system.find(|kernel| release::names(name, &kernel.release));
            return Err(Error::Input(match of_host {
                Some(Kernel { release, .. }) => format!(
                    "{release} belongs to the system (/boot)\n  Only kernels that bpfcost added \
                     can be removed: bpfcost kernel list"
                ),
                None => format!(
                    "there is no kernel {name} to remove{}\n  List the added ones: bpfcost kernel \
                     list",
                    here(&all)
                ),
            }));
        };
        if !names.is_empty() {
            names.push(release);
            return Err(Error::Input(format!(
                "{name} names several kernels: {}\n  Name one of them in full",
                names.join(", ")
            )));
        }
        Staging::begin(&self.folder, observer)?.discard(&release)?;
        Ok(release)
    }

    /// Releases of the kept kernels that a name means, oldest first.
    fn named(&self, name: &str) -> Result<Vec<String>, Error> {
        let all = self.releases()?;
        if all.iter().any(|one| one == name) {
            return Ok(vec![name.to_owned()]);
        }
        let means =
            |one: &String| match Manifest::read(&self.folder.join(one)).map(|one| one.origin) {
                // A kernel built for a study is no stand-in for Debian's; it has its own name.
                Ok(Origin::Built { .. }) => name
                    .strip_suffix("-fp")
                    .is_some_and(|version| release::names(version, one)),
                Ok(Origin::Debian { suite, packages }) => {
                    suite == name
                        || release::names(name, one)
                        || packages
                            .iter()
                            .any(|package| release::names(name, &package.version))
                }
                Ok(Origin::Path(_) | Origin::Url { .. }) | Err(_) => release::names(name, one),
            };
        Ok(all.into_iter().filter(means).collect())
    }

    /// A kept kernel, if it is as it was added.
    fn checked(&self, release: &str) -> Result<Kernel, Error> {
        let folder = self.folder.join(release);
        let damaged = |what: String, advice: String| Error::Damaged {
            release: release.to_owned(),
            what,
            advice,
        };
        let manifest = Manifest::read(&folder).map_err(|what| {
            damaged(
                what,
                format!("Remove it and add it again: bpfcost kernel remove {release}"),
            )
        })?;
        if let Some(what) = manifest.differs(&folder) {
            let again = match &manifest.origin {
                Origin::Debian { suite, .. } => {
                    format!("bpfcost kernel add {suite} (fetches about 100 MB)")
                }
                Origin::Path(path) => format!("bpfcost kernel add {}", path.display()),
                Origin::Url { url, sha256 } => {
                    format!("bpfcost kernel add {url} --sha256 {sha256}")
                }
                Origin::Built { .. } => "bpfcost kernel build --frame-pointer".to_owned(),
            };
            return Err(damaged(what, format!("Add it again: {again}")));
        }
        Ok(Kernel {
            image: image_in(&folder, release),
            modules: manifest
                .modules
                .is_some()
                .then(|| modules_in(&folder, release)),
            release: release.to_owned(),
        })
    }

    fn kept(&self, release: String) -> KernelEntry {
        let folder = self.folder.join(&release);
        let (manifest, state) = match Manifest::read(&folder) {
            Ok(manifest) => {
                let state = manifest
                    .differs(&folder)
                    .map_or(KernelStatus::Ok, KernelStatus::Damaged);
                (Some(manifest), state)
            }
            Err(what) => (None, KernelStatus::Damaged(what)),
        };
        KernelEntry {
            bytes: modules::size(&folder),
            release,
            manifest,
            state,
        }
    }

    /// Names of all kernels that can be found.
    fn names(&self) -> Result<Vec<String>, Error> {
        let mut names = self.releases()?;
        for kernel in place::of_system(&self.system) {
            if !names.contains(&kernel.release) {
                names.push(kernel.release);
            }
        }
        Ok(names)
    }

    /// The folders of the store, oldest release first; what is hidden is a staging.
    pub(super) fn releases(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", &self.folder)(error)),
        };
        let mut releases: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| release::is_valid(name))
            .collect();
        releases.sort_by(|one, other| release::order(one, other));
        Ok(releases)
    }
}

/// The suite that has a version, or that has this name.
pub(super) fn known_suite(name: &str) -> Option<&'static str> {
    let matches =
        |(version, suite): &&(&str, &str)| release::names(version, name) || *suite == name;
    KNOWN_SUITES.iter().find(matches).map(|(_, suite)| *suite)
}

/// What to do for a kernel that is not there.
fn how_to_get(name: &str) -> String {
    if name.ends_with("-fp") {
        return "Build it: bpfcost kernel build --frame-pointer".to_owned();
    }
    match known_suite(name) {
        Some(suite) => format!("Fetch it: bpfcost kernel add {suite}"),
        None => {
            "Add one: bpfcost kernel add bookworm (6.1), trixie (6.12), sid (the newest), or PATH"
                .to_owned()
        }
    }
}
