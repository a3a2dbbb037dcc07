//! `scripts/install.sh`: it installs what a release's checksum names, in one step, and says why it does not. A script stands
//! for the program, and a folder for the release; `file://` for its address.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use crate::{
    docs::root,
    tool::{Said, Tool},
};

const PROGRAM: &str = "#!/bin/sh\necho bpfcost 0.1.0\n";

/// A release in the tool's folder.
fn release() -> Tool {
    let tool = Tool::new();
    fs::create_dir(tool.path("release")).expect("a folder");
    tool.write("release/bpfcost", PROGRAM);
    let made = tool.shell("cd release && sha256sum -- bpfcost > SHA256SUMS");
    assert_eq!(made.code, Some(0), "{made:?}");
    tool
}

/// Calls the script, with this before its name, as in `PATH=bin`.
fn install(tool: &Tool, before: &str, words: &str) -> Said {
    let script = root().join("scripts/install.sh");
    tool.shell(&format!("{before} /bin/sh {} {words}", script.display()))
}

/// The names in a folder, hidden ones too.
fn names(tool: &Tool, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(tool.path(folder)).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect()
}

/// The script refuses with these words, and leaves nothing in the folder.
#[track_caller]
fn refuses(tool: &Tool, before: &str, words: &str, reasons: &[&str]) {
    let said = install(tool, before, &format!("--to bin {words}"));
    assert_eq!(said.code, Some(1), "{said:?}");
    for reason in reasons {
        assert!(said.err.contains(reason), "{reason}: {}", said.err);
    }
    if tool.path("bin").is_dir() {
        assert_eq!(names(tool, "bin"), [""; 0], "{}", said.err);
    }
}

#[test]
fn the_program_is_installed() {
    let tool = release();
    let folder = tool.path("release").display().to_string();
    // Twice: an older one is replaced.
    for from in [folder.clone(), format!("file://{folder}/")] {
        if from.contains("://") && tool.shell("command -v curl").code != Some(0) {
            continue;
        }
        let said = install(&tool, "", &from);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.contains("installed bpfcost 0.1.0: "), "{said:?}");
        assert!(said.out.contains("check\n"), "{said:?}");
        assert_eq!(names(&tool, ".local/bin"), ["bpfcost"]);
        let file = fs::metadata(tool.path(".local/bin/bpfcost")).expect("the program");
        assert_eq!(file.permissions().mode() & 0o777, 0o755);
    }
}

#[test]
fn a_checksum_that_is_given_goes_before_that_of_the_release() {
    let tool = release();
    let wrong = "0".repeat(64);
    let words = format!("--sha256 {wrong} release");
    refuses(&tool, "", &words, &["SHA-256", &wrong, "Nothing"]);
    refuses(&tool, "", "--sha256 12 release", &["has 2 digits"]);
    let sums = fs::read_to_string(tool.path("release/SHA256SUMS")).expect("a file");
    let right = sums.split(' ').next().expect("a checksum");
    fs::remove_file(tool.path("release/SHA256SUMS")).expect("a file");
    refuses(&tool, "", "release", &["no file release/SHA256SUMS"]);
    let said = install(&tool, "", &format!("--to bin --sha256 {right} release"));
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn another_file_and_half_of_one_are_refused() {
    let tool = release();
    tool.write("release/bpfcost", &PROGRAM[..12]);
    refuses(&tool, "", "release", &["12 bytes", "truncated"]);
    tool.write("release/bpfcost", "#!/bin/sh\necho anything\n");
    refuses(&tool, "", "release", &["is wrong", "expected", "got"]);
    tool.write("release/SHA256SUMS", "");
    refuses(&tool, "", "release", &["does not name bpfcost"]);
}

#[test]
fn a_program_that_does_not_start_is_not_installed() {
    let tool = release();
    tool.write("release/bpfcost", "#!/bin/sh\nexit 1\n");
    tool.shell("cd release && sha256sum -- bpfcost > SHA256SUMS");
    refuses(&tool, "", "release", &["does not start"]);
}

#[test]
fn what_the_machine_lacks_is_named() {
    let tool = release();
    fs::create_dir(tool.path("fake")).expect("a folder");
    tool.write("fake/uname", "#!/bin/sh\necho aarch64\n");
    tool.shell("chmod 755 fake/uname");
    let before = "PATH=$PWD/fake:$PATH";
    refuses(&tool, before, "release", &["x86-64", "aarch64"]);

    // All that it needs but what downloads.
    fs::create_dir(tool.path("few")).expect("a folder");
    for name in ["uname", "sha256sum", "mkdir", "mktemp", "rm", "sed", "cut"] {
        let path = tool.shell(&format!("command -v {name}"));
        symlink(path.out.trim(), tool.path("few").join(name)).expect("a link");
    }
    let before = "PATH=$PWD/few";
    let words = "https://bpfcost.invalid/release";
    refuses(&tool, before, words, &["neither curl nor wget"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let tool = release();
    tool.write("bin", "a file");
    refuses(
        &tool,
        "",
        "release",
        &["cannot make the folder bin", "--to"],
    );
    let said = install(&tool, "", "--to /proc release");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("cannot write to /proc"), "{said:?}");
}

#[test]
fn wrong_use_shows_the_usage() {
    let tool = release();
    for words in ["", "--to", "--unknown release", "release another"] {
        let said = install(&tool, "", words);
        assert_eq!(said.code, Some(2), "{words}: {said:?}");
        assert!(said.err.contains("usage: install.sh"), "{said:?}");
    }
}
