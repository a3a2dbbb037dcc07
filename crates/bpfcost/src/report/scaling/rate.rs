//! What all threads do together, what it takes each, and what is to know of a point.

use super::{
    Chart, FAIR, KNEE_MARK, MANY_MISSES, MISSES_MARK, UNFAIR_MARK, misses_much, of_group,
    share_cell, with_ends,
};
use crate::{
    record::{Curve, CurveGroup, CurvePoint, Part, Status},
    report::{
        block::{Block, Cell, Head},
        missed, number, rows, target, text,
    },
};

/// The secondary value with what reading the clock adds to a latency, in nanoseconds.
const LATENCY_CLOCK: &str = "latency_clock_ns";

/// The tables, most important first; of all groups in full where `all` is wanted.
pub(super) fn blocks(chart: &Chart<'_>, all: bool) -> Vec<Block> {
    let groups = &chart.curves.groups;
    let (usual, others) = (&groups[0], &groups[1..]);
    let mut blocks = vec![rates(chart, usual)];
    // What an emulator shows are misses.
    let place = usize::from(chart.tells_speed);
    blocks.splice(place..place, misses(chart));
    if all {
        blocks.push(at_one_count(chart, usual, all));
        blocks.extend(others.iter().map(|group| rates(chart, group)));
    } else if chart.tells_speed {
        blocks.push(at_one_count(chart, usual, all));
        blocks.extend(changed(chart));
    }
    blocks
}

/// Curves as rows, the best first, and a column for each number of threads.
fn by_threads(
    chart: &Chart<'_>,
    group: &CurveGroup<'_>,
    cell: &dyn Fn(&Curve<'_>, &CurvePoint<'_>) -> Cell,
) -> Block {
    let counts = group.counts();
    let order = order(chart, group);
    let row = |curve: &&Curve<'_>| {
        let cells = counts.iter().map(|count| match curve.at(*count) {
            Some(point) => cell(curve, point),
            None => Cell::words(number::MISSING),
        });
        let name = Cell::words(text::line(curve.series));
        std::iter::once(name).chain(cells).collect()
    };
    Block {
        head: heads(chart, &counts),
        rows: order.iter().map(row).collect(),
        ..Block::default()
    }
}

/// The curves of a group: by the rate where they are told apart, those without one last.
pub(super) fn order<'g, 'a>(chart: &Chart<'_>, group: &'g CurveGroup<'a>) -> Vec<&'g Curve<'a>> {
    let at = group.unshared(chart.curves.cpus).unwrap_or(1);
    let rated = group.by_rate(at);
    let mut order: Vec<&Curve<'a>> = rated.iter().map(|(curve, ..)| *curve).collect();
    let missing = group.curves.iter().filter(|curve| {
        let rated = order.iter().any(|one| one.series == curve.series);
        !rated
    });
    let missing: Vec<&Curve<'a>> = missing.collect();
    order.extend(missing);
    order
}

fn heads(chart: &Chart<'_>, counts: &[u32]) -> Vec<Head> {
    let scaling = chart.curves.scaling;
    let corner = Head::words(text::line(&scaling.series));
    let counts = counts
        .iter()
        .map(|count| Head::number(chart.threads(*count)));
    std::iter::once(corner).chain(counts).collect()
}

/// What all threads do together.
fn rates(chart: &Chart<'_>, group: &CurveGroup<'_>) -> Block {
    let cell = |curve: &Curve<'_>, point: &CurvePoint<'_>| {
        chart.rate_cell(point, curve.knee == Some(point.threads))
    };
    let threads = text::line(&chart.curves.scaling.over);
    Block {
        title: format!(
            "{} a second of all {threads} together, {}{}",
            rows::heading(&chart.operations()),
            chart.rate_unit.per_second(),
            of_group(group)
        ),
        captions: vec![marks_caption(chart, group)],
        ..by_threads(chart, group, &cell)
    }
}

