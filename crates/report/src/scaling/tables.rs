//! The throughput of all threads, the time per thread, and notes on points.

use std::collections::BTreeSet;

use super::{
    Chart, FAIR, KNEE_MARK, MANY_MISSES, MISSES_MARK, UNFAIR_MARK, group_suffix, misses_much,
    share_cell, with_ends,
};
use crate::{
    cost, misses, rows,
    table::{Cell, Head, Table},
    target,
};
use bpfcost_record::{CostEstimate, Curve, CurveGroup, CurvePoint};
use bpfcost_text::{line, number};

/// Secondary value: nanoseconds that reading the clock adds to a latency.
const LATENCY_CLOCK: &str = "latency_clock_ns";

/// The tables, most important first; of all groups in full where `all` is wanted.
pub(crate) fn tables(chart: &Chart<'_>, all: bool) -> Vec<Table> {
    let groups = &chart.curves.groups;
    let (usual, others) = (&groups[0], &groups[1..]);
    let mut tables = vec![rates(chart, usual)];
    // An emulator shows misses.
    let place = usize::from(chart.tells_speed);
    tables.splice(place..place, misses(chart));
    if all {
        tables.push(at_one_count(chart, usual, all));
        tables.extend(others.iter().map(|group| rates(chart, group)));
    } else if chart.tells_speed {
        tables.push(at_one_count(chart, usual, all));
        tables.extend(other_conditions(chart));
    }
    tables
}

/// The curves of a group, by their rate at the number of threads where they are compared; those
/// without a rate last.
pub(crate) fn order<'g, 'a>(chart: &Chart<'_>, group: &'g CurveGroup<'a>) -> Vec<&'g Curve<'a>> {
    let at = group.unshared(chart.curves.cpus).unwrap_or(1);
    let mut order: Vec<&Curve<'a>> = group.curves.iter().collect();
    let rate = |curve: &Curve<'_>| {
        let rate = curve.at(at).and_then(|point| point.rate);
        rate.map_or(f64::NEG_INFINITY, |rate| rate.value.max(f64::MIN))
    };
    order.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    order
}

/// A table with a row for each name, and a column for each number of threads.
pub(crate) fn over_threads(
    chart: &Chart<'_>,
    counts: &[u32],
    rows: impl Iterator<Item = (String, Vec<Option<Cell>>)>,
) -> Table {
    let scaling = chart.curves.scaling;
    let heads = counts.iter().map(|count| chart.threads(*count));
    by_name(line(&scaling.series), heads, rows)
}

/// A table with a row for each name, and these columns of numbers.
fn by_name(
    corner: String,
    heads: impl Iterator<Item = String>,
    rows: impl Iterator<Item = (String, Vec<Option<Cell>>)>,
) -> Table {
    let row = |(name, cells): (String, Vec<Option<Cell>>)| {
        let cells = cells.into_iter().map(or_missing);
        std::iter::once(Cell::words(name)).chain(cells).collect()
    };
    let heads = heads.map(Head::number);
    Table {
        head: std::iter::once(Head::words(corner)).chain(heads).collect(),
        rows: rows.map(row).collect(),
        ..Table::default()
    }
}

fn or_missing(cell: Option<Cell>) -> Cell {
    cell.unwrap_or_else(|| Cell::words(number::MISSING))
}

/// Throughput of all threads together.
fn rates(chart: &Chart<'_>, group: &CurveGroup<'_>) -> Table {
    let counts = group.counts();
    let rows = order(chart, group).into_iter().map(|curve| {
        let cell = |count: &u32| {
            let point = curve.at(*count)?;
            Some(chart.rate_cell(point, curve.knee == Some(point.threads)))
        };
        (line(curve.series), counts.iter().map(cell).collect())
    });
    Table {
        title: format!(
            "{} a second of all {} together, {}{}",
            rows::heading(&chart.operations()),
            line(&chart.curves.scaling.over),
            chart.rate_unit.per_second(),
            group_suffix(group)
        ),
        captions: vec![marks_caption(chart, group)],
        ..over_threads(chart, &counts, rows)
    }
}

