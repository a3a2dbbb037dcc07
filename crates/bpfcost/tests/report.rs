//! What the reports say of a fixed synthetic record, word for word, and that odd records break
//! none of them.

mod common;

use bpfcost::report::{compare, csv, markdown, scenario, style::Style, table, verbose};
use common::{sample_changes, sample_record};

#[test]
fn table() {
    insta::assert_snapshot!(table::render(&sample_record::flawed(), Style::default()));
}

#[test]
fn verbose_table() {
    insta::assert_snapshot!(verbose::render(&sample_record::clean(), Style::default()));
}

#[test]
fn single_scenario() {
    let record = sample_record::clean();
    let view = scenario::render(&record, "tcp-v4-lru-miss", Style::default());
    insta::assert_snapshot!(view.expect("the case is there"));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(markdown::render(&sample_record::flawed()));
}

#[test]
fn csv() {
    insta::assert_snapshot!(csv::render(&[sample_record::flawed()]).unwrap());
}

#[test]
fn compare_table() {
    insta::assert_snapshot!(compare::table(&sample_changes::changes(), Style::default()));
}

#[test]
fn compare_markdown() {
    insta::assert_snapshot!(compare::markdown(&sample_changes::changes()));
}

#[test]
fn compare_junit() {
    insta::assert_snapshot!(compare::junit(&sample_changes::changes()).unwrap());
}
