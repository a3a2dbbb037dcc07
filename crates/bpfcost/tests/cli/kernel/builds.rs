//! `kernel build`: with a source package of the archive that is made here, and a `make` that makes what it
//! is asked to. What a real one makes of the real source is seen by booting it.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use super::{
    archive::Archive,
    lab::{Lab, image, ran},
};
use crate::tool::{Said, said};

const RELEASE: &str = "6.12.107-bpfcost-fp";

/// Configures as asked, and finds the image in the source.
const MAKE: &str = r#"#!/bin/sh
for word; do
    case $word in
    -C) ;;
    O=*) objects=${word#O=} ;;
    */linux-source-6.12) source=$word ;;
    allnoconfig | bzImage) target=$word ;;
    esac
done
case $target in
allnoconfig) grep -v "$FORGET" "$KCONFIG_ALLCONFIG" >"$objects/.config" ;;
bzImage)
    if [ -e "$source/broken" ]; then
        echo "kernel/fork.c:7:1: error: expected expression" >&2
        echo "make: *** [Makefile:236: __sub-make] Error 2" >&2
        exit 2
    fi
    mkdir -p "$objects/arch/x86/boot"
    cp "$source/image" "$objects/arch/x86/boot/bzImage"
    ;;
esac
"#;

/// A lab in which there is all that a build calls.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("system/usr/include/libelf.h", "");
    for tool in ["make", "gcc", "ld", "flex", "bison", "bc", "pahole"] {
        let path = lab.write(&format!("bin/{tool}"), MAKE);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a program");
    }
    lab
}

/// A source package with these files.
fn source(lab: &Lab, archive: &mut Archive<'_>, version: &str, files: &[(&str, Vec<u8>)]) {
    for (name, bytes) in files {
        lab.write(&format!("source/linux-source-6.12/{name}"), bytes);
    }
    let packed = lab.tool.path("source/packed.tar.xz");
    ran(Command::new("tar")
        .arg("-C")
        .arg(lab.tool.path("source"))
        .args(["--xz", "-cf"])
        .arg(&packed)
        .arg("linux-source-6.12"));
    let packed = fs::read(packed).expect("a source");
    archive.forget("linux-source-6.12");
    let name = "usr/src/linux-source-6.12.tar.xz".to_owned();
    archive.package("linux-source-6.12", version, "", &[(name, packed)]);
    archive.publish("trixie");
}

fn builds(lab: &Lab, forget: &str) -> Said {
    let path = format!(
        "{}:{}",
        lab.tool.path("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = lab.command("build --frame-pointer");
    command.env("PATH", path).env("FORGET", forget);
    said(&command.output().expect("the binary runs"))
}

#[test]
fn a_source_becomes_a_kernel_once() {
    let lab = lab();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    source(
        &lab,
        &mut archive,
        "6.12.107-1",
        &[("image", image(RELEASE))],
    );
    let said = builds(&lab, "nothing");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("--on vm:6.12-fp"), "{said:?}");
    assert_eq!(lab.kept(), [RELEASE]);
    let table = lab.answers("list").out;
    assert!(
        table.contains("6.12.107-bpfcost-fp  built from linux-source-6.12 (6.12.107-1)"),
        "{table}"
    );
    assert!(builds(&lab, "nothing").out.contains("is already there"));
    // A newer source is another kernel.
    let newer = "6.12.108-bpfcost-fp";
    source(&lab, &mut archive, "6.12.108-1", &[("image", image(newer))]);
    assert!(builds(&lab, "nothing").out.contains("added 6.12.108"));
    assert_eq!(lab.kept(), [RELEASE, newer]);
    lab.answers("remove 6.12.107-fp");
    assert_eq!(lab.kept(), [newer]);
}

#[test]
fn a_build_that_fails_says_why() {
    let lab = lab();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.package("other", "1", "", &[]);
    archive.publish("trixie");
    let refused = |forget: &str, words: &[&str]| {
        let said = builds(&lab, forget);
        assert_eq!((said.code, &*said.out), (Some(4), ""), "{said:?}");
        said.complains(words);
        assert_eq!(lab.kept(), [""; 0]);
    };
    refused("nothing", &["trixie has no package linux-source-6.12"]);
    source(
        &lab,
        &mut archive,
        "6.12.107-1",
        &[("image", image(RELEASE))],
    );
    refused(
        "FPROBE",
        &[
            "configuring the kernel failed",
            "does not accept CONFIG_FPROBE=y",
        ],
    );
    source(&lab, &mut archive, "6.12.107-2", &[("broken", vec![])]);
    refused(
        "nothing",
        &["make failed: kernel/fork.c:7:1: error: expected expression"],
    );
}
