//! Curves over the number of threads: throughput, speed-up, efficiency, the knee. Uses only the record.
//!
//! A curve is made of the cases that differ in one factor, a count (`threads`). What grows along it is a rate,
//! the median of each epoch's trials; estimate and interval over epochs are those of a case's own value.
//! Speed-up is taken within epochs, against the first point of the curve. Efficiency is speed-up over what a
//! machine could give: as many times as there are more threads, up to its CPUs. The knee is the fewest threads
//! that reach [`KNEE`] of the curve's best rate: beyond it, more of them gain little or nothing.

use std::collections::BTreeSet;

use bpfcost_stats::{Differences, Estimate, Sample, hodges_lehmann, sample::epoch_medians};

use crate::{CaseRecord, CostEstimate, Record, Status};
use bpfcost_model::{Role, Scaling};

/// The share of a curve's best rate that its knee reaches.
pub const KNEE: f64 = 0.95;
/// The secondary value with the share of calls that a probe missed. Each of them counts.
pub const MISSED_SHARE: &str = "missed";
/// Secondary values that count what found nothing, per operation.
const MISSES: [&str; 2] = ["misses", MISSED_SHARE];
/// The secondary value with Jain's index over the threads' rates: 1 where all did the same.
const FAIRNESS: &str = "fairness";
/// Secondary values with percentiles of single operations, in nanoseconds.
const LATENCIES: [&str; 3] = ["latency_p50_ns", "latency_p99_ns", "latency_p999_ns"];

/// The curves of a record.
#[derive(Debug)]
pub struct Curves<'a> {
    /// The factors that make curves of cases.
    pub scaling: &'a Scaling,
    /// CPUs that the threads ran on.
    pub cpus: u32,
    /// Curves of the same circumstances; those without any further name come first.
    pub groups: Vec<CurveGroup<'a>>,
}

/// Curves that can be laid over each other.
#[derive(Debug)]
pub struct CurveGroup<'a> {
    /// The part of the cases' names that distinguishes them from the usual ones (`hold-100`); empty for those.
    pub apart: String,
    /// The curves, in the record's order.
    pub curves: Vec<Curve<'a>>,
}

/// One curve.
#[derive(Debug)]
pub struct Curve<'a> {
    /// The value of the factor that names curves: `freelist`.
    pub series: &'a str,
    /// The points, by threads.
    pub points: Vec<CurvePoint<'a>>,
    /// The threads of its knee; `None` with fewer than two rates.
    pub knee: Option<u32>,
}

/// One point of a curve: one case.
#[derive(Debug)]
pub struct CurvePoint<'a> {
    /// Threads.
    pub threads: u32,
    /// The case.
    pub case: &'a CaseRecord,
    /// Operations per second of all threads together; `None` where the case has no result.
    pub rate: Option<CostEstimate>,
    /// `rate`, as a multiple of that of the curve's first point.
    pub speed_up: Option<CostEstimate>,
    /// `speed_up`, as a share of what more threads could give on these CPUs.
    pub efficiency: Option<f64>,
}

impl<'a> Curves<'a> {
    /// The curves of a record; `None` where its cases make none.
    pub fn from_record(record: &'a Record) -> Option<Self> {
        let scaling = record.layout.scaling()?;
        let cpus = u32::try_from(record.asked.cpus.len()).map_or(1, |cpus| cpus.max(1));
        let mut groups: Vec<CurveGroup<'a>> = Vec::new();
        for case in &record.cases {
            let Some((series, threads)) = case.point(scaling) else {
                continue;
            };
            let apart = case.beside_point(scaling);
            let group = find_or_add(
                &mut groups,
                |group| group.apart == apart,
                || CurveGroup {
                    apart: apart.clone(),
                    curves: Vec::new(),
                },
            );
            let curve = find_or_add(
                &mut group.curves,
                |curve| curve.series == series,
                || Curve {
                    series,
                    points: Vec::new(),
                    knee: None,
                },
            );
            // The first of a place counts.
            find_or_add(
                &mut curve.points,
                |point| point.threads == threads,
                || CurvePoint {
                    threads,
                    case,
                    rate: case.secondary_part(&scaling.rate),
                    speed_up: None,
                    efficiency: None,
                },
            );
        }
        // The usual circumstances are what a reader looks for first.
        groups.sort_by_key(|group| !group.apart.is_empty());
        for curve in groups.iter_mut().flat_map(|group| &mut group.curves) {
            curve.finish(scaling, cpus);
        }
        (!groups.is_empty()).then_some(Curves {
            scaling,
            cpus,
            groups,
        })
    }

    /// Every name of a curve once, in the record's order.
    pub fn series(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for curve in self.groups.iter().flat_map(|group| &group.curves) {
            if !names.contains(&curve.series) {
                names.push(curve.series);
            }
        }
        names
    }

    /// Every point, with its group and its curve.
    pub fn points(&self) -> impl Iterator<Item = (&CurveGroup<'a>, &Curve<'a>, &CurvePoint<'a>)> {
        self.groups.iter().flat_map(|group| {
            let curves = group.curves.iter();
            curves
                .flat_map(move |curve| curve.points.iter().map(move |point| (group, curve, point)))
        })
    }

    /// The rate of `case` as a multiple of that of `reference`, within epochs.
    pub fn times(&self, case: &CaseRecord, reference: &CaseRecord) -> Option<CostEstimate> {
        ratio(case, reference, &self.scaling.rate)
    }
}

