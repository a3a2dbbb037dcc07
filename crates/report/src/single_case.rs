//! One case alone in full (`--case NAME --verbose`): calibration, checks, and the distribution of its trials.

use bpfcost_stats::sample::median;

use crate::{
    estimate, histogram, notes, rows,
    table::{Cell, Head, Table},
    trials,
};
use bpfcost_model::Role;
use bpfcost_record::{CaseRecord, Record, Status};
use bpfcost_text::{line, number};

/// The tables of the only case of a record that is no floor; of several none.
pub(crate) fn tables(record: &Record) -> Vec<Table> {
    let mut cases = record.cases.iter().filter(|case| case.role == Role::Case);
    let (Some(case), None) = (cases.next(), cases.next()) else {
        return Vec::new();
    };
    let name = rows::heading(trials::words(record).name);
    let histogram = histogram::table(&histogram::sorted(&case.samples));
    let histogram = histogram.map(|table| Table {
        title: format!("{name}, {}", record.unit),
        ..table
    });
    let valid = |_: &Table| case.status == Status::Ok;
    let lines = std::iter::once(lines(case, record));
    lines.chain(histogram.filter(valid)).collect()
}

/// Calibration and checks of a case, and the medians of its further values.
fn lines(case: &CaseRecord, record: &Record) -> Table {
    let unit = record.unit;
    let factors = case.factors.iter();
    let factors = factors.map(|(name, value)| line(&format!("{name} = {value}")));
    let recorded = case.calibration;
    let calibration = recorded.map(|calibration| {
        let batch_ns = calibration.ns_per_op * calibration.batch.0 as f64;
        format!(
            "{} {unit}, a batch of {} operations takes {}",
            estimate::value(calibration.ns_per_op, None, unit),
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
            notes::as_much(unit),
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
        Some(format!("{} {middle}", line(name)))
    });
    let lines = [
        ("Case", line(&case.about)),
        ("Factors", factors.collect::<Vec<_>>().join(", ")),
        ("Calibration", calibration.unwrap_or_default()),
        ("Proportional", proportional.unwrap_or_default()),
        ("Validation", validation.unwrap_or_default()),
        ("Also (medians)", medians.collect::<Vec<_>>().join(", ")),
    ];
    type LabelledText = (&'static str, String);
    Table::new(
        vec![
            Head::words("").cells(|line: &LabelledText| Cell::words(line.0)),
            Head::words("").cells(|line: &LabelledText| Cell::words(&line.1)),
        ],
        lines.iter().filter(|line| !line.1.is_empty()),
    )
}
