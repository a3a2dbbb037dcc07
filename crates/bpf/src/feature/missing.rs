//! The reason why a feature is missing, as a message with what to do about it.

use std::{fmt, fs};

use super::Feature;

/// A version of Linux: 6.12 is `(6, 12)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinuxVersion(pub (u32, u32));

impl LinuxVersion {
    /// Reads the version from a release such as `6.12.107+deb13-amd64`.
    pub fn of_release(release: &str) -> Option<Self> {
        let mut parts = release.split(|c: char| !c.is_ascii_digit());
        Some(LinuxVersion((
            parts.next()?.parse().ok()?,
            parts.next()?.parse().ok()?,
        )))
    }
}

impl fmt::Display for LinuxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinuxVersion((major, minor)) = self;
        write!(f, "{major}.{minor}")
    }
}

/// The reason why a feature is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingReason {
    /// The kernel is older than the feature.
    TooOld,
    /// The kernel could have it, and was built without the option that it needs.
    NotBuiltIn,
    /// The kernel should have it, and does not: its words.
    Unexplained(String),
    /// This process lacks these capabilities.
    NotAllowed(Vec<&'static str>),
    /// This process has all capabilities that it takes, and the kernel refuses still: its words.
    Refused(String),
    /// The feature is there, and off: what is off, and how to turn it on.
    Off(&'static str),
}

/// A feature that is missing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFeature {
    /// The feature.
    pub feature: Feature,
    /// The reason.
    pub why: MissingReason,
    /// This kernel's release.
    pub release: String,
}

impl MissingFeature {
    /// Describes a feature that is missing on this kernel.
    pub(super) fn new(feature: Feature, why: MissingReason) -> Self {
        let release = release();
        MissingFeature {
            feature,
            why,
            release,
        }
    }

    /// The kernel has nothing of the kind, and said so with `words`: by its version, for what reason.
    pub(super) fn absent(feature: Feature, words: String) -> Self {
        let old =
            LinuxVersion::of_release(&release()).is_some_and(|version| version < feature.since());
        let why = match (old, feature.config()) {
            (true, _) => MissingReason::TooOld,
            (false, Some(_)) => MissingReason::NotBuiltIn,
            (false, None) => MissingReason::Unexplained(words),
        };
        MissingFeature::new(feature, why)
    }

    /// The kernel forbids it, and said so with `words`; it takes capabilities of these bits.
    pub(super) fn refused(feature: Feature, words: String, needed: &[(u32, &'static str)]) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0);
        let in_effect = |bit: u32| effective >> bit & 1 == 1;
        let has = |bit: u32| in_effect(bit) || feature.by_bpf() && in_effect(SYS_ADMIN);
        let lacks: Vec<_> = needed
            .iter()
            .filter(|(bit, _)| !has(*bit))
            .map(|(_, name)| *name)
            .collect();
        let why = if lacks.is_empty() {
            MissingReason::Refused(words)
        } else {
            MissingReason::NotAllowed(lacks)
        };
        MissingFeature::new(feature, why)
    }
}

/// Stands for every other capability where bpf(2) is asked, as the kernel itself has it.
const SYS_ADMIN: u32 = 21;

/// This kernel's release, e.g. `6.12.107+deb13-amd64`.
pub(crate) fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingFeature {
            feature,
            why,
            release,
        } = self;
        let since = feature.since();
        let with = match feature.config() {
            Some(option) => format!(" with {option}"),
            None => String::new(),
        };
        match why {
            MissingReason::TooOld => write!(
                f,
                "this kernel has no {feature} (needs Linux {since}{with}; this is {release})"
            ),
            MissingReason::NotBuiltIn => write!(
                f,
                "this kernel has no {feature} (needs Linux {since}{with}; this is {release} without it)"
            ),
            MissingReason::Unexplained(words) => write!(
                f,
                "this kernel has no {feature} (it came with Linux {since}, and this is {release}: \
                 {words})"
            ),
            MissingReason::NotAllowed(lacks) => {
                write!(
                    f,
                    "this process may not use {feature} (lacks {}; run it as root)",
                    lacks.join(", ")
                )
            }
            MissingReason::Refused(words) => write!(
                f,
                "this machine does not allow {feature} ({words}, though this process has the \
                 capabilities: lockdown, a security module or a container forbids it)"
            ),
            MissingReason::Off(how) => write!(f, "{feature} is off here ({how})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(why: MissingReason) -> String {
        let missing = MissingFeature {
            feature: Feature::KprobeMulti,
            why,
            release: "5.17.3-lab".into(),
        };
        missing.to_string()
    }

    #[test]
    fn each_reason_has_its_words() {
        assert_eq!(
            said(MissingReason::TooOld),
            "this kernel has no kprobe.multi (needs Linux 5.18 with CONFIG_FPROBE; this is 5.17.3-lab)"
        );
        assert!(said(MissingReason::NotBuiltIn).ends_with("this is 5.17.3-lab without it)"));
        assert!(
            said(MissingReason::NotAllowed(vec!["CAP_PERFMON"]))
                .contains("lacks CAP_PERFMON; run it as root")
        );
    }

    #[test]
    fn releases_have_versions() {
        let version =
            |release| LinuxVersion::of_release(release).map(|LinuxVersion(version)| version);
        assert_eq!(version("6.12.107+deb13-amd64"), Some((6, 12)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version("custom"), None);
        assert!(LinuxVersion((6, 9)) < LinuxVersion((6, 12)));
    }
}
