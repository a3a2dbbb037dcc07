//! What the page shows of a record whose cases make curves: figures first, then small tables, then all points.

use serde::Serialize;

use super::{
    blocks::BlockPart,
    tables::{Row, Table, columns, number_cell, words_cell},
};
use crate::{
    record::{Curve, CurvePoint, Part},
    report::{
        figure::curve::{self, Plot},
        missed, number,
        scaling::{self, Chart},
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

/// A figure under its title.
#[derive(Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) figure: String,
}

impl Figure {
    pub(super) fn new(plot: &Plot) -> Self {
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
    let (gains, rings) = match chart.tells_speed {
        true => (
            format!(" A curve that rises gains by more {over}, one that falls loses by them."),
            " A ring is the knee: the fewest that reach 95 % of the curve's best.",
        ),
        false => (String::new(), ""),
    };
    format!(
        "Both axes are logarithmic.{gains} Bars are 95 % intervals.{rings} The upright line \
         stands at {cpus}: to the right of it, {over} share them."
    )
}

/// Every point of every curve, in numbers.
pub(super) fn table(chart: &Chart<'_>) -> Table {
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
    let row = |(_, curve, point): (_, &Curve<'_>, &CurvePoint<'_>)| {
        let misses = point.case.misses();
        let mut cells = vec![
            words_cell(text::line(&point.case.name)),
            plain(Some(f64::from(point.threads))),
            rate(point.rate),
            number_cell(misses.map_or_else(String::new, missed::share), misses),
        ];
        cells.extend(point.latencies().map(plain));
        if chart.tells_speed {
            let told = |part: Part| scaling::with_ends(part.value, part.ci95);
            let knee = curve.knee == Some(point.threads);
            cells.extend([
                number_cell(
                    point.speed_up.map_or_else(String::new, told),
                    point.speed_up.map(|part| part.value),
                ),
                share(point.efficiency),
                words_cell(if knee { "knee" } else { "" }),
                plain(point.fairness()),
            ]);
        }
        Row { tone: None, cells }
    };
    let rates = chart.rate_unit.of(&chart.operations());
    let over = text::line(&chart.curves.scaling.over);
    let mut names = vec![("case", false), (over.as_str(), true), (&rates, true)];
    names.extend(["misses", "p50 ns", "p99 ns", "p99.9 ns"].map(|name| (name, true)));
    if chart.tells_speed {
        names.extend([
            ("speed-up", true),
            ("efficiency", true),
            ("", false),
            ("fairness", true),
        ]);
    }
    Table {
        title: "All points".into(),
        caption: "Every point of every curve.".to_owned(),
        rows: chart.curves.points().map(row).collect(),
        columns: columns(&names),
    }
}
