//! Odd records: empty, without numbers, all invalid, hostile, thousands of cases. No report may
//! panic on one, print `NaN`, or let an escape sequence through.

use crate::common::{sample_changes, sample_grid, sample_record, views};
use bpfcost_model::Role;
use bpfcost_record::{Raw, Record, Status};
use bpfcost_report::{csv, json, style::Style};

/// Every view of a record, with colour off.
fn views(record: &Record) -> Vec<String> {
    let style = Style::default();
    let mut views = vec![
        views::table(record, style),
        views::verbose(record, style),
        views::markdown(record),
        views::csv(std::slice::from_ref(record)),
        csv::comparisons(std::slice::from_ref(record)).unwrap(),
        json::render(std::slice::from_ref(record)).unwrap(),
        views::html(std::slice::from_ref(record)).unwrap(),
    ];
    for case in record.cases.iter().take(40) {
        views.push(views::alone(record, &case.name, style));
    }
    views
}

fn check(record: &Record) {
    for view in views(record) {
        // The page's own script may speak of them.
        let view = view.split("<script>").next().unwrap_or_default().to_owned();
        let odd = view
            .split(|c: char| !c.is_alphanumeric())
            .find(|word| ["NaN", "inf"].contains(word));
        assert_eq!(odd, None, "{view}");
        assert!(!view.contains('\u{1b}'), "{view}");
        assert!(view.ends_with(['\n', '>']));
    }
}

#[test]
fn nothing_at_all() {
    let mut record = sample_record::clean();
    record.cases.clear();
    record.comparisons.clear();
    record.warnings.clear();
    record.machine = Default::default();
    record.asked = Default::default();
    check(&record);
    assert!(views::html(&[]).unwrap().contains("<h1>"));
}

#[test]
fn no_numbers() {
    let mut record = sample_record::clean();
    for (index, case) in record.cases.iter_mut().enumerate() {
        match index % 4 {
            0 => case.samples = vec![vec![]; 25],
            1 => case.samples = vec![vec![f64::NAN, f64::INFINITY, -f64::INFINITY]],
            2 => case.raw = None,
            _ => {
                case.samples = vec![vec![1e308, -1e308], vec![], vec![0.0]];
                case.calibration = None;
                case.factors.clear();
            }
        }
        let nan = f64::NAN;
        if let Some(raw) = &mut case.raw {
            *raw = Raw {
                epochs: 0,
                trials: 0,
                value: if index % 2 == 0 { nan } else { f64::INFINITY },
                ci95: Some([nan, f64::NEG_INFINITY]),
                loads: Some([nan, f64::INFINITY]),
                repeats: Some(usize::MAX),
                min: nan,
                max: nan,
                p50: nan,
                p90: nan,
                p99: nan,
                stddev: nan,
                cv: nan,
                outliers: usize::MAX,
                modes: raw.modes.clone(),
            };
        }
        if let Some(net) = &mut case.net {
            net.bracket = [nan, nan];
            net.value = net.value.map(|_| nan);
        }
    }
    for pair in &mut record.comparisons {
        pair.relative = f64::NAN;
        pair.relative_ci95 = Some([f64::NAN, f64::INFINITY]);
        pair.difference = f64::NAN;
        pair.detectable = Some(f64::NAN);
        pair.resolve_s = Some(f64::INFINITY);
    }
    record.seconds = f64::NAN;
    record.spread.session = Some(f64::NAN);
    check(&record);
}

#[test]
fn zeros_and_no_intervals() {
    let mut record = sample_record::sized(1, 1);
    for case in &mut record.cases {
        if let Some(raw) = &mut case.raw {
            raw.value = 0.0;
            raw.stddev = 0.0;
            raw.ci95 = Some([0.0, 0.0]);
        }
    }
    for pair in &mut record.comparisons {
        pair.relative_ci95 = None;
        pair.ci95 = None;
    }
    record.asked.margin = 0.0;
    check(&record);
}

#[test]
fn all_invalid() {
    let mut record = sample_record::clean();
    for case in &mut record.cases {
        case.status = Status::Invalid;
        case.raw = None;
        case.net = None;
    }
    record.comparisons.clear();
    check(&record);
    let table = views::table(&record, Style::default());
    assert!(table.starts_with("No case of xdp-lb has a result on host; 29 cases are INVALID."));
}

