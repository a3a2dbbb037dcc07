//! Needs of cases, and remedies for features that the kernel lacks.

use bpfcost_bpf::{
    Feature,
    feature::{LinuxVersion, MissingFeature, MissingReason},
};
use bpfcost_model::Need;

/// Debian's stable kernel, which `kernel add trixie` brings.
const STABLE: LinuxVersion = LinuxVersion((6, 12));

/// The need of each feature.
pub fn needs(features: impl IntoIterator<Item = Feature>) -> Vec<Need> {
    features.into_iter().map(need).collect()
}

fn need(feature: Feature) -> Need {
    Need::new(feature.name(), move |counted| {
        let missing = feature.missing()?;
        Ok(missing.map(|missing| with_remedy(&missing, counted)))
    })
}

/// The missing feature and the way to it: another kernel in a guest, where no setting of this machine helps; one that
/// counts instructions if the experiment can be `counted`.
fn with_remedy(missing: &MissingFeature, counted: bool) -> String {
    let target = if counted { "exact" } else { "vm" };
    let (kernel, suite) = if missing.feature.since() <= STABLE {
        ("6.12", "trixie")
    } else {
        ("sid", "sid")
    };
    match missing.why {
        MissingReason::NotAllowed(_) | MissingReason::Off(_) => missing.to_string(),
        MissingReason::TooOld
        | MissingReason::NotBuiltIn
        | MissingReason::Unexplained(_)
        | MissingReason::Refused(_) => format!(
            "{missing}. Run it in a guest: --on {target}:{kernel} (get that kernel once: bpfcost kernel add {suite})"
        ),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use bpfcost_model::{Case, Description, Experiment, LoadedEpoch, Pair, Setup};

    use super::*;
    use crate::builtin::{aa, ladder};

    fn said(feature: Feature, why: MissingReason, counted: bool) -> String {
        let missing = MissingFeature {
            feature,
            why,
            release: "6.18.44".to_owned(),
        };
        with_remedy(&missing, counted)
    }

    #[test]
    fn another_kernel_is_named_where_one_would_have_it() {
        let kprobe = said(Feature::KprobeMulti, MissingReason::NotBuiltIn, true);
        assert_eq!(
            kprobe,
            "this kernel has no kprobe.multi (needs Linux 5.18 with CONFIG_FPROBE; this is 6.18.44 \
             without it). Run it in a guest: --on exact:6.12 (get that kernel once: bpfcost kernel add \
             trixie)"
        );
        let newest = |counted| said(Feature::Fsession, MissingReason::TooOld, counted);
        assert!(newest(true).contains("--on exact:sid"));
        assert!(newest(false).contains("--on vm:sid"));
    }

    #[test]
    fn what_this_machine_can_have_needs_no_guest() {
        let root = said(
            Feature::TpBtf,
            MissingReason::NotAllowed(vec!["CAP_PERFMON"]),
            true,
        );
        assert!(
            root.contains("run it as root") && !root.contains("guest"),
            "{root}"
        );
        let off = said(Feature::Tracefs, MissingReason::Off("mount it"), true);
        assert!(off.contains("mount it") && !off.contains("guest"), "{off}");
    }

    /// One case, with these needs.
    struct Needs(Vec<Feature>);

    impl Experiment for Needs {
        fn description(&self) -> Description {
            Description::new("needs", "", &[])
        }

        fn cases(&self) -> Vec<Case> {
            let mut cases = ladder::KnownAnswers.cases();
            cases.truncate(1);
            cases
        }

        fn pairs(&self) -> Vec<Pair> {
            Vec::new()
        }

        fn needs(&self, _case: &Case) -> Vec<Need> {
            needs(self.0.clone())
        }

        fn load(&self, _setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
            anyhow::bail!("nothing to load")
        }
    }

    fn unsupported(features: &[Feature]) -> Option<String> {
        let experiment = Needs(features.to_vec());
        experiment.unsupported(&experiment.cases()[0]).unwrap()
    }

    /// Whatever machine this is, with whatever privilege: each feature decides alone, and of two that are
    /// missing the first one speaks.
    #[test]
    fn the_first_need_that_is_missing_is_the_reason() {
        assert_eq!(unsupported(&[]), None);
        let (missing, there): (Vec<_>, Vec<_>) = Feature::ALL
            .into_iter()
            .partition(|feature| feature.missing().unwrap().is_some());
        assert_eq!(unsupported(&there), None);
        for &feature in &missing {
            let words = feature.missing().unwrap().unwrap().to_string();
            let before = [&there[..], &[feature], &missing[..]].concat();
            let reason = unsupported(&before).unwrap();
            assert!(reason.starts_with(&words), "{reason}");
        }
    }

    #[test]
    fn cases_entered_twice_need_what_they_need_once() {
        let doubled = aa::AaTest::new(Box::new(Needs(vec![Feature::Lsm])), &["added-0"]);
        for case in doubled.cases() {
            let needs = doubled.needs(&case);
            let names: Vec<&str> = needs.iter().map(Need::name).collect();
            assert_eq!(names, [Feature::Lsm.name()], "{}", case.name);
        }
        assert_eq!(doubled.cases().len(), 2);
    }
}
