//! Several targets in one view: word for word, and what must hold of any records.

use std::collections::BTreeMap;

use crate::common::{sample_exact, sample_record, views};
use bpfcost_model::Role;
use bpfcost_record::{BudgetVerdict, Record, Reference, Status, VerdictRecord};
use bpfcost_report::{
    matrix::{self, Matrix, ReportPart},
    rows,
    style::Style,
    summary,
};

/// Two kernels counted, two times on different footing.
fn mixed() -> Vec<Record> {
    let mut partial = sample_exact::emulated("vm:6.1", "6.1.0-40-amd64", 20.0);
    partial.cases.retain(|case| !case.name.starts_with("udp"));
    vec![
        sample_exact::old(),
        sample_exact::flawed(),
        partial,
        sample_record::clean(),
    ]
}

/// Three kernels timed on hardware, a few per cent apart.
fn timed() -> Vec<Record> {
    let kernels = [
        ("host", "6.18.5", 1.0),
        ("vm:6.12", "6.12.107", 1.3),
        ("vm:7.2", "7.2.3", 0.998),
    ];
    let record = |(target, kernel, times): (&str, &str, f64)| {
        let mut record = sample_exact::emulated(target, kernel, times);
        record.machine.emulator = None;
        record.spread.session = Some(1.0);
        record
    };
    kernels.into_iter().map(record).collect()
}

fn matrix_of(records: &[Record]) -> Matrix<'_> {
    Matrix::new(&records.iter().collect::<Vec<_>>()).expect("several targets")
}

