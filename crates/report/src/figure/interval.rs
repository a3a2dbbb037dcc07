//! The cost of every case: a point with its interval on an axis from zero, and the range of its net cost. One
//! figure per group, because groups differ in size.

use super::{
    axis::Axis,
    svg::{Svg, escape},
};
use crate::{
    cost::{self, valid},
    rows::{CaseRow, RowGroup},
};
use bpfcost_model::Unit;
use bpfcost_record::{Record, Status};
use bpfcost_text::{line, number};

/// As wide as a digit.
const FIGURE_SPACE: char = '\u{2007}';
/// As wide as a point.
const PUNCTUATION_SPACE: char = '\u{2008}';

/// Legend of the figures.
pub(crate) fn key(record: &Record) -> String {
    let spread = if record.unit.is_counted() {
        "count and its range over loads"
    } else {
        "estimate and 95\u{A0}% interval"
    };
    let mut raws = record.cases.iter().filter_map(|case| case.raw.as_ref());
    let modes = if raws.any(|raw| !raw.modes.is_empty()) {
        " <span class=\"key\"><i class=\"k-mode\"></i> two modes</span>"
    } else {
        ""
    };
    format!(
        "<span class=\"key\"><i class=\"k-point\"></i> {spread}</span> <span class=\"key\"><i class=\"k-net\"></i> net: \
         without the harness</span>{modes}"
    )
}

pub(crate) fn render(group: &RowGroup<CaseRow<'_>>, record: &Record) -> String {
    let unit = record.unit;
    let reach = group.rows.iter().flat_map(reach).fold(0.0, f64::max);
    let axis = Axis::from_zero(reach);
    let mut costs: Vec<String> = group
        .rows
        .iter()
        .map(|row| row.cost.value.clone())
        .collect();
    number::align(&mut costs, PUNCTUATION_SPACE, FIGURE_SPACE);
    let rows = group.rows.iter().zip(&costs).map(|(row, cost)| {
        let name = format!("<code>{}</code>", escape(&row.name));
        [name, plot(row, &axis, unit), value(row, unit, cost)]
    });
    axis.rows("rows", &unit.to_string(), rows)
}

/// The values that the axis must hold.
fn reach(row: &CaseRow<'_>) -> Vec<f64> {
    let Some(raw) = valid(row.case) else {
        return Vec::new();
    };
    let mut values = vec![raw.value];
    values.extend(raw.ci95.into_iter().flatten());
    values.extend(raw.loads.into_iter().flatten());
    values.extend(raw.modes.iter().map(|mode| mode.value));
    values.retain(|value| value.is_finite());
    values
}

fn plot(row: &CaseRow<'_>, axis: &Axis, unit: Unit) -> String {
    let Some(raw) = valid(row.case).filter(|raw| raw.value.is_finite()) else {
        let mut svg = Svg::filling("plot", &format!("{}: {}", row.name, row.cost.value), "");
        axis.grid(&mut svg);
        return svg.finish();
    };
    let title = format!(
        "{}: {} {unit} {}",
        row.name, row.cost.value, row.cost.spread
    );
    let desc = match row.net.as_str() {
        "" => line(&row.case.about),
        net => format!("{}; net {net}", line(&row.case.about)),
    };
    let mut svg = Svg::filling("plot", &title, &desc);
    axis.grid(&mut svg);
    svg.middle();
    svg.line("stem", (axis.place(0.0), 0.0), (axis.place(raw.value), 0.0));
    if let Some(net) = row.case.net.as_ref().filter(|net| net.distinguishable)
        && net.bracket.iter().all(|end| end.is_finite())
    {
        let ends = net.bracket.map(|end| axis.place(end));
        svg.band("net", (ends[0], ends[1]), -5.0, 10.0);
    }
    for mode in raw.modes.iter().filter(|mode| mode.value.is_finite()) {
        svg.dot("mode", (axis.place(mode.value), 0.0), 6.5);
    }
    if let Some([low, high]) = raw.ci95.or(raw.loads) {
        svg.line("ci", (axis.place(low), 0.0), (axis.place(high), 0.0));
    }
    svg.dot("point", (axis.place(raw.value), 0.0), 4.0);
    svg.finish()
}

/// The numbers beside the plot.
fn value(row: &CaseRow<'_>, unit: Unit, cost: &str) -> String {
    if valid(row.case).is_none() {
        let class = match row.case.status {
            Status::Invalid => "alarm",
            _ => "muted",
        };
        return format!(
            "<div class=\"value {class}\">{}</div>",
            escape(&row.cost.value)
        );
    }
    let net = match &row.case.net {
        Some(net) if cost::is_harness(net, unit) => row.net.clone(),
        Some(_) => format!("net {}", row.net),
        None => String::new(),
    };
    // Beside a count there is room for its range, and not for the number of loads.
    let range = cost::range(row.case);
    format!(
        "<div class=\"value\"><b>{}</b> <span class=\"muted\">{}</span> <span class=\"nettext\">{}</span></div>",
        escape(cost),
        escape(range.as_ref().unwrap_or(&row.cost.spread)),
        escape(&net)
    )
}
