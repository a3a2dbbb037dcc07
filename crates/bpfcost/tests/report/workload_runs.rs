//! Runs of workloads against each other: by what a probe adds, and by what the server costs.

use crate::common::{sample_workload, views};
use bpfcost_record::{
    ChangeBasis, ChangeOutcome, Changes, Gate, GateOptions, Record, SessionSpreadRecord,
    SessionSpreadsRecord, compare,
};
use bpfcost_report::style::Style;

/// A run whose probe costs this share more, on a server that came up so many times as dear, on a machine of whose runs
/// nothing is known.
fn first_run(started: &str, share: f64, level: f64) -> Record {
    let mut record = sample_workload::one(share, 0.004, None);
    record.started = started.to_owned();
    for raw in record.cases.iter_mut().filter_map(|case| case.raw.as_mut()) {
        raw.value *= level;
        raw.ci95 = raw.ci95.map(|ends| ends.map(|end| end * level));
    }
    record
}

/// The same on a machine whose runs are known to differ by 1 %.
fn run(started: &str, share: f64, level: f64) -> Record {
    let mut record = first_run(started, share, level);
    let spread = Some(SessionSpreadRecord {
        percent: 1.0,
        freedom: 1_000_000,
    });
    record.spread.sessions = Some(SessionSpreadsRecord {
        within: spread,
        between: spread,
    });
    record
}

fn outcomes(changes: &Changes) -> Vec<(&str, ChangeOutcome)> {
    let cases = changes.cases.iter();
    cases
        .map(|change| (change.case.as_str(), change.outcome))
        .collect()
}

/// A probe's addition is known within each run, and what self-test knows of kernel programs is no matter.
#[test]
fn runs_of_a_workload_are_compared_by_what_probes_add() {
    let compared = |new: Record| {
        let old = [run("old", 0.045, 1.0)];
        compare(&old, &[new], GateOptions::default(), |_, _| Vec::new()).unwrap()
    };
    let moved = compared(run("new", 0.045, 1.3));
    assert_eq!(
        outcomes(&moved),
        [
            ("off", ChangeOutcome::Unresolved),
            ("bpftrace", ChangeOutcome::Same)
        ]
    );
    assert_eq!((moved.gate, moved.threshold), (Gate::Passed, 0.03));
    assert!((moved.cases[0].relative.unwrap() - 0.3).abs() < 1e-9);
    assert_eq!(moved.cases[0].p, None);
    let probed = &moved.cases[1];
    assert_eq!(
        (probed.baseline.as_deref(), probed.basis),
        (Some("off"), Some(ChangeBasis::Runs))
    );
    assert!((probed.old.unwrap().added.unwrap() - 0.045).abs() < 0.002);

    let dearer = compared(run("new", 0.2, 1.0));
    assert_eq!(
        outcomes(&dearer),
        [
            ("off", ChangeOutcome::Unresolved),
            ("bpftrace", ChangeOutcome::Regressed)
        ]
    );
    let cheaper = compared(run("new", -0.05, 1.0));
    assert_eq!(outcomes(&cheaper)[1].1, ChangeOutcome::Improved);
    insta::assert_snapshot!(
        [
            views::comparison(&dearer, Style::default()),
            views::comparison_in_markdown(&dearer),
            bpfcost_report::compare::junit(&dearer).unwrap(),
        ]
        .join("\n")
    );
}