/// Definitions of the marks that occur.
fn marks_caption(chart: &Chart<'_>, group: &CurveGroup<'_>) -> String {
    let points = || group.curves.iter().flat_map(|curve| &curve.points);
    let (cpus, speed) = (chart.curves.cpus, chart.tells_speed);
    let (over, operations) = (line(&chart.curves.scaling.over), chart.operations());
    let probed = points().any(|point| misses::are_missed_calls(point.case));
    let found_nothing = points().any(misses_much);
    let parts = [
        (
            speed && group.curves.iter().any(|curve| curve.knee.is_some()),
            format!("{KNEE_MARK} knee: the fewest {over} that reach 95 % of the curve's best."),
        ),
        (
            found_nothing && probed,
            format!("{MISSES_MARK} misses: the probe missed some of the {operations}."),
        ),
        (
            found_nothing && !probed,
            format!(
                "{MISSES_MARK} misses: more than {} of the {operations} first found nothing.",
                number::percent(MANY_MISSES)
            ),
        ),
        (
            speed && points().any(|point| chart.is_unfair(point)),
            format!("{UNFAIR_MARK} unfair: Jain's index over the threads' rates is below {FAIR}."),
        ),
        (true, "±: reach of the 95 % interval.".to_owned()),
        (
            group.counts().iter().any(|count| *count > cpus),
            format!("Beyond {cpus}, {over} share CPUs."),
        ),
        (!speed, target::NO_SPEED.to_owned()),
    ];
    let parts = parts.into_iter().filter(|part| part.0).map(|part| part.1);
    parts.collect::<Vec<String>>().join(" ")
}

/// The share of operations that found nothing, of the curves where any did.
fn misses(chart: &Chart<'_>) -> Option<Table> {
    let groups = chart.curves.groups.iter();
    let curves = groups.flat_map(|group| group.curves.iter().map(move |curve| (group, curve)));
    let curves: Vec<(&CurveGroup<'_>, &Curve<'_>)> = curves
        .filter(|(_, curve)| curve.points.iter().any(misses_much))
        .collect();
    let points = curves.iter().flat_map(|(_, curve)| &curve.points);
    let counts: BTreeSet<u32> = points.map(|point| point.threads).collect();
    let counts = Vec::from_iter(counts);
    let rows = curves.iter().map(|(group, curve)| {
        let cell = |count: &u32| curve.at(*count)?.case.misses().map(share_cell);
        let name = format!("{}{}", line(curve.series), group_suffix(group));
        (name, counts.iter().map(cell).collect())
    });
    (!curves.is_empty()).then(|| Table {
        title: format!("Misses, of all {}", chart.operations()),
        ..over_threads(chart, &counts, rows)
    })
}

/// A row for every curve, at the number of threads where curves are compared.
fn at_one_count(chart: &Chart<'_>, group: &CurveGroup<'_>, all: bool) -> Table {
    let threads = chart.compared_at();
    let order = order(chart, group).into_iter();
    let rows: Vec<PointRow<'_>> = order
        .map(|curve| (line(curve.series), curve.at(threads)))
        .collect();
    let title = rows::heading(chart.at(threads).trim_end_matches(','));
    // A line has no room for efficiency, and speed-up says as much.
    let wanted = |one| one != PointQuantity::Rate && (all || one != PointQuantity::Efficiency);
    table(chart, title, &chart.curves.scaling.series, &rows, wanted)
}

/// Every point of every curve, in numbers.
pub(crate) fn points(chart: &Chart<'_>) -> Table {
    let points = chart.curves.points();
    let rows: Vec<PointRow<'_>> = points
        .map(|(_, _, point)| (line(&point.case.name), Some(point)))
        .collect();
    table(chart, "All points".to_owned(), "case", &rows, |_| true)
}

/// A quantity of a point: a column of [`table`].
#[derive(Clone, Copy, PartialEq)]
enum PointQuantity {
    Rate,
    Cost,
    SpeedUp,
    Efficiency,
    Misses,
    Fairness,
    /// A percentile of the latency of one operation, by its index in [`CurvePoint::latencies`].
    Latency(usize),
}

impl PointQuantity {
    const ALL: [PointQuantity; 9] = [
        PointQuantity::Rate,
        PointQuantity::Cost,
        PointQuantity::SpeedUp,
        PointQuantity::Efficiency,
        PointQuantity::Misses,
        PointQuantity::Fairness,
        PointQuantity::Latency(0),
        PointQuantity::Latency(1),
        PointQuantity::Latency(2),
    ];

    fn heading(self, chart: &Chart<'_>) -> String {
        match self {
            PointQuantity::Rate => chart.rate_unit.rate_of(&chart.operations()),
            PointQuantity::Cost => chart.record.unit.to_string(),
            PointQuantity::SpeedUp => "speed-up".to_owned(),
            PointQuantity::Efficiency => "efficiency".to_owned(),
            PointQuantity::Misses => "misses".to_owned(),
            PointQuantity::Fairness => "fairness".to_owned(),
            PointQuantity::Latency(place) => format!("{} ns", ["p50", "p99", "p99.9"][place]),
        }
    }