#[test]
fn hostile_text() {
    let mut record = sample_record::flawed();
    let text = "\u{1b}]0;x\u{7}|`<b>\r\n\u{0}\u{202e}\u{E000}1";
    record.experiment = text.to_owned();
    record.target = text.to_owned();
    record.started = text.to_owned();
    record.machine.cpu = text.to_owned();
    for case in &mut record.cases {
        case.group = text.to_owned();
        case.about = text.to_owned();
        case.name.push_str(text);
        for problem in &mut case.problems {
            problem.detail = text.to_owned();
        }
    }
    // serde_json escapes; every other format must escape itself.
    check(&record);
    for width in [0, 1, 20, 60, 300] {
        let _ = views::verbose(&record, Style::for_width(true, width));
    }
}

#[test]
fn lines_fit_a_hundred_columns() {
    let record = sample_record::flawed();
    let changes = sample_changes::changes();
    for text in [
        views::table(&record, Style::default()),
        views::verbose(&record, Style::default()),
        views::comparison(&changes, Style::default()),
    ] {
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

/// A name is one word for whoever copies it, on a narrow terminal, too; and without a terminal a row is one line.
#[test]
fn names_are_never_broken() {
    let mut record = sample_record::flawed();
    for case in &mut record.cases {
        case.group = "a_program_with_a_long_name".into();
        case.name = format!("a_program_with_a_long_name/{}/of/this/packet", case.name);
    }
    let piped = Style {
        table_width: 10_000,
        ..Style::default()
    };
    for style in [Style::for_width(false, 60), piped] {
        let view = views::table(&record, style);
        for case in &record.cases {
            assert!(view.contains(&case.name), "{}: {view}", case.name);
        }
        // Not the name of a program with a capital.
        assert!(view.contains("\na_program_with_a_long_name\n"), "{view}");
    }
    let view = views::table(&record, piped);
    let rows = view.lines().filter(|line| line.contains("/of/this/packet"));
    assert!(rows.count() >= record.cases.len(), "{view}");
    assert!(
        view.contains("two modes: 81.3 in 60 % of epochs, 84.1 in 40 %"),
        "{view}"
    );
}

#[test]
fn colour_only_where_asked() {
    let record = sample_record::flawed();
    let style = |colour| Style::for_width(colour, 100);
    assert!(views::table(&record, style(true)).contains("\u{1b}["));
    assert!(!views::table(&record, style(false)).contains('\u{1b}'));
}

#[test]
fn emulated_times_are_called_so_beside_their_target() {
    let mut record = sample_record::sized(3, 12);
    record.target = "vm:6.12".into();
    let told = |record: &Record| {
        let style = Style::default();
        [
            views::table(record, style),
            views::verbose(record, style),
            views::markdown(record),
            views::html(std::slice::from_ref(record)).unwrap(),
        ]
        .map(|view| view.contains("vm:6.12 (emulated)"))
    };
    assert_eq!(told(&record), [false; 4]);
    record.machine.emulator = Some("QEMU 7.2, tcg, -cpu max".into());
    assert_eq!(told(&record), [true; 4]);
    record.machine.emulator = Some("QEMU 7.2, kvm, -cpu host".into());
    assert_eq!(told(&record), [false; 4]);
}

#[test]
fn a_layout_of_a_newer_program_is_shown_flat() {
    let mut record = sample_grid::new();
    record.layout = serde_json::from_str(r#"{"layout":"rings"}"#).expect("a layout");
    let style = Style::default();
    for view in [
        views::table(&record, style),
        views::verbose(&record, style),
        views::markdown(&record),
        views::html(std::slice::from_ref(&record)).unwrap(),
    ] {
        let words: Vec<&str> = view.split_whitespace().collect();
        let words = words.join(" ").replace("&#x2f;", "/");
        assert!(words.contains("of a newer bpfcost"), "{view}");
        assert!(
            words.contains("fentry/map") && words.contains("rings"),
            "{view}"
        );
    }
    check(&record);
}

#[test]
fn thousands_of_cases() {
    let mut record = sample_record::sized(6, 2);
    let few = record.cases.clone();
    for index in 0..4_000 {
        let mut case = few[index % few.len()].clone();
        case.name = format!("{}-{index}", case.name);
        case.role = Role::Case;
        record.cases.push(case);
    }
    check(&record);
}
