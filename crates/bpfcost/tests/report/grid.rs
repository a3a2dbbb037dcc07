//! Records whose cases span a grid: word for word, and what must hold of any.

use crate::common::{sample_grid, views};
use bpfcost_pages::attach;
use bpfcost_record::{CaseRecord, Record, VerdictRecord};
use bpfcost_report::{
    matrix::{self, Matrix},
    style::Style,
    table::Cell,
};

/// Three kernels counted, and a host.
fn kernels() -> Vec<Record> {
    vec![
        sample_grid::oldest(),
        sample_grid::old(),
        sample_grid::new(),
        sample_grid::host(),
    ]
}

fn matrix(records: &[Record]) -> Matrix<'_> {
    Matrix::new(&records.iter().collect::<Vec<_>>()).expect("several targets")
}

#[test]
fn table_of_counts() {
    insta::assert_snapshot!(views::table(&sample_grid::new(), Style::default()));
}

#[test]
fn table_of_times() {
    insta::assert_snapshot!(views::table(&sample_grid::host(), Style::default()));
}

#[test]
fn verbose_table() {
    insta::assert_snapshot!(views::verbose(&sample_grid::host(), Style::default()));
}

#[test]
fn markdown_of_one_target() {
    insta::assert_snapshot!(views::markdown(&sample_grid::new()));
}

#[test]
fn matrix_of_two() {
    let two = &kernels()[1..3];
    insta::assert_snapshot!(views::across(&matrix(two), Style::default(), false));
}

#[test]
fn matrix_of_four_verbose() {
    insta::assert_snapshot!(views::across(&matrix(&kernels()), Style::default(), true));
}

#[test]
fn matrix_in_markdown() {
    insta::assert_snapshot!(views::across_in_markdown(&matrix(&kernels()[..3])));
}