/// One run a side can't be told from another while it is unknown how far runs differ; several a side in turn can.
#[test]
fn one_run_a_side_is_too_few_where_nothing_is_known() {
    let compared = |runs: usize, new: f64| {
        let side = |is_new: bool| -> Vec<Record> {
            let share = if is_new { new } else { 0.045 };
            let one = |index| {
                let hour = 2 * index + usize::from(is_new);
                let started = format!("2026-11-24T0{hour}:00:00Z");
                first_run(&started, share + 0.001 * index as f64, 1.0)
            };
            (0..runs).map(one).collect()
        };
        compare(&side(false), &side(true), GateOptions::default(), |_, _| {
            Vec::new()
        })
        .unwrap()
    };
    for new in [0.045, 0.5] {
        let alone = compared(1, new);
        assert_eq!(outcomes(&alone)[1].1, ChangeOutcome::Unresolved);
        assert_eq!(alone.gate, Gate::Blind);
        assert_eq!(alone.unjudged().collect::<Vec<_>>(), ["bpftrace"]);
        let note = alone.cases[1].note.as_deref();
        assert!(
            note.is_some_and(|note| note.contains("two or more records a side")),
            "{note:?}"
        );
    }
    assert_eq!(compared(2, 0.045).gate, Gate::Passed);
    let three = compared(3, 0.5);
    assert_eq!(outcomes(&three)[1].1, ChangeOutcome::Regressed);
    assert_eq!(three.gate, Gate::Regressed);
}

/// A probe's addition is known only of runs that had a case without it, however many they are.
#[test]
fn a_probe_without_off_beside_it_has_no_verdict() {
    let side = |name: &str, level: f64| -> Vec<Record> {
        let alone = |index: u32| {
            let mut record = run(
                &format!("{name}{index}"),
                0.045,
                level + 0.001 * f64::from(index),
            );
            record.comparisons.clear();
            record.cases.retain(|case| case.name != "off");
            record
        };
        (0..8).map(alone).collect()
    };
    let changes = compare(
        &side("old", 1.0),
        &side("new", 1.3),
        GateOptions::default(),
        |_, _| Vec::new(),
    )
    .unwrap();
    assert_eq!(
        outcomes(&changes),
        [("bpftrace", ChangeOutcome::Unresolved)]
    );
    let note = changes.cases[0].note.as_deref();
    assert!(
        note.is_some_and(|note| note.contains("without off")),
        "{note:?}"
    );
    let codes: Vec<&str> = changes
        .warnings
        .iter()
        .map(|one| one.code.as_ref())
        .collect();
    assert_eq!(codes, ["workload-sessions"], "more records would not tell");
}

/// Without a probe there is nothing within a run to stand on, so it takes enough runs.
#[test]
fn many_runs_of_a_workload_tell_of_the_server_itself() {
    let side = |name: &str, level: f64, runs: usize| -> Vec<Record> {
        // In turn, an hour apart.
        let run = |index| {
            let hour = 2 * index + usize::from(name == "new");
            let started = format!("2026-11-24T{hour:02}:00:00Z");
            run(&started, 0.045, level + 0.01 * index as f64)
        };
        (0..runs).map(run).collect()
    };
    let compared = |runs| {
        let (old, new) = (side("old", 1.0, runs), side("new", 1.3, runs));
        compare(&old, &new, GateOptions::default(), |_, _| Vec::new()).unwrap()
    };
    let few = compared(4);
    assert_eq!(few.cases[0].outcome, ChangeOutcome::Unresolved);
    let told: Vec<&str> = few.warnings.iter().map(|one| one.text.as_str()).collect();
    assert!(
        told.iter()
            .any(|text| text.contains("5 records a side would resolve it")),
        "{told:?}"
    );
    assert_eq!(few.cases[1].basis, Some(ChangeBasis::Runs));
    let many = compared(5);
    assert_eq!(
        outcomes(&many),
        [
            ("off", ChangeOutcome::Regressed),
            ("bpftrace", ChangeOutcome::Same)
        ]
    );
    assert!(many.warnings.iter().all(|one| one.code != "workload-level"));
    assert_eq!(many.cases[0].basis, Some(ChangeBasis::Sessions));
    assert_eq!(many.cases[1].basis, Some(ChangeBasis::Sessions));
}

#[test]
fn runs_of_other_operations_are_not_compared() {
    let old = run("old", 0.045, 1.0);
    let mut new = run("new", 0.045, 1.0);
    sample_workload::describe(&mut new, |one| one.operation = "request".to_owned());
    let refused = compare(&[old], &[new], GateOptions::default(), |_, _| Vec::new())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("per command in one record") && refused.contains("per request"),
        "{refused}"
    );
}
