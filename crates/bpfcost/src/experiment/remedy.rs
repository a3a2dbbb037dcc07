//! What to do where the kernel lacks what a case needs.

use bpfcost_bpf::feature::{LinuxVersion, MissingFeature, MissingReason};

/// Debian's stable kernel, which `kernel add trixie` brings.
const STABLE: LinuxVersion = LinuxVersion((6, 12));

/// What is missing, and the way to it: another kernel in a guest, where no setting of this machine helps.
pub(super) fn with_remedy(missing: &MissingFeature) -> String {
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
            "{missing}. Run it in a guest: --on exact:{kernel} (get that kernel once: bpfcost kernel add {suite})"
        ),
    }
}

#[cfg(test)]
mod tests {
    use bpfcost_bpf::Feature;

    use super::*;

    fn said(feature: Feature, why: MissingReason) -> String {
        with_remedy(&MissingFeature {
            feature,
            why,
            release: "6.18.44".to_owned(),
        })
    }

    #[test]
    fn another_kernel_is_named_where_one_would_have_it() {
        let kprobe = said(Feature::KprobeMulti, MissingReason::NotBuiltIn);
        assert_eq!(
            kprobe,
            "this kernel has no kprobe.multi (needs Linux 5.18 with CONFIG_FPROBE; this is 6.18.44 \
             without it). Run it in a guest: --on exact:6.12 (get that kernel once: bpfcost kernel add \
             trixie)"
        );
        assert!(said(Feature::Fsession, MissingReason::TooOld).contains("--on exact:sid"));
    }

    #[test]
    fn what_this_machine_can_have_needs_no_guest() {
        let root = said(
            Feature::TpBtf,
            MissingReason::NotAllowed(vec!["CAP_PERFMON"]),
        );
        assert!(
            root.contains("run it as root") && !root.contains("guest"),
            "{root}"
        );
        let off = said(Feature::Tracefs, MissingReason::Off("mount it"));
        assert!(off.contains("mount it") && !off.contains("guest"), "{off}");
    }
}
