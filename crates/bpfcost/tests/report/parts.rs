//! The parts of what attached programs cost, and rates: known parts come out again, and what doesn't add up
//! is said.

use std::collections::BTreeMap;

use crate::common::{
    sample_parts::{self, BEYOND, BODIES, DRIVER, READING, TAX, TYPES},
    views,
};
use bpfcost_model::Layout;
use bpfcost_pages::attach::{self, parts::Parts};
use bpfcost_record::{CostEstimate, Record};
use bpfcost_report::{
    rate::{self, EventLoad},
    style::Style,
    summary,
    table::{self, Table},
};
use bpfcost_stats::Additive;

fn tables(record: &Record) -> String {
    table::plain(&attach::tables(record), |table, out| {
        table.terminal(out, Style::default());
    })
}

/// A view with its line breaks taken out.
fn words(view: &str) -> String {
    view.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn near(part: Option<CostEstimate>, expected: f64) {
    let part = part.expect("it was measured");
    assert!((part.value - expected).abs() < 0.3, "{part:?}: {expected}");
    let [low, high] = part.ci95.expect("epochs enough");
    assert!(low <= part.value && part.value <= high && high - low < 1.0);
}

#[test]
fn known_parts_come_out_again() {
    let record = sample_parts::timed(14);
    let found = Parts::from_record(&record).unwrap();
    let names: Vec<&str> = found.rows.iter().map(|row| row.attach.as_str()).collect();
    assert_eq!(names, ["tp_btf", "kprobe.multi-all", "kprobe"]);
    assert_eq!(found.bodies, ["map", "ringbuf-wakeup"]);
    for row in &found.rows {
        let (_, mechanism) = TYPES.iter().find(|(name, _)| *name == row.attach).unwrap();
        near(row.mechanism, *mechanism);
        near(row.bodies[0], BODIES[1].1);
        near(row.bodies[1], BODIES[2].1);
        near(row.tax, TAX);
        near(row.kernel_empty, READING);
        let [sum] = &row.sums[..] else {
            panic!("one body has both: {:?}", row.sums);
        };
        // The kernel's account is free of what it costs to read the clock.
        near(sum.kernel, BODIES[1].1);
        let beyond = if row.attach == "kprobe" { BEYOND } else { 0.0 };
        near(Some(sum.total), mechanism + BODIES[1].1 + TAX + beyond);
        near(Some(sum.residual), beyond);
        let expected = if beyond > 0.0 {
            Additive::No
        } else {
            Additive::Yes
        };
        assert_eq!(sum.adds_up, expected, "{sum:?}");
    }
}

#[test]
fn counts_are_judged_without_a_test() {
    let found = Parts::from_record(&sample_parts::counted()).unwrap();
    let answers: Vec<(&str, f64, Additive)> = found
        .sums()
        .map(|(row, sum)| (row.attach.as_str(), sum.residual.value, sum.adds_up))
        .collect();
    let expected = [
        ("tp_btf", 0.0, Additive::Yes),
        ("kprobe.multi-all", 0.0, Additive::Yes),
        ("kprobe", BEYOND, Additive::No),
    ];
    assert_eq!(answers, expected);
    let passed = found.rows[1].passed.unwrap();
    assert!((passed.missed_per_event - 0.012).abs() < 1e-9);
    assert!((passed.others_per_event - 3.5).abs() < 1e-9);
}

#[test]
fn counts_that_differ_from_load_to_load_tell_nothing() {
    let mut record = sample_parts::counted();
    let case = record
        .cases
        .iter_mut()
        .find(|case| case.name == "kprobe/map/stats");
    let raw = case.unwrap().raw.as_mut().unwrap();
    raw.loads = Some([raw.value - 20.0, raw.value + 20.0]);
    let found = Parts::from_record(&record).unwrap();
    let (_, sum) = found.sums().last().unwrap();
    assert_eq!(sum.adds_up, Additive::CantTell);
    assert!(words(&tables(&record)).contains("can't tell"));
}

#[test]
fn few_epochs_can_not_tell() {
    for epochs in [1, 4] {
        let record = sample_parts::timed(epochs);
        let found = Parts::from_record(&record).unwrap();
        assert!(
            found
                .sums()
                .all(|(_, sum)| sum.adds_up == Additive::CantTell)
        );
        let view = words(&tables(&record));
        assert!(view.contains("can't tell"), "{view}");
        assert!(!view.contains("NaN"), "{view}");
    }
}

#[test]
fn what_is_missing_stays_empty() {
    let record = sample_parts::timed(12);
    let lacking = sample_parts::without(record.clone(), &["kprobe/empty", "tp_btf/empty/stats"]);
    let found = Parts::from_record(&lacking).unwrap();
    let names: Vec<&str> = found.rows.iter().map(|row| row.attach.as_str()).collect();
    assert_eq!(names, ["tp_btf", "kprobe.multi-all"]);
    assert_eq!((found.rows[0].tax, found.rows[0].sums.len()), (None, 0));
    assert_eq!(found.rows[1].sums.len(), 1);
    let bare: Vec<&str> = record.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(
        Parts::from_record(&sample_parts::without(record.clone(), &bare)),
        None
    );
    let flat = Record {
        layout: Layout::default(),
        ..record
    };
    assert_eq!(Parts::from_record(&flat), None);
    assert_eq!(attach::tables(&flat), Vec::<Table>::new());
    assert!(rate::tables(&flat, LOAD).is_empty());
}

#[test]
fn tables_of_times() {
    insta::assert_snapshot!(tables(&sample_parts::timed(14)));
}

#[test]
fn tables_of_counts() {
    insta::assert_snapshot!(tables(&sample_parts::counted()));
}

#[test]
fn tables_in_markdown() {
    let tables = attach::tables(&sample_parts::timed(14));
    insta::assert_snapshot!(table::plain(&tables, Table::markdown));
}

#[test]
fn every_view_has_the_parts() {
    let record = sample_parts::timed(14);
    let style = Style::default();
    for view in [
        views::table(&record, style),
        views::verbose(&record, style),
        views::markdown(&record),
        views::html(std::slice::from_ref(&record)).unwrap(),
    ] {
        let view = words(&view.replace('\\', "").replace('\u{a0}', " "));
        for part in ["Parts of the cost", "by the kernel", "adds up"] {
            assert!(view.contains(part), "{part} is not in {view}");
        }
    }
}

const LOAD: EventLoad = EventLoad {
    rate: Some(200e3),
    core_share: Some(0.01),
};

#[test]
fn rates_are_a_multiplication() {
    let record = sample_parts::timed(14);
    let case = record.case("tp_btf/map").unwrap();
    let net = case.net.as_ref().unwrap();
    let share = rate::share(case, &record, 200e3).unwrap();
    assert!((share.value - 0.0064).abs() < 0.0001, "{share:?}");
    assert!((share.value - 200e3 * net.value.unwrap() / 1e9).abs() < 1e-12);
    // By the upper end of the interval.
    let most = rate::most(case, &record, 0.01).unwrap();
    assert!((most - 0.01 * 1e9 / net.ci95.unwrap()[1]).abs() < 1e-6);
    assert!(most < 0.01 * 1e9 / net.value.unwrap());
    let floor = record.case("none/helper").unwrap();
    assert_eq!(rate::share(floor, &record, 200e3), None);
}

#[test]
fn rates_and_shares_of_a_core() {
    let record = sample_parts::timed(14);
    insta::assert_snapshot!(rate::terminal(&record, LOAD, Style::default()));
    assert!(rate::markdown(&record, LOAD).contains("200k/s"));
    let page = bpfcost_pages::page(std::slice::from_ref(&record), LOAD).unwrap();
    assert!(page.contains("CPU of one core at 200k"));
    assert_eq!(
        rate::terminal(&record, EventLoad::default(), Style::default()),
        ""
    );
}

#[test]
fn a_share_has_no_safe_answer_without_an_interval() {
    let record = sample_parts::timed(4);
    let case = record.case("tp_btf/map").unwrap();
    assert_eq!(rate::most(case, &record, 0.01), None);
    assert!(rate::share(case, &record, 200e3).is_some());
}

#[test]
fn what_costs_nothing_is_bounded() {
    let mut record = sample_parts::timed(12);
    for case in &mut record.cases {
        if let Some(net) = &mut case.net {
            (net.value, net.ci95) = (Some(0.1), Some([-0.2, 0.4]));
            net.distinguishable = false;
        }
    }
    let view = words(&rate::terminal(&record, LOAD, Style::default()));
    assert!(view.contains("below 0.008"), "{view}");
    assert!(view.contains("25M/s"), "{view}");
    let sentence = words(&summary::sentence(&record));
    assert!(
        sentence.contains("cost from ≈ 0 (") && sentence.contains(" to ≈ 0 ("),
        "{sentence}"
    );
    let table = words(&views::table(&record, Style::default()));
    assert!(
        table.contains("≈ 0: not distinguishable from its floor"),
        "{table}"
    );
}

#[test]
fn instructions_answer_no_question_of_rates() {
    let record = sample_parts::counted();
    let case = record.case("tp_btf/map").unwrap();
    assert_eq!(rate::share(case, &record, 200e3), None);
    let page = bpfcost_pages::page(std::slice::from_ref(&record), LOAD).unwrap();
    for view in [
        rate::terminal(&record, LOAD, Style::default()),
        rate::markdown(&record, LOAD),
        page,
    ] {
        let view = words(&view);
        assert!(view.contains("insn are not ns"), "{view}");
        assert!(!view.contains("CPU of one core"), "{view}");
    }
}

#[test]
fn columns_for_scripts() {
    let record = sample_parts::timed(14);
    let plain = views::csv(std::slice::from_ref(&record));
    assert!(!plain.contains("core_share"));
    let text = bpfcost_pages::csv(std::slice::from_ref(&record), LOAD).unwrap();
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    let rows: BTreeMap<String, BTreeMap<String, String>> = reader
        .records()
        .map(|row| {
            let row = row.unwrap();
            let cells = head.iter().zip(row.iter());
            let cells: BTreeMap<String, String> =
                cells.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            (cells["case"].clone(), cells)
        })
        .collect();
    let cell = |case: &str, column: &str| rows[case][column].as_str();
    assert_eq!(cell("kprobe/empty", "part"), "mechanism");
    assert_eq!(cell("kprobe/empty/stats", "part"), "tax");
    assert_eq!(cell("kprobe/map", "part"), "body");
    assert_eq!(cell("kprobe/map/stats", "part"), "together");
    assert_eq!(cell("kprobe/map/stats", "adds_up"), "no");
    assert_eq!(cell("tp_btf/map/stats", "adds_up"), "yes");
    assert_eq!(cell("none/helper", "part"), "");
    let number = |case, column| cell(case, column).parse::<f64>().unwrap();
    assert!((number("kprobe/map/stats", "residual") - BEYOND).abs() < 0.5);
    assert!((number("tp_btf/map/stats", "kernel_body") - 12.0).abs() < 0.5);
    assert_eq!(number("tp_btf/map", "rate_per_s"), 200e3);
    assert!((number("tp_btf/map", "core_share") - 0.0064).abs() < 1e-4);
    assert!(number("tp_btf/map", "share_limit_per_s") < 0.01 * 1e9 / (32.0 - DRIVER + 4.9));
}
