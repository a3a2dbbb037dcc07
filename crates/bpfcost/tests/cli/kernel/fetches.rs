//! Kernels from a Debian archive: fetched, kept, listed, mended and removed.

use std::fs;

use super::{
    archive::Archive,
    lab::{Lab, arm64_image, image, module},
};
use crate::require;

const OLD: &str = "6.12.9+deb13-amd64";
const NEW: &str = "6.12.107+deb13-amd64";

#[test]
fn a_suite_from_nothing() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(OLD, "6.12.9-1");
    archive.publish("trixie");
    let said = lab.answers("add trixie");
    assert!(
        said.out
            .contains("added 6.12.9+deb13-amd64 from trixie (6.12.9-1)"),
        "{said:?}"
    );
    assert!(
        said.out.contains("--on vm:6.12 --on exact:6.12"),
        "{said:?}"
    );
    assert!(
        said.err
            .contains("trixie: reading the package lists of file:"),
        "{said:?}"
    );
    assert_eq!(lab.kept(), [OLD]);
    let folder = lab.tool.path("cache/bpfcost/kernels").join(OLD);
    assert_eq!(
        fs::read(folder.join(format!("boot/vmlinuz-{OLD}"))).expect("the image"),
        image(OLD)
    );
    assert!(
        folder
            .join(format!("lib/modules/{OLD}/modules.dep"))
            .is_file()
    );
    let modules = folder.join(format!("lib/modules/{OLD}/kernel"));
    for name in [
        "drivers/net/veth.ko",
        "drivers/slow.ko",
        "sound/very-slow.ko",
    ] {
        assert!(modules.join(name).is_file(), "{name}");
    }
    assert!(!modules.join("sound/snd.ko").exists(), "no guest needs it");

    let said = lab.answers("add trixie");
    assert!(said.out.contains("is already there"), "{said:?}");
    archive.kernel(NEW, "6.12.107-1");
    archive.publish("trixie");
    lab.answers("add trixie");
    assert_eq!(lab.kept(), [NEW, OLD]);

    let table = lab.answers("list").out;
    assert!(
        table.contains("6.12.107+deb13-amd64  trixie (6.12.107-1)"),
        "{table}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&lab.answers("list --format json").out).expect("JSON");
    assert_eq!(json[0]["release"], OLD);
    assert_eq!(json[0]["state"], "ok");
    assert_eq!(json[0]["origin"]["debian"]["suite"], "trixie");

    lab.refuses("remove 6.12", 2, &["several kernels", OLD, NEW]);
    let said = lab.answers("remove 6.12.9");
    assert!(said.out.contains("removed 6.12.9+deb13-amd64"), "{said:?}");
    assert_eq!(lab.kept(), [NEW]);
}

#[test]
fn one_that_is_split_into_packages() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    let release = "7.2.13+deb14-amd64";
    let [whole, base, binary, modules] =
        ["image", "base", "binary", "modules"].map(|part| format!("linux-{part}-{release}"));
    let at = format!("usr/lib/modules/{release}");
    let all = format!(
        "dracut | initramfs-tools, {base} (= 7.2.13-1), {binary} (= 7.2.13-1), {modules} (= 7.2.13-1)"
    );
    archive.package(&whole, "7.2.13-1", &all, &[]);
    archive.package(
        &base,
        "7.2.13-1",
        "",
        &[
            (format!("{at}/modules.builtin"), vec![]),
            (format!("{at}/modules.order"), vec![]),
        ],
    );
    archive.package(
        &binary,
        "7.2.13-1",
        "",
        &[(format!("{at}/vmlinuz"), image(release))],
    );
    archive.package(
        &modules,
        "7.2.13-1",
        &base,
        &[(format!("{at}/kernel/net/core/failover.ko"), module(""))],
    );
    archive.leads_to(&whole, "7.2.13-1");
    archive.publish("sid");
    lab.answers("add sid");
    assert_eq!(lab.kept(), [release]);
    let folder = lab.tool.path("cache/bpfcost/kernels").join(release);
    assert_eq!(
        fs::read(folder.join(format!("boot/vmlinuz-{release}"))).expect("the image"),
        image(release)
    );
    for name in [
        "kernel/net/core/failover.ko",
        "modules.builtin",
        "modules.dep",
    ] {
        assert!(
            folder
                .join("lib/modules")
                .join(release)
                .join(name)
                .is_file(),
            "{name}"
        );
    }
}

