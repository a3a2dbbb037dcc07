//! Records of workloads: known costs come out again, and every view says so word for word.

mod common;

use bpfcost::{
    record::{Record, States, Status},
    report::{markdown, style::Style, summary, table, verbose},
};
use common::sample_workload::{self, SIZES};

fn shown(record: &Record) -> String {
    table::render(record, Style::default())
}

fn sentence(record: &Record) -> String {
    bpfcost::report::number::plain_spaces(&summary::sentence(record))
}

#[test]
fn states_are_told_apart_by_all_but_the_probe() {
    let record = sample_workload::sizes();
    let states = States::of(&record).unwrap();
    assert_eq!(states.over(), Some("size"));
    assert_eq!(states.variants(), ["sslsniff", "user"]);
    let sizes: Vec<&str> = states
        .all
        .iter()
        .map(|state| state.factors["size"])
        .collect();
    assert_eq!(sizes, SIZES.map(|size| size.to_string()));
    for state in &states.all {
        assert!(state.off.is_some_and(|off| off.baseline));
        assert_eq!(state.probes.len(), 2);
    }
    assert_eq!(states.curves_over("size").len(), 1);
    let alone = sample_workload::one(0.02, 0.004, None);
    assert_eq!(States::of(&alone).unwrap().over(), None);
}

#[test]
fn the_sentence_of_one_probe() {
    let told = |share, noise, budget| sentence(&sample_workload::one(share, noise, budget));
    insta::assert_snapshot!(
        [
            told(0.045, 0.004, None),
            told(0.045, 0.004, Some(0.1)),
            told(0.045, 0.004, Some(0.02)),
            told(0.045, 0.1, Some(0.05)),
            told(0.0, 0.004, None),
            told(0.0, 0.004, Some(0.05)),
            told(0.03, 0.1, None),
            told(-0.05, 0.004, None),
        ]
        .join("\n")
    );
}

#[test]
fn the_sentence_of_several() {
    insta::assert_snapshot!(
        [
            sentence(&sample_workload::two(None)),
            sentence(&sample_workload::two(Some(0.05))),
            sentence(&sample_workload::several()),
            sentence(&sample_workload::sizes()),
            sentence(&sample_workload::silent()),
        ]
        .join("\n")
    );
}

#[test]
fn terminal_of_one_probe() {
    insta::assert_snapshot!(shown(&sample_workload::one(0.045, 0.004, Some(0.1))));
}

#[test]
fn terminal_of_what_is_open() {
    insta::assert_snapshot!(shown(&sample_workload::one(0.03, 0.1, None)));
}

#[test]
fn terminal_of_two_probes() {
    insta::assert_snapshot!(shown(&sample_workload::two(None)));
}

#[test]
fn terminal_of_several_probes() {
    insta::assert_snapshot!(shown(&sample_workload::several()));
}

#[test]
fn terminal_over_sizes() {
    insta::assert_snapshot!(shown(&sample_workload::sizes()));
}

#[test]
fn terminal_of_a_probe_that_never_fired() {
    let record = sample_workload::silent();
    assert!(
        record
            .cases
            .iter()
            .any(|case| case.status == Status::Invalid)
    );
    insta::assert_snapshot!(shown(&record));
}

#[test]
fn in_markdown() {
    insta::assert_snapshot!(markdown::render(&sample_workload::one(0.045, 0.004, None)));
}

#[test]
fn over_sizes_in_markdown() {
    insta::assert_snapshot!(markdown::render(&sample_workload::sizes()));
}

#[test]
fn verbose_has_every_state_and_where_times_come_from() {
    let record = sample_workload::sizes();
    let long = verbose::render(&record, Style::default());
    for size in SIZES {
        assert!(
            long.contains(&format!("nginx-ssl, size {size}\n")),
            "{long}"
        );
    }
    assert!(long.contains("idle time by the scheduler's clock"));
    assert!(!shown(&record).contains("idle time by the scheduler's clock"));
}
