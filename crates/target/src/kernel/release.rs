//! Kernel releases: which of them a version names, and which of two is newer.

use std::cmp::Ordering;

/// Whether a version names a release: the release itself, or a part of it that ends where a number or a
/// word ends. `6.1` names `6.1.0-50-amd64`, and not `6.12.107`.
pub(super) fn names(version: &str, release: &str) -> bool {
    let Some(rest) = release.strip_prefix(version) else {
        return false;
    };
    rest.is_empty()
        || version.starts_with(|first: char| first.is_ascii_digit())
            && version.ends_with(|last: char| last.is_ascii_alphanumeric())
            && rest.starts_with(|next: char| !next.is_ascii_alphanumeric())
}

/// Which of two releases is newer: numbers by value, and a release candidate before its release.
pub(super) fn order(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (ReleaseComponents(one), ReleaseComponents(other));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return Ordering::Equal,
            (a, b) => match a
                .unwrap_or(ReleaseComponent::End)
                .cmp(&b.unwrap_or(ReleaseComponent::End))
            {
                Ordering::Equal => {}
                unequal => return unequal,
            },
        }
    }
}

/// Whether a text can be a release, and with it the name of a folder.
pub(super) fn is_valid(release: &str) -> bool {
    release.starts_with(|first: char| first.is_ascii_digit())
        && release.len() <= 64 // as the kernel has it: __NEW_UTS_LEN
        && release
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || "._+~-".contains(one))
}

/// A piece of a release; the order of the variants is the order of versions.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReleaseComponent<'a> {
    /// `rc`, after which comes a number: before the end, as 6.13-rc1 is before 6.13.
    Candidate,
    End,
    Word(&'a str),
    Number(u64),
}

struct ReleaseComponents<'a>(&'a str);

impl<'a> Iterator for ReleaseComponents<'a> {
    type Item = ReleaseComponent<'a>;

    fn next(&mut self) -> Option<ReleaseComponent<'a>> {
        let text = self
            .0
            .trim_start_matches(|one: char| !one.is_ascii_alphanumeric());
        let digits = text.starts_with(|one: char| one.is_ascii_digit());
        let end = text
            .find(|one: char| !one.is_ascii_alphanumeric() || one.is_ascii_digit() != digits)
            .unwrap_or(text.len());
        let (part, rest) = text.split_at(end);
        self.0 = rest;
        match part {
            "" => None,
            "rc" => Some(ReleaseComponent::Candidate),
            // More digits than a number holds are no number; as a word they still have an order.
            _ => Some(
                part.parse()
                    .map_or(ReleaseComponent::Word(part), ReleaseComponent::Number),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_names_releases() {
        for (version, release) in [
            ("6.12", "6.12.107+deb13-amd64"),
            ("6.12.107", "6.12.107+deb13-amd64"),
            ("6.12.107+deb13-amd64", "6.12.107+deb13-amd64"),
            ("6.1", "6.1.0-50-amd64"),
            ("6.1.0-50", "6.1.0-50-amd64"),
            ("6", "6.12.107+deb13-amd64"),
            ("7.2", "7.2-rc3-amd64"),
        ] {
            assert!(names(version, release), "{version} {release}");
        }
        for (version, release) in [
            ("6.1", "6.12.107+deb13-amd64"),
            ("6.12", "6.1.0-50-amd64"),
            ("6.12.10", "6.12.107+deb13-amd64"),
            ("6.1.", "6.1.0-50-amd64"),
            ("6.12.107+deb", "6.12.107+deb13-amd64"),
            ("", "6.1.0"),
            ("12", "6.12.1"),
            ("v6.1", "6.1.0"),
        ] {
            assert!(!names(version, release), "{version} {release}");
        }
    }

    #[test]
    fn releases_have_an_order() {
        let sorted = [
            "5.10.0-36-amd64",
            "6.1.0-9-amd64",
            "6.1.0-50-amd64",
            "6.12-rc2-amd64",
            "6.12-rc10-amd64",
            "6.12",
            "6.12.9+deb13-amd64",
            "6.12.48+deb13-amd64",
            "6.12.107+deb13-amd64",
            "6.12.107+deb14-amd64",
            "7.2.13+deb14-amd64",
            "10.0.1",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(order(one, other), at.cmp(&other_at), "{one} {other}");
            }
        }
    }

    #[test]
    fn a_release_is_a_safe_name() {
        for good in ["6.12.107+deb13-amd64", "7.0~rc1-amd64", "6.1.0-50-amd64"] {
            assert!(is_valid(good), "{good}");
        }
        let long = "6".repeat(65);
        for bad in ["", "../../etc", "6/1", "6.1 x", ".6", "boot", long.as_str()] {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}
