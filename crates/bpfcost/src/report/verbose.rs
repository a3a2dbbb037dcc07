//! `--verbose`: the tables of [`table`], then how the batch means of every case lie.

use bpfcost_stats::sample::epoch_medians;

use crate::{
    experiment::Unit,
    record::{Raw, Record, Status},
    report::{
        number, parts, rows,
        scaling::Chart,
        sheet::{self, Sheet},
        style::{Style, Tone},
        table::{self, Grid},
        text, trials, warnings, words,
    },
};

/// The record as a person reads it on a terminal, with the spread of every case.
pub fn render(record: &Record, style: Style) -> String {
    let mut out = String::new();
    table::sentence(&mut out, record, style);
    if let Some(sheet) = Sheet::new(record) {
        out.push_str(&sheet::table(&sheet, style, true));
    }
    let chart = Chart::new(record);
    if let Some(chart) = &chart {
        table::blocks(&mut out, &chart.blocks(true), style);
        table::blocks(&mut out, &chart.predicted(true), style);
    }
    table::workload(&mut out, record, true, style);
    if record.layout.workload().is_none() {
        table::costs(&mut out, &rows::groups(record), record, style);
    }
    table::several_cpus(&mut out, record, style);
    batch_means(&mut out, record, style);
    if record.layout.workload().is_none() {
        table::comparisons(&mut out, &rows::pairs(record), record, style);
    }
    table::blocks(&mut out, &parts::blocks(record), style);
    table::invalid(&mut out, record, style);
    table::warning_lines(&mut out, &warnings::lines(record), style);
    number::plain_spaces(&out)
}

/// Where the batch means of every case lie.
fn batch_means(out: &mut String, record: &Record, style: Style) {
    let unit = record.unit.to_string();
    let counted = record.unit.is_counted();
    let header: &[&str] = match counted {
        // What ticks add to some trials has no spread worth telling.
        true => &["trials", "loads", "n", "median", "min", "p90", "p99", "max"],
        false => &[
            trials::name(record),
            "epochs",
            "n",
            unit.as_str(),
            "stddev",
            "CV",
            "min",
            "p90",
            "p99",
            "max",
            "outliers",
        ],
    };
    let right: Vec<usize> = (1..header.len()).collect();
    let mut grid = Grid::new(header, &right, style);
    let mut any = false;
    for group in rows::groups(record) {
        let rows: Vec<(&str, &Raw)> = group
            .rows
            .iter()
            .filter(|row| row.case.status == Status::Ok)
            .filter_map(|row| Some((row.name.as_str(), row.case.raw.as_ref()?)))
            .collect();
        if rows.is_empty() {
            continue;
        }
        any = true;
        grid.heading(&group.name);
        for (name, raw) in rows {
            let cells = match counted {
                true => counted_cells(raw, record.unit).to_vec(),
                false => cells(raw).to_vec(),
            };
            let cells = [format!("  {name}")].into_iter().chain(cells);
            grid.row(cells.map(|cell| (cell, Tone::Plain)).collect());
        }
    }
    if any {
        out.push_str(&grid.render());
        table::caption(out, trials::percentile_caption(record), style);
        match counted {
            true => loads(out, record, style),
            false => table::caption(out, &trials::spread_caption(record), style),
        }
        out.push('\n');
    }
}

/// The values that a count had, of each case whose count goes by the load.
fn loads(out: &mut String, record: &Record, style: Style) {
    for case in &record.cases {
        let varies = |raw: &Raw| raw.loads.is_some_and(|[low, high]| low != high);
        if case.status != Status::Ok || !case.raw.as_ref().is_some_and(varies) {
            continue;
        }
        let mut values: Vec<f64> = epoch_medians(&case.samples);
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let mut texts: Vec<String> = values
            .iter()
            .map(|value| words::value(*value, None, record.unit))
            .collect();
        texts.dedup();
        let line = format!("{} by load: {}", text::line(&case.name), texts.join(" · "));
        table::caption(out, &line, style);
    }
}

/// Epochs, trials, median, stddev, CV, min, p90, p99, max, outliers.
fn cells(raw: &Raw) -> [String; 10] {
    // Two digits of the standard deviation tell all that these can.
    let decimals = number::decimals(raw.stddev).min(2);
    let fixed = |value| number::fixed(value, decimals);
    [
        number::count(raw.epochs as u64),
        number::count(raw.trials as u64),
        fixed(raw.p50),
        number::fixed(raw.stddev, number::decimals(raw.stddev).min(3)),
        number::percent(raw.cv),
        fixed(raw.min),
        fixed(raw.p90),
        fixed(raw.p99),
        fixed(raw.max),
        number::count(raw.outliers as u64),
    ]
}

/// Loads, trials, median, min, p90, p99, max.
fn counted_cells(raw: &Raw, unit: Unit) -> [String; 7] {
    let count = |value| words::value(value, None, unit);
    [
        number::count(raw.epochs as u64),
        number::count(raw.trials as u64),
        count(raw.p50),
        count(raw.min),
        count(raw.p90),
        count(raw.p99),
        count(raw.max),
    ]
}
