//! The verdicts along curves: which differs from which, by threads.

use super::Chart;
use crate::{
    record::{Comparison, Record},
    report::{
        block::{Block, Cell, Head},
        figure::forest::sign,
        number, text, words,
    },
};

/// One curve against another.
struct Against {
    name: String,
    points: Vec<(u32, usize)>,
}

/// Whether a comparison is between two curves at the same number of threads.
pub(super) fn fits(comparison: &Comparison, chart: &Chart<'_>) -> bool {
    place(comparison, chart).is_some()
}

/// The two curves of a comparison and the number of threads, where these are the same.
fn place(comparison: &Comparison, chart: &Chart<'_>) -> Option<(String, u32)> {
    let scaling = chart.curves.scaling;
    let case = |name: &str| chart.record.case(name);
    let (case, baseline) = (case(&comparison.case), case(&comparison.baseline));
    let (case, baseline) = (case?, baseline?);
    let ((series, threads), (other, same)) = (scaling.place(case)?, scaling.place(baseline)?);
    let named = |series: &str, apart: String| match apart.as_str() {
        "" => text::line(series),
        apart => text::line(&format!("{series}, {apart}")),
    };
    let (case, baseline) = (scaling.apart(case), scaling.apart(baseline));
    (threads == same).then(|| {
        let name = format!("{} against {}", named(series, case), named(other, baseline));
        (name, threads)
    })
}

/// The comparisons of curves as one table; `None` where there are none.
pub(super) fn block(chart: &Chart<'_>) -> Option<Block> {
    let record = chart.record;
    let mut rows: Vec<Against> = Vec::new();
    let mut counts = Vec::new();
    for (index, comparison) in record.comparisons.iter().enumerate() {
        let Some((name, threads)) = place(comparison, chart) else {
            continue;
        };
        counts.push(threads);
        match rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.points.push((threads, index)),
            None => rows.push(Against {
                name,
                points: vec![(threads, index)],
            }),
        }
    }
    counts.sort_unstable();
    counts.dedup();
    let cells = |row: &Against| {
        let cell = |count: &u32| match row.points.iter().find(|(threads, _)| threads == count) {
            Some((_, index)) => verdict(&record.comparisons[*index], record),
            None => Cell::words(number::MISSING),
        };
        std::iter::once(Cell::words(row.name.clone()))
            .chain(counts.iter().map(cell))
            .collect()
    };
    let scaling = chart.curves.scaling;
    let heads = counts
        .iter()
        .map(|count| Head::number(chart.threads(*count)));
    (!rows.is_empty()).then(|| Block {
        title: format!(
            "What differs from what: the {} of one {}, relative",
            record.unit,
            chart.operation()
        ),
        head: std::iter::once(Head::words(text::line(&scaling.series)))
            .chain(heads)
            .collect(),
        rows: rows.iter().map(cells).collect(),
        captions: vec![format!(
            "▼ costs less, ▲ costs more, = the same within {}, ? unresolved; ±: as far as the 95 % \
             interval reaches. {}",
            number::round_percent(record.asked.margin),
            words::pair_caption(record)
        )],
        ..Block::default()
    })
}

/// `▼ −81 ±2 %`.
fn verdict(comparison: &Comparison, record: &Record) -> Cell {
    let (_, tone) = words::verdict(comparison, record);
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
            sign(comparison.verdict),
            reach.unwrap_or_default(),
            hold = number::HOLD
        ),
    };
    super::toned(Cell::number(text, comparison.relative), tone)
}
