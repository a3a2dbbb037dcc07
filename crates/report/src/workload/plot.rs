//! A workload's figures: curves along a factor, CPU time by part, the distribution of latencies.

use super::{
    FactorSlice, WorkloadReport,
    quantity::{self, Scale},
};
use crate::{
    figure::{
        curve::{Plot, Point, Series},
        stack::{Bar, Stack},
    },
    rows::heading,
    scaling::RateUnit,
};
use bpfcost_record::{CaseRecord, CostEstimate, State, Status};
use bpfcost_text::line;

/// Percentiles of latency by the name of the value, and the share of operations that took at most so long.
const PERCENTILES: [(&str, &str, f64); 8] = [
    ("latency_p10_us", "10 %", 0.1),
    ("latency_p25_us", "25 %", 0.25),
    ("latency_p50_us", "50 %", 0.5),
    ("latency_p75_us", "75 %", 0.75),
    ("latency_p90_us", "90 %", 0.9),
    ("latency_p95_us", "95 %", 0.95),
    ("latency_p99_us", "99 %", 0.99),
    ("latency_p999_us", "99.9 %", 0.999),
];
/// The CPU time of the server, of clients, of probes' own user space; the rest of the machine follows.
const PARTS: [(&str, &str); 3] = [
    ("server_ns", "server"),
    ("client_ns", "clients"),
    ("tool_ns", "the probe's tool"),
];

/// CPU time and throughput along a factor, a figure each; none where its values are no sizes.
pub(crate) fn curves(report: &WorkloadReport<'_>) -> Vec<Plot> {
    let Some(over) = report.states.over() else {
        return Vec::new();
    };
    let along = report.along(over).into_iter();
    let plot = |along: FactorSlice<'_, '_>| {
        let mut sized = Vec::new();
        for state in &along.states {
            sized.push((size(state.factors[over])?, *state));
        }
        let lines = lines(report, |name| {
            let points = sized.iter().filter_map(|(at, state)| {
                Some(Point {
                    at: *at,
                    place: line(state.factors[over]),
                    ..point(along.quantity.value(case_of(state, name)?)?)
                })
            });
            points.collect()
        });
        let over = line(over);
        Some(Plot {
            title: heading(&format!("{} by {over}{}", along.quantity.name, along.apart)),
            unit: RateUnit {
                size: along.scale.size,
                prefix: "",
            },
            rates: along.scale.unit,
            over,
            cpus: None,
            turned: false,
            lines,
            small: true,
        })
    };
    along.filter_map(plot).collect()
}

/// A line for off and one for every probe, of those with points.
fn lines(report: &WorkloadReport<'_>, points: impl Fn(&str) -> Vec<Point>) -> Vec<Series> {
    let names = names(report).into_iter().enumerate();
    let lines = names.map(|(hue, name)| Series {
        series: line(name),
        hue,
        points: points(name),
    });
    lines.filter(|line| !line.points.is_empty()).collect()
}

/// The distribution of latencies in each state, at the percentiles that the client reports.
pub(crate) fn latencies(report: &WorkloadReport<'_>) -> Vec<Plot> {
    let all = report.states.all.iter();
    all.filter_map(|state| latency(report, state)).collect()
}

fn latency(report: &WorkloadReport<'_>, state: &State<'_>) -> Option<Plot> {
    let mut lines = lines(report, |name| {
        let case = case_of(state, name);
        let at = |(value, place, share): (&str, &str, f64)| {
            Some(Point {
                // By the odds, so that the bulk shows and so does the tail.
                at: share / (1.0 - share),
                place: place.to_owned(),
                ..point(case?.secondary_part(value)?)
            })
        };
        PERCENTILES.into_iter().filter_map(at).collect()
    });
    // One percentile is no curve.
    lines.retain(|line| line.points.len() > 1);
    let least = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.rate)
        .fold(f64::INFINITY, f64::min);
    let (size, name) = match least {
        us if us < 1e3 => (1.0, "µs"),
        _ => (1e3, "ms"),
    };
    (!lines.is_empty()).then(|| Plot {
        title: report.title("ECDF of latency", state),
        unit: RateUnit { size, prefix: "" },
        rates: name.to_owned(),
        over: "of operations".to_owned(),
        cpus: None,
        turned: true,
        lines,
        small: true,
    })
}

