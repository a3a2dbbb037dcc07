//! Every trial of a case in the order of epochs: shows drift, differences between loads, modes and outliers. No
//! trial is left out: if there are many, lines replace those that overlap.

use super::svg::{Svg, escape};
use crate::estimate;
use bpfcost_record::{CaseRecord, Record};
use bpfcost_text::{line, number};

/// Pixels of the plot.
const HEIGHT: f64 = 84.0;
/// Free above and below.
const EDGE: f64 = 6.0;
/// Number of trials up to which they are dots; more are lines over those that fall together.
const DOTS: usize = 300;
/// Lines across.
const ACROSS: usize = 96;

/// The figure of one case; `None` where it has no finite trial.
pub(crate) fn render(case: &CaseRecord, record: &Record) -> Option<String> {
    let epochs = case.samples.len().max(1) as f64;
    let mut trials: Vec<(f64, f64)> = Vec::with_capacity(case.samples.iter().map(Vec::len).sum());
    for (epoch, values) in case.samples.iter().enumerate() {
        for (index, value) in values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_finite())
        {
            let within = (index as f64 + 0.5) / values.len() as f64;
            trials.push(((epoch as f64 + within) / epochs, *value));
        }
    }
    let low = trials.iter().map(|trial| trial.1).reduce(f64::min)?;
    let high = trials.iter().map(|trial| trial.1).reduce(f64::max)?;
    let name = line(&case.name);
    let raw = case.raw.as_ref();
    let drawn = raw
        .into_iter()
        .flat_map(|raw| raw.ci95.into_iter().flatten().chain([raw.value]))
        .filter(|value| value.is_finite());
    // An undisturbed estimate may lie below all trials.
    let scale = drawn.fold(TrialRange { low, high }, |scale, value| TrialRange {
        low: scale.low.min(value),
        high: scale.high.max(value),
    });
    let decimals = number::decimals((high - low) / 4.0).min(2);
    let shown = |end: f64| {
        if record.unit.is_counted() {
            estimate::value(end, None, record.unit)
        } else {
            number::fixed(end, decimals)
        }
    };
    let [least, most] = [low, high].map(shown);
    let [bottom_label, top_label] = [scale.low, scale.high].map(shown);
    let count = number::plural(trials.len(), "trial");
    let title = format!("{name}: {count}, {least} to {most} {}", record.unit);
    let desc = match case.raw.as_ref().and_then(estimate::half_width) {
        Some(width) => format!("The estimate is known to ±{}.", number::percent(width)),
        None => String::new(),
    };
    let mut svg = Svg::new("trials", HEIGHT, &title, &desc);
    if let Some(raw) = &case.raw {
        if let Some(ci95) = raw.ci95 {
            let [bottom, top] = ci95.map(|end| scale.y(end));
            svg.band("ciband", (0.0, 100.0), top, (bottom - top).max(1.0));
        }
        let y = scale.y(raw.value);
        svg.line("estimate", (0.0, y), (100.0, y));
    }
    if trials.len() <= DOTS {
        for (x, value) in &trials {
            svg.dot("trial", (x * 100.0, scale.y(*value)), 1.7);
        }
    } else {
        ranges(&mut svg, &trials, &scale)
    }
    Some(format!(
        "<figcaption><code>{}</code><span class=\"muted\">n = {}</span></figcaption>\
         <div class=\"frame\"><span class=\"end top\">{}</span>{}<span class=\"end bottom\">{}</span></div>",
        escape(&name),
        number::count(trials.len() as u64),
        escape(&top_label),
        svg.finish(),
        escape(&bottom_label)
    ))
}

struct TrialRange {
    low: f64,
    high: f64,
}

impl TrialRange {
    /// 0 at the lowest value drawn, 1 at the highest.
    fn share(&self, value: f64) -> f64 {
        // The whole range may overflow, so halves.
        let share = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.5
        }
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - EDGE - self.share(value) * (HEIGHT - 2.0 * EDGE)
    }
}

/// Trials that fall together as a line over all of them, darker over the middle half.
fn ranges(svg: &mut Svg, trials: &[(f64, f64)], scale: &TrialRange) {
    let column = |trial: &(f64, f64)| (trial.0 * ACROSS as f64) as usize;
    for together in trials.chunk_by(|one, next| column(one) == column(next)) {
        let mut values: Vec<f64> = together.iter().map(|trial| trial.1).collect();
        values.sort_by(f64::total_cmp);
        let x = (column(&together[0]) as f64 + 0.5) / ACROSS as f64 * 100.0;
        let last = values.len() - 1;
        for (class, low, high) in [
            ("range", 0, last),
            ("range half", last / 4, last - last / 4),
        ] {
            // One trial alone is seen too.
            let (low, high) = (scale.y(values[low]) + 0.5, scale.y(values[high]) - 0.5);
            svg.line(class, (x, low), (x, high));
        }
    }
}
