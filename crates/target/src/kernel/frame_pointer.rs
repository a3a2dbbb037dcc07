//! A kernel with frame pointers, built from Debian's source package: for studies of stack walks, which
//! Debian's own kernels do by ORC tables. Its configuration is `frame_pointer.config`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread::available_parallelism,
    time::UNIX_EPOCH,
};

use sha2::{Digest as _, Sha256};

use super::{
    Addition, Architecture, Error, Origin, Package, StepObserver, Store,
    command::{self, Step},
    debian::Suite,
    error::{failed, no_architecture, program_failed},
    image::{self, hex},
    package,
    staging::Staging,
};
use bpfcost_process::program::{MAKE, TAR, Task};
use bpfcost_record::rfc3339;

const CONFIG: &str = include_str!("frame_pointer.config");

/// The source: that of a long-term kernel, from the suite that has it.
const SUITE: &str = "trixie";
const SOURCE: &str = "linux-source-6.12";

/// Source and objects, measured: 1.3 GB and 1.6 GB; the packed source in between.
const ROOM_BYTES: u64 = 3_200_000_000;

/// Lines that make prints for this configuration, measured; they show how far it is.
const LINES: f64 = 2190.0;

/// A header that it includes, and its package.
const HEADERS: [(&str, &str); 1] = [("usr/include/libelf.h", "libelf-dev")];

impl Store {
    /// Builds the kernel with frame pointers, `6.12-fp`, unless it is there from the same source and configuration.
    /// The source comes from the system's own mirror unless another is named.
    pub fn build_frame_pointer(
        &self,
        mirror: Option<&str>,
        observer: &dyn StepObserver,
    ) -> Result<Addition, Error> {
        let architecture = Architecture::Amd64;
        if !architecture.is_here() {
            return Err(no_architecture(env::consts::ARCH));
        }
        look_for_tools(&self.system)?;
        let staging = Staging::begin(&self.folder, observer)?;
        let suite = Suite::open(
            SUITE,
            Some(SOURCE),
            mirror,
            architecture,
            &self.system,
            &staging,
            observer,
        )?;
        let source = suite.package(SOURCE)?;
        let origin = Origin::Built {
            source: source.clone(),
            config_sha256: hex(&Sha256::digest(CONFIG)),
        };
        if let Some(manifest) = self.whole(|one| one.origin == origin)? {
            return Ok(Addition::Already(manifest));
        }
        staging.need_room(ROOM_BYTES)?;
        let tree = unpack(&suite, source, &staging, observer)?;
        let built = make(&tree, &staging, observer)?;
        let image = image::read(&built)?;
        fs::rename(&built, staging.image(&image.release)?).map_err(failed("move", &built))?;
        staging.keep(&image, origin).map(Addition::New)
    }
}

/// Refuses to begin without the programs and headers that a build needs.
fn look_for_tools(system: &Path) -> Result<(), Error> {
    let headers = HEADERS.into_iter();
    let headers = headers.filter(|(name, _)| !system.join(name).is_file());
    command::require(Task::KernelBuild, "building a kernel", headers)
}

/// The source tree, without what no build for this machine reads.
fn unpack(
    suite: &Suite<'_>,
    source: Package,
    staging: &Staging,
    observer: &dyn StepObserver,
) -> Result<PathBuf, Error> {
    let files = suite.fetch(&[source])?;
    let tree = staging.folder().join("unpacked");
    let inside = format!("usr/src/{SOURCE}.tar.xz");
    package::extract(&files, &tree, observer, &mut |path| {
        path == Path::new(&inside)
    })?;
    for file in &files {
        // Its room is needed for what comes next.
        fs::remove_file(file).map_err(failed("remove", file))?;
    }
    let packed = tree.join(inside);
    observer.doing(&format!("unpacking {SOURCE}"));
    let mut command = TAR.command();
    command
        .arg("--extract")
        .arg("--file")
        .arg(&packed)
        .arg("--directory")
        .arg(staging.folder());
    // A third of all of it: registers of graphics cards. Other architectures stay, as Kconfig reads them.
    command.arg(format!("--exclude={SOURCE}/drivers/gpu/drm/amd/include/*"));
    TAR.succeed(&mut command, staging.folder(), observer)?;
    fs::remove_file(&packed).map_err(failed("remove", &packed))?;
    Ok(staging.folder().join(SOURCE))
}

