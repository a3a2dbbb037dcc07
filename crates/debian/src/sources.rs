//! The archives that a system is configured with: sources.list(5), in both of its forms, without apt.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Error, Url, stanza::Stanza};

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

/// A suite with packages in `main`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    uri: String,
    suite: String,
}

/// Returns the first Debian archive among the system's sources; preferably the one that this release of Debian comes
/// from. `None` where there is none.
pub fn mirror(system: &Path) -> Result<Option<Url>, Error> {
    let mut sources = Vec::new();
    for path in files(system) {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        if path
            .extension()
            .is_some_and(|extension| extension == "sources")
        {
            sources.extend(stanzas(&text));
        } else {
            sources.extend(lines(&text, &path)?);
        }
    }
    Ok(choose(&sources, codename(system).as_deref()))
}

/// In apt's order. A name with other characters than apt takes is left out, as by apt.
fn files(system: &Path) -> Vec<PathBuf> {
    let folder = system.join("etc/apt");
    let is_named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "_-.".contains(one);
        (name.ends_with(".list") || name.ends_with(".sources")) && name.chars().all(is_plain)
    };
    let parts = fs::read_dir(folder.join("sources.list.d"));
    let parts = parts
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut parts: Vec<PathBuf> = parts.filter(is_named).collect();
    parts.sort();
    parts.insert(0, folder.join("sources.list"));
    parts
}

/// Lines like `deb [signed-by=FILE] http://mirror.example/debian trixie main contrib`.
fn lines(text: &str, path: &Path) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let refused = |why| Error::Sources {
            path: path.to_owned(),
            line: number + 1,
            why,
        };
        let line = line.split('#').next().unwrap_or_default().trim();
        let (kind, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match kind {
            "deb" => {}
            "" | "deb-src" => continue,
            _ => return Err(refused("it does not begin with deb or deb-src")),
        }
        let mut rest = rest.trim_start();
        if let Some(options) = rest.strip_prefix('[') {
            let (_, behind) = options
                .split_once(']')
                .ok_or_else(|| refused("its options have no end"))?;
            rest = behind;
        }
        // The name of a disc has spaces.
        if rest.trim_start().starts_with("cdrom:") {
            continue;
        }
        let mut words = rest.split_ascii_whitespace();
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else {
            return Err(refused("it names no suite"));
        };
        if words.any(|component| component == "main") {
            sources.push(Source {
                uri: uri.to_owned(),
                suite: suite.to_owned(),
            });
        }
    }
    Ok(sources)
}

/// Stanzas with the fields `Types`, `URIs`, `Suites` and `Components`.
fn stanzas(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for lines in lines.split(|line| line.trim().is_empty()) {
        let stanza = Stanza::parse(lines.iter().copied());
        let has = |field: &str, word: &str| stanza.words(field).any(|one| one == word);
        let off = ["no", "false", "0", "off", "without", "disable"];
        let is_off = stanza
            .value("Enabled")
            .is_some_and(|value| off.iter().any(|word| value.eq_ignore_ascii_case(word)));
        if is_off || !has("Types", "deb") || !has("Components", "main") {
            continue;
        }
        for uri in stanza.words("URIs") {
            sources.extend(stanza.words("Suites").map(|suite| Source {
                uri: uri.to_owned(),
                suite: suite.to_owned(),
            }));
        }
    }
    sources
}

fn choose(sources: &[Source], codename: Option<&str>) -> Option<Url> {
    let usable = |wanted: &str| {
        let found = sources.iter().filter(|one| one.suite == wanted);
        // Updates alone are no archive.
        found
            .filter(|one| !one.uri.contains("security"))
            .find_map(|one| Url::parse(&one.uri).ok())
    };
    codename.into_iter().chain(SUITES).find_map(usable)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Vec<Source> {
        lines(text, Path::new("x.list")).expect(text)
    }

    #[test]
    fn the_mirror_of_this_release_comes_first() {
        let text = "deb cdrom:[Debian GNU/Linux 12 _Bookworm_]/ bookworm main\n\
                    deb http://me:secret@sid.invalid/debian/ sid main\n\
                    deb https://tools.invalid tools-bookworm main\n\
                    deb https://other.invalid noble main\n\
                    deb http://a.invalid/debian-security/ bookworm main\n\
                    deb-src http://b.invalid/debian/ bookworm main\n\
                    deb http://b.invalid/debian/ bookworm contrib # main\n\
                    \tdeb [arch=amd64 signed-by=/x.gpg] http://a.invalid/debian/ bookworm contrib main\n";
        let shown =
            |text: &str, codename| choose(&sources(text), codename).map(|url| url.to_string());
        assert_eq!(
            shown(text, Some("bookworm")).as_deref(),
            Some("http://a.invalid/debian")
        );
        // Another suite of Debian will do, and a password is not shown.
        let sid = text.replace("bookworm", "none");
        for codename in [None, Some("bookworm")] {
            assert_eq!(
                shown(&sid, codename).as_deref(),
                Some("http://sid.invalid/debian")
            );
        }
        // A suite of another distribution is not Debian's.
        assert_eq!(shown(&sid.replace(" sid ", " noble "), None), None);
    }

    #[test]
    fn stanzas_have_several_suites() {
        let text = "# comment\nTypes: deb deb-src\nURIs: http://a.invalid/debian\nSuites: trixie\n trixie-updates\n\
                    Components: contrib main\nSigned-By:\n -----BEGIN\n .\n -----END\n\n\
                    Types: deb\nURIs: http://b.invalid/\nSuites: sid\nComponents: main\nEnabled: no\n";
        let found = stanzas(text);
        let suites: Vec<_> = found.iter().map(|one| one.suite.as_str()).collect();
        assert_eq!(suites, ["trixie", "trixie-updates"]);
        assert_eq!(
            choose(&found, None).expect("one").to_string(),
            "http://a.invalid/debian"
        );
    }

    #[test]
    fn lines_that_are_no_sources_are_named() {
        for (text, why) in [
            (
                "\ndeb x\n",
                "line 2, is no package source: it names no suite",
            ),
            ("deb [arch=amd64 http://a x main\n", "options have no end"),
            ("debs http://a x main\n", "does not begin with deb"),
        ] {
            let error = lines(text, Path::new("x.list"))
                .expect_err(text)
                .to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
