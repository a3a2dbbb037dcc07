//! Records whose cases make curves: known curves come out again, and every view says so word for word.

use crate::common::{
    sample_scaling::{self, CPUS, POOLS, THREADS, rate},
    views,
};
use bpfcost_measure::{PROPORTIONALITY, Warning};
use bpfcost_record::{Curves, Record};
use bpfcost_report::{matrix::Matrix, style::Style, summary};

/// Epochs of a quick run.
const EPOCHS: usize = 12;

fn shown(record: &Record) -> String {
    views::table(record, Style::default())
}

#[test]
fn known_curves_come_out_again() {
    let record = sample_scaling::pools(EPOCHS);
    let curves = Curves::from_record(&record).unwrap();
    assert_eq!(curves.cpus, CPUS);
    let names: Vec<&str> = curves
        .groups
        .iter()
        .map(|group| group.apart.as_str())
        .collect();
    assert_eq!(
        names,
        ["", "objects-1x", "objects-4x", "hold-100", "bulk-4"]
    );
    let usual = &curves.groups[0];
    assert_eq!(usual.counts(), THREADS);
    assert_eq!(usual.unshared(CPUS), Some(4));
    for (curve, (pool, _, times)) in usual.curves.iter().zip(POOLS) {
        assert_eq!(curve.series, pool);
        for point in &curve.points {
            let [found, known] = [point.rate.unwrap().value / 1e6, rate(pool, point.threads)];
            assert!(
                (found / known - 1.0).abs() < 0.01,
                "{pool}: {found}, {known}"
            );
            let [low, high] = point.rate.unwrap().ci95.unwrap();
            assert!(low < high && low / 1e6 < known * 1.01 && high / 1e6 > known * 0.99);
        }
        let four = curve.at(4).unwrap();
        assert!(
            (four.speed_up.unwrap().value / times[1] - 1.0).abs() < 0.02,
            "{pool}"
        );
        assert!(
            (four.efficiency.unwrap() / times[1] * 4.0 - 1.0).abs() < 0.02,
            "{pool}"
        );
        // Sixteen threads have four CPUs and no more.
        let sixteen = curve.at(16).unwrap();
        assert!(
            (sixteen.efficiency.unwrap() / times[2] * 4.0 - 1.0).abs() < 0.02,
            "{pool}"
        );
        assert_eq!(sixteen.fairness().unwrap() < 0.9, pool == "mutex");
        let knee = if times[1] > 1.0 { 4 } else { 1 };
        assert_eq!(curve.knee, Some(knee), "{pool}");
    }
    let scarce = &curves.groups[1].curves[0];
    let misses = |threads| scarce.at(threads).unwrap().case.misses();
    assert_eq!((misses(4), misses(16)), (Some(0.0), Some(0.031)));
}

#[test]
fn floors_and_lines_are_on_no_curve() {
    let record = sample_scaling::pools(EPOCHS);
    let curves = Curves::from_record(&record).unwrap();
    assert_eq!(curves.points().count(), 4 * (8 + 4 * 4));
    let on = |name: &str| curves.points().any(|(_, _, point)| point.case.name == name);
    assert!(on("array/4") && on("array/4/bulk-4"));
    assert!(!on("none/4") && !on("line/near"));
}

#[test]
fn what_has_no_result_has_no_rate() {
    let record = sample_scaling::flawed(EPOCHS);
    let curves = Curves::from_record(&record).unwrap();
    let rate = |series: &str, threads| {
        let curve = curves.groups[0]
            .curves
            .iter()
            .find(|curve| curve.series == series);
        curve.unwrap().at(threads).unwrap().rate
    };
    assert!(rate("array", 16).is_none() && rate("array", 4).is_some());
    assert!(rate("mutex", 1).is_none());
    let mutex = curves.groups[0].curves.last().unwrap();
    assert_eq!((mutex.series, mutex.knee), ("mutex", None));
}

#[test]
fn terminal() {
    insta::assert_snapshot!(shown(&sample_scaling::pools(EPOCHS)));
}

#[test]
fn terminal_of_a_flawed_run() {
    insta::assert_snapshot!(shown(&sample_scaling::flawed(EPOCHS)));
}

#[test]
fn terminal_of_an_emulated_guest() {
    insta::assert_snapshot!(shown(&sample_scaling::emulated(EPOCHS)));
}

#[test]
fn in_markdown() {
    insta::assert_snapshot!(views::markdown(&sample_scaling::pools(EPOCHS)));
}

#[test]
fn long_lists_do_not_bury_the_curves() {
    let record = sample_scaling::pools(EPOCHS);
    assert!(record.cases.len() > 100);
    let short = shown(&record);
    let cases = record
        .cases
        .iter()
        .filter(|case| short.contains(&case.name));
    assert_eq!(cases.count(), 3, "lines alone");
    assert!(short.lines().count() <= 90, "{short}");
    let long = views::verbose(&record, Style::default());
    let missing = record.cases.iter().find(|case| !long.contains(&case.name));
    assert_eq!(missing, None);
}

