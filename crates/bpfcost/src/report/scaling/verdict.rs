//! The verdicts along curves: which differs from which, by threads.

use super::{Chart, rate};
use crate::{
    record::{Comparison, Record},
    report::{
        block::{Block, Cell},
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
    let table = rows.iter().map(|row| {
        let cell = |count: &u32| {
            let (_, index) = row.points.iter().find(|(threads, _)| threads == count)?;
            Some(verdict(&record.comparisons[*index], record))
        };
        (row.name.clone(), counts.iter().map(cell).collect())
    });
    (!rows.is_empty()).then(|| Block {
        title: format!(
            "What differs from what: the {} of one {}, relative",
            record.unit,
            chart.operation()
        ),
        captions: vec![format!(
            "▼ costs less, ▲ costs more, = the same within {}, ? unresolved; ±: as far as the 95 % \
             interval reaches. {}",
            number::round_percent(record.asked.margin),
            words::pair_caption(record)
        )],
        ..rate::over_threads(chart, &counts, table)
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
    Cell::number(text, comparison.relative).toned(tone)
}
