//! Failures while a kernel is fetched: one sentence, what to do next, and nothing left behind.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::Command,
    thread::{sleep, spawn},
    time::Duration,
};

use super::{archive::Archive, lab::Lab};
use crate::{require, tool::said};

const RELEASE: &str = "6.12.107+deb13-amd64";

#[test]
fn a_mirror_out_of_reach() {
    let lab = Lab::new();
    lab.write("system/usr/share/keyrings/debian-archive-keyring.gpg", "");
    lab.write(
        "system/etc/apt/sources.list.d/debian.sources",
        "Types: deb\nURIs: http://me:secret@127.0.0.1:1/debian/\nSuites: bookworm\n bookworm-updates\n\
         Components: contrib main\n",
    );
    let text = lab.refuses(
        "add trixie",
        4,
        &[
            "mirror http://127.0.0.1:1/debian cannot be reached",
            "Connection refused",
            "network",
        ],
    );
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn a_mirror_that_refuses() {
    let lab = Lab::new();
    lab.write("system/usr/share/keyrings/debian-archive-keyring.gpg", "");
    let mirror = TcpListener::bind("127.0.0.1:0").expect("a port");
    lab.mirror(&format!(
        "http://{}/debian",
        mirror.local_addr().expect("an address")
    ));
    spawn(move || {
        for call in mirror.incoming().flatten() {
            let mut asked = BufReader::new(call.try_clone().expect("a socket"));
            let mut line = String::new();
            while asked.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let _ = (&call).write_all(
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    lab.refuses(
        "add trixie",
        4,
        &["cannot be reached", "403 (forbidden)", "proxies"],
    );
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn a_system_without_sources_or_keys() {
    let lab = Lab::new();
    lab.refuses(
        "add trixie",
        4,
        &[
            "name no Debian archive",
            "--mirror http://",
            "kernel add PATH",
        ],
    );
    let sources = lab.write("system/etc/apt/sources.list", "deb x\n");
    let entry = format!("{}, line 1, is no package source", sources.display());
    lab.refuses("add trixie", 4, &[&entry, "--mirror http://"]);
    // With a mirror there is no need of sources, and without a keyring bpfcost has Debian's keys.
    let unreached = "mirror http://127.0.0.1:1/debian cannot be reached";
    lab.refuses(
        "add trixie --mirror http://you:secret@127.0.0.1:1/debian/",
        4,
        &[unreached],
    );
    for (mirror, words) in [
        (
            "ftp://127.0.0.1/debian",
            "not an address of http:, https: or file:",
        ),
        ("debian", "is not an address"),
    ] {
        lab.refuses(
            &format!("add trixie --mirror {mirror}"),
            2,
            &[words, "http://"],
        );
    }
    lab.write(
        "system/usr/share/keyrings/debian-archive-keyring.pgp",
        "nonsense",
    );
    lab.refuses(
        "add trixie --mirror http://127.0.0.1:1/debian",
        4,
        &[
            "debian-archive-keyring.pgp cannot be trusted",
            "no keyring",
            "package debian-archive-keyring",
        ],
    );
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn signatures_that_prove_nothing() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(RELEASE, "6.12.107-1");
    let next = "debian-archive-keyring";
    archive.release("trixie");
    lab.refuses(
        "add trixie",
        4,
        &["cannot be trusted", "the suite is not signed", next],
    );
    // A key that is not Debian's.
    archive.key("Other");
    archive.publish("trixie");
    lab.refuses(
        "add trixie",
        4,
        &["cannot be trusted", "not among the trusted ones", next],
    );
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn signed_text_that_is_not_what_was_asked_for() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(RELEASE, "6.12.107-1");
    archive.publish("trixie");
    let refused = |words: &str| {
        lab.refuses("add trixie", 4, &["cannot be trusted", words]);
    };
    lab.answers("add trixie");
    lab.answers("remove 6.12");
    // Without a keyring of the system, only Debian's own keys are trusted.
    let keyring = lab
        .tool
        .path("system/usr/share/keyrings/debian-archive-keyring.gpg");
    let keys = fs::read(&keyring).expect("a keyring");
    fs::remove_file(&keyring).expect("it was there");
    refused("not among the trusted ones");
    fs::write(&keyring, keys).expect("a keyring");
    for more in ["\nSuite: sid\n", "\n-----BEGIN PGP SIGNED MESSAGE-----\n"] {
        archive.replay("trixie", "trixie", more);
        refused("text follows its signature");
        archive.publish("trixie");
    }
    archive.publish("sid");
    archive.replay("sid", "trixie", "");
    refused("describes another suite (sid, sid)");
    archive.fields = "Valid-Until: Fri, 02 Jan 2026 00:00:00 UTC\n".to_owned();
    archive.publish("trixie");
    refused("expired: it was valid until Fri, 02 Jan 2026");
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn files_that_are_not_what_was_signed() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(RELEASE, "6.12.107-1");
    archive.publish("trixie");
    archive.tamper(&format!("linux-image-{RELEASE}_6.12.107-1.deb"));
    lab.refuses("add trixie", 4, &["cannot be trusted", "its SHA-256 is"]);
    archive.truncate(&format!("linux-image-{RELEASE}_6.12.107-1.deb"));
    lab.refuses("add trixie", 4, &["cannot be trusted", "truncated"]);
    // Lists, too.
    archive.kernel("6.12.108", "6.12.108-1");
    archive.publish("sid");
    archive.forget("linux-image-6.12.108");
    archive.unsigned_change("sid");
    lab.refuses("add sid", 4, &["cannot be trusted"]);
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn suites_and_packages_that_are_missing() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.package("other", "1", "", &[]);
    archive.publish("trixie");
    lab.refuses(
        "add trixi",
        2,
        &["has no suite trixi", "bookworm (6.1), trixie (6.12), sid"],
    );
    lab.refuses(
        "add trixie",
        4,
        &["trixie has no package linux-image-", "another suite"],
    );
    archive.leads_to(&format!("linux-image-{RELEASE}"), "1");
    archive.publish("trixie");
    lab.refuses("add trixie", 4, &["no package linux-image-6.12.107"]);
    archive.package(
        &format!("linux-image-{RELEASE}"),
        "1",
        "",
        &[("boot/README".to_owned(), vec![1])],
    );
    archive.publish("trixie");
    lab.refuses("add trixie", 4, &["no usable kernel", "no image in them"]);
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn a_system_without_programs() {
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(RELEASE, "6.12.107-1");
    archive.publish("trixie");
    let mut command = lab.command("add trixie");
    let said = said(
        &command
            .env("PATH", "/nothing")
            .output()
            .expect("the binary runs"),
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(lab.kept(), [RELEASE]);
}

#[test]
fn a_system_without_compilers() {
    let lab = Lab::new();
    let mut command = lab.command("build --frame-pointer");
    let said = said(
        &command
            .env("PATH", "/nothing")
            .output()
            .expect("the binary runs"),
    );
    assert_eq!(said.code, Some(4), "{said:?}");
    let names = "make, gcc, ld, flex, bison, bc, pahole, tar, xz, usr/include/libelf.h";
    let install = "apt-get install --no-install-recommends bc binutils bison dwarves flex gcc libelf-dev make tar xz-utils";
    said.complains(&[names, install]);
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn ctrl_c() {
    let lab = Lab::new();
    // A mirror that takes calls and never answers.
    let mirror = TcpListener::bind("127.0.0.1:0").expect("a port");
    mirror.set_nonblocking(true).expect("a socket");
    lab.write("system/usr/share/keyrings/debian-archive-keyring.gpg", "");
    lab.mirror(&format!(
        "http://{}/debian",
        mirror.local_addr().expect("an address")
    ));
    for signal in ["INT", "TERM"] {
        let mut child = lab.command("add trixie").spawn().expect("the binary runs");
        let call = loop {
            match mirror.accept() {
                Ok((call, _)) => break call,
                Err(_) => assert_eq!(child.try_wait().expect("a child"), None, "it ended before"),
            }
            sleep(Duration::from_millis(20));
        };
        call.set_nonblocking(false).expect("a socket");
        let kill = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(kill.expect("kill runs").success());
        let said = said(&child.wait_with_output().expect("it ends"));
        assert_eq!(said.code, Some(130), "{said:?}");
        said.complains(&["interrupted", "the unfinished kernel was removed"]);
        assert_eq!(lab.kept(), [""; 0]);
        // Its side of the call is closed.
        let mut asked = BufReader::new(call);
        let mut line = String::new();
        while asked.read_line(&mut line).is_ok_and(|read| read > 0) {}
    }
}

/// Adds a kernel on disks that take fewer and fewer files, so that each step is the one that fails in turn,
/// until it has all the room it needs.
const SCRIPT: &str = r#"
mkdir cache
files=4
while [ $files -lt 200 ]; do
    mount -t tmpfs -o size=700m,nr_inodes=$files none cache || exit 99
    $BPFCOST kernel add trixie >out 2>err
    code=$?
    echo "$files $code $(ls -A cache/bpfcost/kernels 2>/dev/null | grep -v '^.lock$' | tr '\n' ' ')" >>codes
    cat err >>words
    umount cache
    [ $code -ne 0 ] || exit 0
    files=$((files + 5))
done
"#;

#[test]
fn a_disk_that_is_full_at_any_step() {
    if !require::host() {
        return;
    }
    let lab = Lab::new();
    let Some(mut archive) = Archive::new(&lab) else {
        return;
    };
    archive.kernel(RELEASE, "6.12.107-1");
    archive.publish("trixie");
    lab.write("script", SCRIPT);
    let mut shell = lab.tool.wrapped("unshare", "--mount sh script");
    lab.surround(&mut shell);
    let ended = shell.output().expect("unshare runs");
    let Ok(codes) = std::fs::read_to_string(lab.tool.path("codes")) else {
        assert_ne!(ended.status.code(), Some(0), "{ended:?}");
        require::skip("no file system can be mounted");
        return;
    };
    let words = std::fs::read_to_string(lab.tool.path("words")).expect("words");
    let lines: Vec<&str> = codes.lines().collect();
    let (last, others) = lines.split_last().expect("some");
    assert!(last.ends_with(&format!(" 0 {RELEASE} ")), "{codes}{words}");
    assert!(others.len() >= 5, "{codes}");
    for line in others {
        assert!(line.ends_with(" 4 "), "{line}: {codes}{words}");
    }
    assert_eq!(
        words.matches("error: the disk is full").count(),
        others.len(),
        "{codes}{words}"
    );
    assert!(!words.contains("panicked"), "{words}");
}

#[test]
fn a_disk_without_room_is_refused_before_anything_is_fetched() {
    if !require::host() {
        return;
    }
    let lab = Lab::new();
    lab.write("script", "mkdir cache && mount -t tmpfs -o size=10m none cache || exit 99\n$BPFCOST kernel add trixie");
    let mut shell = lab.tool.wrapped("unshare", "--mount sh script");
    lab.surround(&mut shell);
    let said = said(&shell.output().expect("unshare runs"));
    if said.code != Some(4) && !said.err.contains("error: ") {
        require::skip("no file system can be mounted");
        return;
    }
    said.complains(&[
        "10 MB free, and 300 MB are needed",
        "kernel remove",
        "XDG_CACHE_HOME",
    ]);
    assert_eq!(said.code, Some(4));
}