/// CPU time of the whole machine per operation by where it goes, in each state.
pub(crate) fn stacks(report: &WorkloadReport<'_>) -> Vec<Stack> {
    let all = report.states.all.iter();
    all.filter_map(|state| stack(report, state)).collect()
}

fn stack(report: &WorkloadReport<'_>, state: &State<'_>) -> Option<Stack> {
    let values = |part: &'static str| {
        state
            .cases()
            .filter_map(move |case| case.secondary_value(part))
    };
    let machine = values("machine_ns");
    let scale = if quantity::is_share(report.states.workload) {
        Scale {
            size: quantity::PERCENT_NS,
            unit: quantity::SHARE.to_owned(),
        }
    } else {
        Scale::for_nanos(machine.fold(f64::INFINITY, f64::min))
    };
    let size = scale.size;
    let bar = |name: &str| {
        let case = case_of(state, name)?;
        let whole = case.secondary_part("machine_ns")?;
        let parts = PARTS
            .iter()
            .map(|part| case.secondary_value(part.0).unwrap_or(0.0) / size);
        let mut values: Vec<f64> = parts.collect();
        values.push((whole.value / size - values.iter().sum::<f64>()).max(0.0));
        Some(Bar {
            name: line(name),
            values,
            ci95: whole.ci95.map(|ends| ends.map(|end| end / size)),
            total: scale.text(whole),
        })
    };
    let bars: Vec<Bar> = names(report).into_iter().filter_map(bar).collect();
    let rest = match values("client_ns").next() {
        Some(_) => "rest of the machine",
        None => "clients and rest of the machine",
    };
    let parts = PARTS.iter().map(|part| part.1).chain([rest]);
    let operation = line(&report.states.workload.operation);
    (!bars.is_empty()).then(|| Stack {
        title: report.title(&format!("Parts of the CPU time per {operation}"), state),
        unit: scale.unit,
        parts: parts.map(str::to_owned).collect(),
        bars,
    })
}

/// Off, and every probe.
fn names<'a>(report: &WorkloadReport<'a>) -> Vec<&'a str> {
    let off = std::iter::once(bpfcost_model::OFF);
    off.chain(report.states.variants()).collect()
}

fn case_of<'a>(state: &State<'a>, name: &str) -> Option<&'a CaseRecord> {
    let case = match name {
        bpfcost_model::OFF => state.off,
        variant => state.probed(variant).map(|probed| probed.case),
    };
    case.filter(|case| case.status == Status::Ok)
}

/// A point without its position.
fn point(part: CostEstimate) -> Point {
    Point {
        at: 1.0,
        place: String::new(),
        rate: part.value,
        ci95: part.ci95,
        knee: false,
    }
}

/// Number of bytes or items that a size names: `4`, `4k`, `1.5 MiB`.
fn size(place: &str) -> Option<f64> {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let end = place.find(|c| !digits(c)).unwrap_or(place.len());
    let (value, unit) = place.split_at(end);
    let times = match unit.trim_start().chars().next() {
        None | Some('b' | 'B') => 1.0,
        Some('k' | 'K') => 1024.0,
        Some('m' | 'M') => 1024.0 * 1024.0,
        Some('g' | 'G') => 1024.0 * 1024.0 * 1024.0,
        Some(_) => return None,
    };
    let value: f64 = value.parse().ok()?;
    (value > 0.0).then_some(value * times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_places() {
        assert_eq!(size("4"), Some(4.0));
        assert_eq!(size("4k"), Some(4096.0));
        assert_eq!(size("1.5 MiB"), Some(1_572_864.0));
        for none in ["", "0", "small", "-1", "4 %"] {
            assert_eq!(size(none), None, "{none}");
        }
    }
}
