//! Features are reported correctly: what is missing has a reason that holds, and what this kernel is
//! built with is there.

mod require;

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use bpfcost_bpf::{
    Feature,
    feature::{LinuxVersion, MissingFeature, MissingReason},
    loaded_maps, loaded_programs,
};
use nix::sys::resource::{Resource, setrlimit};

/// The options that this kernel was built with; `None` where it doesn't show them.
fn options() -> Option<String> {
    let kept = Command::new("zcat").arg("/proc/config.gz").output().ok();
    let kept = kept.filter(|kept| kept.status.success() && !kept.stdout.is_empty());
    match kept {
        Some(kept) => Some(String::from_utf8_lossy(&kept.stdout).into_owned()),
        None => fs::read_to_string(format!("/boot/config-{}", release())).ok(),
    }
}

/// Returns true if the kernel was built with an option; `None` where that is not known. Distributions are built
/// with all that features need, as far as their version has it.
fn built_with(option: &str) -> Option<bool> {
    match options() {
        Some(options) => Some(options.lines().any(|line| line == format!("{option}=y"))),
        None => (release().contains("-amd64") || release().contains("-arm64")).then_some(true),
    }
}

fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    release.trim().to_owned()
}

fn version() -> LinuxVersion {
    LinuxVersion::of_release(&release()).expect("a version")
}

/// Returns true if the capability of that name is in effect, by the kernel's numbers.
fn capable(name: &str) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("a process");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .expect("capabilities");
    let bit = match name {
        "CAP_NET_ADMIN" => 12,
        "CAP_SYS_ADMIN" => 21,
        "CAP_PERFMON" => 38,
        "CAP_BPF" => 39,
        other => panic!("{other} is none that BPF needs"),
    };
    effective >> bit & 1 == 1
}

/// Fails where the reason does not hold.
#[track_caller]
fn assert_holds(missing: &MissingFeature) {
    let feature = missing.feature;
    let said = missing.to_string();
    assert_eq!(missing.release, release());
    match &missing.why {
        MissingReason::TooOld => {
            assert!(version() < feature.since(), "{said}");
            assert!(said.contains(&feature.since().to_string()), "{said}");
        }
        MissingReason::NotBuiltIn => {
            let option = feature.config().expect("an option");
            assert!(version() >= feature.since(), "{said}");
            assert_ne!(built_with(option), Some(true), "{said}");
            assert!(said.contains(option), "{said}");
        }
        MissingReason::Unexplained(_) => panic!("{said}"),
        MissingReason::NotAllowed(lacks) => {
            assert!(
                !lacks.is_empty() && !lacks.iter().any(|one| capable(one)),
                "{said}"
            );
        }
        // Only the kernel can say so, and it is not ours to test.
        MissingReason::Refused(words) => assert!(words.contains("ermi"), "{said}"),
        MissingReason::Off(_) => match feature {
            Feature::Lsm => {
                let modules = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
                assert!(
                    !modules.split(',').any(|name| name.trim() == "bpf"),
                    "{said}"
                );
            }
            _ => panic!("{said}"),
        },
    }
}

#[test]
fn what_is_missing_has_a_reason_that_holds() {
    if !require::host() {
        return;
    }
    for feature in Feature::ALL {
        match feature.missing().expect("an answer") {
            Some(missing) => assert_holds(&missing),
            None => {
                let without = feature.config().and_then(built_with) == Some(false);
                assert!(!without, "{feature} is there without its option");
            }
        }
    }
}

#[test]
fn what_every_supported_kernel_has_is_there() {
    if !require::host() {
        return;
    }
    for feature in [
        Feature::Btf,
        Feature::XdpTestRun,
        Feature::LruHash,
        Feature::MmapableArray,
        Feature::PercpuBatch,
        Feature::BpfLoop,
        Feature::Ktime,
        Feature::RingBuffer,
        Feature::XdpLink,
        // Opened, and mounted nowhere.
        Feature::Tracefs,
    ] {
        assert_eq!(feature.missing().expect("an answer"), None, "{feature}");
    }
}

#[test]
fn asking_is_quick_and_leaves_nothing() {
    if !require::host() {
        return;
    }
    let left = || {
        let kinds: Vec<_> = loaded_programs().into_iter().map(|one| one.kind).collect();
        let descriptors = fs::read_dir("/proc/self/fd").expect("descriptors").count();
        (kinds.len(), loaded_maps().len(), descriptors)
    };
    // The kernel's BTF is read once.
    Feature::Btf.missing().expect("an answer");
    let before = left();
    let begun = Instant::now();
    for feature in Feature::ALL {
        feature.missing().expect("an answer");
    }
    let (took, each) = (begun.elapsed(), Duration::from_millis(100));
    assert!(took < each * Feature::ALL.len() as u32, "{took:?}");
    // Programs of other tests come and go beside this one, and the kernel frees behind its answer.
    let begun = Instant::now();
    while left() > before {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", left());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Without privilege, the error says which one it takes.
#[test]
fn who_may_not_is_told_which_capability_it_takes() {
    const HERE: &str = "BPFCOST_TEST_FEATURE_HERE";
    if std::env::var_os(HERE).is_some() {
        println!("said: {:?}", Feature::RawTracepoint.missing());
        println!("said: {:?}", Feature::Tracefs.missing());
        return;
    }
    if !require::host() {
        return;
    }
    let test = std::env::current_exe().expect("this test");
    let said = Command::new("setpriv")
        .args(["--bounding-set=-perfmon,-sys_admin", "--inh-caps=-all"])
        .arg(test)
        .args([
            "--exact",
            "--nocapture",
            "who_may_not_is_told_which_capability_it_takes",
        ])
        .env(HERE, "1")
        .output();
    let said = match said {
        Ok(said) if said.status.success() => String::from_utf8_lossy(&said.stdout).into_owned(),
        _ => {
            require::skip("only root with setpriv can give capabilities up");
            return;
        }
    };
    assert!(said.contains("NotAllowed([\"CAP_PERFMON\"])"), "{said}");
    let mounted = fs::exists("/sys/kernel/tracing/events").expect("a folder");
    assert!(
        mounted || said.contains("NotAllowed([\"CAP_SYS_ADMIN\"])"),
        "{said}"
    );
}

/// A process that can open nothing learns nothing of the kernel.
#[test]
fn a_question_without_an_answer_is_an_error() {
    const HERE: &str = "BPFCOST_TEST_FEATURE_STARVED";
    if std::env::var_os(HERE).is_some() {
        setrlimit(Resource::RLIMIT_NOFILE, 0, 0).expect("a limit");
        for feature in [
            Feature::RingBuffer,
            Feature::RawTracepoint,
            Feature::XdpLink,
        ] {
            let error = feature.missing().expect_err("no answer").to_string();
            println!("said: {error}");
        }
        return;
    }
    if !require::host() {
        return;
    }
    let said = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "--nocapture",
            "a_question_without_an_answer_is_an_error",
        ])
        .env(HERE, "1")
        .output()
        .expect("this test runs");
    let said = String::from_utf8_lossy(&said.stdout);
    assert_eq!(
        said.matches("cannot determine whether").count(),
        3,
        "{said}"
    );
}
