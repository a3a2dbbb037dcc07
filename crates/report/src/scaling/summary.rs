//! The curves in one sentence: which has the highest throughput while every thread has a CPU.

use super::{Chart, misses_much, tables};
use crate::{misses, target};
use bpfcost_record::{CostEstimate, Curve, CurvePoint};
use bpfcost_text::{line, number};

/// The curves in a sentence without its end; `None` where no point has a rate.
pub fn sentence(chart: &Chart<'_>) -> Option<String> {
    let start = format!(
        "{} on {}",
        line(&chart.record.experiment),
        target::label(chart.record)
    );
    let points = || chart.curves.points().map(|(_, _, point)| point);
    let rated = points().filter(|point| point.rate.is_some()).count();
    if chart.tells_speed || rated == 0 {
        return Some(format!("{start}: {}", fastest(chart)?));
    }
    let missing = points().filter(|point| misses_much(point));
    let shares: Vec<f64> = missing.filter_map(|point| point.case.misses()).collect();
    let worst = misses::share(shares.iter().copied().fold(0.0, f64::max));
    Some(format!(
        "{start}: {} valid; {} of them with misses, at worst {worst}; an emulated machine does not show speed here",
        number::plural(rated, "point"),
        shares.len()
    ))
}

/// `at 4 threads, one for each of 4 CPUs, percpu does 5.2 [5.0, 5.4] times what mutex does (103 against 20 M pairs/s)`.
fn fastest(chart: &Chart<'_>) -> Option<String> {
    let threads = chart.compared_at();
    let order = tables::order(chart, chart.usual());
    let rated = order.iter().filter_map(|curve| {
        let point = curve.at(threads)?;
        Some((curve, point, point.rate?))
    });
    let curves: Vec<_> = rated.collect();
    let (first, last) = (curves.first()?, curves.last()?);
    let plain = |part: CostEstimate| chart.rate_unit.plain(part.value);
    let unit = chart.rate_unit.rate_of(&chart.operations());
    let unit = format!("{}{unit}", number::HOLD);
    let at = chart.at(threads);
    let alike =
        |other: &(&&Curve<'_>, &CurvePoint<'_>, CostEstimate)| match (first.2.ci95, other.2.ci95) {
            (Some([low, _]), Some([_, high])) => low <= high,
            _ => false,
        };
    let best = match curves[1..].iter().take_while(|other| alike(other)).count() {
        0 => format!("{} does", line(first.0.series)),
        more => format!("the best {}, not distinguishable, do", more + 1),
    };
    if curves.len() == 1 || alike(last) {
        return Some(format!("{at} {best} {}{unit}", plain(first.2)));
    }
    let CostEstimate { value, ci95 } = chart.curves.times(first.1.case, last.1.case)?;
    let decimals = number::estimate_decimals(value, ci95).min(1);
    let interval = ci95.map_or_else(String::new, |ends| {
        format!(" {}", number::interval(ends, decimals))
    });
    Some(format!(
        "{at} {best} {}{interval} times what {} does ({} against {}{unit})",
        number::fixed(value, decimals),
        line(last.0.series),
        plain(first.2),
        plain(last.2)
    ))
}
