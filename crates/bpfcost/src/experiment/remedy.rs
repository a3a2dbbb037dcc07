//! What to do where the kernel lacks what a case needs.

use bpfcost_bpf::feature::{LinuxVersion, MissingFeature, MissingReason};

/// Debian's stable kernel, which `kernel add trixie` brings.
const STABLE: LinuxVersion = LinuxVersion((6, 12));

/// What is missing, and the way to it: another kernel in a guest, where no setting of this machine helps; one that
/// counts instructions if the experiment can be `counted`.
pub(super) fn with_remedy(missing: &MissingFeature, counted: bool) -> String {
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
    use bpfcost_bpf::Feature;

    use super::*;

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
}
