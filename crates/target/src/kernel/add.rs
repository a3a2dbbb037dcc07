//! Additions to the store: of a suite's newest kernel, of an image or a package in a file, of one at an address.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Addition, Architecture, Error, Manifest, Origin, StepObserver, Store,
    debian::{self, ROOM_BYTES, Suite, Watch, refused},
    error::{WORDS, failed, no_architecture},
    image::{self, Image},
    modules, package, place,
    staging::Staging,
    store::known_suite,
};
use bpfcost_debian::{Client, Url, Wanted};

/// No kernel is as large.
const MAX_BYTES: u64 = 2 << 30;

/// Options of an addition.
#[derive(Clone, Debug, Default)]
pub struct AddOptions {
    /// Address of the archive that a suite is fetched from; by default, the system's own.
    pub mirror: Option<String>,
    /// Architecture; by default, this machine's.
    pub architecture: Option<Architecture>,
    /// SHA-256 that a file must have, in hexadecimal digits.
    pub sha256: Option<String>,
}

impl Store {
    /// Adds the newest kernel of a Debian suite, or the kernel at a path or an address.
    pub fn add(
        &self,
        word: &str,
        options: &AddOptions,
        observer: &dyn StepObserver,
    ) -> Result<Addition, Error> {
        let sha256 = match &options.sha256 {
            Some(text) => Some(bpfcost_debian::sha256_digits(text).ok_or_else(|| {
                Error::Input(format!(
                    "{text} is no SHA-256\n  Give 64 hexadecimal digits, as sha256sum prints them"
                ))
            })?),
            None => None,
        };
        let is_address = word.contains("://") || word.starts_with("file:");
        if is_address || word.contains('/') || Path::new(word).is_file() {
            if options.mirror.is_some() {
                return Err(Error::Input(format!(
                    "--mirror is for suites, and {word} is none\n  Leave it out"
                )));
            }
            let architecture = options.architecture.or(Architecture::here());
            return if is_address {
                self.add_url(word, sha256, architecture, observer)
            } else {
                self.add_path(Path::new(word), sha256, architecture, observer)
            };
        }
        if !debian::can_be_suite(word) {
            let advice = match known_suite(word) {
                Some(suite) => format!("Kernels are added by suite: bpfcost kernel add {suite}"),
                None => WORDS.to_owned(),
            };
            return Err(Error::Input(format!(
                "{word} is neither a Debian suite nor the path of a kernel image\n  {advice}"
            )));
        }
        if sha256.is_some() {
            return Err(Error::Input(format!(
                "--sha256 is for a URL or a file, and {word} is a suite, which is signed\n  Leave it out"
            )));
        }
        self.add_suite(word, options, observer)
    }

    /// A kept kernel of a kind that is as it was added.
    pub(super) fn whole(
        &self,
        is_it: impl Fn(&Manifest) -> bool,
    ) -> Result<Option<Manifest>, Error> {
        Ok(self.releases()?.iter().find_map(|one| {
            let folder = self.folder.join(one);
            let manifest = Manifest::read(&folder).ok()?;
            (is_it(&manifest) && manifest.differs(&folder).is_none()).then_some(manifest)
        }))
    }

    fn add_suite(
        &self,
        suite: &str,
        options: &AddOptions,
        observer: &dyn StepObserver,
    ) -> Result<Addition, Error> {
        let architecture = options.architecture.or(Architecture::here());
        let architecture = architecture.ok_or_else(|| no_architecture(std::env::consts::ARCH))?;
        let staging = Staging::begin(&self.folder, observer)?;
        let mirror = options.mirror.as_deref();
        let open = Suite::open(
            suite,
            None,
            mirror,
            architecture,
            &self.system,
            &staging,
            observer,
        )?;
        let packages = open.newest()?;
        // Manifests of older versions name no architecture, and are of kernels of this machine's.
        let same = |one: &Manifest| {
            one.architecture.or(Architecture::here()) == Some(architecture)
                && matches!(&one.origin, Origin::Debian { packages: own, .. } if *own == packages)
        };
        if let Some(manifest) = self.whole(same)? {
            return Ok(Addition::Already(manifest));
        }
        let image = open.unpack(&packages)?;
        drop(open);
        check_architecture(suite, &image, Some(architecture))?;
        staging
            .keep(&image, debian::origin(suite, packages))
            .map(Addition::New)
    }

