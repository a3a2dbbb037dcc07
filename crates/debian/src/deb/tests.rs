//! Packages that are made here: whole, damaged and malicious.

use std::{cell::Cell, io::Write as _};

use lzma_rust2::{XzOptions, XzWriter};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::TempDir;

use super::*;

struct Limited(Cell<u32>);

impl Observer for Limited {
    fn progress(&self, _: f64) {}

    fn interrupted(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() == 0
    }
}

fn tar(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().expect("an archive")
}

fn add(builder: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(bytes.len() as u64);
    // Names that the builder itself would refuse.
    if name.len() <= 100 {
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, bytes).expect("an entry");
    } else {
        builder
            .append_data(&mut header, name, bytes)
            .expect("an entry");
    }
}

fn member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!(
        "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
        0,
        0,
        0,
        100_644,
        bytes.len()
    );
    let pad = &b"\n"[..bytes.len() % 2];
    [header.as_bytes(), bytes, pad].concat()
}

fn deb(ending: &str, data: &[u8]) -> Vec<u8> {
    [
        MAGIC,
        &member("debian-binary", b"2.0\n"),
        &member("control.tar.xz", b"odd"),
        &member(&format!("data.tar{ending}"), data),
    ]
    .concat()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).expect("a writer");
    writer.write_all(bytes).expect("all of it");
    writer.finish().expect("its end")
}

fn files_of(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let lab = TempDir::new().expect("a folder");
    let package = lab.path().join("x.deb");
    fs::write(&package, bytes).expect("a file");
    let target = lab.path().join("target");
    fs::create_dir(&target).expect("a folder");
    let mut names = Vec::new();
    extract(
        &package,
        &target,
        &mut |path| {
            let name = path.to_str().expect("UTF-8").to_owned();
            let is_wanted = !name.contains("unwanted");
            if is_wanted {
                names.push(name);
            }
            is_wanted
        },
        &Limited(Cell::new(u32::MAX)),
    )?;
    assert!(
        fs::read_dir(lab.path()).expect("a folder").count() == 2,
        "nothing outside"
    );
    assert!(!target.join("unwanted").exists());
    let read = |name: String| {
        let bytes = fs::read(target.join(&name)).expect("a file");
        (name, bytes)
    };
    Ok(names.into_iter().map(read).collect())
}

fn usual() -> Vec<u8> {
    let long = format!("./usr/{}/x", "long/".repeat(30));
    tar(|builder| {
        add(builder, tar::EntryType::Directory, "./usr/", b"");
        add(builder, tar::EntryType::Regular, "./usr/one", b"first");
        add(builder, tar::EntryType::Symlink, "./usr/link", b"");
        add(builder, tar::EntryType::Regular, "./unwanted", b"no");
        add(builder, tar::EntryType::Regular, &long, b"second");
    })
}

#[test]
fn packages_have_files() {
    let long = format!("usr/{}x", "long/".repeat(30));
    let wanted = [
        ("usr/one".to_owned(), b"first".to_vec()),
        (long, b"second".to_vec()),
    ];
    let data = usual();
    for (ending, packed) in [
        ("", data.clone()),
        (".xz", xz(&data)),
        (
            ".zst",
            compress_to_vec(data.as_slice(), CompressionLevel::Fastest),
        ),
    ] {
        assert_eq!(files_of(&deb(ending, &packed)).expect(ending), wanted);
    }
}

#[test]
fn what_is_damaged_is_refused() {
    let whole = deb(".xz", &xz(&usual()));
    for (bytes, why) in [
        (&b"nonsense"[..], "no archive"),
        (b"", "fill whole buffer"),
        (MAGIC, "ends before its files"),
        (&whole[..100], "ends before its files"),
        (&whole[..whole.len() - 60], "truncated"),
        (&[MAGIC, &member("other", b"x")].concat(), "another kind"),
        (&deb(".gz", b"x"), "another way than xz or zstd (.gz)"),
        (&deb(".xz", b"nonsense"), "is not a whole"),
        (&deb(".zst", b"nonsense"), "is not a whole"),
        (&deb("", &[1; 600]), "is not a whole"),
    ] {
        let error = files_of(bytes).expect_err(why).to_string();
        assert!(error.contains(why), "{error} instead of {why}");
        assert!(
            error.contains("x.deb is not a whole Debian package"),
            "{error}"
        );
    }
}

#[test]
fn nothing_leaves_the_folder() {
    for name in ["../out", "/etc/out", "a/../../out", ".", ""] {
        let data = tar(|builder| add(builder, tar::EntryType::Regular, name, b"x"));
        let error = files_of(&deb("", &data)).expect_err(name).to_string();
        assert!(error.contains("outside of its folder"), "{name}: {error}");
    }
    // A link is not made, so a file below its name is an ordinary one.
    let data = tar(|builder| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder
            .append_link(&mut header, "usr", "..")
            .expect("a link");
        add(builder, tar::EntryType::Regular, "usr/out", b"x");
    });
    let files = files_of(&deb("", &data)).expect("files");
    assert_eq!(files, [("usr/out".to_owned(), b"x".to_vec())]);
    // Twice the same name does not write into the first.
    let data = tar(|builder| {
        add(builder, tar::EntryType::Regular, "one", b"x");
        add(builder, tar::EntryType::Regular, "one", b"y");
    });
    assert!(matches!(files_of(&deb("", &data)), Err(Error::File { .. })));
}

#[test]
fn it_ends_when_asked_to() {
    let lab = TempDir::new().expect("a folder");
    let package = lab.path().join("x.deb");
    fs::write(&package, deb(".xz", &xz(&usual()))).expect("a file");
    let stopped = Limited(Cell::new(1));
    let ended = extract(&package, lab.path(), &mut |_| true, &stopped);
    assert!(matches!(ended, Err(Error::Interrupted)));
    assert!(is_package(&package));
    assert!(!is_package(lab.path()));
}