#[test]
fn one_that_is_damaged_is_fetched_again_when_asked_for() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(OLD, "6.12.9-1");
    archive.publish("trixie");
    lab.answers("add trixie");
    let harm = || {
        lab.write(
            &format!("cache/bpfcost/kernels/{OLD}/boot/vmlinuz-{OLD}"),
            "zap",
        )
    };
    harm();
    let table = lab.answers("list").out;
    assert!(
        table.contains("damaged: its image differs from the one that was added"),
        "{table}"
    );
    // A run fetches nothing by itself: it names the command, also where it would only say what it would do.
    let whole = "--on exact:6.12 --case pass-non-ip";
    for line in [
        format!("run xdp-lb {whole} --dry-run"),
        format!("run xdp-lb {whole} --quick --out x.json"),
    ] {
        let said = crate::tool::said(&lab.run(&line).output().expect("the binary runs"));
        assert_eq!(said.code, Some(4), "{said:?}");
        said.complains(&[
            "is damaged: its image differs",
            "bpfcost kernel add trixie",
            "100 MB",
        ]);
        assert!(!said.err.contains("fetching"), "{said:?}");
    }
    assert!(lab.answers("list").out.contains("damaged"));
    assert!(lab.answers("add trixie").out.contains("added"));
    assert!(!lab.answers("list").out.contains("damaged"));
    assert_eq!(lab.kept(), [OLD]);
}

#[test]
fn one_for_another_architecture_is_kept_and_not_used() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(OLD, "6.12.9-1");
    archive.publish("trixie");
    lab.answers("add trixie");
    lab.refuses(
        "add trixie --arch arm64",
        4,
        &["trixie of file:", "no packages for arm64"],
    );
    archive.arch = "arm64".to_owned();
    let release = "6.12.107+deb13-arm64";
    let name = format!("linux-image-{release}");
    let modules = format!("lib/modules/{release}");
    let files = [
        (format!("boot/vmlinuz-{release}"), arm64_image(release)),
        (format!("{modules}/kernel/drivers/net/veth.ko"), module("")),
        (format!("{modules}/modules.order"), vec![]),
        (format!("{modules}/modules.builtin"), vec![]),
    ];
    archive.package(&name, "6.12.107-1", "", &files);
    archive.leads_to(&name, "6.12.107-1");
    archive.publish("trixie");
    let said = lab.answers("add trixie --arch arm64");
    assert!(
        said.out
            .contains("only on a machine of its architecture, arm64"),
        "{said:?}"
    );
    assert_eq!(lab.kept(), [release, OLD]);
    let table = lab.answers("list").out;
    assert!(table.contains("ok, for arm64 machines"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&lab.answers("list --format json").out).expect("JSON");
    assert_eq!(json[1]["architecture"], "arm64");
    // The newer one is never chosen here, not even where it is the only one.
    let dry = |name: &str| {
        let line = format!("run xdp-lb --on exact:{name} --case pass-non-ip --dry-run");
        crate::tool::said(&lab.run(&line).output().expect("the binary runs"))
    };
    let said = dry("6.12");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.out.contains("arm64"), "{said:?}");
    lab.answers("remove 6.12.9");
    for name in ["6.12", release, "trixie"] {
        let said = dry(name);
        assert_eq!(said.code, Some(2), "{said:?}");
        said.complains(&["is a kernel for arm64", "kernel list"]);
    }
    // A package with a kernel that is not what it is listed as.
    archive.arch = "amd64".to_owned();
    archive.package(&name, "1", "", &files);
    archive.leads_to(&name, "1");
    archive.publish("sid");
    lab.refuses(
        "add sid",
        2,
        &["sid has a kernel for arm64", "--arch arm64"],
    );
    lab.refuses("add sid --arch riscv64", 2, &["must be amd64 or arm64"]);
    assert_eq!(lab.kept(), [release]);
}

/// The real archive, as this machine is configured with it.
#[test]
fn trixie() {
    if !require::required("vm") {
        return require::skip_as("vm", "it takes a network and 100 MB");
    }
    let lab = Lab::new();
    let mut command = lab.command("add trixie");
    let said = crate::tool::said(
        &command
            .env_remove("BPFCOST_SYSTEM_ROOT")
            .output()
            .expect("the binary runs"),
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    let kept = lab.kept();
    assert!(kept.len() == 1 && kept[0].starts_with("6.12."), "{kept:?}");
    let folder = lab.tool.path("cache/bpfcost/kernels").join(&kept[0]);
    let index = fs::read_to_string(folder.join(format!("lib/modules/{}/modules.dep", kept[0])));
    assert!(index.expect("an index").contains("virtio_net.ko"));
    assert!(lab.answers("list").out.contains("  ok"));
}