    /// The value of a point as a cell. `None` without a value, or where an emulator's times would be shown as speed.
    fn cell(self, point: &CurvePoint<'_>, chart: &Chart<'_>) -> Option<Cell> {
        let estimate =
            |part: CostEstimate| Cell::number(with_ends(part.value, part.ci95), part.value);
        let number = |value, decimals| Cell::number(number::fixed(value, decimals), value);
        match self {
            PointQuantity::Rate => {
                let rate = point.rate?;
                Some(Cell::number(chart.rate(rate), rate.value))
            }
            PointQuantity::Misses => point.case.misses().map(share_cell),
            PointQuantity::Latency(place) => Some(number(point.latencies()[place]?, 0)),
            _ if !chart.tells_speed => None,
            PointQuantity::Cost => {
                let raw = cost::valid(point.case)?;
                let (value, ci95) = (raw.value, raw.ci95);
                Some(estimate(CostEstimate { value, ci95 }))
            }
            PointQuantity::SpeedUp => point.speed_up.map(estimate),
            PointQuantity::Efficiency => {
                let share = point.efficiency?;
                Some(Cell::number(number::percent(share), share))
            }
            PointQuantity::Fairness => Some(number(point.fairness()?, 2)),
        }
    }

    /// Definition, for the caption; `None` where the heading says enough.
    fn definition(self, chart: &Chart<'_>) -> Option<String> {
        let over = line(&chart.curves.scaling.over);
        Some(match self {
            PointQuantity::Cost => format!(
                "{}: time of one {} for each of the {over}.",
                chart.record.unit,
                chart.operation()
            ),
            PointQuantity::SpeedUp => format!("speed-up: relative to the fewest {over}."),
            PointQuantity::Efficiency => {
                "efficiency: speed-up as a share of what that many CPUs could give.".to_owned()
            }
            PointQuantity::Latency(0) => {
                let cases = &mut chart.record.cases.iter();
                let clock = cases.find_map(|case| case.secondary_value(LATENCY_CLOCK));
                let clock = clock.map_or_else(String::new, |ns| {
                    format!(", about {}{}ns", number::fixed(ns, 0), number::HOLD)
                });
                format!(
                    "p50, p99, p99.9: of single {}, timed one by one in a separate pass. They include a clock \
                     read{clock}.",
                    chart.operations()
                )
            }
            _ => return None,
        })
    }
}

/// A row of [`table`]: a name, and the point, if there is one.
type PointRow<'a> = (String, Option<&'a CurvePoint<'a>>);

/// A row for each point, a column for each quantity that is wanted and that a point has.
fn table(
    chart: &Chart<'_>,
    title: String,
    corner: &str,
    rows: &[PointRow<'_>],
    wanted: impl Fn(PointQuantity) -> bool,
) -> Table {
    let has = |one: &PointQuantity| {
        rows.iter()
            .any(|row| row.1.is_some_and(|point| one.cell(point, chart).is_some()))
    };
    let quantities = PointQuantity::ALL
        .into_iter()
        .filter(|one| wanted(*one))
        .filter(has);
    let quantities: Vec<PointQuantity> = quantities.collect();
    let mut columns =
        vec![Head::words(line(corner)).cells(|row: &PointRow<'_>| Cell::words(&row.0))];
    columns.extend(quantities.iter().map(|one| {
        Head::number(one.heading(chart))
            .cells(|row: &PointRow<'_>| or_missing(row.1.and_then(|point| one.cell(point, chart))))
    }));
    let definitions = quantities.iter().filter_map(|one| one.definition(chart));
    Table {
        title,
        captions: vec![definitions.collect::<Vec<String>>().join(" ")],
        ..Table::new(columns, rows)
    }
}

/// The rates under other circumstances, where curves are compared; `None` where there are no others.
fn other_conditions(chart: &Chart<'_>) -> Option<Table> {
    let threads = chart.compared_at();
    let others = chart
        .curves
        .groups
        .get(1..)
        .filter(|others| !others.is_empty())?;
    let mut series: Vec<&str> = Vec::new();
    let usual = order(chart, chart.usual()).into_iter();
    for curve in usual.chain(others.iter().flat_map(|group| &group.curves)) {
        let varied = others
            .iter()
            .any(|group| group.curve(curve.series).is_some());
        if varied && !series.contains(&curve.series) {
            series.push(curve.series);
        }
    }
    let cells = |group: &CurveGroup<'_>| {
        let cell = |name: &&str| {
            let point = group.curve(name)?.at(threads)?;
            Some(chart.rate_cell(point, false))
        };
        let name = match group.apart.as_str() {
            "" => "default".to_owned(),
            apart => line(apart),
        };
        (name, series.iter().map(cell).collect())
    };
    let heads = series.iter().map(|name| line(name));
    let rows = chart.curves.groups.iter().map(cells);
    Some(Table {
        title: format!(
            "Other conditions, {}, {}",
            chart.at(threads).trim_end_matches(','),
            chart.rate_unit.per_second()
        ),
        ..by_name(String::new(), heads, rows)
    })
}
