//! Reports of counted records: counts without intervals, and everywhere that instructions are not nanoseconds.

use crate::common::{sample_changes, sample_exact, views};
use bpfcost_model::Unit;
use bpfcost_record::Record;
use bpfcost_report::{compare, json, style::Style};

#[test]
fn table() {
    insta::assert_snapshot!(views::table(&sample_exact::flawed(), Style::default()));
}

#[test]
fn verbose_table() {
    insta::assert_snapshot!(views::verbose(&sample_exact::old(), Style::default()));
}

#[test]
fn single_scenario() {
    let record = sample_exact::old();
    insta::assert_snapshot!(views::alone(&record, "tcp-v4-lru-miss", Style::default()));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(views::markdown(&sample_exact::flawed()));
}

#[test]
fn trials_that_do_not_agree() {
    let mut record = sample_exact::old();
    let raw = record.cases[0].raw.as_mut().unwrap();
    (raw.repeats, raw.trials) = (Some(0), 9);
    (raw.min, raw.max) = (41.0, 41.004);
    let table = views::table(&record, Style::default());
    assert!(
        words(&table).contains("trials range from 41.000 to 41.004"),
        "{table}"
    );
    record.cases[0].raw.as_mut().unwrap().trials = 2;
    let table = views::table(&record, Style::default());
    assert!(
        words(&table).contains("2 trials: too few to agree"),
        "{table}"
    );
}

#[test]
fn comparison() {
    let mut changes = sample_changes::changes();
    for change in &mut changes.cases {
        change.unit = Unit::InstructionsPerOp;
        change.target = "exact:6.12".to_owned();
        (change.relative_ci95, change.relative_ci90) = (None, None);
        (change.basis, change.detectable) = (None, None);
        for side in [&mut change.old, &mut change.new].into_iter().flatten() {
            (side.value, side.ci95) = (side.value.round(), None);
        }
    }
    let style = Style::default();
    insta::assert_snapshot!(views::comparison(&changes, style));
    for view in [
        views::comparison(&changes, style),
        views::comparison_in_markdown(&changes),
        compare::junit(&changes).unwrap(),
    ] {
        assert!(!view.contains("interval)"), "{view}");
    }
    for view in [
        views::comparison(&changes, style),
        views::comparison_in_markdown(&changes),
    ] {
        assert!(words(&view).contains("insn are not ns"), "{view}");
    }
}

/// A view with its line breaks taken out.
fn words(view: &str) -> String {
    view.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The views that are for people, each with its name.
fn views(record: &Record) -> Vec<(&'static str, String)> {
    let style = Style::default();
    let case = &record.cases[0].name;
    vec![
        ("table", views::table(record, style)),
        ("verbose", views::verbose(record, style)),
        ("scenario", views::alone(record, case, style)),
        ("markdown", views::markdown(record)),
        ("html", views::html(std::slice::from_ref(record)).unwrap()),
    ]
}

#[test]
fn every_view_says_what_instructions_are_not() {
    for (name, view) in views(&sample_exact::old()) {
        let view = words(&view);
        assert!(view.contains("insn/op"), "{name}: {view}");
        assert!(view.contains("insn are not ns"), "{name}: {view}");
        // The short table has what matters most.
        assert!(
            name == "table" || view.contains("QEMU 7.2.22"),
            "{name}: {view}"
        );
        // A build's name is part of what counts hold for; nothing else is of times.
        for wrong in ["ns/op", "95 %", "typically ±", "Two sessions", "batch mean"] {
            assert!(!view.contains(wrong), "{name} says {wrong}: {view}");
        }
    }
}

#[test]
fn times_of_an_emulator_are_named_so() {
    let record = sample_exact::emulated("vm:6.1", "6.1.0-40-amd64", 20.0);
    for (name, view) in views(&record) {
        let view = words(&view);
        assert!(
            view.contains("times of an emulator, not of hardware"),
            "{name}: {view}"
        );
        assert!(view.contains("vm:6.1 (emulated)"), "{name}: {view}");
        assert!(!view.contains("insn"), "{name}: {view}");
    }
}

#[test]
fn csv_and_json_carry_unit_and_spread() {
    let record = sample_exact::old();
    let csv = views::csv(std::slice::from_ref(&record));
    let mut reader = csv_of(&csv);
    let columns = reader.headers().unwrap().clone();
    let place = |name| columns.iter().position(|column| column == name).unwrap();
    let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), record.cases.len());
    for (row, case) in rows.iter().zip(&record.cases) {
        let raw = case.raw.as_ref().unwrap();
        let [low, high] = raw.loads.unwrap();
        assert_eq!(&row[place("unit")], "insn/op");
        assert_eq!(&row[place("kernel")], "6.12.107+deb13-amd64");
        assert_eq!(row[place("value")], raw.value.to_string());
        assert_eq!(row[place("loads_low")], low.to_string());
        assert_eq!(row[place("loads_high")], high.to_string());
        assert_eq!(&row[place("ci95_low")], "");
    }
    let text = json::render(std::slice::from_ref(&record)).unwrap();
    let back: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(back, record);
    assert!(text.contains("\"unit\":\"insn/op\""));
}

fn csv_of(text: &str) -> ::csv::Reader<&[u8]> {
    ::csv::Reader::from_reader(text.as_bytes())
}
