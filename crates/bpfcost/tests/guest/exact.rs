//! Exact guests count: known answers are read back to the instruction, and boots agree, whatever else the
//! machine does.

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use bpfcost::record::Record;

use crate::{kept::valid_record, require, tool::Tool, visit::says};

/// How far two boots may be apart where the work depends on the state of a table, as a share: a hundredth
/// of what a tick in every batch would add.
const AGREEMENT: f64 = 0.001;

/// Runs it in a guest of its own; the record.
#[track_caller]
fn counted(line: &str, kernel: &str) -> Record {
    counted_with(line, kernel, "{}")
}

/// The same, with a fault put in.
#[track_caller]
fn counted_with(line: &str, kernel: &str, hooks: &str) -> Record {
    let tool = Tool::new();
    let said = says(&tool, &format!("{line} --on exact:{kernel} --quick"), hooks);
    assert_eq!(said.code, Some(0), "{said:?}");
    valid_record(&tool)
}

/// By case: its count, and whether it repeated from trial to trial.
fn counts(record: &Record) -> BTreeMap<&str, (f64, bool)> {
    let of = |case: &bpfcost::record::CaseRecord| {
        let raw = case.raw.as_ref()?;
        Some((raw.value, raw.repeats? > 0))
    };
    let cases = record.cases.iter();
    cases
        .filter_map(|case| Some((case.name.as_str(), of(case)?)))
        .collect()
}

#[test]
fn known_answers_are_read_to_the_instruction() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let record = counted("run ladder", kernel);
    let counts = counts(&record);
    let base = counts["added-0"].0;
    assert_eq!(base, base.round(), "a whole number of instructions");
    for added in [0, 1, 10, 100, 1000] {
        let (count, repeated) = counts[format!("added-{added}").as_str()];
        assert_eq!(count, base + f64::from(added), "{added} more");
        assert!(repeated);
    }
    let differences: Vec<f64> = record
        .comparisons
        .iter()
        .map(|one| one.difference)
        .collect();
    assert_eq!(differences, [1.0, 10.0, 100.0, 1000.0]);
}

/// Two boots, the second while something else wants every CPU. Hashes have the same seed in each, and each walks the
/// same keys.
#[test]
fn boots_agree_on_a_busy_machine_too() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let line = "run map --case hash-1k-16B/hit --case hash-1k-16B/insert-delete --case arena-1k-16B/hit \
                --case task-storage-16B/hit";
    let quiet = counted(line, kernel);
    let busy = busily(|| counted(line, kernel));
    // Storage and the floors do the same whatever the key.
    agree(&quiet, &busy, 3);
    let counts = counts(&quiet);
    let net = |name: &str, floor: &str| counts[name].0 - counts[floor].0;
    let hit = net("hash-1k-16B/hit", "floor/key");
    assert!(net("hash-1k-16B/insert-delete", "floor/key") > 2.0 * hit);
    assert!(net("arena-1k-16B/hit", "floor/key") < hit, "no call in it");
}

/// Two boots counted the same; at least `whole` cases the same whole number, to the instruction.
#[track_caller]
fn agree(one: &Record, other: &Record, whole: usize) {
    let (one, other) = (counts(one), counts(other));
    let mut to_the_instruction = 0;
    for (name, (count, repeated)) in &one {
        let (again, repeated_again) = other[name];
        assert!(
            (again / count - 1.0).abs() < AGREEMENT,
            "{name}: {count}, then {again}"
        );
        if *repeated && count.fract() == 0.0 {
            assert_eq!((again, repeated_again), (*count, true), "{name}");
            to_the_instruction += 1;
        }
    }
    assert!(
        to_the_instruction >= whole,
        "{to_the_instruction} of {}: {one:?}",
        one.len()
    );
}

/// The clock of an exact guest leaps while it waits, for the host's disk above all: nothing may go by it.
#[test]
fn a_clock_that_leaps_changes_no_count() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let line = "run xdp-lb --case tcp-v4-lru-diverse --case udp-v4-lru-diverse";
    let steady = counted(line, kernel);
    let leaping = counted_with(
        line,
        kernel,
        r#"{"before": "export BPFCOST_TEST_GUEST='{\"doze_s\": 11}'"}"#,
    );
    let (steady, leaping) = (counts(&steady), counts(&leaping));
    assert_eq!(steady.len(), 4, "two cases and their floors");
    for (name, (count, repeated)) in steady {
        let (again, repeated_again) = leaping[name];
        assert!(repeated && repeated_again, "{name}");
        assert!(
            (again - count).abs() < 0.05,
            "{name}: {count}, then {again}"
        );
    }
}

/// Does something while a thread on every CPU keeps it busy.
fn busily<T>(work: impl FnOnce() -> T) -> T {
    struct Ended<'a>(&'a AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut turns = 0u64;
                while !ended.load(Ordering::Relaxed) {
                    turns = black_box(turns.wrapping_add(1));
                }
            });
        }
        // Also where the work panics: the others would be waited for.
        let _ended = Ended(&ended);
        work()
    })
}
