//! What a model predicts, as figures: beside what was measured here, and beside what others published.

use crate::{
    record::{PredictedCurve, Prediction, PublishedRow, PublishedTable},
    report::{
        figure::curve::{Kind, Line, Plot, Point},
        number, rows,
        scaling::{
            Chart, RateUnit,
            plot::{Hues, own},
        },
        text,
    },
};

/// What a model predicts: of this machine beside what was measured, then beside what others published.
pub(super) fn predicted<'a>(chart: &Chart<'a>, prediction: &'a Prediction) -> Vec<Plot> {
    let mut hues = Hues::of(chart);
    let mut plots = Vec::new();
    if !prediction.curves.is_empty() {
        plots.push(here(chart, &prediction.curves, &mut hues));
    }
    for table in &prediction.tables {
        plots.push(published(chart, table, &mut hues));
    }
    plots
}

/// This machine: measured where it has CPUs, predicted beyond.
fn here<'a>(chart: &Chart<'a>, curves: &'a [PredictedCurve], hues: &mut Hues<'a>) -> Plot {
    let mut lines = Vec::new();
    for curve in curves {
        let hue = hues.hue(&curve.series);
        let measured = chart
            .usual()
            .curves
            .iter()
            // The model knows no other circumstances.
            .filter(|_| chart.usual().apart.is_empty())
            .find(|own| own.series == curve.series);
        if let Some(found) = measured {
            let mut line = own(chart, found, hue);
            // A prediction has a CPU for each thread; what shares CPUs is something else.
            line.points
                .retain(|point| point.at <= f64::from(chart.curves.cpus));
            // Knees are of the whole curve.
            line.points.iter_mut().for_each(|point| point.knee = false);
            lines.push(line);
        }
        let points = curve
            .points
            .iter()
            .map(|point| plain(point.threads, point.rate));
        lines.push(Line {
            series: text::line(&curve.series),
            hue,
            kind: Kind::Predicted,
            points: points.collect(),
        });
    }
    let rates = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.rate);
    let unit = RateUnit::fit(rates);
    Plot {
        title: format!(
            "{} a second of all {}: measured here, and predicted on to more CPUs",
            rows::heading(&chart.operations()),
            text::line(&chart.curves.scaling.over)
        ),
        unit,
        rates: unit.of(&chart.operations()),
        over: format!("{}, a CPU each", text::line(&chart.curves.scaling.over)),
        cpus: None,
        turned: false,
        lines,
        small: false,
    }
}

/// A published table: hollow marks as published, dashed lines as predicted.
fn published<'a>(chart: &Chart<'a>, table: &'a PublishedTable, hues: &mut Hues<'a>) -> Plot {
    let mut names: Vec<&str> = Vec::new();
    for row in &table.rows {
        if !names.contains(&row.series.as_str()) {
            names.push(&row.series);
        }
    }
    let mut lines = Vec::new();
    for name in names {
        let hue = hues.hue(name);
        let mut rows: Vec<&PublishedRow> =
            table.rows.iter().filter(|row| row.series == name).collect();
        rows.sort_by_key(|row| row.threads);
        let line = |kind, rate: &dyn Fn(&PublishedRow) -> f64| Line {
            series: text::line(name),
            hue,
            kind,
            points: rows
                .iter()
                .map(|row| plain(row.threads, rate(row)))
                .collect(),
        };
        lines.push(line(Kind::Predicted, &|row| row.predicted));
        lines.push(line(Kind::Published, &|row| row.published));
    }
    let unit = RateUnit::fit(
        table
            .rows
            .iter()
            .flat_map(|row| [row.published, row.predicted]),
    );
    Plot {
        title: format!("{}: published, and predicted", text::line(&table.title)),
        unit,
        rates: format!("{} {}", unit.prefix, text::line(&table.unit))
            .trim_start()
            .to_owned(),
        over: text::line(&chart.curves.scaling.over),
        cpus: None,
        turned: false,
        lines,
        small: false,
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
