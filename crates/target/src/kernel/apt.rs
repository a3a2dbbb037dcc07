//! apt with its own state: reads one suite of one mirror, checks its signatures, and changes nothing on
//! the system. The system's apt configuration (proxies and the like) stays in force.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Error, Package, StepObserver,
    command::{CommandOutput, Step, is_full},
    error::{ANOTHER, WORDS, failed},
    mirror::{self, Mirror, complaint},
};
use bpfcost_process::program::{APT_CACHE, APT_GET, Program};

/// Where Debian's packages of keys put them: Debian 12 and before, 13 and later.
const KEYRINGS: [&str; 2] = [
    "usr/share/keyrings/debian-archive-keyring.gpg",
    "usr/share/keyrings/debian-archive-keyring.pgp",
];

/// Read after the system's own configuration. Paths are relative to the folder that apt runs in.
///
/// - The hooks of the system (cleaning its cache, telling its desktop) are not for these lists.
/// - Insecure archives are refused even where the system allows them.
/// - apt's sandbox user can't reach a folder in a user's home; apt itself would fall back to root with a
///   warning. Hashes and signatures are checked all the same.
const CONFIG: &str = r#"#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::SourceList "./sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "./lists/";
Dir::State::Status "./status";
Dir::State::Extended_States "./extended_states";
Dir::Cache "./cache/";
Dir::Cache::Archives "./cache/archives/";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
APT::Update::Error-Mode "any";
APT::Sandbox::User "root";
APT::Status-Fd "1";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
"#;

/// One suite of the system's mirror.
pub(super) struct Apt<'a> {
    folder: PathBuf,
    suite: &'a str,
    mirror: Mirror,
    observer: &'a dyn StepObserver,
}

/// What the lists say of a package.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackageEntry {
    pub(super) version: String,
    /// Names of the packages that it depends on.
    pub(super) depends: Vec<String>,
}

impl<'a> Apt<'a> {
    /// Writes its configuration into a folder, which must exist.
    pub(super) fn prepare(
        folder: PathBuf,
        system: &Path,
        suite: &'a str,
        observer: &'a dyn StepObserver,
    ) -> Result<Self, Error> {
        let mirror = mirror::of_system(system, observer)?;
        let keyring = KEYRINGS
            .iter()
            .map(|path| system.join(path))
            .find(|path| path.is_file())
            .ok_or_else(|| {
                Error::Lacking(format!(
                    "the keys of the Debian archive are missing ({}), so signatures cannot be \
                     checked\n  Install them: apt-get install debian-archive-keyring",
                    system.join(KEYRINGS[0]).display()
                ))
            })?;
        let source = format!(
            "deb [signed-by={} target=Packages] {} {suite} main\n",
            keyring.display(),
            mirror.uri
        );
        for partial in ["lists/partial", "cache/archives/partial"] {
            let path = folder.join(partial);
            fs::create_dir_all(&path).map_err(failed("make", &path))?;
        }
        for (name, text) in [
            ("apt.conf", CONFIG),
            ("sources.list", &*source),
            // Nothing is installed, as far as this apt knows.
            ("status", ""),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(failed("write", &path))?;
        }
        Ok(Apt {
            folder,
            suite,
            mirror,
            observer,
        })
    }

    /// The mirror's address, as it may be shown.
    pub(super) fn mirror(&self) -> &str {
        &self.mirror.shown
    }

    /// Fetches the suite's lists and checks their signature.
    pub(super) fn update(&self) -> Result<(), Error> {
        let output = self.run(APT_GET, &["update"])?;
        if output.ok {
            return Ok(());
        }
        Err(self.error(&output))
    }

    /// The newest version of a package; `None` where the suite lacks it.
    pub(super) fn show(&self, package: &str) -> Result<Option<PackageEntry>, Error> {
        let output = self.run(APT_CACHE, &["--no-all-versions", "show", package])?;
        if output.ok {
            return Ok(listed(&output.out));
        }
        if output.err.contains("No packages found") {
            return Ok(None);
        }
        Err(self.error(&output))
    }

    /// Fetches packages in exactly these versions; gives their files. [`Error::NoPackage`] where the
    /// suite no longer has one of them.
    pub(super) fn download(&self, packages: &[Package]) -> Result<Vec<PathBuf>, Error> {
        let names: Vec<String> = packages
            .iter()
            .map(|package| format!("{}={}", package.name, package.version))
            .collect();
        let mut arguments = vec!["download"];
        arguments.extend(names.iter().map(String::as_str));
        let output = self.run(APT_GET, &arguments)?;
        if !output.ok {
            let gone = [
                "Unable to locate package",
                "was not found",
                "no installation candidate",
            ];
            if gone.iter().any(|words| output.err.contains(words)) {
                return Err(self.no_package(&names.join(" ")));
            }
            return Err(self.error(&output));
        }
        let files = fs::read_dir(&self.folder).map_err(failed("read", &self.folder))?;
        let mut files: Vec<PathBuf> = files
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        files.sort();
        Ok(files)
    }

