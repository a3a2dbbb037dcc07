//! The Debian mirror that this system is configured with: apt reads its own sources.list(5).

use std::{fs, path::Path};

use super::{
    Error, StepObserver,
    command::{CommandOutput, Step},
    error::program_failed,
};
use bpfcost_process::program::APT_GET;

/// Suites that only an archive of Debian has, besides the release of this system.
const SUITES: [&str; 11] = [
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "unstable",
    "testing",
    "stable",
    "oldstable",
    "oldoldstable",
];

/// A suite of it in a line: its name, the address without a password, and the address.
const FORMAT: &str = "$(RELEASE)\t$(SITE)\t$(REPO_URI)";

/// An archive of Debian.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    /// Its address as it may be shown: without a password.
    pub(super) shown: String,
    /// Its address.
    pub(super) uri: String,
}

/// The first Debian archive among the system's sources; preferably the one that this release of Debian comes from.
pub(super) fn of_system(system: &Path, observer: &dyn StepObserver) -> Result<Mirror, Error> {
    let mut command = APT_GET.command();
    command
        .arg("-o")
        .arg(format!("Dir={}", system.display()))
        .args(["indextargets", "--no-release-info", "--format", FORMAT])
        .args(["Created-By: Packages", "Component: main"]);
    let output = APT_GET.run(&mut command, observer, &mut |_| {})?;
    if !output.ok {
        return Err(program_failed(APT_GET.name, &complaint(&output)));
    }
    choose(&output.out, codename(system).as_deref()).ok_or_else(|| {
        Error::Lacking(format!(
            "the package sources of this system name no Debian archive (looked in {})\n  Add one \
             there, e.g. /etc/apt/sources.list.d/debian.sources, or add a kernel by its path: \
             bpfcost kernel add PATH",
            system.join("etc/apt").display()
        ))
    })
}

/// The code name of this release, where it is one of Debian.
fn codename(system: &Path) -> Option<String> {
    let text = fs::read_to_string(system.join("etc/os-release")).ok()?;
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map(|value| value.trim_matches('"').to_owned())
    };
    (value("ID")? == "debian")
        .then(|| value("VERSION_CODENAME"))
        .flatten()
}

/// Of lines in [`FORMAT`], in apt's order.
fn choose(listed: &str, codename: Option<&str>) -> Option<Mirror> {
    let usable = |wanted: &str| {
        listed.lines().find_map(|line| {
            let mut fields = line.split('\t');
            let (suite, shown, uri) = (fields.next()?, fields.next()?, fields.next()?);
            // A disc can't be asked for, and updates alone are no archive.
            (suite == wanted && !uri.starts_with("cdrom:") && !uri.contains("security")).then(
                || Mirror {
                    shown: shown.to_owned(),
                    uri: uri.trim_end_matches('/').to_owned(),
                },
            )
        })
    };
    codename.into_iter().chain(SUITES).find_map(usable)
}

/// The most informative complaint of apt, in one line: a warning says why a signature is wrong, the
/// error after it only that it is.
pub(super) fn complaint(output: &CommandOutput) -> String {
    let lines = || output.err.lines().map(str::trim);
    let bare = |line: &str| {
        line.trim_start_matches("W: ")
            .trim_start_matches("E: ")
            .to_owned()
    };
    lines()
        .find(|line| line.starts_with("W: GPG error") || line.starts_with("W: OpenPGP"))
        .or_else(|| lines().find(|line| line.starts_with("E: ")))
        .or_else(|| lines().next())
        .map_or_else(|| "it printed nothing".to_owned(), bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_this_release_comes_first() {
        let listed = "bookworm\tcdrom://Debian 12\tcdrom://Debian 12/\n\
                      sid\thttp://sid.invalid/debian\thttp://me:secret@sid.invalid/debian/\n\
                      tools-bookworm\thttps://tools.invalid\thttps://tools.invalid/\n\
                      noble\thttps://other.invalid\thttps://other.invalid/\n\
                      bookworm\thttp://a.invalid/debian-security\thttp://a.invalid/debian-security/\n\
                      bookworm\thttp://a.invalid/debian\thttp://a.invalid/debian/\n";
        let of = |codename| choose(listed, codename).unwrap();
        assert_eq!(of(Some("bookworm")).uri, "http://a.invalid/debian");
        // Another suite of Debian will do, and a password is not shown.
        let sid = listed.replace("bookworm", "none");
        let of = |codename| choose(&sid, codename).unwrap();
        for codename in [None, Some("bookworm")] {
            assert_eq!(of(codename).uri, "http://me:secret@sid.invalid/debian");
            assert_eq!(of(codename).shown, "http://sid.invalid/debian");
        }
        // A suite of another distribution is not Debian's.
        let noble = sid.replace("sid\t", "noble\t");
        assert_eq!(choose(&noble, None), None);
    }
}
