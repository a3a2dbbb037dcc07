//! Exact guests count: known answers are read back to the instruction, and boots agree, whatever else the
//! machine does.

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use bpfcost_record::Record;

use crate::{
    kept::valid_record,
    require,
    tool::Tool,
    visit::{Visit, assert_nothing_left, says},
};

/// Runs it in its own guest, and returns the record.
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

/// Counts by case, and whether each repeated from trial to trial.
fn counts(record: &Record) -> BTreeMap<&str, (f64, bool)> {
    let of = |case: &bpfcost_record::CaseRecord| {
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
    for added in [0, 1, 10, 100, 1000, 1010] {
        let (count, repeated) = counts[format!("added-{added}").as_str()];
        assert_eq!(count, base + f64::from(added), "{added} more");
        assert!(repeated);
    }
    let differences: Vec<f64> = record
        .comparisons
        .iter()
        .map(|one| one.difference)
        .collect();
    assert_eq!(differences, [1.0, 9.0, 90.0, 900.0, 10.0]);
}

/// Hashes have the same seed in each boot, so that these are not estimates.
#[test]
fn operations_on_maps_are_counted() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let record = counted(
        "run map --case hash-1k-16B/hit --case hash-1k-16B/insert-delete --case arena-1k-16B/hit",
        kernel,
    );
    let counts = counts(&record);
    let net = |name: &str| counts[name].0 - counts["floor/key"].0;
    let hit = net("hash-1k-16B/hit");
    assert!(net("hash-1k-16B/insert-delete") > 2.0 * hit, "{counts:?}");
    assert!(net("arena-1k-16B/hit") < hit, "no call in it: {counts:?}");
}

/// Two boots. While the second counts, something else wants every CPU, and its clock leaps while it waits, for the host's disk
/// above all: nothing may go by either.
#[test]
fn boots_agree_on_a_busy_machine_with_a_clock_that_leaps() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let line = "run xdp-lb --case tcp-v4-lru-diverse --case tcp-v4-lru-hit";
    let steady = counted(line, kernel);
    // A word more for the kernel has it boot, where the first guest may have gone on from an earlier boot.
    let hooks = r#"{"kernel": "quiet", "before": "export BPFCOST_TEST_GUEST='{\"doze_s\": 11}'"}"#;
    let leaping = busily_counted(line, kernel, hooks);
    let (steady, leaping) = (counts(&steady), counts(&leaping));
    assert_eq!(steady.len(), 5, "two cases and their floors");
    for (name, (count, repeated)) in steady {
        let (again, repeated_again) = leaping[name];
        // Those whose work is the same for every packet.
        if !name.ends_with("-diverse") && count.fract() == 0.0 {
            assert_eq!(again, count, "{name}");
        }
        assert!(repeated && repeated_again, "{name}");
        assert!(
            (again - count).abs() < 0.05,
            "{name}: {count}, then {again}"
        );
    }
}

/// Trials that are counted on a busy machine: with the clock's leaps before each, more would only take longer.
const BUSY_TRIALS: usize = 6;

/// Counts while a thread on every CPU keeps it busy, from the guest's first trial on, for some trials.
fn busily_counted(line: &str, kernel: &str, hooks: &str) -> Record {
    struct Ended<'a>(&'a AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let tool = Tool::new();
    let mut visit = Visit::start(&tool, &format!("{line} --on exact:{kernel} --quick"), hooks);
    visit.until(|journal| journal.contains("\n{\"trial\""));
    let ended = AtomicBool::new(false);
    let said = thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut turns = 0u64;
                while !ended.load(Ordering::Relaxed) {
                    turns = black_box(turns.wrapping_add(1));
                }
            });
        }
        // Also where the work panics: the others would be waited for.
        let ended = Ended(&ended);
        visit.until(|journal| journal.matches("\n{\"trial\"").count() > BUSY_TRIALS);
        drop(ended);
        visit.end()
    });
    assert_nothing_left(&tool);
    assert_eq!(said.code, Some(0), "{said:?}");
    valid_record(&tool)
}