#[test]
fn kernels_are_compared_by_net() {
    let records = kernels();
    let two = &records[1..3];
    let mut compared = 0;
    for row in matrix(two).table.rows() {
        let [old, new] = [0, 1].map(|at| row.cells[at].case.as_deref());
        let Some(found) = row.cells[1].difference else {
            continue;
        };
        let (old, new) = (old.unwrap(), new.unwrap());
        let cost = |case: &bpfcost_record::CaseRecord| match &case.net {
            Some(net) => net.value.unwrap(),
            None => case.raw.as_ref().unwrap().value,
        };
        let relative = cost(new) / cost(old) - 1.0;
        assert!((found.relative - relative).abs() < 1e-9, "{}", row.name);
        compared += 1;
        // The raw cost of tcx hides what became of its ringbuf behind a sendto.
        if old.name == "tcx/ringbuf" {
            assert_eq!(found.verdict, VerdictRecord::Slower);
            assert!(found.relative > 0.5, "{found:?}");
        }
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn changes_are_named_by_type_first() {
    let records = kernels();
    let tables = matrix::changes(&matrix(&records[1..3]));
    let [table] = tables.as_slice() else {
        panic!("{tables:?}");
    };
    let text = |cell: &Cell| cell.text.replace('\u{A0}', " ");
    let rows = table.rows.iter();
    let rows: Vec<String> = rows
        .map(|row| row.iter().map(text).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        rows,
        [
            "tcx/ringbuf 253 438 +73 %",
            "tp_btf/ringbuf 262 447 +71 %",
            "fexit/ringbuf 271 458 +69 %",
            "kprobe.multi/ringbuf 576 761 +32 %",
            "uprobe.multi/empty 3,391 4,171 +23 %",
            "kretprobe/ringbuf 985 1,170 +19 %",
            "kprobe.session/empty 598 670 +12 %",
            "fentry/empty 59 52 −12 %",
            "kprobe/empty 412 284 −31 %",
        ]
    );
    // What was compared is named.
    assert!(table.title.starts_with("exact:7.2 against exact:6.12: "));
    let same = [sample_grid::oldest(), sample_grid::old()];
    let table = matrix::changes(&matrix(&same)).remove(0);
    assert!(table.rows.is_empty());
    assert_eq!(
        table.captions.join(" ").replace('\u{A0}', " "),
        "No case changed by over 10 %."
    );
    let none = [sample_grid::new(), sample_grid::host()];
    assert!(matrix::changes(&matrix(&none)).is_empty());
}

#[test]
fn every_cell_is_there_once() {
    let records = kernels();
    let matrix = matrix(&records);
    let cells = records[1].cells().unwrap();
    let cases = || matrix.table.rows().filter_map(|row| row.case());
    let floors = cases().filter(|case| case.name.starts_with("none/"));
    assert_eq!(floors.count(), 4, "floors");
    for row in &cells.rows {
        for column in &cells.columns {
            let name = format!("{row}/{column}");
            let shown = cases().filter(|case| case.name == name);
            let absent = matrix
                .table
                .absent
                .iter()
                .filter(|one| one.0 == *row || one.0 == name);
            assert_eq!(shown.count() + absent.count(), 1, "{name}");
        }
    }
    assert!(cases().all(|case| !case.name.contains("/stats")));
}

#[test]
fn the_atlas() {
    let records = kernels();
    let text = views::atlas(&records);
    insta::assert_snapshot!(text);
    assert_eq!(text, views::atlas(&records));
    // Their order is that of their kernels, however the files are called.
    let mut shuffled = records.clone();
    shuffled.swap(0, 2);
    assert_eq!(text, views::atlas(&shuffled));
}

#[test]
fn an_atlas_of_less() {
    let records = kernels();
    let one = views::atlas(&records[1..2]);
    assert!(
        one.contains("## In instructions") && !one.contains("## In nanoseconds"),
        "{one}"
    );
    let host = views::atlas(&records[3..]);
    assert!(
        host.contains("## In nanoseconds") && !host.contains("## In instructions"),
        "{host}"
    );
    // What spans no grid is Markdown as ever.
    let other = [
        crate::common::sample_exact::old(),
        crate::common::sample_exact::new(),
    ];
    let other = views::atlas(&other);
    assert!(
        other.starts_with("### xdp-lb on 2 targets") && other.contains("### xdp-lb on exact:7.2")
    );
    assert_eq!(views::atlas(&[]), "");
}

/// The instruction that the kernel put at a uprobe's site stands beside the costs of its row, in every view.
#[test]
fn rows_name_the_instruction_at_their_site() {
    let mut records = kernels();
    for (record, site) in records.iter_mut().zip(["int3", "int3", "lea+call", "call"]) {
        let cases = record.cases.iter_mut();
        let of_it = |case: &&mut CaseRecord| case.name.starts_with("uprobe-nop/");
        for case in cases.filter(of_it) {
            case.secondary
                .insert(format!("site_{site}"), vec![vec![1.0]]);
        }
    }
    let style = Style::default();
    for view in [
        views::table(&records[3], style),
        views::verbose(&records[3], style),
        views::markdown(&records[3]),
    ] {
        let mut rows = view.lines().filter(|line| line.contains("uprobe-nop"));
        assert!(rows.any(|line| line.contains(" call")), "{view}");
        assert!(view.contains("site:"), "{view}");
    }
    let several = matrix(&records[1..3]);
    for view in [
        views::across(&several, style, false),
        views::across(&several, style, true),
        views::across_in_markdown(&several),
        views::atlas(&records),
    ] {
        for site in ["int3", "lea+call"] {
            let mut rows = view.lines().filter(|line| line.contains("uprobe-nop"));
            assert!(rows.any(|line| line.contains(site)), "{site}: {view}");
        }
    }
    let page = views::html(&records).unwrap();
    assert!(page.contains("int3") && page.contains("lea+call"));
    // Records know it since before grids declared it; those without it say nothing of it.
    let mut value = serde_json::to_value(&records[0]).unwrap();
    value["grid"].as_object_mut().unwrap().remove("note");
    let old: Record = serde_json::from_value(value).unwrap();
    assert!(views::table(&old, style).contains("int3"));
    assert!(!views::table(&sample_grid::new(), style).contains("site"));
}

#[test]
fn hostile_and_odd_records() {
    let text = "\u{1b}]0;x\u{7}|`<b>\r\n\u{0}\u{202e}\u{E000}1";
    let mut hostile = sample_grid::new();
    hostile.target = text.to_owned();
    hostile.experiment = text.to_owned();
    hostile.machine.kernel = text.to_owned();
    hostile.machine.kernel_build = text.to_owned();
    hostile.machine.programs = Some(text.to_owned());
    for case in &mut hostile.cases {
        case.name = format!("{text}{}", case.name);
        case.factors = case
            .factors
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if let Some(attach) = case.factors.get_mut("attach") {
            *attach = format!("{text}{attach}");
        }
        case.reason = case.reason.as_ref().map(|_| text.to_owned());
        case.about = text.to_owned();
    }
    let mut old = sample_grid::old();
    old.experiment = text.to_owned();
    let mut numberless = sample_grid::old();
    for (index, case) in numberless.cases.iter_mut().enumerate() {
        let value = [f64::NAN, 0.0, f64::INFINITY, -1.0][index % 4];
        if let Some(net) = &mut case.net {
            (net.value, net.bracket) = (Some(value), [value; 2]);
        }
        if let Some(raw) = &mut case.raw {
            (raw.value, raw.loads) = (value, Some([value; 2]));
        }
    }
    let mut no_floors = sample_grid::new();
    no_floors.cases.retain(|case| case.floor.is_some());
    for case in &mut no_floors.cases {
        case.net = None;
    }
    let mut empty = sample_grid::new();
    empty.cases.clear();
    for records in [
        vec![hostile.clone()],
        vec![old, hostile],
        vec![sample_grid::new(), numberless.clone()],
        vec![numberless, sample_grid::new(), sample_grid::host()],
        vec![no_floors.clone()],
        vec![sample_grid::old(), no_floors],
        vec![empty.clone()],
        vec![sample_grid::old(), empty],
    ] {
        for view in views(&records) {
            let odd = view
                .split(|c: char| !c.is_alphanumeric())
                .find(|word| ["NaN", "inf"].contains(word));
            assert_eq!(odd, None, "{view}");
            assert!(!view.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
        }
    }
}

/// Every view of some records.
fn views(records: &[Record]) -> Vec<String> {
    let mut views = vec![views::atlas(records)];
    let experiment: Vec<&Record> = records.iter().collect();
    views.extend(attach::atlas::render(&experiment));
    let page = views::html(records).unwrap();
    views.extend(page.split("<script>").next().map(str::to_owned));
    let widths = [1, 60, 100, 300];
    for style in widths.map(|width| Style::for_width(false, width)) {
        for record in records {
            views.push(views::table(record, style));
            views.push(views::verbose(record, style));
        }
        if let Some(matrix) = Matrix::new(&records.iter().collect::<Vec<_>>()) {
            views.push(views::across(&matrix, style, false));
            views.push(views::across(&matrix, style, true));
            views.push(views::across_in_markdown(&matrix));
        }
    }
    views.extend(records.iter().map(views::markdown));
    views
}