fn words(view: &str) -> String {
    view.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn table() {
    insta::assert_snapshot!(views::across(&matrix_of(&mixed()), Style::default(), false));
}

#[test]
fn table_of_times() {
    insta::assert_snapshot!(views::across(&matrix_of(&timed()), Style::default(), false));
}

#[test]
fn table_verbose() {
    let two = [sample_exact::old(), sample_exact::new()];
    insta::assert_snapshot!(views::across(&matrix_of(&two), Style::default(), true));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(views::across_in_markdown(&matrix_of(&mixed())));
}

#[test]
fn one_target_is_no_matrix() {
    let record = sample_record::clean();
    assert!(Matrix::new(&[]).is_none());
    assert!(Matrix::new(&[&record]).is_none());
    // Two sessions on the same target are none either.
    let mut later = record.clone();
    later.started = "2026-11-22T00:00:00Z".to_owned();
    assert!(Matrix::new(&[&record, &later]).is_none());
    let records = [record, later];
    let parts = matrix::parts(&records);
    assert!(matches!(parts.as_slice(), [ReportPart::Alone(two)] if two.len() == 2));
}

#[test]
fn experiments_are_kept_apart() {
    let mut other = sample_exact::new();
    other.experiment = "pool".to_owned();
    let records = [sample_exact::old(), other, sample_exact::new()];
    let parts = matrix::parts(&records);
    let [ReportPart::Matrix(first, both), ReportPart::Alone(alone)] = parts.as_slice() else {
        panic!("{parts:?}");
    };
    assert_eq!(
        (first.table.heads.len(), both.len(), alone.len()),
        (2, 2, 1)
    );
}

#[test]
fn the_latest_session_of_a_target_stands() {
    let mut early = sample_exact::new();
    early.started = "2026-01-01T00:00:00Z".to_owned();
    let records = [sample_exact::old(), sample_exact::new(), early];
    let matrix = matrix_of(&records);
    assert_eq!((matrix.table.heads.len(), matrix.left_out), (2, 1));
    assert_eq!(matrix.columns[1].record.started, records[1].started);
    let text = words(&views::across(&matrix, Style::default(), true));
    assert!(text.contains("1 earlier session"), "{text}");
}

#[test]
fn every_case_and_target_is_there_once() {
    let records = mixed();
    let matrix = matrix_of(&records);
    let mut seen = BTreeMap::new();
    for row in matrix.table.rows() {
        assert_eq!(row.cells.len(), records.len());
        for (cell, record) in row.cells.iter().zip(&records) {
            let case = record.case(&row.name);
            assert_eq!(cell.case.as_deref(), case, "{}", row.name);
            *seen.entry((&row.name, &record.target)).or_insert(0) += 1;
        }
    }
    assert!(seen.values().all(|count| *count == 1));
    assert_eq!(seen.len(), 29 * records.len());
    // In the experiment's order, floors last.
    let order: Vec<&str> = matrix.table.rows().map(|row| row.name.as_str()).collect();
    let own: Vec<&str> = records[0]
        .cases
        .iter()
        .map(|case| case.name.as_str())
        .collect();
    assert_eq!(order, own);
}

#[test]
fn cases_of_later_targets_stand_where_those_have_them() {
    let mut first = sample_exact::old();
    first
        .cases
        .retain(|case| case.name != "tcp-v4-ch" && case.name != "floor/none");
    let matrix = [first, sample_exact::new()];
    let matrix = matrix_of(&matrix);
    let order: Vec<&str> = matrix.table.rows().map(|row| row.name.as_str()).collect();
    assert_eq!(
        order[..3],
        ["tcp-v4-lru-hit", "tcp-v4-ch", "tcp-v6-lru-hit"]
    );
    assert!(
        matrix
            .table
            .rows()
            .map(|row| row.case().expect("a case").role)
            .is_sorted_by_key(|role| role == Role::Floor)
    );
    let absent = &matrix.table.rows().nth(1).unwrap().cells[0];
    assert_eq!(absent.text.value, "—");
}

#[test]
fn a_column_says_what_its_record_says() {
    let records = mixed();
    let matrix = matrix_of(&records);
    for (column, record) in records.iter().enumerate() {
        for row in matrix.table.rows() {
            let Some(case) = record.case(&row.name) else {
                continue;
            };
            let own = rows::case_row(case, record);
            let cell = &row.cells[column];
            assert_eq!(
                (&cell.text.value, &cell.text.spread),
                (&own.cost.value, &own.cost.spread)
            );
            assert_eq!(cell.footnote.is_some(), case.status != Status::Ok);
            if let Some(note) = cell.footnote {
                assert_eq!(Some(&matrix.table.footnotes[note]), own.cost.why.as_ref());
            }
        }
    }
}

#[test]
fn only_what_is_measured_alike_is_compared() {
    let records = mixed();
    let matrix = matrix_of(&records);
    let against: Vec<Option<usize>> = matrix.table.heads.iter().map(|head| head.against).collect();
    assert_eq!(against, [None, Some(0), None, None]);
    for row in matrix.table.rows() {
        let differs = row.cells.iter().map(|cell| cell.difference.is_some());
        let differs: Vec<bool> = differs.collect();
        assert_eq!(
            [differs[0], differs[2], differs[3]],
            [false; 3],
            "{}",
            row.name
        );
    }
    let captions = matrix.captions().join(" ");
    for words in [
        "insn are not ns",
        "are not compared",
        "times of an emulator",
    ] {
        assert!(captions.contains(words), "{captions}");
    }
    // Times of one emulator are alike, short batches and long ones are not.
    let mut records = vec![
        sample_exact::emulated("vm:6.1", "6.1.0", 20.0),
        sample_exact::emulated("vm:6.12", "6.12.107", 21.0),
        sample_exact::emulated("vm:7.2", "7.2.3", 21.0),
    ];
    records[2].asked.quick = true;
    let matrix = matrix_of(&records);
    assert_eq!(matrix.columns[1].against, Reference::Column(0));
    let Reference::Nothing(why) = &matrix.columns[2].against else {
        panic!("compared");
    };
    assert!(why.contains("--quick"), "{why}");
    assert!(
        matrix
            .captions()
            .join(" ")
            .contains("vm:7.2 (emulated) is not compared")
    );
}

#[test]
fn counts_are_judged_with_no_margin() {
    let records = [sample_exact::old(), sample_exact::new()];
    for row in matrix_of(&records).table.rows() {
        let [old, new] =
            [0, 1].map(|at| row.cells[at].case.as_deref().unwrap().raw.as_ref().unwrap());
        let found = row.cells[1].difference.unwrap();
        let [old_loads, new_loads] = [old, new].map(|raw| raw.loads.unwrap());
        let expected = match () {
            () if new_loads[0] > old_loads[1] => VerdictRecord::Slower,
            () if new_loads[1] < old_loads[0] => VerdictRecord::Faster,
            () if new_loads == old_loads && new_loads[0] == new_loads[1] => VerdictRecord::Same,
            () => VerdictRecord::Unresolved,
        };
        assert_eq!(found.verdict, expected, "{}", row.name);
        assert_eq!(found.relative_ci95, None);
        assert!((old.value * (1.0 + found.relative) - new.value).abs() < 1e-9);
    }
}

#[test]
fn times_of_sessions_are_judged_with_their_spread() {
    let records = timed();
    let matrix = matrix_of(&records);
    let verdicts = |column| -> Vec<VerdictRecord> {
        matrix
            .differences(column)
            .map(|found| found.verdict)
            .collect()
    };
    assert!(
        verdicts(1)
            .iter()
            .all(|verdict| *verdict == VerdictRecord::Slower)
    );
    // 0.2 % apart, while sessions differ by 1 %: no claim either way.
    assert!(
        verdicts(2)
            .iter()
            .all(|verdict| *verdict == VerdictRecord::Unresolved)
    );
    for found in matrix.differences(2) {
        let [low, high] = found.relative_ci95.unwrap();
        assert!(high - low > 0.02, "{found:?}");
    }
    let spread = matrix.session_spread.unwrap();
    assert!((spread.share - 0.01).abs() < 1e-12 && spread.freedom.is_some());
    let mut unknown = timed();
    unknown[2].spread.session = None;
    unknown[0].spread.session = None;
    let spread = matrix_of(&unknown).session_spread.unwrap();
    assert!(spread.share >= 0.03 && spread.freedom.is_none());
}

#[test]
fn what_the_summary_counts_adds_up() {
    for records in [
        mixed(),
        timed(),
        vec![sample_exact::old(), sample_exact::new()],
    ] {
        let matrix = matrix_of(&records);
        let sentence = matrix::sentence(&matrix);
        for (column, head) in matrix.table.heads.iter().enumerate() {
            let all = matrix.differences(column).count();
            if head.against.is_none() {
                assert_eq!(all, 0);
                continue;
            }
            let start = sentence.find(&head.label).unwrap();
            let clause = sentence[start..]
                .split("; ")
                .next()
                .unwrap()
                .trim_end_matches('.');
            let (of, counts) = clause.rsplit_once(": ").unwrap();
            assert!(
                of.ends_with(&format!("median of {all} cases")),
                "{sentence}"
            );
            let told: usize = counts
                .split(", ")
                .map(|part| part.split(' ').next().unwrap().parse::<usize>().unwrap())
                .sum();
            assert_eq!(told, all, "{sentence}");
        }
    }
}

/// The exit code is of the same answers. Without a budget, the comparisons of each target are left to it.
#[test]
fn the_budget_is_answered_for_each_target() {
    let mut records = [sample_exact::old(), sample_exact::new()];
    let plain = views::across(&matrix_of(&records), Style::default(), false);
    assert!(!plain.contains("Comparisons on"), "{plain}");
    for (record, verdict) in records
        .iter_mut()
        .zip([BudgetVerdict::Over, BudgetVerdict::Within])
    {
        record.asked.budget = Some(0.0);
        record.comparisons.truncate(1);
        record.comparisons[0].budget = Some(verdict);
        record.cases.retain(|case| case.status == Status::Ok);
    }
    let matrix = matrix_of(&records);
    let view = views::across(&matrix, Style::default(), false);
    let labels = matrix.table.heads.iter().map(|head| &head.label);
    for (label, word) in labels.zip(["Over", "Within"]) {
        let answer = format!("{label}: {word} the budget of 0 %.");
        assert!(words(&view).contains(&answer), "{answer} in {view}");
        let (_, table) = view
            .split_once(&format!("Comparisons on {label}\n"))
            .expect("its comparisons");
        let verdict = format!("{} the budget", word.to_lowercase());
        let row = table.lines().nth(1).expect("a comparison");
        assert!(row.contains(&verdict), "{verdict} in {row}");
    }
}

#[test]
fn other_programs_are_told() {
    let mut records = [sample_exact::old(), sample_exact::new()];
    records[1].machine.programs =
        Some("build 0123456789abcdef, bpf_loop, bpf_ktime_get_ns".to_owned());
    let captions = matrix_of(&records).captions().join(" ");
    assert!(
        captions.contains("programs (can_loop → bpf_loop)"),
        "{captions}"
    );
}

#[test]
fn csv_has_a_line_for_each_case_and_target() {
    let records = mixed();
    let text = views::csv(&records);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().unwrap().clone();
    let place = |name| columns.iter().position(|column| column == name).unwrap();
    let mut lines = BTreeMap::new();
    for row in reader.records().map(Result::unwrap) {
        let key = (
            row[place("target")].to_owned(),
            row[place("case")].to_owned(),
        );
        *lines.entry(key).or_insert(0) += 1;
    }
    assert!(lines.values().all(|count| *count == 1));
    let cases: usize = records.iter().map(|record| record.cases.len()).sum();
    assert_eq!(lines.len(), cases);
}

#[test]
fn many_targets_fit_a_hundred_columns() {
    let mut records: Vec<Record> = (1..=6)
        .map(|minor| {
            let kernel = format!("7.{minor}.0-amd64");
            sample_exact::counted(&format!("exact:7.{minor}"), &kernel, |_, count| {
                count + f64::from(minor)
            })
        })
        .collect();
    records.extend(timed());
    for verbose in [false, true] {
        let table = views::across(&matrix_of(&records), Style::default(), verbose);
        for line in table.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for record in &records {
            assert!(table.contains(&record.target));
        }
        // Blocks repeat what their own are compared with, and each difference stands there once.
        let verdicts = ["costs more", "costs less", "same", "unresolved"];
        let rows = table.split("Times are from").next().unwrap().lines();
        let rows = rows.filter(|line| line.starts_with("  "));
        let told: usize = rows
            .map(|line| {
                verdicts
                    .iter()
                    .map(|word| line.matches(word).count())
                    .sum::<usize>()
            })
            .sum();
        assert_eq!(told, (5 + 2) * 29, "{table}");
        assert!(table.matches("\n  tcp-v4-syn ").count() >= 3, "{table}");
    }
}

#[test]
fn odd_records() {
    let mut empty = sample_exact::old();
    empty.cases.clear();
    empty.comparisons.clear();
    let mut hostile = sample_exact::flawed();
    let text = "\u{1b}]0;x\u{7}|`<b>\r\n\u{0}\u{202e}\u{E000}1";
    hostile.target = text.to_owned();
    hostile.machine.kernel = text.to_owned();
    hostile.machine.emulator = Some(text.to_owned());
    hostile.machine.programs = Some(text.to_owned());
    for case in &mut hostile.cases {
        case.name.push_str(text);
        case.group = text.to_owned();
        case.reason = case.reason.as_ref().map(|_| text.to_owned());
    }
    let mut numberless = sample_exact::new();
    for (index, case) in numberless.cases.iter_mut().enumerate() {
        let Some(raw) = &mut case.raw else { continue };
        raw.value = [f64::NAN, 0.0, f64::INFINITY, -1.0][index % 4];
        raw.loads = Some([raw.value; 2]);
    }
    let mut zero = timed().remove(1);
    for case in &mut zero.cases {
        case.raw.as_mut().unwrap().ci95 = Some([0.0, f64::NAN]);
    }
    let mut renamed = empty.clone();
    renamed.target = "exact:7.3".to_owned();
    for records in [
        vec![sample_exact::old(), empty.clone(), hostile.clone()],
        vec![hostile, numberless.clone()],
        vec![numberless, sample_exact::old()],
        vec![timed().remove(0), zero],
        vec![empty, renamed],
    ] {
        let matrix = match Matrix::new(&records.iter().collect::<Vec<_>>()) {
            Some(matrix) => matrix,
            None => panic!("these are two targets"),
        };
        for width in [1, 60, 100, 300] {
            let style = Style::for_width(false, width);
            for verbose in [false, true] {
                check(&views::across(&matrix, style, verbose));
            }
        }
        check(&views::across_in_markdown(&matrix));
        let page = views::html(&records).unwrap();
        check(page.split("<script>").next().unwrap());
        assert!(!page.contains("<b>\r"), "markup from outside");
    }
}

fn check(view: &str) {
    let odd = view
        .split(|c: char| !c.is_alphanumeric())
        .find(|word| ["NaN", "inf"].contains(word));
    assert_eq!(odd, None, "{view}");
    assert!(!view.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
}

#[test]
fn the_page_has_the_matrix_first() {
    let records = mixed();
    let page = views::html(&records).unwrap();
    assert!(page.contains("<h1>What eBPF costs: xdp-lb on 4 targets</h1>"));
    let matrix = page.find("id=\"matrix-1\"").unwrap();
    assert!(matrix < page.find("id=\"run-1\"").unwrap());
    let alone = views::html(&records[..1]).unwrap();
    assert!(!alone.contains("matrix-1"));
    // Behind the matrix stands each record as it stands alone.
    for record in &records {
        assert!(words(&page).contains(&words(&html_escaped(&summary::sentence(record)))));
        assert!(views::markdown(record).contains("insn") == record.unit.is_counted());
    }
}

/// As the template escapes.
fn html_escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('/', "&#x2f;")
        .replace('\'', "&#x27;")
}
