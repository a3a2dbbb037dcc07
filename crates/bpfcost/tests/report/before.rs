//! Records written before the layout had a name, one of each shape, load and show the same figures: every number
//! that the program of then put beside a case's name stands beside it still.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use crate::common::views;
use bpfcost_record::Record;
use bpfcost_report::style::Style;

const RECORDS: [&str; 12] = [
    "ladder",
    "xdp-lb",
    "xdp-lb-exact",
    "attach",
    "pool",
    "kretprobe",
    "redis",
    "busy",
    "syscount",
    "l7-go",
    "iperf3",
    "nginx-ssl",
];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/records_before")
        .join(name)
}

fn load(name: &str) -> Record {
    let loaded = bpfcost_record::load(&file(&format!("{name}.json")));
    let mut records = loaded.unwrap_or_else(|error| panic!("{name}: {error}"));
    records.pop().expect("a file holds one record")
}

/// The rows of all tables in a Markdown text: the numbers that stand beside each name.
fn rows(markdown: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut rows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in markdown.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let name = cells.next().unwrap_or_default().replace(['`', '\\'], "");
        let numbers = cells.flat_map(|cell| cell.split([' ', '–', '\u{a0}']));
        let numbers = numbers
            .map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()))
            .filter(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
        rows.entry(name)
            .or_default()
            .extend(numbers.map(str::to_owned));
    }
    rows
}

#[test]
fn every_figure_is_there_still() {
    for name in RECORDS {
        let record = load(name);
        let then =
            fs::read_to_string(file(&format!("{name}.md"))).expect("it is in the repository");
        // Predictions of a model are no longer shown with records.
        let then = then
            .split("**Predicted, not measured")
            .next()
            .unwrap_or_default();
        let now = rows(&(views::markdown(&record) + &views::atlas(std::slice::from_ref(&record))));
        let cases: BTreeSet<&str> = record
            .cases
            .iter()
            .flat_map(|case| case.name.split('/').chain([case.name.as_str()]))
            .collect();
        let mut compared = 0;
        for (row, numbers) in rows(then) {
            if !cases.contains(row.as_str()) {
                continue;
            }
            let shown = now
                .get(&row)
                .unwrap_or_else(|| panic!("{name}: no row {row} any more"));
            let gone: Vec<&String> = numbers.difference(shown).collect();
            assert!(
                gone.is_empty(),
                "{name}: {row} lost {gone:?}, has {shown:?}"
            );
            compared += numbers.len();
        }
        assert!(
            compared >= 10,
            "{name}: only {compared} figures were compared"
        );
    }
}

#[test]
fn their_layout_is_what_their_keys_say() {
    let layouts: Vec<String> = RECORDS
        .iter()
        .map(|name| load(name).layout.name().to_owned())
        .collect();
    let expected = [
        "flat", "flat", "flat", "grid", "curves", "curves", "workload", "workload", "workload",
        "workload", "workload", "workload",
    ];
    assert_eq!(layouts, expected);
}

#[test]
fn all_formats_take_them() {
    for name in RECORDS {
        let record = load(name);
        let terminal = views::table(&record, Style::default());
        let verbose = views::verbose(&record, Style::default());
        let page = views::html(std::slice::from_ref(&record)).expect("it renders");
        let table = views::csv(std::slice::from_ref(&record));
        for case in record.cases.iter().filter(|case| case.raw.is_some()) {
            assert!(
                table.contains(&case.name),
                "{name}: CSV lacks {}",
                case.name
            );
            assert!(
                verbose.contains(&case.name),
                "{name}: --verbose lacks {}",
                case.name
            );
            assert!(
                page.contains(&case.name),
                "{name}: the page lacks {}",
                case.name
            );
        }
        assert!(terminal.contains(&record.experiment), "{name}: {terminal}");
    }
}