impl<'a> CurveGroup<'a> {
    /// The numbers of threads that any curve has, rising.
    pub fn counts(&self) -> Vec<u32> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let mut counts: Vec<u32> = points.map(|point| point.threads).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// The most threads that have a CPU each; the fewest, where none do.
    pub fn unshared(&self, cpus: u32) -> Option<u32> {
        let counts = self.counts();
        let within = counts.iter().rev().find(|count| **count <= cpus);
        within.or(counts.first()).copied()
    }

    /// The curve of that name.
    pub fn curve(&self, series: &str) -> Option<&Curve<'a>> {
        self.curves.iter().find(|curve| curve.series == series)
    }
}

impl<'a> Curve<'a> {
    /// The point of so many threads.
    pub fn at(&self, threads: u32) -> Option<&CurvePoint<'a>> {
        self.points.iter().find(|point| point.threads == threads)
    }

    /// Computes speed-ups, efficiencies and the knee, which follow from all points.
    fn finish(&mut self, scaling: &Scaling, cpus: u32) {
        self.points.sort_by_key(|point| point.threads);
        let measured = || self.points.iter().filter(|point| point.rate.is_some());
        let first = measured().next().map(|point| (point.threads, point.case));
        let rates = || measured().filter_map(|point| Some((point.threads, point.rate?.value)));
        let best = rates().map(|(_, rate)| rate).fold(0.0, f64::max);
        let mut reaching = rates().filter(|(_, rate)| *rate >= KNEE * best);
        self.knee = reaching
            .next()
            .map(|(threads, _)| threads)
            .filter(|_| best > 0.0 && rates().count() > 1);
        let Some((fewest, first)) = first else {
            return;
        };
        for point in &mut self.points {
            point.speed_up = ratio(point.case, first, &scaling.rate);
            let more = f64::from(point.threads.min(cpus)) / f64::from(fewest.min(cpus));
            point.efficiency = point.speed_up.map(|part| part.value / more);
        }
    }
}

impl CurvePoint<'_> {
    /// Jain's index over the threads' rates: 1 where all did the same, 1 over their number where one did
    /// everything.
    pub fn fairness(&self) -> Option<f64> {
        self.case.secondary_value(FAIRNESS)
    }

    /// Latency of one operation at the median, at 99 % and at 99.9 %, in nanoseconds.
    pub fn latencies(&self) -> [Option<f64>; 3] {
        LATENCIES.map(|name| self.case.secondary_value(name))
    }
}

impl CaseRecord {
    /// Misses per operation; `None` if they were not counted, or the case has no result.
    pub fn misses(&self) -> Option<f64> {
        // Of all trials: a median would hide misses that come now and then.
        let mut values = MISSES.iter().filter_map(|name| self.secondary.get(*name));
        let counts = self.status == Status::Ok && self.raw.is_some();
        let values = values.next().filter(|_| counts)?;
        Some(Sample::new(&values.concat())?.mean())
    }

    /// A secondary value over the epochs, where the case's numbers count.
    pub fn secondary_value(&self, name: &str) -> Option<f64> {
        Some(self.secondary_part(name)?.value)
    }

    /// The same with its interval.
    pub fn secondary_part(&self, name: &str) -> Option<CostEstimate> {
        let epochs = medians(self, name)?;
        Some(CostEstimate {
            value: hodges_lehmann(&epochs)?,
            ci95: Estimate::for_case(&epochs).map(|e| [e.low, e.high]),
        })
    }
}

impl Record {
    /// The names of all secondary values of its cases.
    pub fn secondary_names(&self) -> BTreeSet<&str> {
        let names = self.cases.iter().flat_map(|case| case.secondary.keys());
        names.map(String::as_str).collect()
    }
}

impl CaseRecord {
    /// The curve that the case is on, and the number of threads there; `None` for floors and if it is on no curve.
    pub fn point(&self, scaling: &Scaling) -> Option<(&str, u32)> {
        let series = self.factors.get(&scaling.series)?.as_str();
        let threads: u32 = self.factors.get(&scaling.over)?.parse().ok()?;
        (self.role == Role::Case && threads > 0).then_some((series, threads))
    }

    /// The part of the name that is neither its curve nor its place on it. Names say what is not as usual.
    pub fn beside_point(&self, scaling: &Scaling) -> String {
        let factor = |name: &str| self.factors.get(name).map_or("", String::as_str);
        let plain = format!("{}/{}", factor(&scaling.series), factor(&scaling.over));
        match self.name.strip_prefix(&plain) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                rest.trim_start_matches('/').to_owned()
            }
            _ => {
                let factors = [&scaling.series, &scaling.over];
                let others = self
                    .factors
                    .iter()
                    .filter(|(name, _)| !factors.contains(name));
                let others: Vec<String> = others.map(|(a, b)| format!("{a}-{b}")).collect();
                others.join("/")
            }
        }
    }
}

/// The ratio of a secondary value of two cases, within epochs.
fn ratio(case: &CaseRecord, reference: &CaseRecord, name: &str) -> Option<CostEstimate> {
    let differences = Differences::pair(&medians(case, name)?, &medians(reference, name)?);
    Some(CostEstimate {
        value: hodges_lehmann(&differences.log_ratio)?.exp(),
        ci95: Estimate::for_difference(&differences.log_ratio).map(|e| [e.low.exp(), e.high.exp()]),
    })
}

fn medians(case: &CaseRecord, name: &str) -> Option<Vec<f64>> {
    let counts = case.status == Status::Ok && case.raw.is_some();
    let values = case.secondary.get(name).filter(|_| counts)?;
    Some(epoch_medians(values))
}

/// The first that is wanted; a new one at the end, where there is none.
fn find_or_add<T>(
    all: &mut Vec<T>,
    wanted: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> &mut T {
    let place = all.iter().position(wanted).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    });
    &mut all[place]
}
