//! Records of workloads: known costs come out again, and every view says so word for word.

use crate::common::{
    sample_workload::{self, SIZES},
    views,
};
use bpfcost_model::Headline;
use bpfcost_record::{Record, States, Status, VerdictRecord};
use bpfcost_report::{style::Style, summary};

fn shown(record: &Record) -> String {
    views::table(record, Style::default())
}

fn sentence(record: &Record) -> String {
    bpfcost_text::number::plain_spaces(&summary::sentence(record))
}

#[test]
fn states_are_told_apart_by_all_but_the_probe() {
    let record = sample_workload::sizes();
    let states = States::from_record(&record).unwrap();
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
    assert_eq!(States::from_record(&alone).unwrap().over(), None);
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

/// An interrupted run has a difference, and no interval that would say which way it points.
#[test]
fn too_few_epochs_tell_of_no_cost() {
    let mut record = sample_workload::one(0.045, 0.004, None);
    let found = &mut record.comparisons[0];
    (found.verdict, found.relative, found.relative_ci95) =
        (VerdictRecord::Unresolved, -0.495, None);
    let told = sentence(&record);
    assert!(told.contains("too few epochs for an interval"), "{told}");
    assert!(told.contains("−49.5 % CPU"), "{told}");
    assert!(!told.contains("more"), "{told}");
}

/// A rare cost is in the total alone: it is said, and neither same nor within.
#[test]
fn what_comes_seldom() {
    let told = |extra, budget| sentence(&sample_workload::seldom(extra, budget));
    let told = [
        told(0.0, None),
        told(0.0, Some(0.05)),
        // Open: in total it may be nothing, or far more.
        told(0.2, None),
        told(0.2, Some(0.05)),
        // Known.
        told(1.0, None),
        told(1.0, Some(0.05)),
        told(-0.5, None),
    ];
    insta::assert_snapshot!(told.join("\n"));
    let record = sample_workload::seldom(1.0, Some(0.05));
    insta::assert_snapshot!("terminal_of_what_comes_seldom", shown(&record));
    for view in [
        views::markdown(&record),
        views::html(std::slice::from_ref(&record)).unwrap(),
    ] {
        assert!(view.contains("in total"), "{view}");
    }
    let csv = views::csv(std::slice::from_ref(&record));
    let head = csv.lines().next().unwrap();
    assert!(
        head.contains(",total,total_relative,total_relative_ci95_low,"),
        "{head}"
    );
    // Records of before have no operations of a window.
    let before = sample_workload::one(0.045, 0.004, None);
    assert!(!shown(&before).contains("in total"));
}

/// A verdict may be open for another reason than the total, and nothing may be detectable.
#[test]
fn the_total_is_said_only_where_it_holds_the_verdict_open() {
    let mut record = sample_workload::seldom(0.2, None);
    let found = &mut record.comparisons[0];
    let totals = found.totals.as_mut().unwrap();
    assert!(found.verdict == VerdictRecord::Unresolved && totals.withheld);
    assert_eq!(found.detectable, None);
    totals.apart = false;
    let told = |record: &Record| {
        let shown = shown(record).replace('\n', " ");
        (
            sentence(record).contains("; in total"),
            shown.contains("] in total"),
        )
    };
    assert_eq!(told(&record), (true, true));
    record.comparisons[0].totals.as_mut().unwrap().withheld = false;
    assert_eq!(told(&record), (false, false));
}

/// The caption names the end of the interval that the budget is judged on: 90 %, not the 95 % of the sentence.
#[test]
fn a_budget_is_judged_on_the_interval_that_is_named() {
    let mut record = sample_workload::one(0.045, 0.004, Some(0.05));
    let found = &mut record.comparisons[0];
    found.relative_ci95 = Some([0.037, 0.053]);
    found.relative_ci90 = Some([0.038, 0.0497]);
    found.budget = Some(bpfcost_record::BudgetVerdict::Within);
    let told = sentence(&record);
    assert!(told.starts_with("Within the budget of 5 %: "), "{told}");
    let shown = |record: &Record| {
        let shown = shown(record).replace('\u{a0}', " ");
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let caption = "The budget is judged on the 90 % interval: at most 4.97 %.";
    assert!(shown(&record).contains(caption), "{}", shown(&record));
    // Records of before do not have that interval.
    record.comparisons[0].relative_ci90 = None;
    assert!(!shown(&record).contains("90 %"), "{}", shown(&record));
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
fn terminal_of_a_probe_that_counts_calls() {
    insta::assert_snapshot!(shown(&sample_workload::counted(&["kernel"])));
}

#[test]
fn calls_of_several_probes_are_in_the_long_views() {
    let record = sample_workload::counted(&["kernel", "user"]);
    let short = shown(&record);
    assert!(!short.contains("Calls seen by"), "{short}");
    assert!(
        short.contains("The most frequent calls, by probe: --verbose"),
        "{short}"
    );
    let views = [
        views::verbose(&record, Style::default()),
        views::markdown(&record),
        views::html(std::slice::from_ref(&record)).unwrap(),
    ];
    for view in views {
        for probe in ["kernel", "user"] {
            assert!(view.contains(&format!("Calls seen by {probe}")), "{view}");
        }
    }
}

/// The sentence says what the cost depends on, where one state alone was measured.
#[test]
fn the_sentence_of_a_state_alone() {
    let mut record = sample_workload::one(0.045, 0.004, None);
    for case in &mut record.cases {
        for (factor, value) in [("target", "bystander"), ("load", "closed")] {
            case.factors.insert(factor.to_owned(), value.to_owned());
        }
    }
    record.experiment = "syscount".to_owned();
    sample_workload::describe(&mut record, |one| one.subject = Some("redis".to_owned()));
    let told = sentence(&record);
    let expected = "bpftrace costs redis 4.5 % more CPU per command (95 %:";
    assert!(told.starts_with(expected), "{told}");
    assert!(told.ends_with(", target bystander."), "{told}");
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
    insta::assert_snapshot!(views::markdown(&sample_workload::one(0.045, 0.004, None)));
}

#[test]
fn over_sizes_in_markdown() {
    insta::assert_snapshot!(views::markdown(&sample_workload::sizes()));
}

#[test]
fn verbose_has_every_state_and_where_times_come_from() {
    let record = sample_workload::sizes();
    let long = views::verbose(&record, Style::default());
    for size in SIZES {
        assert!(
            long.contains(&format!("nginx-ssl, size {size}\n")),
            "{long}"
        );
    }
    assert!(long.contains("idle time by the scheduler's clock"));
    assert!(!shown(&record).contains("idle time by the scheduler's clock"));
}

#[test]
fn csv_has_a_line_a_case_and_each_value_with_its_ends() {
    let record = sample_workload::one(0.045, 0.004, None);
    let text = views::csv(std::slice::from_ref(&record));
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2);
    let place = |name: &str| head.iter().position(|own| *own == name).unwrap();
    assert_eq!(
        rows.iter()
            .map(|row| row[place("variant")])
            .collect::<Vec<_>>(),
        ["off", "bpftrace"]
    );
    let number = |row: usize, name: &str| rows[row][place(name)].parse::<f64>().unwrap();
    for row in [0, 1] {
        for name in ["ops_per_s", "machine_ns", "latency_p99_us", "tool_ns"] {
            let [low, value, high] =
                ["_ci95_low", "", "_ci95_high"].map(|end| number(row, &format!("{name}{end}")));
            assert!(
                low <= value && value <= high,
                "{name}: {low}, {value}, {high}"
            );
        }
    }
    assert!((number(0, "ops_per_s") / 1e5 - 1.0).abs() < 0.02);
    assert_eq!(rows[0][place("attach_ms")], "", "nothing was attached");
    // Records of others have none of these columns.
    let other = views::csv(&[crate::common::sample_record::sized(2, 2)]);
    assert!(!other.lines().next().unwrap().contains("variant"));
}

/// The machine's time has the interrupts that the kernel takes out of the time of processes.
#[test]
fn the_machine_leads_where_the_server_lacks_its_interrupts() {
    for irq_time in [None, Some(false)] {
        let record = sample_workload::with_irq_time(irq_time);
        let workload = record.layout.workload().expect("a workload");
        assert_eq!(workload.headline, Headline::Server);
        assert!(record.warnings.is_empty(), "{:?}", record.warnings);
    }
    let record = sample_workload::with_irq_time(Some(true));
    let workload = record.layout.workload().expect("a workload");
    assert_eq!(workload.headline, Headline::Machine);
    let metrics = record.metrics.iter();
    let metrics: Vec<&str> = metrics.map(|one| one.metric.name.as_str()).collect();
    let others = ["ops_per_s", "latency_p50_us", "latency_p99_us"];
    assert_eq!(metrics, others, "what leads is compared once");
    for case in &record.cases {
        assert_eq!(case.samples, case.secondary["machine_ns"]);
        assert_ne!(case.samples, case.secondary["server_ns"]);
    }
    let codes: Vec<&str> = record
        .warnings
        .iter()
        .map(|one| one.code.as_str())
        .collect();
    assert_eq!(codes, ["irq-time"]);
    let shown = shown(&record);
    assert!(shown.contains("CPU of the machine per command"), "{shown}");
    assert!(shown.contains("CONFIG_IRQ_TIME_ACCOUNTING"), "{shown}");
}

/// Each state has its own noise; the widest is shown, with its state.
#[test]
fn what_a_probe_that_does_nothing_would_read_is_shown_of_the_noisiest_state() {
    let record = sample_workload::sizes();
    assert_eq!(record.spread.nothing.len(), sample_workload::SIZES.len());
    let all = shown(&record).replace('\n', " ");
    for words in [
        "In the noisiest state (size 256), a probe that does nothing",
        "between −0.7 % and +0.7 % in 19 of 20",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }
    let all = shown(&sample_workload::one(0.2, 0.004, None)).replace('\n', " ");
    assert!(
        all.contains("between −0.4 % and +0.4 % in 19 of 20 such runs. ("),
        "{all}"
    );
    // A record of an older version has the interval of another statistic.
    let mut old = record;
    old.spread.nothing.clear();
    old.spread.noise = Some([-0.3, 0.5]);
    let all = shown(&old).replace('\n', " ");
    assert!(
        all.contains("in this run: [−0.30, +0.50] %, each window against the one before."),
        "{all}"
    );
    assert!(!all.contains("19 of 20"), "{all}");
}

#[test]
fn records_of_workloads_come_back_from_disk() {
    let record = sample_workload::several();
    let text = serde_json::to_string(&record).unwrap();
    let back: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(back.spread, record.spread);
    assert!(!record.spread.nothing.is_empty());
    assert_eq!(shown(&back), shown(&record));
    // One that was written before these keys were.
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for key in ["workload", "metrics"] {
        value.as_object_mut().unwrap().remove(key);
    }
    value["spread"].as_object_mut().unwrap().remove("noise");
    value["spread"].as_object_mut().unwrap().remove("nothing");
    let old: Record = serde_json::from_value(value).unwrap();
    assert!(
        shown(&old).starts_with("redis on host: 5 cases cost from"),
        "{}",
        shown(&old)
    );
}

/// The fate of datagrams, and what a probe would have to cost to be seen in throughput: of what was measured.
#[test]
fn lost_datagrams_are_told_by_the_place_where_they_were_lost() {
    let told = |values: &[(&str, f64)]| {
        let mut record = sample_workload::one(0.0, 0.004, None);
        let off = record.cases.iter_mut().find(|case| case.baseline).unwrap();
        for (name, value) in values {
            let windows = vec![vec![*value]; sample_workload::EPOCHS];
            off.secondary.insert((*name).to_owned(), windows);
        }
        let shown = bpfcost_text::number::plain_spaces(&shown(&record));
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut values = vec![
        ("sent", 1_000_000.0),
        ("received", 96_000.0),
        ("datagrams_lost", 904_000.0),
        ("idle", 0.93),
        ("server_ns", 1_000.0),
        ("ops_per_s", 96_000.0),
    ];
    let inside = told(&values);
    assert!(
        inside.contains("Of 1,000,000 commands sent in a window off lost 90 % reached the server's program 9.6 %"),
        "{inside}"
    );
    values.extend([
        ("host_dropped", 900_000.0),
        ("arrived", 98_000.0),
        ("drops", 1_000.0),
    ]);
    let outside = told(&values);
    for words in [
        "dropped on the host before QEMU 90 %",
        "lost inside QEMU 0.2 %",
        "lost in the guest's socket 0.1 %",
        "arrived after the test 0.1 %",
        "reached the server's program 9.6 %",
        "idle time of the CPUs 93 %",
        "from one command to the next 10.4 µs",
        "of which the server worked 1.00 µs",
    ] {
        assert!(outside.contains(words), "{words}: {outside}");
    }
    // What was not counted is not shown.
    assert!(!told(&[]).contains("sent in a window"));
}
