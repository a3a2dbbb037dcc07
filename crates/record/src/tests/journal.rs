//! Journals cut short, damaged, foreign, busy and unwritable.

use std::{collections::HashSet, io::Write as _};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::samples as made;
use bpfcost_measure::Stop;

fn machine() -> Machine {
    Machine {
        cpu: "a CPU".to_owned(),
        kernel: "6.12".to_owned(),
        ..Machine::default()
    }
}

fn header() -> Header {
    Header::new(&made::plan(), "2026-11-21T20:00:00Z", &machine())
}

fn new() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run.json");
    (folder, out)
}

fn disturbance(steal_ms: f64) -> Disturbance {
    Disturbance {
        steal_ms,
        ..Disturbance::default()
    }
}

/// A journal of a short run, its events, and its bytes.
fn written() -> (Vec<Event>, Vec<u8>) {
    let (_folder, out) = new();
    let events = made::events(2, made::usual);
    let mut journal = Journal::create(&out, &header()).unwrap();
    for event in &events {
        journal.event(event).unwrap();
    }
    (events, fs::read(journal.path()).unwrap())
}

#[test]
fn what_is_written_is_read() {
    let (_folder, out) = new();
    let events = made::events(3, made::usual);
    let mut journal = Journal::create(&out, &header()).unwrap();
    assert_eq!(journal.path(), out.with_file_name("run.json.journal"));
    for (index, event) in events.iter().enumerate() {
        journal.event(event).unwrap();
        // Each is there as soon as it happened, and another process can read along.
        let read = read_journal(&out).unwrap();
        assert_eq!(read.measured, made::fold(&made::plan(), &events[..=index]));
    }
    assert_eq!(read_journal(journal.path()).unwrap().header, header());
    journal.remove().unwrap();
    assert!(!out.with_file_name("run.json.journal").exists());
    assert!(matches!(read_journal(&out), Err(JournalError::Missing(..))));
}

#[test]
fn cut_at_every_byte_it_resumes_to_a_prefix() {
    let (events, bytes) = written();
    let head = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let path = Path::new("x.journal");
    let mut prefixes = HashSet::new();
    for length in 0..=bytes.len() {
        let cut = &bytes[..length];
        if length <= head {
            assert!(
                matches!(parse(cut, path), Err(JournalError::Empty(..))),
                "{length}"
            );
            continue;
        }
        let whole = cut.iter().filter(|byte| **byte == b'\n').count() - 1;
        let (contents, kept) = parse(cut, path).unwrap();
        assert_eq!(
            contents.measured,
            made::fold(&made::plan(), &events[..whole]),
            "{length}"
        );
        assert!(kept as usize <= length && bytes[kept as usize - 1] == b'\n');
        prefixes.insert(whole);
    }
    assert_eq!(prefixes.len(), events.len() + 1);
}

#[test]
fn a_resumed_journal_goes_on_after_the_last_whole_line() {
    let (events, bytes) = written();
    let (_folder, out) = new();
    let path = journal_path(&out);
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let (mut journal, contents) = Journal::resume(&out, "later").unwrap();
    assert_eq!(
        contents.measured,
        made::fold(&made::plan(), &events[..events.len() - 1])
    );
    let last = Event::EpochStarted {
        epoch: 2,
        load_s: 0.5,
        kernel_bytes: None,
    };
    journal.event(&last).unwrap();
    drop(journal);
    let mut expected = contents.measured;
    expected.apply(&last);
    assert_eq!(read_journal(&out).unwrap().measured, expected);
}

#[test]
fn why_an_earlier_part_stopped_is_forgotten() {
    let (_, bytes) = written();
    let (_folder, out) = new();
    fs::write(journal_path(&out), &bytes).unwrap();
    assert_eq!(
        read_journal(&out).unwrap().measured.stop,
        Some(Stop::Precision)
    );
    let (_journal, contents) = Journal::resume(&out, "later").unwrap();
    assert_eq!(contents.measured.stop, None);
}

#[test]
fn disturbances_of_all_parts_add_up() {
    let (_folder, out) = new();
    let mut journal = Journal::create(&out, &header()).unwrap();
    journal.disturbed(&disturbance(1.0)).unwrap();
    journal.disturbed(&disturbance(5.0)).unwrap();
    drop(journal);
    let (mut journal, contents) = Journal::resume(&out, "later").unwrap();
    assert_eq!(contents.disturbance.steal_ms, 5.0);
    journal.disturbed(&disturbance(2.0)).unwrap();
    drop(journal);
    let (mut journal, contents) = Journal::resume(&out, "later still").unwrap();
    assert_eq!(contents.disturbance.steal_ms, 7.0);
    journal.disturbed(&disturbance(4.0)).unwrap();
    drop(journal);
    let (_journal, contents) = Journal::resume(&out, "at last").unwrap();
    assert_eq!(contents.disturbance.steal_ms, 11.0);
}

#[test]
fn damage_is_told_with_its_line() {
    let (_, bytes) = written();
    let text = String::from_utf8(bytes).unwrap();
    let damage = |line: usize, with: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines[line - 1] = with;
        let text = lines.join("\n") + "\n";
        parse(text.as_bytes(), Path::new("x.journal")).unwrap_err()
    };
    for (line, with) in [
        (1, "{}"),
        (1, "nonsense"),
        (2, ""),
        (5, "{\"trial\":"),
        (5, "{\"never-heard-of\":{}}"),
        (5, "\u{0}\u{0}"),
        (4, "{\"sentinel\":{\"epoch\":1000000000000,\"value\":1.0}}"),
        (2, "{\"sentinel\":{\"epoch\":1,\"value\":1.0}}"),
        (4, "{\"unsupported\":{\"case\":4,\"reason\":\"x\"}}"),
    ] {
        let error = damage(line, with);
        assert!(
            matches!(&error, JournalError::Damaged { line: found, .. } if *found == line),
            "{with}: {error}"
        );
    }
    let message = damage(5, "{").to_string();
    assert!(
        message.contains("damaged at line 5") && message.contains("head -n 4 x.journal"),
        "{message}"
    );
}

