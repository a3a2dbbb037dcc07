//! Lists of packages, `Packages`: the stanzas of some packages out of many thousands.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use super::{
    Error, Observer,
    error::failed,
    release::sha256_digits,
    stanza::Stanza,
    unpack::{self, Packing},
    version,
};

/// The largest list, of Debian's sid, is a quarter of that.
const MAX_LIST_BYTES: u64 = 512 << 20;
/// No stanza is as long.
const MAX_STANZA_BYTES: usize = 1 << 20;

/// A package in a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Name: letters, digits, `+`, `-` and `.`.
    pub name: String,
    /// Version.
    pub version: String,
    /// Names of the packages that it depends on; of alternatives, the first.
    pub depends: Vec<String>,
    /// The path of its file below the archive.
    pub(crate) path: String,
    /// Size of its file.
    pub bytes: u64,
    /// SHA-256 of its file, in hexadecimal digits.
    pub(crate) sha256: String,
}

/// Reads the packages with some names from a list; of several versions, the newest.
pub(crate) fn read(
    list: &Path,
    packing: Packing,
    is_wanted: &dyn Fn(&str) -> bool,
    observer: &dyn Observer,
) -> Result<Vec<Package>, Error> {
    let file = File::open(list).map_err(failed("read", list))?;
    let unpacked = unpack::reader(file, packing, observer).map_err(failed("unpack", list))?;
    let all = stanzas(BufReader::new(unpacked.take(MAX_LIST_BYTES)), is_wanted);
    let mut packages: Vec<Package> = all.map_err(|error| {
        if observer.interrupted() {
            return Error::Interrupted;
        }
        failed("unpack", list)(error)
    })?;
    packages.sort_by(|one, other| {
        let versions = version::compare(&other.version, &one.version);
        one.name.cmp(&other.name).then(versions)
    });
    packages.dedup_by(|one, other| one.name == other.name);
    Ok(packages)
}

fn stanzas(mut list: impl BufRead, is_wanted: &dyn Fn(&str) -> bool) -> io::Result<Vec<Package>> {
    let mut packages = Vec::new();
    let mut stanza = String::new();
    let mut line = Vec::new();
    let mut is_kept = false;
    loop {
        line.clear();
        let read = (&mut list)
            .take(MAX_STANZA_BYTES as u64)
            .read_until(b'\n', &mut line)?;
        let is_end = line.trim_ascii_end().is_empty();
        if is_end {
            packages.extend(package(&stanza));
            stanza.clear();
            is_kept = false;
            if read == 0 {
                return Ok(packages);
            }
            continue;
        }
        // The first field is the name, so that all others of an unwanted package are skipped.
        if let Some(name) = line.strip_prefix(b"Package:") {
            let name = String::from_utf8_lossy(name.trim_ascii());
            is_kept = is_wanted(&name);
        }
        if is_kept && stanza.len() + line.len() <= MAX_STANZA_BYTES {
            stanza.push_str(&String::from_utf8_lossy(&line));
        }
    }
}

/// A package whose file can be fetched and checked.
fn package(text: &str) -> Option<Package> {
    let stanza = Stanza::parse(text.lines());
    let depends = stanza.value("Depends").unwrap_or_default();
    let first_word = |one: &str| {
        let word = one.split_ascii_whitespace().next()?;
        Some(word.split([':', '(']).next().unwrap_or(word).to_owned())
    };
    let path = stanza.value("Filename")?;
    let name = stanza.value("Package")?;
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "+-.".contains(one);
    if name.starts_with('.') || !name.chars().all(is_plain) {
        return None;
    }
    Some(Package {
        name: name.to_owned(),
        version: stanza.value("Version")?.to_owned(),
        depends: depends.split(',').filter_map(first_word).collect(),
        path: path.to_owned(),
        bytes: stanza.value("Size")?.parse().ok()?,
        sha256: sha256_digits(stanza.value("SHA256")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "2efd6103f013081f8118f4c9f228739bc97bff2e4e1de496f80458c7e72a24ac";

    fn listed(text: &str, name: &str) -> Vec<Package> {
        stanzas(text.as_bytes(), &|one| one == name).expect("a list")
    }

    #[test]
    fn a_list_has_packages() {
        let text = format!(
            "Package: linux-image-7.2.13+deb14-amd64\nVersion: 7.2.13-1\nInstalled-Size: 15\n\
             Depends: dracut | initramfs-tools (>= 0.120), linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), perl:any\n\
             Filename: pool/x.deb\nSize: 1892\nSHA256: {SHA256}\nDescription: x\n\nPackage: other\nVersion: 1\n"
        );
        let found = listed(&text, "linux-image-7.2.13+deb14-amd64");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].version, "7.2.13-1");
        assert_eq!(
            found[0].depends,
            ["dracut", "linux-base-7.2.13+deb14-amd64", "perl"]
        );
        assert_eq!((&*found[0].path, found[0].bytes), ("pool/x.deb", 1892));
        // What cannot be fetched or checked is no package.
        assert_eq!(listed(&text, "other"), []);
        assert_eq!(listed(&text.replace("SHA256", "MD5"), &found[0].name), []);
        assert_eq!(listed(&text, "nothing"), []);
        let outside = text.replace("linux-image-7.2.13+deb14-amd64", "../x");
        assert_eq!(listed(&outside, "../x"), []);
    }
}