/// What the marks mean, of those that are there.
fn marks_caption(chart: &Chart<'_>, group: &CurveGroup<'_>) -> String {
    let points = || group.curves.iter().flat_map(|curve| &curve.points);
    let knees = group.curves.iter().any(|curve| curve.knee.is_some());
    let mut parts = Vec::new();
    if chart.tells_speed && knees {
        parts.push(format!(
            "{KNEE_MARK} knee: the fewest {} that reach 95 % of the curve's best.",
            text::line(&chart.curves.scaling.over)
        ));
    }
    if points().any(misses_much) {
        let operations = chart.operations();
        let probed = points().any(|point| missed::asked(point.case));
        parts.push(match probed {
            true => format!("{MISSES_MARK} misses: the probe missed some of the {operations}."),
            false => format!(
                "{MISSES_MARK} misses: more than {} of the {operations} first found nothing.",
                number::percent(MANY_MISSES)
            ),
        });
    }
    if chart.tells_speed && points().any(|point| chart.is_unfair(point)) {
        parts.push(format!(
            "{UNFAIR_MARK} unfair: Jain's index over the threads' rates is below {FAIR}."
        ));
    }
    parts.push("±: as far as the 95 % interval reaches.".to_owned());
    let cpus = chart.curves.cpus;
    if group.counts().iter().any(|count| *count > cpus) {
        parts.push(format!(
            "Beyond {}, {} share the {}.",
            cpus,
            text::line(&chart.curves.scaling.over),
            if cpus == 1 { "CPU" } else { "CPUs" }
        ));
    }
    if !chart.tells_speed {
        parts.push(target::NO_SPEED.to_owned());
    }
    parts.join(" ")
}

/// What an operation takes each thread at a point; `None` where it has no result.
fn cost_cell(point: &CurvePoint<'_>) -> Option<Cell> {
    let raw = point.case.raw.as_ref();
    let raw = raw.filter(|_| point.case.status == Status::Ok)?;
    Some(Cell::number(with_ends(raw.value, raw.ci95), raw.value))
}

/// The share of operations that found nothing, of the curves where any did.
fn misses(chart: &Chart<'_>) -> Option<Block> {
    let mut counts: Vec<u32> = Vec::new();
    let mut rows = Vec::new();
    for group in &chart.curves.groups {
        for curve in &group.curves {
            if curve.points.iter().any(misses_much) {
                counts.extend(curve.points.iter().map(|point| point.threads));
                rows.push((group, curve));
            }
        }
    }
    counts.sort_unstable();
    counts.dedup();
    let row = |(group, curve): &(&CurveGroup<'_>, &Curve<'_>)| {
        let cells = counts.iter().map(|count| {
            let share = curve.at(*count).and_then(|point| point.case.misses());
            share.map_or_else(|| Cell::words(number::MISSING), share_cell)
        });
        let name = format!("{}{}", text::line(curve.series), of_group(group));
        std::iter::once(Cell::words(name)).chain(cells).collect()
    };
    (!rows.is_empty()).then(|| Block {
        title: format!("Misses, of all {}", chart.operations()),
        head: heads(chart, &counts),
        rows: rows.iter().map(row).collect(),
        ..Block::default()
    })
}

/// A column of [`at_one_count`]: its heading, and the cell of a point where it has one.
type Column<'f> = (&'f str, &'f dyn Fn(&CurvePoint<'_>) -> Option<Cell>);

/// What is to know of every curve where there are as many threads as CPUs.
fn at_one_count(chart: &Chart<'_>, group: &CurveGroup<'_>, all: bool) -> Block {
    let threads = chart.told_at();
    let order = order(chart, group);
    let points: Vec<&CurvePoint<'_>> = order.iter().filter_map(|curve| curve.at(threads)).collect();
    let latency = |place: usize| {
        move |point: &CurvePoint<'_>| {
            let ns = point.latencies()[place]?;
            Some(Cell::number(number::fixed(ns, 0), ns))
        }
    };
    let (p50, p99, p999) = (latency(0), latency(1), latency(2));
    let speed_up = |point: &CurvePoint<'_>| {
        let Part { value, ci95 } = point.speed_up.filter(|_| chart.tells_speed)?;
        Some(Cell::number(with_ends(value, ci95), value))
    };
    let efficiency = |point: &CurvePoint<'_>| {
        // A line has no room for it, and speed-up says as much.
        let share = point.efficiency.filter(|_| chart.tells_speed && all)?;
        Some(Cell::number(number::percent(share), share))
    };
    let fairness = |point: &CurvePoint<'_>| {
        let index = point.fairness().filter(|_| chart.tells_speed)?;
        Some(Cell::number(number::fixed(index, 2), index))
    };
    let misses = |point: &CurvePoint<'_>| point.case.misses().map(share_cell);
    let cost = |point: &CurvePoint<'_>| cost_cell(point).filter(|_| chart.tells_speed);
    let unit = chart.record.unit.to_string();
    let columns: [Column<'_>; 8] = [
        (&unit, &cost),
        ("speed-up", &speed_up),
        ("efficiency", &efficiency),
        ("misses", &misses),
        ("fairness", &fairness),
        ("p50 ns", &p50),
        ("p99 ns", &p99),
        ("p99.9 ns", &p999),
    ];
    let there: Vec<&Column<'_>> = columns
        .iter()
        .filter(|(_, cell)| points.iter().any(|point| cell(point).is_some()))
        .collect();
    let row = |curve: &&Curve<'_>| {
        let point = curve.at(threads);
        let cells = there.iter().map(|(_, cell)| {
            point
                .and_then(cell)
                .unwrap_or_else(|| Cell::words(number::MISSING))
        });
        let name = Cell::words(text::line(curve.series));
        std::iter::once(name).chain(cells).collect()
    };
    let corner = Head::words(text::line(&chart.curves.scaling.series));
    let at = chart.at(threads);
    let columns = there.iter().map(|(head, _)| Head::number(*head));
    Block {
        title: rows::heading(at.trim_end_matches(',')),
        head: std::iter::once(corner).chain(columns).collect(),
        rows: order.iter().map(row).collect(),
        captions: point_captions(chart, &there, group),
        ..Block::default()
    }
}

