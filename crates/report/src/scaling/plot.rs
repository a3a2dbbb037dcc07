//! The curves as figures.

use super::{Chart, group_suffix};
use crate::{
    figure::curve::{Plot, Point, Series},
    rows,
};
use bpfcost_record::{Curve, CurveGroup};
use bpfcost_text::{line, number};

/// Colours of the names of curves.
pub(super) struct SeriesColours<'a>(Vec<&'a str>);

impl<'a> SeriesColours<'a> {
    /// Returns the colours of the record's own curves, so that a name has one colour on the whole page.
    pub(super) fn new(chart: &Chart<'a>) -> Self {
        SeriesColours(chart.curves.series())
    }

    /// The colour of a name.
    pub(super) fn hue(&mut self, name: &'a str) -> usize {
        let position = self.0.iter().position(|series| *series == name);
        position.unwrap_or_else(|| {
            self.0.push(name);
            self.0.len() - 1
        })
    }
}

/// Plot of the curves measured under some circumstances.
pub(crate) fn group_plot(chart: &Chart<'_>, group: &CurveGroup<'_>) -> Plot {
    let mut hues = SeriesColours::new(chart);
    let order = super::tables::order(chart, group);
    let lines = order
        .into_iter()
        .map(|curve| curve_series(chart, curve, hues.hue(curve.series)));
    Plot {
        title: format!(
            "{} a second of all {}, measured{}",
            rows::heading(&chart.operations()),
            line(&chart.curves.scaling.over),
            group_suffix(group)
        ),
        unit: chart.rate_unit,
        rates: chart.rate_unit.rate_of(&chart.operations()),
        over: line(&chart.curves.scaling.over),
        cpus: Some(chart.curves.cpus).filter(|cpus| group.counts().contains(cpus)),
        lines: lines.collect(),
        small: !group.apart.is_empty(),
        ..Plot::default()
    }
}

/// A curve of this run.
pub(super) fn curve_series(chart: &Chart<'_>, curve: &Curve<'_>, hue: usize) -> Series {
    let point = |point: &bpfcost_record::CurvePoint<'_>| {
        let rate = point.rate?;
        Some(Point {
            at: f64::from(point.threads),
            place: number::count(u64::from(point.threads)),
            rate: rate.value,
            ci95: rate.ci95,
            knee: chart.tells_speed && curve.knee == Some(point.threads),
        })
    };
    Series {
        series: line(curve.series),
        hue,
        points: curve.points.iter().filter_map(point).collect(),
    }
}