#[test]
fn many_warnings_of_one_kind_are_one() {
    let warned = |names: &[&str]| {
        let mut record = sample_scaling::pools(EPOCHS);
        for name in names {
            let case = record.cases.iter_mut().find(|case| case.name == *name);
            let calibration = case.unwrap().calibration.as_mut().unwrap();
            calibration.ratio = Some(if *name == "array/16" { 0.8 } else { 2.3 });
            let text = format!("{name}: twice the operations took longer");
            record.warnings.push(Warning::new(PROPORTIONALITY, text));
        }
        record
    };
    let two = warned(&["array/16", "mutex/4"]);
    let many = warned(&["array/16", "mutex/4", "percpu/16", "none/16"]);
    for (record, folded) in [(&two, false), (&many, true)] {
        for view in [
            shown(record),
            views::verbose(record, Style::default()),
            views::markdown(record),
            body(&views::html(std::slice::from_ref(record)).unwrap()),
        ] {
            let text: String = view.replace("&#x2f;", "/").split_whitespace().collect();
            let alone = text.contains("mutex/4:twicetheoperationstooklonger");
            let all = text.contains("in4casestwicetheoperations");
            assert_eq!((alone, all), (!folded, folded), "{view}");
            // The farthest off comes first.
            assert_eq!(text.contains("expected):array/16(0.80),"), folded, "{view}");
        }
    }
    let records = [many, sample_scaling::emulated(EPOCHS)];
    let matrix = Matrix::new(&records.iter().collect::<Vec<_>>()).unwrap();
    let view = views::across(&matrix, Style::default(), false);
    assert_eq!(view.matches("twice the operations").count(), 1, "{view}");
}

#[test]
fn misses_of_a_probe_are_shown_however_few() {
    let mut record = sample_scaling::emulated(EPOCHS);
    for case in &mut record.cases {
        let missed = match case.name.as_str() {
            "percpu/16" => 0.75,
            "array/4" => 1e-5,
            _ => 0.0,
        };
        if let Some(mut values) = case.secondary.remove("misses") {
            values.iter_mut().for_each(|epoch| epoch.fill(missed));
            case.secondary.insert("missed".to_owned(), values);
        }
    }
    let view = shown(&record);
    assert!(
        view.contains("2 of them with misses, at worst 75 %"),
        "{view}"
    );
    let row = |name: &str| view.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("percpu ").ends_with("75 %"), "{view}");
    assert!(row("array ").contains("<0.01 %"), "{view}");
    assert_eq!(view.matches("emulated: ").count(), 1, "{view}");
}

#[test]
fn a_narrow_terminal_has_every_column() {
    let record = sample_scaling::pools(EPOCHS);
    for width in [60, 80, 140] {
        let view = views::table(&record, Style::for_width(false, width));
        let wide = view.lines().find(|line| line.chars().count() > width);
        assert_eq!(wide, None);
        for head in ["1 thread", "2 threads", "4 threads", "16 threads"] {
            assert!(view.contains(head), "{width}: {head}");
        }
    }
}

#[test]
fn an_emulated_guest_says_nothing_of_speed() {
    let record = sample_scaling::emulated(EPOCHS);
    for view in [
        shown(&record),
        views::verbose(&record, Style::default()),
        views::markdown(&record),
        body(&views::html(std::slice::from_ref(&record)).unwrap()),
        summary::sentence(&record),
    ] {
        assert!(!view.contains('◆') && !view.contains("knee"), "{view}");
        assert!(
            !view.contains("speed-up") && view.contains("emulated"),
            "{view}"
        );
    }
}

#[test]
fn several_targets_stand_side_by_side() {
    let records = [
        sample_scaling::pools(EPOCHS),
        sample_scaling::emulated(EPOCHS),
    ];
    let matrix = Matrix::new(&records.iter().collect::<Vec<_>>()).unwrap();
    let view = views::across(&matrix, Style::default(), false);
    assert!(
        view.contains("percpu/16") && view.contains("line/near"),
        "{view}"
    );
    assert!(
        !view.contains("bulk-4") && !view.contains("none/4"),
        "{view}"
    );
    assert!(views::across(&matrix, Style::default(), true).contains("percpu/4/bulk-4"));
    assert!(views::across_in_markdown(&matrix).contains("`percpu/16`"));
    let page = views::html(&records).unwrap();
    assert!(page.contains("id=\"matrix-1\"") && page.contains("id=\"run-2\""));
}