/// What the columns of [`at_one_count`] mean.
fn point_captions(
    chart: &Chart<'_>,
    columns: &[&Column<'_>],
    group: &CurveGroup<'_>,
) -> Vec<String> {
    let has = |head: &str| columns.iter().any(|column| column.0 == head);
    let mut captions = Vec::new();
    let unit = chart.record.unit.to_string();
    if has(&unit) {
        captions.push(format!(
            "{unit}: what one {} takes each {}.",
            chart.operation(),
            super::singular(&text::line(&chart.curves.scaling.over))
        ));
    }
    if let Some(first) = group.counts().first().filter(|_| has("speed-up")) {
        captions.push(format!("speed-up: against {}.", chart.threads(*first)));
    }
    if has("efficiency") {
        captions.push("efficiency: that, of what as many CPUs could give.".to_owned());
    }
    if has("p50 ns") {
        let cases = &mut chart.record.cases.iter();
        let clock = cases.find_map(|case| case.secondary_value(LATENCY_CLOCK));
        let clock = clock.map_or_else(String::new, |ns| {
            format!(", about {}{}ns", number::fixed(ns, 0), number::HOLD)
        });
        captions.push(format!(
            "p50, p99, p99.9: of single {}, timed one by one in a pass of their own; reading the clock is part \
             of them{clock}.",
            chart.operations()
        ));
    }
    vec![captions.join(" ")]
}

/// The rates under other circumstances, where curves are told apart; `None` where there are no others.
fn changed(chart: &Chart<'_>) -> Option<Block> {
    let threads = chart.told_at();
    let others = chart
        .curves
        .groups
        .get(1..)
        .filter(|others| !others.is_empty())?;
    let mut series: Vec<&str> = Vec::new();
    for curve in order(chart, chart.usual())
        .into_iter()
        .chain(others.iter().flat_map(|group| &group.curves))
    {
        let varied = others
            .iter()
            .any(|group| group.curves.iter().any(|own| own.series == curve.series));
        if varied && !series.contains(&curve.series) {
            series.push(curve.series);
        }
    }
    let row = |group: &CurveGroup<'_>| {
        let cells = series.iter().map(|name| {
            let curve = group.curves.iter().find(|curve| curve.series == *name);
            let point = curve.and_then(|curve| curve.at(threads));
            point.map_or_else(
                || Cell::words(number::MISSING),
                |point| chart.rate_cell(point, false),
            )
        });
        let name = match group.apart.as_str() {
            "" => "as usual".to_owned(),
            apart => text::line(apart),
        };
        std::iter::once(Cell::words(name)).chain(cells).collect()
    };
    let heads = series.iter().map(|name| Head::number(text::line(name)));
    Some(Block {
        title: format!(
            "Under other circumstances, {}, {}",
            chart.at(threads).trim_end_matches(','),
            chart.rate_unit.per_second()
        ),
        head: std::iter::once(Head::words("")).chain(heads).collect(),
        rows: chart.curves.groups.iter().map(row).collect(),
        ..Block::default()
    })
}
