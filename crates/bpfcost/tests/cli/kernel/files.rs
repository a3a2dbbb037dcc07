//! Kernels in files that are no suite's: packages and images, of this machine and at addresses.

use std::{fs, process::Command};

use super::{
    archive::Archive,
    lab::{Lab, arm64_image, image, ran},
};

const RELEASE: &str = "6.12.9+deb13-amd64";

/// A package with a kernel, and its SHA-256.
fn package(lab: &Lab) -> Option<(String, String)> {
    let mut archive = Archive::new(lab)?;
    archive.kernel(RELEASE, "6.12.9-1");
    let file = archive.file(&format!("linux-image-{RELEASE}_6.12.9-1.deb"));
    let sum = ran(Command::new("sha256sum").arg(&file));
    let sum = String::from_utf8(sum).expect("UTF-8");
    let sum = sum.split(' ').next().expect("a sum").to_owned();
    Some((file.display().to_string(), sum))
}

#[test]
fn a_package_becomes_a_kernel() {
    let lab = Lab::new();
    let Some((file, sha256)) = package(&lab) else {
        return;
    };
    let said = lab.answers(&format!("add {file}"));
    assert!(
        said.out.contains(&format!("added {RELEASE} from {file}")),
        "{said:?}"
    );
    let modules = format!("cache/bpfcost/kernels/{RELEASE}/lib/modules/{RELEASE}/kernel");
    assert!(
        lab.tool
            .path(&modules)
            .join("drivers/net/veth.ko")
            .is_file()
    );
    assert!(lab.answers("list").out.contains("  ok"));
    lab.answers(&format!("add {file} --sha256 {sha256}"));
    lab.answers("remove 6.12");

    let url = format!("file:{file}");
    let said = lab.refuses(
        &format!("add {url}"),
        2,
        &[
            "is not signed",
            "nothing was downloaded",
            &format!("kernel add {url} --sha256 HEX"),
        ],
    );
    assert!(!said.contains("fetching"), "{said}");
    let wanted = format!("add {url} --sha256 {}", sha256.to_ascii_uppercase());
    let said = lab.answers(&wanted);
    assert!(
        said.out.contains(&format!("added {RELEASE} from {url}")),
        "{said:?}"
    );
    assert!(lab.answers(&wanted).out.contains("is already there"));
    lab.write(
        &format!("cache/bpfcost/kernels/{RELEASE}/boot/vmlinuz-{RELEASE}"),
        "zap",
    );
    let run = lab.run("run xdp-lb --on exact:6.12 --dry-run").output();
    crate::tool::said(&run.expect("the binary runs"))
        .complains(&["is damaged", &format!("kernel add {url} --sha256 {sha256}")]);
    lab.answers("remove 6.12");

    let other = sha256.replace(&sha256[..8], "00000000");
    lab.refuses(
        &format!("add {url} --sha256 {other}"),
        4,
        &[
            "cannot be trusted",
            &sha256,
            &other,
            "Nothing of it was kept",
        ],
    );
    lab.refuses(
        &format!("add {file} --sha256 {other}"),
        2,
        &["is another file", &sha256, &other],
    );
    for (line, words) in [
        (format!("add {url} --sha256 abc"), "abc is no SHA-256"),
        (
            format!("add trixie --sha256 {sha256}"),
            "trixie is a suite, which is signed",
        ),
        (
            format!("add {url} {file} --sha256 {sha256}"),
            "several are named",
        ),
        (
            format!("add {file} --mirror file:/x"),
            "--mirror is for suites",
        ),
        (
            "add ftp://127.0.0.1/x".to_owned(),
            "not an address of http:, https: or file:",
        ),
    ] {
        lab.refuses(&line, 2, &[words]);
    }
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn files_at_addresses_that_are_not_there() {
    let lab = Lab::new();
    let sha256 = "0".repeat(64);
    for (url, words) in [
        ("file:/no/such/file", "does not exist"),
        ("http://127.0.0.1:1/x", "Connection refused"),
    ] {
        let text = lab.refuses(
            &format!("add {url} --sha256 {sha256}"),
            4,
            &[url, words, "run the command again"],
        );
        assert!(text.contains(&format!("fetching {url}")), "{text}");
    }
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn an_image_at_an_address() {
    let lab = Lab::new();
    let file = lab.write("vmlinuz", image("6.9.0-mine"));
    let sum = String::from_utf8(ran(Command::new("sha256sum").arg(&file))).expect("UTF-8");
    let sum = sum.split(' ').next().expect("a sum").to_owned();
    let said = lab.answers(&format!("add file:{} --sha256 {sum}", file.display()));
    assert!(said.err.contains("6.9.0-mine has no modules"), "{said:?}");
    assert!(said.out.contains("--on vm:6.9.0-mine"), "{said:?}");
    let file = lab.write("notes.txt", "no kernel");
    let sum = String::from_utf8(ran(Command::new("sha256sum").arg(&file))).expect("UTF-8");
    let sum = sum.split(' ').next().expect("a sum").to_owned();
    let url = format!("file:{}", file.display());
    lab.refuses(
        &format!("add {url} --sha256 {sum}"),
        2,
        &[&format!("{url} is not a kernel image"), "bzImage"],
    );
    assert_eq!(lab.kept(), ["6.9.0-mine"]);
}

#[test]
fn packages_without_a_kernel() {
    let lab = Lab::new();
    let Some((file, _)) = package(&lab) else {
        return;
    };
    let bytes = fs::read(&file).expect("a package");
    lab.write("cut.deb", &bytes[..bytes.len() - 50]);
    lab.refuses(
        "add ./cut.deb",
        4,
        &["cut.deb is not a whole Debian package", "Get it again"],
    );
    lab.write("tree/DEBIAN/control", "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.invalid>\nDescription: x\n");
    lab.write("tree/boot/README", "x");
    let build = |packing: &str| {
        ran(Command::new("dpkg-deb")
            .args(["--root-owner-group", packing, "--build"])
            .arg(lab.tool.path("tree"))
            .arg(lab.tool.path("x.deb")));
    };
    build("-Zxz");
    lab.refuses(
        "add ./x.deb",
        2,
        &[
            "x.deb has no usable kernel",
            "no image in them",
            "kernel add sid",
        ],
    );
    build("-Zgzip");
    lab.refuses("add ./x.deb", 4, &["another way than xz or zstd (.gz)"]);
    lab.write(&format!("tree/boot/vmlinuz-{RELEASE}"), image(RELEASE));
    build("-Znone");
    lab.refuses("add ./x.deb", 2, &["no modules in them"]);
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn an_image_for_another_architecture() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let lab = Lab::new();
    lab.write("Image", arm64_image("6.9.0-arm"));
    lab.refuses(
        "add ./Image",
        2,
        &[
            "./Image has a kernel for arm64, not for amd64",
            "--arch arm64",
        ],
    );
    lab.answers("add ./Image --arch arm64");
    assert_eq!(lab.kept(), ["6.9.0-arm"]);
    let run = lab.run("run xdp-lb --on exact:./Image --dry-run").output();
    let said = crate::tool::said(&run.expect("the binary runs"));
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&["./Image is a kernel for arm64", "kernel list"]);
    lab.write("vmlinuz", image("6.9.0"));
    lab.refuses(
        "add ./vmlinuz --arch arm64",
        2,
        &["has a kernel for amd64, not for arm64"],
    );
}
