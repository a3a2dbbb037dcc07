//! What the page shows of a record whose cases make curves: figures first, then small tables, then all points.

use serde::Serialize;

use super::{
    blocks::BlockPart,
    tables::{Row, Table, columns, number_cell, words_cell},
};
use crate::{
    record::{CurvePoint, Part},
    report::{
        figure::curve::{self, Plot},
        number,
        scaling::Chart,
        text,
    },
};

/// The curves.
#[derive(Serialize)]
pub(super) struct ScalingPart {
    /// The usual circumstances.
    figure: Figure,
    caption: String,
    /// Each of the others.
    small: Vec<Figure>,
    blocks: Vec<BlockPart>,
    /// What a model says.
    predicted: Vec<Figure>,
    lines: Option<String>,
    predicted_blocks: Vec<BlockPart>,
}

#[derive(Serialize)]
struct Figure {
    title: String,
    figure: String,
}

impl Figure {
    fn new(plot: &Plot) -> Self {
        Figure {
            title: plot.title.clone(),
            figure: curve::render(plot),
        }
    }
}

impl ScalingPart {
    pub(super) fn new(chart: &Chart<'_>) -> Self {
        let mut measured = chart.measured_plots().into_iter();
        let usual = measured.next().map_or_else(
            || Figure {
                title: String::new(),
                figure: String::new(),
            },
            |plot| Figure::new(&plot),
        );
        let parts = |blocks: Vec<_>| blocks.into_iter().map(BlockPart::new).collect();
        ScalingPart {
            figure: usual,
            caption: caption(chart),
            small: measured.map(|plot| Figure::new(&plot)).collect(),
            blocks: parts(chart.blocks(false)),
            predicted: chart.predicted_plots().iter().map(Figure::new).collect(),
            lines: chart.lines(),
            predicted_blocks: parts(chart.predicted(true)),
        }
    }
}

fn caption(chart: &Chart<'_>) -> String {
    let cpus = number::plural(chart.curves.cpus as usize, "CPU");
    let over = text::line(&chart.curves.scaling.over);
    let rings = match chart.tells_speed {
        true => " A ring is the knee: the fewest that reach 95 % of the curve\u{2019}s best.",
        false => "",
    };
    format!(
        "Both axes are logarithmic: a curve that doubles where the {over} double rises at 45 degrees or so. Bars \
         are 95 % intervals.{rings} The upright line stands at {cpus}; to the right of it {over} share them."
    )
}

/// Every point of every curve, in numbers.
pub(super) fn table(chart: &Chart<'_>) -> Table {
    let unit = chart.rate_unit;
    let plain = |value: Option<f64>| {
        let text = value.map_or_else(String::new, |value| {
            number::fixed(value, number::plain_decimals(value).min(2))
        });
        number_cell(text, value)
    };
    let share =
        |share: Option<f64>| number_cell(share.map_or_else(String::new, number::percent), share);
    let rate = |rate: Option<Part>| {
        let text = rate.map_or_else(String::new, |rate| chart.rate(rate));
        number_cell(text, rate.map(|rate| rate.value))
    };
    let row = |point: &CurvePoint<'_>, knee: bool| {
        let speed_up = point.speed_up.filter(|_| chart.tells_speed);
        let mut cells = vec![
            words_cell(text::line(&point.case.name)),
            plain(Some(f64::from(point.threads))),
            rate(point.rate),
            number_cell(
                speed_up.map_or_else(String::new, |part| {
                    number::with_reach(part.value, part.ci95)
                }),
                speed_up.map(|part| part.value),
            ),
            share(point.efficiency.filter(|_| chart.tells_speed)),
            words_cell(if knee { "knee" } else { "" }),
            share(point.misses()),
            plain(point.fairness().filter(|_| chart.tells_speed)),
        ];
        cells.extend(point.latencies().map(plain));
        Row { tone: None, cells }
    };
    let points = chart.curves.points();
    let rows = points.map(|(_, curve, point)| {
        row(
            point,
            chart.tells_speed && curve.knee == Some(point.threads),
        )
    });
    let rates = unit.of(&chart.operations());
    let over = text::line(&chart.curves.scaling.over);
    Table {
        title: "All points".into(),
        caption: "Every point of every curve.".to_owned(),
        rows: rows.collect(),
        columns: columns(&[
            ("case", false),
            (&over, true),
            (&rates, true),
            ("speed-up", true),
            ("efficiency", true),
            ("", false),
            ("misses", true),
            ("fairness", true),
            ("p50 ns", true),
            ("p99 ns", true),
            ("p99.9 ns", true),
        ]),
    }
}
