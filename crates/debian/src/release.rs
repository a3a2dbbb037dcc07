//! The signed description of a suite, `InRelease`: its names, its age, and the hashes of its lists.

use super::{openpgp::CLOCK_SKEW_S, stanza::Stanza, time};

/// A suite's description, checked against what was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// Lists are also there under the names of their hashes, which stay the same while a mirror is updated.
    pub(crate) by_hash: bool,
    /// The last moment at which it may be used, in seconds since 1970 and as it is written.
    end: Option<(u64, String)>,
    architectures: Vec<String>,
    files: Vec<ListedFile>,
}

/// A file that is signed through its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedFile {
    /// The path below the suite's folder.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// In lower-case hexadecimal digits.
    pub(crate) sha256: String,
}

impl Release {
    /// Reads the signed text of a suite; says why it cannot be trusted. `now` is in seconds since 1970.
    pub(crate) fn parse(text: &str, suite: &str, now: u64) -> Result<Self, String> {
        let stanza = Stanza::parse(text.lines());
        let names: Vec<&str> = ["Codename", "Suite"]
            .iter()
            .filter_map(|name| stanza.value(name))
            .collect();
        if !names.contains(&suite) {
            return Err(format!("it describes another suite ({})", names.join(", ")));
        }
        let date = |name: &str| match stanza.value(name) {
            None => Ok(None),
            Some(text) => time::parse(text)
                .map(Some)
                .ok_or_else(|| format!("its field {name} is no date")),
        };
        if date("Date")?.is_none_or(|date| date > now + CLOCK_SKEW_S) {
            return Err(
                "it has no date, or one in the future: check this machine's clock".to_owned(),
            );
        }
        let end = stanza.value("Valid-Until").unwrap_or_default();
        Ok(Release {
            end: date("Valid-Until")?.map(|at| (at, end.to_owned())),
            by_hash: stanza.value("Acquire-By-Hash") == Some("yes"),
            architectures: stanza.words("Architectures").map(str::to_owned).collect(),
            files: stanza
                .lines("SHA256")
                .iter()
                .filter_map(|line| listed(line))
                .collect(),
        })
    }

    /// Refuses a description that may not be used any more, as of a mirror that someone keeps from newer ones.
    pub(crate) fn check_end(&self, now: u64) -> Result<(), String> {
        match &self.end {
            Some((end, written)) if *end <= now => {
                Err(format!("it is expired: it was valid until {written}"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn has_architecture(&self, architecture: &str) -> bool {
        self.architectures.iter().any(|one| one == architecture)
    }

    pub(crate) fn file(&self, path: &str) -> Option<&ListedFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn listed(line: &str) -> Option<ListedFile> {
    let mut words = line.split_ascii_whitespace();
    let (sha256, bytes, path) = (words.next()?, words.next()?, words.next()?);
    Some(ListedFile {
        path: path.to_owned(),
        bytes: bytes.parse().ok()?,
        sha256: sha256_digits(sha256)?,
    })
}

/// A SHA-256 in hexadecimal digits, made lower-case; `None` for anything else.
pub fn sha256_digits(text: &str) -> Option<String> {
    (text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Suite: stable\nCodename: trixie\nDate: Sat, 21 Nov 2026 09:15:44 UTC\n\
                        Valid-Until: Sun, 22 Nov 2026 09:15:44 UTC\nAcquire-By-Hash: yes\n\
                        Architectures: all amd64\nMD5Sum:\n 00 1 main/x\nSHA256:\n \
                        2EFD6103f013081f8118f4c9f228739bc97bff2e4e1de496f80458c7e72a24ac 56634892 main/x\n bad 1 main/y\n";
    const NOW: u64 = 1_795_252_600;

    fn refused(text: &str, now: u64) -> String {
        Release::parse(text, "trixie", now).expect_err(text)
    }

    #[test]
    fn a_description_names_hashes() {
        let release = Release::parse(TEXT, "trixie", NOW).expect("a release");
        assert!(release.by_hash);
        assert!(release.has_architecture("amd64") && !release.has_architecture("arm64"));
        let file = release.file("main/x").expect("a file");
        assert_eq!(file.bytes, 56_634_892);
        assert!(file.sha256.starts_with("2efd"), "{file:?}");
        assert_eq!(release.file("main/y"), None);
        assert_eq!(Release::parse(TEXT, "stable", NOW), Ok(release));
    }

    #[test]
    fn another_suite_or_another_time_is_refused() {
        let other = TEXT.replace("trixie", "sid");
        assert!(refused(&other, NOW).contains("another suite (sid, stable)"));
        assert!(refused(TEXT, NOW - 86_400).contains("future"));
        let release = Release::parse(TEXT, "trixie", NOW + 86_400).expect("a release");
        assert_eq!(release.check_end(NOW), Ok(()));
        let expired = release.check_end(NOW + 86_400).expect_err("it is expired");
        assert!(
            expired.contains("valid until Sun, 22 Nov 2026"),
            "{expired}"
        );
        assert!(refused(&TEXT.replace("Date: Sat", "Date: no"), NOW).contains("no date"));
        assert!(refused(&TEXT.replace("Date:", "Other:"), NOW).contains("no date"));
        assert!(refused(&TEXT.replace("Until: Sun", "Until: no"), NOW).contains("no date"));
    }
}
