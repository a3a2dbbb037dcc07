//! Records whose cases span a grid: word for word, and what must hold of any.

mod common;

use bpfcost::{
    record::{Record, Verdict},
    report::{
        markdown,
        matrix::{self, Matrix},
        style::Style,
        table, verbose,
    },
};
use common::sample_grid;

/// Three kernels counted, and a host.
fn kernels() -> Vec<Record> {
    vec![
        sample_grid::oldest(),
        sample_grid::old(),
        sample_grid::new(),
        sample_grid::host(),
    ]
}

fn of(records: &[Record]) -> Matrix<'_> {
    Matrix::new(&records.iter().collect::<Vec<_>>()).expect("several targets")
}

#[test]
fn table_of_counts() {
    insta::assert_snapshot!(table::render(&sample_grid::new(), Style::default()));
}

#[test]
fn table_of_times() {
    insta::assert_snapshot!(table::render(&sample_grid::host(), Style::default()));
}

#[test]
fn verbose_table() {
    insta::assert_snapshot!(verbose::render(&sample_grid::host(), Style::default()));
}

#[test]
fn markdown_of_one_target() {
    insta::assert_snapshot!(markdown::render(&sample_grid::new()));
}

#[test]
fn matrix_of_two() {
    let two = &kernels()[1..3];
    insta::assert_snapshot!(matrix::table(&of(two), Style::default(), false));
}

#[test]
fn matrix_of_four_verbose() {
    insta::assert_snapshot!(matrix::table(&of(&kernels()), Style::default(), true));
}

#[test]
fn matrix_in_markdown() {
    insta::assert_snapshot!(matrix::markdown(&of(&kernels()[..3])));
}

#[test]
fn kernels_are_compared_by_net() {
    let records = kernels();
    let two = &records[1..3];
    let matrix = of(two);
    let mut compared = 0;
    for row in &matrix.across.rows {
        let [old, new] = [0, 1].map(|at| row.cells[at].case);
        let Some(found) = row.cells[1].difference else {
            continue;
        };
        let (old, new) = (old.unwrap(), new.unwrap());
        let cost = |case: &bpfcost::record::CaseRecord| match &case.net {
            Some(net) => net.value.unwrap(),
            None => case.raw.as_ref().unwrap().value,
        };
        let relative = cost(new) / cost(old) - 1.0;
        assert!((found.relative - relative).abs() < 1e-9, "{}", row.name);
        compared += 1;
        // The raw cost of tcx hides what became of its ringbuf behind a sendto.
        if row.name == "tcx/ringbuf" {
            assert_eq!(found.verdict, Verdict::Slower);
            assert!(found.relative > 0.5, "{found:?}");
        }
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn changes_are_named_by_type_first() {
    let records = kernels();
    let said = matrix::changes(&of(&records[1..3]))
        .join(" ")
        .replace('\u{A0}', " ");
    assert_eq!(
        said,
        "exact:7.2 against exact:6.12: dearer by over 10 %: uprobe.multi (+23 %), kprobe.session (+12 %), \
         5 others with ringbuf (+19 % to +73 %); cheaper by over 10 %: kprobe (−31 %), fentry (−12 %)."
    );
    let same = [sample_grid::oldest(), sample_grid::old()];
    let said = matrix::changes(&of(&same)).join(" ").replace('\u{A0}', " ");
    assert_eq!(
        said,
        "exact:6.12 against exact:6.1: nothing got dearer or cheaper by over 10 %."
    );
    let none = [sample_grid::new(), sample_grid::host()];
    assert!(matrix::changes(&of(&none)).is_empty());
}

#[test]
fn every_cell_is_there_once() {
    let records = kernels();
    let matrix = of(&records);
    let cells = records[1].cells().unwrap();
    let in_rows = matrix
        .rows()
        .filter(|row| matrix.across.rows[row.index].name.starts_with("none/"));
    assert_eq!(in_rows.count(), 4, "floors");
    for row in &cells.rows {
        for column in &cells.columns {
            let name = format!("{row}/{column}");
            let shown = matrix
                .rows()
                .filter(|row| matrix.across.rows[row.index].name == name);
            let absent = matrix
                .absent
                .iter()
                .filter(|one| one.0 == *row || one.0 == name);
            assert_eq!(shown.count() + absent.count(), 1, "{name}");
        }
    }
    assert!(
        matrix
            .rows()
            .all(|row| !matrix.across.rows[row.index].name.contains("/stats"))
    );
}
