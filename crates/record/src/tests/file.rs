//! Records on disk: whole or not at all, and refused with a reason.

use bpfcost_stats::session_spread::Level;
use tempfile::TempDir;

use super::*;
use crate::samples as made;

fn names(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_read() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run.json");
    let record = made::record(12);
    writable(&out).unwrap();
    assert_eq!(names(&folder), [""; 0], "looking leaves nothing behind");
    write(&record, &out).unwrap();
    assert_eq!(load(&out).unwrap(), [record]);
    assert_eq!(names(&folder), ["run.json"]);
    let mode = fs::metadata(&out).unwrap().permissions().mode();
    assert_eq!(mode & 0o400, 0o400);
    assert_ne!(mode & 0o777, 0o600, "others may read it, as the umask says");
    // Again, over the old one.
    write(&made::record(11), &out).unwrap();
    assert_eq!(load(&out).unwrap(), [made::record(11)]);
}

#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run.json");
    let full = |file: &mut dyn Write| {
        file.write_all(&[b'x'; 100_000])?;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    };
    let error = replace(&out, full).unwrap_err().to_string();
    assert!(
        error.contains("no storage space") && error.contains("run.json"),
        "{error}"
    );
    assert_eq!(names(&folder), [""; 0]);
    write(&made::record(12), &out).unwrap();
    assert!(replace(&out, full).is_err());
    assert_eq!(load(&out).unwrap(), [made::record(12)]);
    assert_eq!(names(&folder), ["run.json"]);
}

#[test]
fn places_that_cannot_hold_a_record_are_refused_beforehand() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("no/such/run.json");
    let error = writable(&missing).unwrap_err();
    assert!(matches!(error, FileError::NoFolder(..)));
    assert!(error.to_string().contains("mkdir -p"), "{error}");
    for path in [
        folder.path(),
        Path::new("/dev/null"),
        Path::new("/"),
        Path::new(".."),
    ] {
        assert!(
            matches!(writable(path), Err(FileError::NotPlain(..))),
            "{path:?}"
        );
        assert!(write(&made::record(1), path).is_err());
    }
    assert!(matches!(
        writable(Path::new("/proc/x.json")),
        Err(FileError::Write(..))
    ));
    assert!(
        Path::new("/dev/null")
            .metadata()
            .is_ok_and(|seen| !seen.is_file())
    );
}

#[test]
fn a_link_is_followed_not_replaced() {
    let folder = TempDir::new().unwrap();
    let (real, link) = (
        folder.path().join("real.json"),
        folder.path().join("link.json"),
    );
    fs::write(&real, "{}").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    write(&made::record(2), &link).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(load(&real).unwrap(), [made::record(2)]);
}

#[test]
fn a_folder_is_its_records_sorted() {
    let folder = TempDir::new().unwrap();
    assert!(matches!(load(folder.path()), Err(FileError::NoRecords(..))));
    // In an order that a folder need not keep.
    for seed in [7, 2, 9, 4, 1, 8, 3, 6, 5] {
        let record = Record {
            seed,
            ..made::record(2)
        };
        write(&record, &folder.path().join(format!("{seed}.json"))).unwrap();
    }
    fs::write(folder.path().join("notes.txt"), "x").unwrap();
    fs::write(folder.path().join("5.json.journal"), "x").unwrap();
    fs::create_dir(folder.path().join("d.json")).unwrap();
    let seeds: Vec<u64> = load(folder.path())
        .unwrap()
        .iter()
        .map(|r| r.seed)
        .collect();
    assert_eq!(seeds, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn an_array_of_records_is_several() {
    let records = [made::record(2), made::record(3)];
    let text = serde_json::to_string_pretty(&records).unwrap();
    assert_eq!(parse(text.as_bytes(), Path::new("x")).unwrap(), records);
}

#[test]
fn what_is_no_record_is_refused_with_a_reason() {
    let refuse = |text: &str| parse(text.as_bytes(), Path::new("x.json")).unwrap_err();
    let whole = serde_json::to_string(&made::record(2)).unwrap();
    for (text, expected) in [
        (
            "",
            "x.json is damaged at line 1, column 0: EOF while parsing a value",
        ),
        (
            "{\n  \"schema\": 1,,",
            "x.json is damaged at line 2, column 15: key must be a string",
        ),
        ("root:x:0:0", "x.json is not a record of bpfcost"),
        (
            "{}",
            "x.json is JSON but not a bpfcost record: missing field `schema`",
        ),
        (
            "[1]",
            "x.json is JSON but not a bpfcost record: invalid type",
        ),
        (
            "{\"schema\": 1}",
            "x.json is JSON but not a bpfcost record: missing field",
        ),
        (
            "{\"schema\": 2, \"bpfcost\": \"0.9.0\", \"cases\": \"other\"}",
            "x.json was written by a newer bpfcost (0.9.0, schema 2; this one reads up to 1)",
        ),
        ("[{\"schema\": 2}]", "x.json was written by a newer bpfcost"),
    ] {
        let error = refuse(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    for length in (1..whole.len()).step_by(17) {
        let error = refuse(&whole[..length]);
        assert!(
            matches!(error, FileError::Damaged { .. }),
            "{length}: {error}"
        );
    }
    let folder = TempDir::new().unwrap();
    assert!(matches!(
        load(&folder.path().join("x")),
        Err(FileError::Missing(..))
    ));
    let journal = folder.path().join("x.json.journal");
    fs::write(&journal, "{}").unwrap();
    assert!(matches!(load(&journal), Err(FileError::Journal(..))));
}

#[test]
fn how_far_sessions_differ_is_stated_once_and_read_from_before() {
    let mut record = made::record(12);
    let level = |session: u32| Level {
        began_s: 60.0 * f64::from(session),
        value: 50.0 + 0.1 * f64::from(session),
    };
    record.state_spreads(|_| {
        vec![crate::CaseLevels {
            series: String::new(),
            case: "a".to_owned(),
            levels: (0..9).map(level).collect(),
        }]
    });
    let within = record.spread.within_sitting().expect("it is known");
    let mut value = serde_json::to_value(&record).unwrap();
    let spread = value["spread"].as_object_mut().unwrap();
    assert_eq!(spread["sessions"]["within"]["percent"], within);
    assert!(!spread.contains_key("session"), "{spread:?}");
    // Records from before the spread between sittings have one number.
    spread.remove("sessions");
    spread.insert("session".to_owned(), 1.6.into());
    let before: Record = serde_json::from_value(value).unwrap();
    assert_eq!(before.spread.within_sitting(), Some(1.6));
    let stated = before.stated_spreads(crate::Reading::AsFound).within;
    assert!((stated.share - 0.016).abs() < 1e-12 && stated.freedom == Some(3));
}
