//! The throughput of all threads, the time per thread, and notes on points.

use std::collections::BTreeSet;

use super::{
    Chart, FAIR, KNEE_MARK, MANY_MISSES, MISSES_MARK, UNFAIR_MARK, misses_much, of_group,
    share_cell, with_ends,
};
use crate::{
    missed, rows,
    table::{Cell, Head, Table},
    target,
};
use bpfcost_record::{CostEstimate, Curve, CurveGroup, CurvePoint, Status};
use bpfcost_text::{self, number};

/// The secondary value with what reading the clock adds to a latency, in nanoseconds.
const LATENCY_CLOCK: &str = "latency_clock_ns";
/// The column of rates, whatever they are of.
const RATE: &str = "rate";

/// The tables, most important first; of all groups in full where `all` is wanted.
pub(crate) fn tables(chart: &Chart<'_>, all: bool) -> Vec<Table> {
    let groups = &chart.curves.groups;
    let (usual, others) = (&groups[0], &groups[1..]);
    let mut tables = vec![rates(chart, usual)];
    // What an emulator shows are misses.
    let place = usize::from(chart.tells_speed);
    tables.splice(place..place, misses(chart));
    if all {
        tables.push(at_one_count(chart, usual, all));
        tables.extend(others.iter().map(|group| rates(chart, group)));
    } else if chart.tells_speed {
        tables.push(at_one_count(chart, usual, all));
        tables.extend(changed(chart));
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
    let corner = Head::words(bpfcost_text::line(&scaling.series));
    let heads = counts
        .iter()
        .map(|count| Head::number(chart.threads(*count)));
    Table {
        head: std::iter::once(corner).chain(heads).collect(),
        rows: rows.map(row).collect(),
        ..Table::default()
    }
}

fn row((name, cells): (String, Vec<Option<Cell>>)) -> Vec<Cell> {
    let cells = cells.into_iter();
    let cells = cells.map(|cell| cell.unwrap_or_else(|| Cell::words(number::MISSING)));
    std::iter::once(Cell::words(name)).chain(cells).collect()
}

/// What all threads do together.
fn rates(chart: &Chart<'_>, group: &CurveGroup<'_>) -> Table {
    let counts = group.counts();
    let rows = order(chart, group).into_iter().map(|curve| {
        let cell = |count: &u32| {
            let point = curve.at(*count)?;
            Some(chart.rate_cell(point, curve.knee == Some(point.threads)))
        };
        (
            bpfcost_text::line(curve.series),
            counts.iter().map(cell).collect(),
        )
    });
    Table {
        title: format!(
            "{} a second of all {} together, {}{}",
            rows::heading(&chart.operations()),
            bpfcost_text::line(&chart.curves.scaling.over),
            chart.rate_unit.per_second(),
            of_group(group)
        ),
        captions: vec![marks_caption(chart, group)],
        ..over_threads(chart, &counts, rows)
    }
}

/// What the marks mean, of those that are there.
fn marks_caption(chart: &Chart<'_>, group: &CurveGroup<'_>) -> String {
    let points = || group.curves.iter().flat_map(|curve| &curve.points);
    let (cpus, speed) = (chart.curves.cpus, chart.tells_speed);
    let (over, operations) = (
        bpfcost_text::line(&chart.curves.scaling.over),
        chart.operations(),
    );
    let probed = points().any(|point| missed::asked(point.case));
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
        let name = format!("{}{}", bpfcost_text::line(curve.series), of_group(group));
        (name, counts.iter().map(cell).collect())
    });
    (!curves.is_empty()).then(|| Table {
        title: format!("Misses, of all {}", chart.operations()),
        ..over_threads(chart, &counts, rows)
    })
}

/// What is to know of every curve where there are as many threads as CPUs.
fn at_one_count(chart: &Chart<'_>, group: &CurveGroup<'_>, all: bool) -> Table {
    let threads = chart.told_at();
    let order = order(chart, group).into_iter();
    let rows = order.map(|curve| (bpfcost_text::line(curve.series), curve.at(threads)));
    let title = rows::heading(chart.at(threads).trim_end_matches(','));
    // A line has no room for efficiency, and speed-up says as much.
    let wanted = |head: &str| match head {
        "efficiency" => all,
        head => head != RATE,
    };
    table(
        chart,
        title,
        &chart.curves.scaling.series,
        rows.collect(),
        wanted,
    )
}

/// Every point of every curve, in numbers.
pub(crate) fn points(chart: &Chart<'_>) -> Table {
    let points = chart.curves.points();
    let rows = points.map(|(_, _, point)| (bpfcost_text::line(&point.case.name), Some(point)));
    table(
        chart,
        "All points".to_owned(),
        "case",
        rows.collect(),
        |_| true,
    )
}

/// A column of [`table`]: its heading, and the cell of a point where it has one.
type RateColumn<'f> = (&'f str, &'f dyn Fn(&CurvePoint<'_>) -> Option<Cell>);

