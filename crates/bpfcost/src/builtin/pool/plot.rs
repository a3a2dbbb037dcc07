//! Figures of the model's predictions, beside the measurements here and beside published ones.

use super::{
    predict::{Prediction, PublishedPoint, PublishedTable, THREADS},
    predicted::measured,
};
use bpfcost_report::{
    figure::curve::{CurveSource, Plot, Point, Series},
    rows,
    scaling::{
        Chart, RateUnit,
        plot::{SeriesColours, curve_series},
    },
};
use bpfcost_text::{self, number};

/// Returns the plots of the model's predictions: first for this machine, with the measurements; then for the machines
/// of published tables.
pub(super) fn predicted(
    chart: &Chart<'_>,
    prediction: &Prediction,
    tables: &[PublishedTable],
) -> Vec<Plot> {
    let mut hues = SeriesColours::new(chart);
    let mut plots = Vec::new();
    if !prediction.curves.is_empty() {
        plots.push(here(chart, prediction, &mut hues));
    }
    let published = tables
        .iter()
        .map(|table| published(chart, table, &mut hues));
    plots.extend(published);
    plots
}

/// This machine: measured where it has CPUs, predicted beyond.
fn here(chart: &Chart<'_>, prediction: &Prediction, hues: &mut SeriesColours<'_>) -> Plot {
    let mut lines = Vec::new();
    for (series, rates) in &prediction.curves {
        let hue = hues.hue(series);
        if let Some(curve) = measured(chart, series) {
            let mut line = curve_series(chart, curve, hue);
            // A prediction has a CPU for each thread; what shares CPUs is something else.
            line.points
                .retain(|point| point.at <= f64::from(chart.curves.cpus));
            // Knees are of the whole curve.
            line.points.iter_mut().for_each(|point| point.knee = false);
            lines.push(line);
        }
        let points = THREADS.iter().zip(rates);
        lines.push(Series {
            series: (*series).to_owned(),
            hue,
            kind: CurveSource::Predicted,
            points: points.map(|(at, rate)| plain(*at, *rate)).collect(),
        });
    }
    let rates = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.rate);
    let unit = RateUnit::fit(rates);
    Plot {
        title: format!(
            "{} a second of all {}: measured here, and predicted for more CPUs",
            rows::heading(&chart.operations()),
            bpfcost_text::line(&chart.curves.scaling.over)
        ),
        unit,
        rates: unit.rate_of(&chart.operations()),
        over: format!(
            "{}, a CPU each",
            bpfcost_text::line(&chart.curves.scaling.over)
        ),
        lines,
        ..Plot::default()
    }
}

/// A published table: hollow marks as published, dashed lines as predicted.
fn published(
    chart: &Chart<'_>,
    (table, rows): &PublishedTable,
    hues: &mut SeriesColours<'_>,
) -> Plot {
    let mut lines = Vec::new();
    for rows in rows.chunk_by(|a, b| a.series == b.series) {
        let hue = hues.hue(rows[0].series);
        let line = |kind, rate: &dyn Fn(&PublishedPoint) -> f64| Series {
            series: rows[0].series.to_owned(),
            hue,
            kind,
            points: rows
                .iter()
                .map(|row| plain(row.threads, rate(row)))
                .collect(),
        };
        lines.push(line(CurveSource::Predicted, &|row| row.predicted));
        lines.push(line(CurveSource::Published, &|row| row.published));
    }
    let rates = rows.iter().flat_map(|row| [row.published, row.predicted]);
    let unit = RateUnit::fit(rates);
    Plot {
        title: format!("{}: published, and predicted", table.title),
        unit,
        rates: format!("{} {}", unit.prefix, table.unit)
            .trim_start()
            .to_owned(),
        over: bpfcost_text::line(&chart.curves.scaling.over),
        lines,
        ..Plot::default()
    }
}

fn plain(threads: u32, rate: f64) -> Point {
    Point {
        at: f64::from(threads),
        place: number::count(u64::from(threads)),
        rate,
        ci95: None,
        knee: false,
    }
}