#[test]
fn csv_has_curves_and_secondary_values() {
    let records = [
        sample_scaling::flawed(EPOCHS),
        crate::common::sample_record::sized(6, 2),
    ];
    let text = views::csv(&records);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let cell = |case: &str, name: &str| {
        let row = rows.iter().find(|row| &row[5] == case).unwrap();
        row[head.iter().position(|own| own == name).unwrap()].to_owned()
    };
    let number = |case: &str, name: &str| cell(case, name).parse::<f64>().unwrap();
    assert!((number("array/4", "rate") / rate("array", 4) / 1e6 - 1.0).abs() < 0.01);
    assert_eq!(number("array/4", "rate"), number("array/4", "pairs_per_s"));
    assert!(number("array/4", "rate_ci95_low") < number("array/4", "rate_ci95_high"));
    assert!((number("array/4", "speed_up") - 3.6).abs() < 0.1);
    assert_eq!(
        (cell("array/4", "knee"), cell("array/2", "knee")),
        ("true".into(), "false".into())
    );
    assert_eq!(cell("freelist/16/bulk-4", "circumstances"), "bulk-4");
    assert_eq!(number("freelist/16/objects-1x", "misses"), 0.031);
    for empty in ["array/16", "mutex/1", "none/4", "line/near", "tcp-v4-ch"] {
        assert_eq!(cell(empty, "rate"), "", "{empty}");
    }
    // Where nothing makes curves, nothing is added.
    let plain = views::csv(&records[1..]);
    assert!(!plain.lines().next().unwrap().contains("speed_up"));
}

#[test]
fn hostile_and_odd_records() {
    let text = "\u{1b}]0;x\u{7}|`<b>\r\n\u{0}\u{202e}\u{E000}1";
    let mut hostile = sample_scaling::pools(EPOCHS);
    hostile.experiment = text.to_owned();
    let mut scaling = hostile.layout.scaling().expect("curves").clone();
    scaling.rate = format!("{text}_per_s");
    hostile.layout = scaling.into();
    for case in &mut hostile.cases {
        case.name = format!("{text}{}", case.name);
        if let Some(pool) = case.factors.get_mut("pool") {
            *pool = format!("{text}{pool}");
        }
        if let Some(values) = case.secondary.remove("pairs_per_s") {
            case.secondary.insert(format!("{text}_per_s"), values);
        }
    }
    let mut numberless = sample_scaling::pools(EPOCHS);
    for (index, case) in numberless.cases.iter_mut().enumerate() {
        let value = [f64::NAN, 0.0, f64::INFINITY, -1.0][index % 4];
        for values in case.secondary.values_mut().flatten() {
            values.fill(value);
        }
        if let Some(raw) = &mut case.raw {
            (raw.value, raw.ci95) = (value, Some([value; 2]));
        }
    }
    let mut few = sample_scaling::pools(3);
    few.asked.cpus.clear();
    let mut silent = sample_scaling::pools(EPOCHS);
    silent
        .cases
        .iter_mut()
        .for_each(|case| case.secondary.clear());
    let mut none = sample_scaling::pools(EPOCHS);
    none.cases.clear();
    let mut one = sample_scaling::pools(EPOCHS);
    one.cases.retain(|case| case.name == "array/4/bulk-4");
    for records in [
        vec![hostile.clone()],
        vec![numberless.clone(), hostile],
        vec![few],
        vec![silent],
        vec![none],
        vec![one, numberless],
        vec![
            sample_scaling::flawed(EPOCHS),
            sample_scaling::emulated(EPOCHS),
        ],
    ] {
        for view in views(&records) {
            let odd = view
                .split(|c: char| !c.is_alphanumeric())
                .find(|word| ["NaN", "inf"].contains(word));
            assert_eq!(odd, None, "{view}");
            assert!(!view.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
        }
        assert!(!views::html(&records).unwrap().contains("`<b>"));
    }
}

/// A page without its style and its script.
fn body(page: &str) -> String {
    let (_, page) = page.split_once("</style>").unwrap();
    page.split("<script>").next().unwrap().to_owned()
}

/// Every view of some records.
fn views(records: &[Record]) -> Vec<String> {
    let mut views = Vec::new();
    views.push(body(&views::html(records).unwrap()));
    for width in [1, 60, 100, 300] {
        let style = Style::for_width(false, width);
        for record in records {
            views.push(views::table(record, style));
            views.push(views::verbose(record, style));
        }
    }
    views.extend(records.iter().map(views::markdown));
    views.push(views::csv(records));
    views
}

#[test]
fn long_runs_are_shown_at_once() {
    let record = sample_scaling::pools(1_000);
    let samples = record.cases.iter().flat_map(|case| &case.samples);
    assert!(samples.map(Vec::len).sum::<usize>() > 100_000);
    let start = std::time::Instant::now();
    let page = views::html(std::slice::from_ref(&record)).unwrap();
    assert!(shown(&record).contains("percpu"));
    println!("{:?}, {} bytes", start.elapsed(), page.len());
    assert!(start.elapsed().as_secs() < 60);
}