    fn add_url(
        &self,
        word: &str,
        sha256: Option<String>,
        architecture: Option<Architecture>,
        observer: &dyn StepObserver,
    ) -> Result<Addition, Error> {
        let url = Url::parse(word).map_err(refused)?;
        let sha256 = sha256.ok_or_else(|| {
            Error::Input(format!(
                "{url} is not signed, so the SHA-256 that it must have is needed; nothing was \
                 downloaded\n  Take it from a source that you trust: bpfcost kernel add {url} \
                 --sha256 HEX"
            ))
        })?;
        let same = |one: &Manifest| matches!(&one.origin, Origin::Url { sha256: own, .. } if *own == sha256);
        let staging = Staging::begin(&self.folder, observer)?;
        if let Some(manifest) = self.whole(same)? {
            return Ok(Addition::Already(manifest));
        }
        staging.need_room(ROOM_BYTES)?;
        let name = url.file_name();
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "._+~-".contains(one);
        let is_name = name.starts_with(|one: char| one.is_ascii_alphanumeric());
        let name = if is_name && name.len() < 200 && name.chars().all(is_plain) {
            name
        } else {
            "fetched"
        };
        let folder = staging.folder().join("fetched");
        fs::create_dir(&folder).map_err(failed("make", &folder))?;
        let file = folder.join(name);
        observer.doing(&format!("fetching {url}"));
        let wanted = Wanted {
            url: &url,
            bytes: None,
            max_bytes: MAX_BYTES,
            sha256: Some(&sha256),
        };
        let client = Client::new(&self.system);
        client
            .to_file(&wanted, &file, &Watch(observer))
            .map_err(refused)?;
        let origin = Origin::Url {
            url: url.to_string(),
            sha256,
        };
        if bpfcost_debian::is_package(&file) {
            return unpack(&file, name, origin, staging, architecture, observer);
        }
        let image = image::read(&file).map_err(|error| match error {
            // The name of the file that it was fetched to says nothing.
            Error::Input(text) => {
                Error::Input(text.replace(&file.display().to_string(), &url.to_string()))
            }
            other => other,
        })?;
        check_architecture(&url.to_string(), &image, architecture)?;
        fs::rename(&file, staging.image(&image.release)?).map_err(failed("move", &file))?;
        observer.notice(&format!(
            "{} has no modules; all drivers that a guest needs must be in its image",
            image.release
        ));
        staging.keep(&image, origin).map(Addition::New)
    }

    fn add_path(
        &self,
        path: &Path,
        sha256: Option<String>,
        architecture: Option<Architecture>,
        observer: &dyn StepObserver,
    ) -> Result<Addition, Error> {
        if let Some(expected) = sha256
            && let found = image::sha256(path)?
            && found != expected
        {
            return Err(Error::Input(format!(
                "{} is another file: its SHA-256 is {found} instead of {expected}\n  Get it again, \
                 or correct --sha256",
                path.display()
            )));
        }
        if bpfcost_debian::is_package(path) {
            return self.add_package(path, architecture, observer);
        }
        let image = image::read(path)?;
        check_architecture(&path.display().to_string(), &image, architecture)?;
        let release = &image.release;
        let path = fs::canonicalize(path).map_err(failed("read", path))?;
        let folder = self.folder.join(release);
        let modules = place::modules_of(&path, release, &self.system);
        if let Ok(manifest) = Manifest::read(&folder)
            && manifest.image_sha256 == image::sha256(&path)?
            && manifest.modules.is_some() == modules.is_some()
            && manifest.differs(&folder).is_none()
        {
            return Ok(Addition::Already(manifest));
        }
        let staging = Staging::begin(&self.folder, observer)?;
        observer.doing(&format!("copying {release}"));
        let size = fs::metadata(&path).map_or(0, |image| image.len());
        staging.need_room(size + modules.as_deref().map_or(0, modules::size))?;
        let file = staging.image(release)?;
        fs::copy(&path, &file).map_err(failed("write", &file))?;
        match &modules {
            Some(from) => {
                modules::copy(from, &staging.modules(release)?, observer)?;
                staging.index_modules(release, observer)?;
            }
            None => observer.notice(&format!(
                "{release} has no modules at ../lib/modules/{release} or /lib/modules/{release}; \
                 all drivers that a guest needs must be in its image"
            )),
        }
        staging.keep(&image, Origin::Path(path)).map(Addition::New)
    }

    /// Adds the kernel in a package that is a file of this machine.
    fn add_package(
        &self,
        path: &Path,
        architecture: Option<Architecture>,
        observer: &dyn StepObserver,
    ) -> Result<Addition, Error> {
        let path = fs::canonicalize(path).map_err(failed("read", path))?;
        let staging = Staging::begin(&self.folder, observer)?;
        staging.need_room(ROOM_BYTES)?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        unpack(
            &path,
            &name,
            Origin::Path(path.clone()),
            staging,
            architecture,
            observer,
        )
    }
}

/// Makes a kernel of one package.
fn unpack(
    file: &Path,
    name: &str,
    origin: Origin,
    staging: Staging,
    architecture: Option<Architecture>,
    observer: &dyn StepObserver,
) -> Result<Addition, Error> {
    observer.doing(&format!("unpacking {name}"));
    let files: [PathBuf; 1] = [file.to_owned()];
    let image = package::unpack(&files, &staging, observer, &|what| {
        Error::Input(format!(
            "{name} has no usable kernel: {what}\n  Name a package linux-image-RELEASE that has \
             image and modules, or a suite, which may have several packages: bpfcost kernel add sid"
        ))
    })?;
    check_architecture(name, &image, architecture)?;
    staging.keep(&image, origin).map(Addition::New)
}

/// Refuses a kernel of another architecture than the one that was asked for.
fn check_architecture(
    what: &str,
    image: &Image,
    wanted: Option<Architecture>,
) -> Result<(), Error> {
    match (image.architecture, wanted) {
        (Some(own), Some(wanted)) if own != wanted => Err(Error::Input(format!(
            "{what} has a kernel for {own}, not for {wanted}\n  Guests of this machine cannot use \
             it. To keep it all the same: --arch {own}"
        ))),
        _ => Ok(()),
    }
}
