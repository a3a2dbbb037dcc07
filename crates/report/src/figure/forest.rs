//! Comparisons: relative differences with their intervals, and the band of differences that are too small to
//! matter.

use super::{
    axis::Axis,
    svg::{Svg, escape},
};
use crate::rows::PairRow;
use bpfcost_record::{Record, VerdictRecord};
use bpfcost_text::number;

/// Legend of the band of the margin; empty without a margin.
pub(crate) fn key(record: &Record) -> String {
    let margin = record.asked.margin;
    if margin > 0.0 {
        format!(
            "<span class=\"key\"><i class=\"k-margin\"></i> differences within ±{}: same</span>",
            number::round_percent(margin)
        )
    } else {
        String::new()
    }
}

pub(crate) fn render(pairs: &[PairRow<'_>], record: &Record) -> String {
    let margin = record.asked.margin * 100.0;
    let values: Vec<f64> = pairs.iter().flat_map(ends).collect();
    let low = values.iter().copied().fold(0.0, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    let axis = Axis::for_percentages(low, high, margin);
    let row = |pair: &PairRow<'_>| {
        let (class, sign) = class_and_sign(pair.comparison.verdict);
        [
            format!(
                "<code>{}</code> <span class=\"muted\">against <code>{}</code></span>",
                escape(&pair.case),
                escape(&pair.baseline)
            ),
            plot(pair, &axis, margin),
            format!(
                "<div class=\"value\"><b>{}</b> <span class=\"muted\">{}</span> <span class=\"verdict {}\">{} {}</span>\
                 </div>",
                escape(&pair.relative),
                escape(&pair.interval),
                class,
                sign,
                escape(&pair.verdict)
            ),
        ]
    };
    axis.rows("rows forest", "", pairs.iter().map(row))
}

/// The percentages that the axis must hold.
fn ends(pair: &PairRow<'_>) -> Vec<f64> {
    let comparison = pair.comparison;
    let mut ends = vec![comparison.relative];
    ends.extend(comparison.relative_ci95.into_iter().flatten());
    ends.iter()
        .map(|share| share * 100.0)
        .filter(|percent| percent.is_finite())
        .map(|percent| percent.clamp(-100.0, 1e9))
        .collect()
}

fn plot(pair: &PairRow<'_>, axis: &Axis, margin: f64) -> String {
    let comparison = pair.comparison;
    let title = format!(
        "{} against {}: {} {}, {}",
        pair.case, pair.baseline, pair.relative, pair.interval, pair.verdict
    );
    let mut svg = Svg::filling("plot", &title, &pair.about);
    if margin > 0.0 {
        let ends = (axis.place(-margin), axis.place(margin));
        svg.column("margin", ends);
    }
    axis.grid(&mut svg);
    svg.middle();
    let (class, _) = class_and_sign(comparison.verdict);
    if let Some([low, high]) = comparison.relative_ci95 {
        let [low, high] = [low, high].map(|share| axis.place(share * 100.0));
        svg.line(&format!("ci {class}"), (low, 0.0), (high, 0.0));
        for end in [low, high] {
            svg.line(&format!("cap {class}"), (end, -4.0), (end, 4.0));
        }
    }
    if comparison.relative.is_finite() {
        let at = (axis.place(comparison.relative * 100.0), 0.0);
        svg.dot(&format!("point {class}"), at, 4.5);
    }
    svg.finish()
}

/// The class that colours a verdict, and a sign for those who don't see the colour.
pub(crate) fn class_and_sign(verdict: VerdictRecord) -> (&'static str, &'static str) {
    match verdict {
        VerdictRecord::Slower => ("more", "▲"),
        VerdictRecord::Faster => ("less", "▼"),
        VerdictRecord::Same => ("same", "="),
        VerdictRecord::Unresolved => ("open", "?"),
    }
}
