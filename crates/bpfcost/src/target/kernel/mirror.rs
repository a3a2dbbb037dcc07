//! The Debian mirror that this system is configured with: sources.list(5), in both its forms.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::Error;

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

/// A source of packages.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
}

/// The address of the first Debian archive among the system's sources; first that which this release of
/// Debian comes from.
pub(super) fn of_system(system: &Path) -> Result<String, Error> {
    let sources = sources(system);
    let usable = |suite: &str| {
        sources.iter().find(|source| {
            source.suites.iter().any(|one| one == suite)
                && source.components.iter().any(|one| one == "main")
        })
    };
    codename(system)
        .and_then(|suite| usable(&suite))
        .or_else(|| SUITES.into_iter().find_map(usable))
        .map(|source| source.uri.clone())
        .ok_or_else(|| Error::NoMirror {
            looked: system.join("etc/apt"),
        })
}

/// An address as it may be shown: without a password.
pub(super) fn shown(uri: &str) -> String {
    match uri.split_once("://").and_then(|(scheme, rest)| {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (_, host) = host.rsplit_once('@')?;
        Some(format!("{scheme}://{host}/{path}"))
    }) {
        Some(bare) => bare,
        None => uri.to_owned(),
    }
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

/// All sources, in apt's order.
fn sources(system: &Path) -> Vec<Source> {
    let apt = system.join("etc/apt");
    let mut files: Vec<PathBuf> = fs::read_dir(apt.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files.insert(0, apt.join("sources.list"));
    let mut sources = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(text.lines().filter_map(one_line)),
            Some("sources") => sources.extend(stanzas(&text)),
            _ => {}
        }
    }
    // A disc can't be asked for, and updates alone are no archive.
    sources.retain(|source| !source.uri.starts_with("cdrom:") && !source.uri.contains("security"));
    sources
}

/// `deb [options] uri suite component...`
fn one_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line
        .strip_prefix("deb")?
        .strip_prefix([' ', '\t'])?
        .trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    let mut words = rest.split_whitespace();
    Some(Source {
        uri: bare(words.next()?),
        suites: vec![words.next()?.to_owned()],
        components: words.map(str::to_owned).collect(),
    })
}

/// The form with a field a line; an empty line ends a stanza.
fn stanzas(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            found.extend(stanza(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((key, value)) = line.split_once(':') {
            fields.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    found
}

fn stanza(fields: &[(String, String)]) -> Option<Source> {
    let words = |key: &str| -> Vec<String> {
        let value = fields.iter().find(|(name, _)| name == key);
        value.map_or(Vec::new(), |(_, value)| {
            value.split_whitespace().map(str::to_owned).collect()
        })
    };
    let off = words("enabled")
        .first()
        .is_some_and(|word| matches!(&**word, "no" | "false" | "0" | "off"));
    if off || !words("types").iter().any(|kind| kind == "deb") {
        return None;
    }
    Some(Source {
        uri: bare(words("uris").first()?),
        suites: words("suites"),
        components: words("components"),
    })
}

fn bare(uri: &str) -> String {
    uri.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A system with these files under /etc.
    fn system(files: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new().unwrap();
        for (name, text) in files {
            let path = root.path().join("etc").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const BOOKWORM: (&str, &str) = ("os-release", "ID=debian\nVERSION_CODENAME=bookworm\n");

    #[test]
    fn the_mirror_of_this_release_comes_first() {
        let root = system(&[
            BOOKWORM,
            ("apt/sources.list", "deb cdrom:[Debian 12]/ bookworm main\n"),
            (
                "apt/sources.list.d/a.list",
                "# deb http://off.example.invalid bookworm main\n\
                 deb-src http://source.example.invalid bookworm main\n\
                 deb https://tools.example.invalid/apt tools-bookworm main\n\
                 deb [arch=amd64 signed-by=/k] http://sid.example.invalid/debian/ sid main # newest\n",
            ),
            (
                "apt/sources.list.d/debian.sources",
                "# A comment\nTypes: deb\nURIs: http://security.example.invalid/debian-security\n\
                 Suites: bookworm bookworm-security\nComponents: main\n\n\
                 Types: deb\nEnabled: no\nURIs: http://off.example.invalid\nSuites: bookworm\nComponents: main\n\n\
                 Types: deb deb-src\nuris: http://mirror.example.invalid/debian/\n\
                 Suites: bookworm\n bookworm-updates\nComponents: contrib main\n\
                 Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc: def\n",
            ),
        ]);
        assert_eq!(
            of_system(root.path()).unwrap(),
            "http://mirror.example.invalid/debian"
        );
    }

    #[test]
    fn another_suite_of_debian_will_do() {
        let other = (
            "apt/sources.list",
            "deb http://sid.example.invalid/debian unstable main contrib\n",
        );
        let root = system(&[BOOKWORM, other]);
        assert_eq!(
            of_system(root.path()).unwrap(),
            "http://sid.example.invalid/debian"
        );
        // The code name of another distribution says nothing of Debian.
        let noble = ("os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n");
        let archive = (
            "apt/sources.list",
            "deb http://other.example.invalid noble main\n",
        );
        assert!(of_system(system(&[noble, archive]).path()).is_err());
        assert_eq!(
            of_system(system(&[noble, other]).path()).unwrap(),
            "http://sid.example.invalid/debian"
        );
    }

    #[test]
    fn without_an_archive_it_says_so() {
        for files in [
            &[][..],
            &[BOOKWORM],
            &[
                BOOKWORM,
                (
                    "apt/sources.list",
                    "deb\ndeb x\ndeb [x http://a bookworm main\n",
                ),
            ],
            &[
                BOOKWORM,
                (
                    "apt/sources.list",
                    "deb http://a.example.invalid bookworm contrib\n",
                ),
            ],
        ] {
            let error = of_system(system(files).path()).unwrap_err().to_string();
            assert!(error.contains("debian.sources"), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let uri = "https://me:secret@mirror.example.invalid/debian";
        assert_eq!(shown(uri), "https://mirror.example.invalid/debian");
        assert_eq!(shown("file:/srv/debian"), "file:/srv/debian");
        assert_eq!(
            shown("http://a.example.invalid/@b"),
            "http://a.example.invalid/@b"
        );
    }
}