#[test]
fn foreign_journals_are_refused() {
    let read = |change: fn(&mut Header)| {
        let mut header = header();
        change(&mut header);
        let line = serde_json::to_string(&header).unwrap() + "\n";
        parse(line.as_bytes(), Path::new("x.journal")).map(|_| ())
    };
    assert!(read(|_| {}).is_ok());
    let newer = read(|header| header.schema = SCHEMA + 1)
        .unwrap_err()
        .to_string();
    assert!(
        newer.contains("newer bpfcost") && newer.contains("update"),
        "{newer}"
    );
    let other = read(|header| header.bpfcost = "0.0.9".into())
        .unwrap_err()
        .to_string();
    assert!(other.contains("started by bpfcost 0.0.9"), "{other}");
    // Newer even where nothing else of it can be read.
    let line = "{\"schema\": 9, \"bpfcost\": \"3.0\", \"plan\": 5}\n";
    assert!(matches!(
        parse(line.as_bytes(), Path::new("x")),
        Err(JournalError::Newer(_, _, 9))
    ));
}

#[test]
fn another_machine_or_plan_is_refused() {
    let header = header();
    let cases = &header.plan.cases;
    assert!(header.continues(cases, &machine()).is_ok());
    // Cases that were left out of the run may have changed.
    let mut more = cases.clone();
    more.push(made::case("new", bpfcost_model::Role::Case, None));
    assert!(header.continues(&more, &machine()).is_ok());
    more[1].floor = None;
    assert!(matches!(
        header.continues(&more, &machine()),
        Err(JournalError::OtherPlan(case)) if case == "miss"
    ));
    let other = Machine {
        kernel: "6.18".to_owned(),
        ..machine()
    };
    let error = header.continues(cases, &other).unwrap_err().to_string();
    assert!(error.contains("6.12, here 6.18"), "{error}");
}

#[test]
fn epochs_of_another_number_of_rounds_are_refused() {
    let plan = made::plan();
    let of = |events: &[Event]| Contents {
        header: header(),
        measured: made::fold(&plan, events),
        disturbance: Disturbance::default(),
        ended: None,
    };
    let three = made::events(2, made::usual);
    assert!(of(&three).has_rounds_of(&plan).is_ok());
    // As builds did whose plans do not say how many.
    let mut two = three.clone();
    two.retain(|event| !matches!(event, Event::Trial { round: 2, .. }));
    assert!(matches!(
        of(&two).has_rounds_of(&plan),
        Err(JournalError::OtherRounds(2, 3))
    ));
    let stated = Plan {
        rounds: Some(2),
        ..made::plan()
    };
    assert!(of(&two).has_rounds_of(&stated).is_ok());
    // An epoch that was cut off says nothing.
    two.retain(|event| !matches!(event, Event::EpochFinished { .. }));
    assert!(of(&two).has_rounds_of(&plan).is_ok());
}

#[test]
fn two_processes_do_not_write_one_journal() {
    let (_folder, out) = new();
    let journal = Journal::create(&out, &header()).unwrap();
    assert!(matches!(
        Journal::create(&out, &header()),
        Err(JournalError::Busy(..))
    ));
    assert!(matches!(
        Journal::resume(&out, "now"),
        Err(JournalError::Busy(..))
    ));
    drop(journal);
    let error = Journal::create(&out, &header()).unwrap_err();
    assert!(matches!(error, JournalError::Unfinished(..)));
    assert!(error.to_string().contains("--resume"), "{error}");
    assert!(Journal::resume(&out, "now").is_ok());
}

#[test]
fn a_value_that_json_cannot_hold_is_refused() {
    let (_folder, out) = new();
    let mut journal = Journal::create(&out, &header()).unwrap();
    for trial in [
        made::trial(f64::NAN, None),
        made::trial(1.0, Some(f64::INFINITY)),
    ] {
        let event = Event::Trial {
            epoch: 0,
            round: 0,
            case: 0,
            trial,
        };
        assert!(matches!(
            journal.event(&event),
            Err(JournalError::NotFinite(..))
        ));
    }
    assert!(read_journal(&out).is_ok());
}

#[test]
fn a_full_disk_is_told() {
    let path = PathBuf::from("/dev/full");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut journal = Journal {
        file,
        path,
        length: 0,
    };
    let error = journal
        .disturbed(&disturbance(1.0))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("No space left on device") && error.contains("--resume"),
        "{error}"
    );
    let nowhere = Journal::create(Path::new("/nonexistent/x.json"), &header());
    assert!(matches!(nowhere, Err(JournalError::Create(..))));
}

#[test]
fn half_a_line_is_cut_off_before_the_next() {
    let (_folder, out) = new();
    let mut journal = Journal::create(&out, &header()).unwrap();
    journal.disturbed(&disturbance(1.0)).unwrap();
    // As a disk that filled up in the middle of a line leaves it.
    journal.file.write_all(b"{\"disturbed\":{\"ste").unwrap();
    journal.cut().unwrap();
    journal.disturbed(&disturbance(2.0)).unwrap();
    drop(journal);
    assert_eq!(read_journal(&out).unwrap().disturbance.steal_ms, 2.0);
}

proptest! {
    #[test]
    fn any_byte_may_change(index in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (_, mut bytes) = written();
        let at = index.index(bytes.len());
        bytes[at] = byte;
        let _ = parse(&bytes, Path::new("x.journal"));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse(&bytes, Path::new("x.journal")).is_err());
    }
}