    /// That the suite lacks a package.
    pub(super) fn no_package(&self, package: &str) -> Error {
        Error::NoPackage(format!(
            "{} has no package {package} on {}\n  {ANOTHER}",
            self.suite,
            self.mirror()
        ))
    }

    fn run(&self, program: Program, arguments: &[&str]) -> Result<CommandOutput, Error> {
        let mut command: Command = program.command();
        command
            .current_dir(&self.folder)
            .args(["-c", "./apt.conf", "-q"])
            .args(arguments);
        program.run(&mut command, self.observer, &mut |line| {
            if let Some(share) = share(line) {
                self.observer.progress(share);
            }
        })
    }

    /// What a failure of apt means.
    fn error(&self, output: &CommandOutput) -> Error {
        let any = |words: &[&str]| words.iter().any(|one| output.err.contains(one));
        let words = complaint(output);
        let (suite, mirror) = (self.suite, self.mirror());
        let untrusted = || {
            Error::Lacking(format!(
                "the files of {mirror} for {suite} cannot be trusted: {words}\n  Update Debian's \
                 keys (package debian-archive-keyring), or use another mirror in the system's \
                 package sources"
            ))
        };
        if is_full(&output.err) {
            APT_GET.failed(output, &self.folder)
        } else if any(UNTRUSTED) {
            untrusted()
        } else if any(UNREACHED) {
            // What a mirror refuses to give is then called unsigned, too.
            Error::Lacking(format!(
                "the mirror {mirror} cannot be reached: {words}\n  Check the network and apt's \
                 proxies; the mirror comes from the system's package sources"
            ))
        } else if any(&["does not have a Release file"]) {
            Error::Input(format!("{mirror} has no suite {suite}\n  {WORDS}"))
        } else if any(&["is not signed"]) {
            untrusted()
        } else {
            APT_GET.failed(output, &self.folder)
        }
    }
}

/// apt's words for archives that prove nothing, and for files that are not what was signed.
const UNTRUSTED: &[&str] = &[
    "GPG error",
    "OpenPGP",
    "NO_PUBKEY",
    "BADSIG",
    "EXPKEYSIG",
    "signature",
    "Hash Sum mismatch",
    "unexpected size",
    "is expired",
    "is not valid yet",
    "NODATA",
    "Clearsigned file",
];

/// … for mirrors that do not answer, or not with what was asked for.
const UNREACHED: &[&str] = &[
    "Could not connect",
    "Unable to connect",
    "Could not resolve",
    "Temporary failure resolving",
    "Connection failed",
    "Connection timed out",
    "Could not handshake",
    "Network is unreachable",
    "Failed to fetch",
];

/// `dlstatus:1:14.4774:Retrieving file 1 of 1`: a percentage, on apt's status line.
fn share(line: &str) -> Option<f64> {
    let mut parts = line.strip_prefix("dlstatus:")?.split(':');
    let percent: f64 = parts.nth(1)?.parse().ok()?;
    Some(percent / 100.0)
}

/// The first stanza of `apt-cache show`.
fn listed(text: &str) -> Option<PackageEntry> {
    let stanza = text.split("\n\n").next()?;
    let field = |key: &str| {
        stanza
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
    };
    let depends = field("Depends").unwrap_or_default();
    Some(PackageEntry {
        version: field("Version")?.to_owned(),
        depends: depends
            .split(',')
            .filter_map(|one| one.split_whitespace().next())
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_lists_say() {
        let text = "Package: linux-image-7.2.13+deb14-amd64\nVersion: 7.2.13-1\nInstalled-Size: 15\n\
                    Depends: dracut | initramfs-tools (>= 0.120), linux-base-7.2.13+deb14-amd64 (= 7.2.13-1)\n\
                    Size: 1892\nDescription: x\n\nPackage: other\nVersion: 1\n";
        let listed = listed(text).unwrap();
        assert_eq!(listed.version, "7.2.13-1");
        assert_eq!(listed.depends, ["dracut", "linux-base-7.2.13+deb14-amd64"]);
        assert_eq!(super::listed("Package: x\n"), None);
    }

    #[test]
    fn how_far_a_download_is() {
        assert_eq!(share("dlstatus:3:25.5:Retrieving file 3 of 3"), Some(0.255));
        for other in ["dlstatus:", "dlstatus:1:x:y", "Get:1 http://a b"] {
            assert_eq!(share(other), None, "{other}");
        }
    }
}
