//! What can go wrong with kernels: what, why, and what to do next.

use std::{io, path::PathBuf};

use thiserror::Error;

/// What `kernel add` takes.
pub(super) const WORDS: &str = "Suites: bookworm (6.1), trixie (6.12), sid (the newest), or another of the mirror's; the path of an image \
     has a / in it, e.g. ./vmlinuz";

/// Why a kernel can't be had.
#[derive(Debug, Error)]
pub enum Error {
    /// No kernel has that name.
    #[error("there is no kernel {name} in {folder}{}\n  {advice}", here(.there))]
    NotThere {
        /// Where it was looked for; root has another cache than its user.
        folder: PathBuf,
        /// As it was asked for.
        name: String,
        /// Those that there are.
        there: Vec<String>,
        /// How to get it.
        advice: String,
    },
    /// No kernel of that name is kept, so none can be removed.
    #[error("no kernel {name} is kept{}\n  What is kept: bpfcost kernel list", here(.there))]
    NotKept {
        /// As it was asked for.
        name: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// Several kernels have that name.
    #[error("{name} names several kernels: {}\n  Name one of them in full", .names.join(", "))]
    Ambiguous {
        /// As it was asked for.
        name: String,
        /// Those that match.
        names: Vec<String>,
    },
    /// A kernel of the system, which is not ours to remove.
    #[error(
        "{release} belongs to the system (/boot), and bpfcost leaves that alone\n  \
         It removes only kernels that it has added: bpfcost kernel list"
    )]
    OfTheSystem {
        /// Its release.
        release: String,
    },
    /// Neither a suite nor a path.
    #[error("{word} is neither a Debian suite nor the path of a kernel image\n  {advice}")]
    NotASuite {
        /// As it was given.
        word: String,
        /// What can be given.
        advice: String,
    },
    /// The mirror does not have that suite.
    #[error("{mirror} has no suite {suite}\n  {WORDS}")]
    NoSuite {
        /// As it was given.
        suite: String,
        /// Where it was looked for.
        mirror: String,
    },
    /// What was named as an image is none.
    #[error(
        "{path} is no kernel image: {why}\n  \
         Name a bzImage or vmlinuz, e.g. /boot/vmlinuz-6.12.107 or arch/x86/boot/bzImage"
    )]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Modules without an index can't be loaded by name.
    #[error(
        "{path} has no modules.dep, so that its modules can't be loaded\n  \
         Make it with depmod, or let bpfcost do so in a copy: bpfcost kernel add IMAGE"
    )]
    NoModulesDep {
        /// The folder of modules.
        path: PathBuf,
    },
    /// A kept kernel is not what was added.
    #[error("the kernel {release} is damaged: {what}\n  {advice}")]
    Damaged {
        /// Its release, which is the name of its folder.
        release: String,
        /// What differs.
        what: String,
        /// How to get it back.
        advice: String,
    },
    /// A program that is needed is not there.
    #[error(
        "{program} is not there, and {purpose} needs it\n  Install it: apt-get install {package}"
    )]
    NoProgram {
        /// Its name.
        program: String,
        /// What needs it.
        purpose: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// Programs and headers that a build needs are not there.
    #[error(
        "building a kernel needs {names}, which are not there\n  Install them: apt-get install {packages}"
    )]
    NoTools {
        /// What is missing.
        names: String,
        /// The Debian packages that have it.
        packages: String,
    },
    /// The system's sources name no Debian archive.
    #[error(
        "the package sources of this system name no Debian archive (looked into {looked})\n  \
         Add one there, e.g. /etc/apt/sources.list.d/debian.sources, or add a kernel by its path: \
         bpfcost kernel add PATH"
    )]
    NoMirror {
        /// Where sources were looked for.
        looked: PathBuf,
    },
    /// Signatures can't be checked.
    #[error(
        "the keys of the Debian archive are not there ({looked}), so that no signature can be checked\n  \
         Install them: apt-get install debian-archive-keyring"
    )]
    NoKeyring {
        /// Where they should lie.
        looked: PathBuf,
    },
    /// The mirror does not answer.
    #[error(
        "the mirror {mirror} can't be reached: {words}\n  \
         Check the network and proxies of apt; the mirror comes from the system's package sources"
    )]
    Unreachable {
        /// Its address.
        mirror: String,
        /// apt's words.
        words: String,
    },
    /// What the mirror has is not signed by Debian, or not what was signed.
    #[error(
        "what {mirror} has for {suite} can't be trusted: {words}\n  \
         Nothing of it is used. Debian's keys come with debian-archive-keyring: update that, or name \
         another mirror in the system's package sources"
    )]
    Signature {
        /// The suite.
        suite: String,
        /// The mirror's address.
        mirror: String,
        /// apt's words.
        words: String,
    },
    /// The suite lacks a package.
    #[error(
        "{suite} has no package {package} on {mirror}\n  \
         Try another suite: bookworm (6.1), trixie (6.12), sid (the newest)"
    )]
    NoPackage {
        /// The package.
        package: String,
        /// The suite.
        suite: String,
        /// The mirror's address.
        mirror: String,
    },
    /// Packages are not made as we know them.
    #[error(
        "{packages} of {suite} hold no kernel that can be used: {what}\n  \
         Try another suite: bookworm (6.1), trixie (6.12), sid (the newest)"
    )]
    NotAKernel {
        /// The packages.
        packages: String,
        /// The suite.
        suite: String,
        /// What is missing.
        what: String,
    },
    /// No room on the disk.
    #[error(
        "no room on the disk for a kernel: {path} has {free_mb} MB free and {needed_mb} MB are needed\n  \
         Make room (bpfcost kernel remove NAME), or keep kernels elsewhere: XDG_CACHE_HOME=FOLDER"
    )]
    NoRoom {
        /// Where kernels are kept.
        path: PathBuf,
        /// What is free there.
        free_mb: u64,
        /// What is needed while it is made.
        needed_mb: u64,
    },
    /// The disk filled up under way.
    #[error(
        "the disk is full: {path} could not be written, and what was there of the new kernel is removed\n  \
         Make room (bpfcost kernel remove NAME), or keep kernels elsewhere: XDG_CACHE_HOME=FOLDER"
    )]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },
    /// A file can't be read or written.
    #[error(
        "can't {doing} {path}: {source}\n  Kernels are kept under $XDG_CACHE_HOME/bpfcost/kernels, else ~/.cache"
    )]
    File {
        /// `read`, `write`, …
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program failed in a way that is not known here.
    #[error(
        "{program} failed: {words}\n  Try again, or add a kernel by its path: bpfcost kernel add PATH"
    )]
    Failed {
        /// Its name.
        program: String,
        /// What it said last.
        words: String,
    },
    /// A user without a home.
    #[error(
        "there is no place for kernels: neither XDG_CACHE_HOME nor HOME is set\n  Set one of them to a folder"
    )]
    NoHome,
    /// Debian packages no such kernel for this CPU.
    #[error(
        "Debian's kernels for {arch} are not known here\n  Add one by its path: bpfcost kernel add PATH"
    )]
    NoArchitecture {
        /// dpkg's name of it.
        arch: String,
    },
    /// Somebody pressed Ctrl-C.
    #[error(
        "interrupted; nothing is left of the kernel under way\n  Begin again with the same command"
    )]
    Interrupted,
}

impl Error {
    /// Whether the input was wrong, and not the machine.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Error::NotKept { .. }
                | Error::Ambiguous { .. }
                | Error::OfTheSystem { .. }
                | Error::NotASuite { .. }
                | Error::NoSuite { .. }
                | Error::NotAnImage { .. }
        )
    }
}

/// ` (there are: …)`.
fn here(there: &[String]) -> String {
    if there.is_empty() {
        "; there is none yet".to_owned()
    } else {
        format!("; there are: {}", there.join(", "))
    }
}

/// Says what could not be done with a file; a full disk is said as such.
pub(super) fn failed(
    doing: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull { path },
        _ => Error::File {
            doing,
            path,
            source,
        },
    }
}
