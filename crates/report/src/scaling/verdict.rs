//! The verdicts along curves: which differ, by number of threads.

use std::collections::{BTreeMap, BTreeSet};

use super::{Chart, tables};
use crate::{
    captions,
    figure::forest::class_and_sign,
    table::{Cell, Table},
    verdict,
};
use bpfcost_record::{ComparisonRecord, Record};
use bpfcost_text::{line, number};

/// Returns true if a comparison is between two curves at the same number of threads.
pub(crate) fn fits(comparison: &ComparisonRecord, chart: &Chart<'_>) -> bool {
    place(comparison, chart).is_some()
}

/// The two curves of a comparison and the number of threads, where these are the same.
fn place(comparison: &ComparisonRecord, chart: &Chart<'_>) -> Option<(String, u32)> {
    let scaling = chart.curves.scaling;
    let case = |name: &str| chart.record.case(name);
    let (case, baseline) = (case(&comparison.case), case(&comparison.baseline));
    let (case, baseline) = (case?, baseline?);
    let ((series, threads), (other, same)) = (case.point(scaling)?, baseline.point(scaling)?);
    let named = |series: &str, apart: String| match apart.as_str() {
        "" => line(series),
        apart => line(&format!("{series}, {apart}")),
    };
    let (case, baseline) = (case.beside_point(scaling), baseline.beside_point(scaling));
    (threads == same).then(|| {
        let name = format!("{} against {}", named(series, case), named(other, baseline));
        (name, threads)
    })
}

/// The comparisons of curves as one table; `None` where there are none.
pub(crate) fn table(chart: &Chart<'_>) -> Option<Table> {
    let record = chart.record;
    // By name, then by threads.
    let mut rows: Vec<(String, BTreeMap<u32, &ComparisonRecord>)> = Vec::new();
    for comparison in &record.comparisons {
        let Some((name, threads)) = place(comparison, chart) else {
            continue;
        };
        let at = rows.iter().position(|row| row.0 == name);
        let at = at.unwrap_or_else(|| {
            rows.push((name, BTreeMap::new()));
            rows.len() - 1
        });
        rows[at].1.entry(threads).or_insert(comparison);
    }
    let counts: BTreeSet<u32> = rows.iter().flat_map(|row| row.1.keys().copied()).collect();
    let counts = Vec::from_iter(counts);
    let table = rows.iter().map(|(name, points)| {
        let cell = |count: &u32| Some(verdict_cell(points.get(count)?, record));
        (name.clone(), counts.iter().map(cell).collect())
    });
    (!rows.is_empty()).then(|| Table {
        title: format!(
            "Relative differences: {} of one {}",
            record.unit,
            chart.operation()
        ),
        captions: vec![format!(
            "▼ costs less, ▲ costs more, = the same within {}, ? unresolved. ±: reach of the 95 % interval. {}",
            number::round_percent(record.asked.margin),
            captions::pairs(record)
        )],
        ..tables::over_threads(chart, &counts, table)
    })
}

/// `▼ −81 ±2 %`.
fn verdict_cell(comparison: &ComparisonRecord, record: &Record) -> Cell {
    let (_, tone) = verdict::sentence(comparison, record);
    let percent = comparison.relative * 100.0;
    let reach = comparison.relative_ci95.map(|[low, high]| {
        let reach = (comparison.relative - low).max(high - comparison.relative);
        reach * 100.0
    });
    let decimals = usize::from(reach.unwrap_or(percent).abs() < 1.95);
    let reach = reach.map(|reach| format!("{}±{}", number::HOLD, number::fixed(reach, decimals)));
    let text = match number::signed(percent, decimals).as_str() {
        number::MISSING => number::MISSING.to_owned(),
        text => format!(
            "{}{hold}{text}{}{hold}%",
            class_and_sign(comparison.verdict).1,
            reach.unwrap_or_default(),
            hold = number::HOLD
        ),
    };
    Cell::number(text, comparison.relative).toned(tone)
}