/// Configures and builds; gives the image.
fn make(tree: &Path, staging: &Staging, observer: &dyn StepObserver) -> Result<PathBuf, Error> {
    let objects = staging.folder().join("objects");
    let fragment = staging.folder().join("config");
    fs::create_dir(&objects).map_err(failed("make", &objects))?;
    fs::write(&fragment, CONFIG).map_err(failed("write", &fragment))?;
    let command = |target: &str| -> Command {
        let mut command = MAKE.command();
        command
            .arg("-C")
            .arg(tree)
            .arg(format!("O={}", objects.display()))
            .arg("ARCH=x86")
            // The same source makes the same kernel, wherever and whenever it is built.
            .arg("KBUILD_BUILD_USER=bpfcost")
            .arg("KBUILD_BUILD_HOST=bpfcost")
            .arg(format!("KBUILD_BUILD_TIMESTAMP={}", written(tree)))
            .arg(target);
        command
    };
    observer.doing(&format!("configuring {SOURCE}"));
    let mut configure = command("allnoconfig");
    configure.env("KCONFIG_ALLCONFIG", &fragment);
    let output = MAKE.run(&mut configure, observer, &mut |_| {})?;
    if !output.ok {
        return Err(make_failed(&output, &objects));
    }
    let config = objects.join(".config");
    let config = fs::read_to_string(&config).map_err(failed("read", &config))?;
    if let Some(missing) = missing(&config) {
        let words = format!("this source does not accept {missing}");
        return Err(program_failed("configuring the kernel", &words));
    }
    let jobs = available_parallelism().map_or(1, usize::from);
    observer.doing(&format!(
        "building {SOURCE} on {jobs} CPUs, for some minutes"
    ));
    let mut lines = 0.0;
    let mut build = command("bzImage");
    build.arg(format!("-j{jobs}"));
    let output = MAKE.run(&mut build, observer, &mut |_| {
        lines += 1.0;
        observer.progress(f64::min(lines / LINES, 1.0));
    })?;
    if !output.ok {
        return Err(make_failed(&output, &objects));
    }
    Ok(objects.join("arch/x86/boot/bzImage"))
}

/// The first complaint of a compiler, a linker or Kconfig says more than make's last words.
fn make_failed(output: &command::CommandOutput, objects: &Path) -> Error {
    let lines = || output.err.lines().map(str::trim);
    let complaint = lines()
        .find(|line| line.contains("error:") || line.contains("undefined reference"))
        .or_else(|| lines().find(|line| !line.is_empty() && !line.starts_with("make")));
    match complaint {
        Some(words) if !command::is_full(&output.err) => program_failed(MAKE.name, words),
        _ => MAKE.failed(output, objects),
    }
}

/// A line of the fragment that the configuration lacks.
fn missing(config: &str) -> Option<&'static str> {
    CONFIG
        .lines()
        .filter(|line| line.starts_with("CONFIG_"))
        .find(|wanted| !config.lines().any(|line| line == *wanted))
}

/// When the source was packed, as date(1) reads it.
fn written(tree: &Path) -> String {
    let at = fs::metadata(tree.join("Makefile")).and_then(|file| file.modified());
    rfc3339(at.unwrap_or(UNIX_EPOCH))
        .replace('T', " ")
        .replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_must_have_all_that_was_asked() {
        assert_eq!(missing(CONFIG), None);
        let without = CONFIG.replace("CONFIG_FPROBE=y", "# CONFIG_FPROBE is not set");
        assert_eq!(missing(&without), Some("CONFIG_FPROBE=y"));
        assert!(CONFIG.contains("\nCONFIG_LOCALVERSION=\"-bpfcost-fp\"\n"));
    }

    #[test]
    fn what_is_missing_for_a_build_is_named() {
        let error = look_for_tools(Path::new("/nothing")).expect_err("there is no header");
        let text = error.to_string();
        assert!(text.contains("libelf.h"), "{text}");
        assert!(text.contains("libelf-dev"), "{text}");
    }
}
