//! Reports of a fixed synthetic record, word for word, and that odd records break none of them.

use crate::common::{sample_changes, sample_record, views};

use bpfcost_measure::Warning;
use bpfcost_record::{Disturbance, Machine};
use bpfcost_report::{compare, style::Style};

#[test]
fn table() {
    insta::assert_snapshot!(views::table(&sample_record::flawed(), Style::default()));
}

/// The undisturbed cost leads; a case of which it is not known says so.
#[test]
fn undisturbed_costs_stand_beside_those_as_found() {
    let record = sample_record::undisturbed();
    insta::assert_snapshot!(views::table(&record, Style::default()));
    let verbose = views::verbose(&record, Style::default());
    assert!(verbose.contains("undisturbed cost unknown"), "{verbose}");
    let markdown = views::markdown(&record);
    assert!(markdown.contains("as found"), "{markdown}");
}

/// A short view has two of many warnings: the experiment's own, and the first of those about the machine.
#[test]
fn the_warnings_that_matter_most_are_shown() {
    let machine = Machine {
        governor: Some("powersave".to_owned()),
        clocksource: "hpet".to_owned(),
        virtualised: Some("KVM".to_owned()),
        other_tracers: vec!["tracer".to_owned()],
        jit: true,
        ..Machine::default()
    };
    let disturbance = Disturbance {
        capacity_ms: 100.0,
        wall_ms: 100.0,
        steal_ms: 50.0,
        other_cpu_ms: 50.0,
        migrations: 1000,
        mhz: Some([1000.0, 3000.0]),
        ..Disturbance::default()
    };
    let mut record = sample_record::clean();
    record.warnings = bpfcost_target::warnings(&machine, &disturbance);
    assert_eq!(record.warnings.len(), 8, "{:?}", record.warnings);
    // The last one seen, and no less important for that.
    record
        .warnings
        .push(Warning::new("no-verdict", "nothing is compared"));
    let table = views::table(&record, Style::default());
    let lines: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("warning: "))
        .collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert_eq!(lines[0], "warning: nothing is compared");
    assert!(lines[1].contains("the hypervisor took"), "{table}");
    // Seven warnings, and what the first table says beyond its two captions.
    assert!(
        table.contains(" more notes, and all cases and columns: --verbose"),
        "{table}"
    );
    let all = views::verbose(&record, Style::default());
    assert_eq!(all.matches("warning: ").count(), 9, "{all}");
}

#[test]
fn verbose_table() {
    insta::assert_snapshot!(views::verbose(&sample_record::clean(), Style::default()));
}

#[test]
fn single_scenario() {
    let record = sample_record::clean();
    insta::assert_snapshot!(views::alone(&record, "tcp-v4-lru-miss", Style::default()));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(views::markdown(&sample_record::flawed()));
}

#[test]
fn csv() {
    insta::assert_snapshot!(views::csv(&[sample_record::flawed()]));
}

#[test]
fn compare_table() {
    insta::assert_snapshot!(views::comparison(
        &sample_changes::changes(),
        Style::default()
    ));
}

#[test]
fn compare_markdown() {
    insta::assert_snapshot!(views::comparison_in_markdown(&sample_changes::changes()));
}

#[test]
fn compare_junit() {
    insta::assert_snapshot!(compare::junit(&sample_changes::changes()).unwrap());
}

#[test]
fn several_cpus_show_each_and_their_sum() {
    let mut record = sample_record::clean();
    let style = Style::default();
    assert!(
        !views::table(&record, style).contains("together"),
        "one CPU has no such table"
    );
    record.asked.cpus = vec![0, 3];
    let case = &mut record.cases[0];
    let mut second = |name: &str, trials: [f64; 3]| {
        case.secondary.insert(
            name.to_owned(),
            vec![trials[..1].to_vec(), trials[1..].to_vec()],
        )
    };
    second("cpu0_ns_per_op", [50.0, 90.0, 40.0]);
    second("cpu3_ns_per_op", [25.0, 26.0, 24.0]);
    second("ops_per_s", [58e6, 60e6, 61e6]);
    second("overlap", [0.9, 0.97, 0.98]);
    for view in [views::table(&record, style), views::verbose(&record, style)] {
        let line = view
            .lines()
            .find(|line| line.contains("M/s"))
            .expect("a line with the sum");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                record.cases[0].name.as_str(),
                "50.0",
                "25.0",
                "60.0",
                "M/s",
                "97",
                "%"
            ]
        );
        assert!(view.contains("CPU 0") && view.contains("CPU 3"), "{view}");
    }
    assert!(views::markdown(&record).contains("| 50.0 | 25.0 | 60.0 M/s | 97"));
    assert!(views::html(&[record]).unwrap().contains("60.0 M&#x2f;s"));
}