/// All that is known of some points.
fn table(
    chart: &Chart<'_>,
    title: String,
    corner: &str,
    rows: Vec<(String, Option<&CurvePoint<'_>>)>,
    wanted: impl Fn(&str) -> bool,
) -> Table {
    let latency = |place: usize| {
        move |point: &CurvePoint<'_>| {
            let ns = point.latencies()[place]?;
            Some(Cell::number(number::fixed(ns, 0), ns))
        }
    };
    let (p50, p99, p999) = (latency(0), latency(1), latency(2));
    let fast = |part: Option<CostEstimate>| {
        let CostEstimate { value, ci95 } = part.filter(|_| chart.tells_speed)?;
        Some(Cell::number(with_ends(value, ci95), value))
    };
    let cost = |point: &CurvePoint<'_>| {
        let raw = point.case.raw.as_ref();
        let raw = raw.filter(|_| point.case.status == Status::Ok)?;
        fast(Some(CostEstimate {
            value: raw.value,
            ci95: raw.ci95,
        }))
    };
    let speed_up = |point: &CurvePoint<'_>| fast(point.speed_up);
    let efficiency = |point: &CurvePoint<'_>| {
        let share = point.efficiency.filter(|_| chart.tells_speed)?;
        Some(Cell::number(number::percent(share), share))
    };
    let fairness = |point: &CurvePoint<'_>| {
        let index = point.fairness().filter(|_| chart.tells_speed)?;
        Some(Cell::number(number::fixed(index, 2), index))
    };
    let misses = |point: &CurvePoint<'_>| point.case.misses().map(share_cell);
    let unit = chart.record.unit.to_string();
    let rate = |point: &CurvePoint<'_>| {
        let rate = point.rate?;
        Some(Cell::number(chart.rate(rate), rate.value))
    };
    let columns: [RateColumn<'_>; 9] = [
        (RATE, &rate),
        (&unit, &cost),
        ("speed-up", &speed_up),
        ("efficiency", &efficiency),
        ("misses", &misses),
        ("fairness", &fairness),
        ("p50 ns", &p50),
        ("p99 ns", &p99),
        ("p99.9 ns", &p999),
    ];
    let filled = |column: &&RateColumn<'_>| {
        let mut points = rows.iter().filter_map(|row| row.1);
        wanted(column.0) && points.any(|point| column.1(point).is_some())
    };
    let columns: Vec<&RateColumn<'_>> = columns.iter().filter(filled).collect();
    let rates = chart.rate_unit.of(&chart.operations());
    let heads = columns.iter().map(|column| match column.0 {
        RATE => Head::number(rates.clone()),
        head => Head::number(head),
    });
    let cells = |(name, point): &(String, Option<&CurvePoint<'_>>)| {
        let cell = |column: &&RateColumn<'_>| point.and_then(column.1);
        row((name.clone(), columns.iter().map(cell).collect()))
    };
    Table {
        title,
        head: std::iter::once(Head::words(bpfcost_text::line(corner)))
            .chain(heads)
            .collect(),
        rows: rows.iter().map(cells).collect(),
        captions: vec![point_caption(chart, &columns)],
        ..Table::default()
    }
}

/// What the columns of [`table`] mean.
fn point_caption(chart: &Chart<'_>, columns: &[&RateColumn<'_>]) -> String {
    let unit = chart.record.unit.to_string();
    let over = bpfcost_text::line(&chart.curves.scaling.over);
    let cases = &mut chart.record.cases.iter();
    let clock = cases.find_map(|case| case.secondary_value(LATENCY_CLOCK));
    let clock = clock.map_or_else(String::new, |ns| {
        format!(", about {}{}ns", number::fixed(ns, 0), number::HOLD)
    });
    let meanings = [
        (
            unit.as_str(),
            format!(
                "{unit}: time of one {} for each of the {over}.",
                chart.operation()
            ),
        ),
        (
            "speed-up",
            format!("speed-up: relative to the fewest {over}."),
        ),
        (
            "efficiency",
            "efficiency: speed-up as a share of what that many CPUs could give.".to_owned(),
        ),
        (
            "p50 ns",
            format!(
                "p50, p99, p99.9: of single {}, timed one by one in a separate pass. They include a clock \
                 read{clock}.",
                chart.operations()
            ),
        ),
    ];
    let has = |head: &str| columns.iter().any(|column| column.0 == head);
    let there = meanings.into_iter().filter(|one| has(one.0));
    there.map(|one| one.1).collect::<Vec<String>>().join(" ")
}

/// The rates under other circumstances, where curves are compared; `None` where there are no others.
fn changed(chart: &Chart<'_>) -> Option<Table> {
    let threads = chart.told_at();
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
            apart => bpfcost_text::line(apart),
        };
        row((name, series.iter().map(cell).collect()))
    };
    let heads = series
        .iter()
        .map(|name| Head::number(bpfcost_text::line(name)));
    Some(Table {
        title: format!(
            "Other conditions, {}, {}",
            chart.at(threads).trim_end_matches(','),
            chart.rate_unit.per_second()
        ),
        head: std::iter::once(Head::words("")).chain(heads).collect(),
        rows: chart.curves.groups.iter().map(cells).collect(),
        ..Table::default()
    })
}
