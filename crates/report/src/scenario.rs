//! One case alone in full (`--case NAME --verbose`): how its batch was found, whether it proved itself, and how its
//! trials lie.

use bpfcost_stats::sample::median;

use crate::{
    histogram, rows,
    table::{Cell, Head, Table},
    trials, words,
};
use bpfcost_model::Role;
use bpfcost_record::{CaseRecord, Record, Status};
use bpfcost_text::{self, number};

/// The tables of the only case of a record that is no floor; of several none.
pub(crate) fn tables(record: &Record) -> Vec<Table> {
    let mut cases = record.cases.iter().filter(|case| case.role == Role::Case);
    match (cases.next(), cases.next()) {
        (Some(case), None) => {
            let valid = case.status == Status::Ok;
            let histogram = histogram::table(&histogram::sorted(&case.samples));
            let histogram = histogram.filter(|_| valid).map(|table| Table {
                title: format!(
                    "{}, {}",
                    rows::heading(trials::words(record).name),
                    record.unit
                ),
                ..table
            });
            std::iter::once(lines(case, record))
                .chain(histogram)
                .collect()
        }
        _ => Vec::new(),
    }
}

/// How its batch was found, whether it proved itself, and what was measured beside its cost.
fn lines(case: &CaseRecord, record: &Record) -> Table {
    let unit = record.unit;
    let factors = case.factors.iter();
    let factors = factors.map(|(name, value)| bpfcost_text::line(&format!("{name} = {value}")));
    let recorded = case.calibration;
    let calibration = recorded.map(|calibration| {
        let batch_ns = calibration.ns_per_op * calibration.batch.0 as f64;
        format!(
            "{} {unit}, a batch of {} operations takes {}",
            words::value(calibration.ns_per_op, None, unit),
            number::count(calibration.batch.0),
            if unit.is_counted() {
                // The clock of an exact target counts instructions: a ns is one.
                format!("{} instructions", number::fixed(batch_ns, 0))
            } else {
                number::duration(batch_ns / 1e9)
            }
        )
    });
    let proportional = recorded.map(|calibration| match calibration.ratio {
        None => "not checked: the size of the batch is part of the case".to_owned(),
        Some(ratio) => format!(
            "twice the batch took {} times {}, attempt {}",
            number::fixed(ratio, 4),
            words::as_much(unit),
            calibration.attempts
        ),
    });
    let loads = case.samples.iter().filter(|epoch| !epoch.is_empty());
    let validation = (case.status == Status::Ok).then(|| {
        format!(
            "passed: {} in {}, each checked while it was timed",
            number::plural(case.samples.iter().map(Vec::len).sum(), "trial"),
            number::plural(loads.count(), "load")
        )
    });
    let medians = case.secondary.iter().filter_map(|(name, values)| {
        let middle = median(&values.concat())?;
        let decimals = if middle.fract() == 0.0 {
            0
        } else {
            number::plain_decimals(middle)
        };
        let middle = number::fixed(middle, decimals);
        Some(format!("{} {middle}", bpfcost_text::line(name)))
    });
    let lines = [
        ("Case", bpfcost_text::line(&case.about)),
        ("Factors", factors.collect::<Vec<_>>().join(", ")),
        ("Calibration", calibration.unwrap_or_default()),
        ("Proportional", proportional.unwrap_or_default()),
        ("Validation", validation.unwrap_or_default()),
        ("Also (medians)", medians.collect::<Vec<_>>().join(", ")),
    ];
    type LabelledText = (&'static str, String);
    Table::of(
        vec![
            Head::words("").of(|line: &LabelledText| Cell::words(line.0)),
            Head::words("").of(|line: &LabelledText| Cell::words(&line.1)),
        ],
        lines.iter().filter(|line| !line.1.is_empty()),
    )
}
