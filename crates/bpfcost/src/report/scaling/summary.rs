//! The curves in a sentence: who does most where every thread has a CPU, and where curves end.

use super::{Chart, misses_much};
use crate::{
    record::{Curve, Part},
    report::{missed, number, target, text},
};

/// More than this many that can't be told apart are counted, not named.
const NAMED: usize = 3;

/// The curves in a sentence without its end; `None` where no point has a rate.
pub fn sentence(chart: &Chart<'_>) -> Option<String> {
    let start = format!(
        "{} on {}",
        text::line(&chart.record.experiment),
        target::label(chart.record)
    );
    let rated = chart
        .curves
        .points()
        .filter(|(_, _, point)| point.rate.is_some());
    match (rated.count(), chart.tells_speed) {
        (0, _) => None,
        (points, false) => Some(format!(
            "{start}: {} proved right; {}; an emulated machine tells nothing of speed here",
            number::plural(points, "point"),
            missed(chart)
        )),
        (_, true) => Some(format!("{start}: {}", fastest(chart)?)),
    }
}

/// How many points had operations that found nothing, and how many of them did at worst.
fn missed(chart: &Chart<'_>) -> String {
    let points = chart
        .curves
        .points()
        .filter(|(_, _, point)| misses_much(point));
    let shares: Vec<f64> = points
        .filter_map(|(_, _, point)| point.case.misses())
        .collect();
    match shares.len() {
        0 => "none of them missed".to_owned(),
        some => format!(
            "{} of them with misses, at worst of {}",
            number::count(some as u64),
            missed::share(shares.into_iter().fold(0.0, f64::max))
        ),
    }
}

fn fastest(chart: &Chart<'_>) -> Option<String> {
    let threads = chart.told_at();
    let curves = chart.usual().by_rate(threads);
    let (first, last) = (curves.first()?, curves.last()?);
    let operations = chart.operations();
    let rate = |part: Part| chart.rate_unit.plain(part.value);
    let unit = format!("{}{}", number::HOLD, chart.rate_unit.of(&operations));
    let at = chart.at(threads);
    if curves.len() == 1 {
        return Some(format!(
            "{at} {} does {}{unit}",
            first.0.series,
            rate(first.2)
        ));
    }
    let alike = curves[1..]
        .iter()
        .take_while(|other| meet(first.2, other.2))
        .count();
    let best = match alike {
        0 => format!("{} does", text::line(first.0.series)),
        more if more < NAMED => {
            let names: Vec<String> = curves[..=more]
                .iter()
                .map(|one| text::line(one.0.series))
                .collect();
            let (end, names) = names.split_last()?;
            format!("{} and {end}, not told apart, do", names.join(", "))
        }
        more => format!("{} that are not told apart do", more + 1),
    };
    let told = match alike + 1 == curves.len() {
        true => format!("{at} {best} {}{unit}", rate(first.2)),
        false => format!(
            "{at} {best} {} times what {} does ({} against {}{unit})",
            times(chart.curves.times(first.1.case, last.1.case)?),
            text::line(last.0.series),
            rate(first.2),
            rate(last.2)
        ),
    };
    Some(match (knee(chart, first.0), knee(chart, last.0)) {
        (Some(first), Some(last)) => format!("{told}; the knee of {first}, that of {last}"),
        _ => told,
    })
}

/// `freelist is at 1 thread`.
fn knee(chart: &Chart<'_>, curve: &Curve<'_>) -> Option<String> {
    let threads = chart.threads(curve.knee?);
    Some(format!("{} is at {threads}", text::line(curve.series)))
}

/// `5.2 [5.0, 5.4]`.
fn times(part: Part) -> String {
    let decimals = number::estimate_decimals(part.value, part.ci95).min(1);
    let value = number::fixed(part.value, decimals);
    match part.ci95 {
        Some(ends) => format!("{value} {}", number::interval(ends, decimals)),
        None => value,
    }
}

/// Whether two intervals meet.
fn meet(first: Part, other: Part) -> bool {
    match (first.ci95, other.ci95) {
        (Some([low, _]), Some([_, high])) => low <= high,
        _ => false,
    }
}
