//! A record whose cases make curves, as a few small tables, the same for all views: the throughput of all threads
//! and where it ends, the time per thread, and the comparisons.

mod plot;
mod sections;
mod summary;
mod tables;
mod verdict;

pub use self::summary::sentence;
use crate::{
    cost::CostText,
    misses,
    rows::{self, CaseRow, PairRow, RowGroup},
    table::{Cell, Table},
    target,
};
use bpfcost_model::Role;
use bpfcost_record::{CaseRecord, CostEstimate, CurveGroup, CurvePoint, Curves, Record};
use bpfcost_text::{line, number};

/// Marks the knee of a curve.
const KNEE_MARK: &str = "◆";
/// Marks a point where more than [`MANY_MISSES`] found nothing, or a probe missed calls.
const MISSES_MARK: &str = "∅";
/// Marks a point where threads did much less than others.
const UNFAIR_MARK: &str = "≠";
/// Misses per operation from which a point is marked.
const MANY_MISSES: f64 = 0.001;
/// The share of a value beyond which its interval is shown by both ends.
const FAR: f64 = 0.3;
/// Jain's index below which a point is marked.
const FAIR: f64 = 0.9;

/// A record whose cases make curves.
#[derive(Debug)]
pub struct Chart<'a> {
    /// Source of the curves.
    pub record: &'a Record,
    /// The curves.
    pub curves: Curves<'a>,
    /// Unit in which rates are shown.
    pub rate_unit: RateUnit,
    /// True if rates show speed: not where an emulator took the time.
    pub tells_speed: bool,
}

impl<'a> Chart<'a> {
    /// The curves of a record; `None` where its cases make none.
    pub fn new(record: &'a Record) -> Option<Self> {
        let curves = Curves::from_record(record)?;
        let rates = curves
            .points()
            .filter_map(|(_, _, point)| Some(point.rate?.value));
        Some(Chart {
            record,
            rate_unit: RateUnit::fit(rates),
            curves,
            tells_speed: !target::is_emulated(record),
        })
    }

    /// The tables, most important first; those of every point too, where `all` is wanted.
    pub fn tables(&self, all: bool) -> Vec<Table> {
        let mut tables = tables::tables(self, all);
        tables.extend(verdict::table(self));
        tables
    }

    /// The cases that are on no curve, by heading; no floors.
    pub fn others(&self) -> Vec<RowGroup<CaseRow<'a>>> {
        let mut groups = rows::groups(self.record);
        for group in &mut groups {
            group.rows.retain(|row| {
                row.case.role == Role::Case && row.case.point(self.curves.scaling).is_none()
            });
        }
        groups.retain(|group| !group.rows.is_empty());
        groups
    }

    /// The comparisons that are not of two curves at the same place.
    pub fn other_pairs(&self) -> Vec<PairRow<'a>> {
        let mut pairs = rows::pairs(self.record);
        pairs.retain(|pair| !verdict::fits(pair.comparison, self));
        pairs
    }

    /// The curves that are laid over each other first.
    pub fn usual(&self) -> &CurveGroup<'a> {
        &self.curves.groups[0]
    }

    /// The number of threads at which curves are compared: one for each CPU, or the next lower number measured.
    pub fn compared_at(&self) -> u32 {
        self.usual().unshared(self.curves.cpus).unwrap_or(1)
    }

    /// Plural noun for the operations of a rate: `pairs`.
    pub fn operations(&self) -> String {
        line(operations(&self.curves.scaling.rate))
    }

    /// Noun for one operation: `pair`.
    pub fn operation(&self) -> String {
        singular(&self.operations())
    }

    /// `1 thread`, `8 threads`.
    pub fn threads(&self, count: u32) -> String {
        let noun = line(&self.curves.scaling.over);
        number::plural(count as usize, &singular(&noun))
    }

    /// `at 4 threads, one for each of 4 CPUs`.
    pub fn at(&self, threads: u32) -> String {
        let cpus = self.curves.cpus;
        let count = self.threads(threads);
        match threads {
            1 => format!("with {count}"),
            _ if threads == cpus => format!("at {count}, one for each of {cpus} CPUs,"),
            _ => format!("at {count} on {}", number::plural(cpus as usize, "CPU")),
        }
    }

    /// A rate with how far its interval reaches.
    pub fn rate(&self, rate: CostEstimate) -> String {
        let size = self.rate_unit.size;
        let ci95 = rate.ci95.map(|ends| ends.map(|end| end / size));
        with_ends(rate.value / size, ci95)
    }

    /// Returns true if a point's threads were served unevenly. Threads that share CPUs do not count: the scheduler decides.
    fn is_unfair(&self, point: &CurvePoint<'_>) -> bool {
        let apart = point.threads <= self.curves.cpus;
        apart && point.fairness().is_some_and(|fairness| fairness < FAIR)
    }

    /// The cell of the rate at a point, with its marks; or a word for why there is none.
    fn rate_cell(&self, point: &CurvePoint<'_>, knee: bool) -> Cell {
        let Some(rate) = point.rate.filter(|rate| rate.value.is_finite()) else {
            return absent(point.case, self.record);
        };
        let marks = [
            (knee && self.tells_speed, KNEE_MARK),
            (misses_much(point), MISSES_MARK),
            (self.tells_speed && self.is_unfair(point), UNFAIR_MARK),
        ];
        let marks: String = marks
            .iter()
            .filter(|mark| mark.0)
            .map(|mark| mark.1)
            .collect();
        let text = self.rate(rate);
        // Marks stand before numbers, so that numbers stay in their columns.
        let text = match marks.as_str() {
            "" => text,
            marks => format!("{marks}{}{text}", number::HOLD),
        };
        Cell::number(text, rate.value)
    }
}

fn share_cell(share: f64) -> Cell {
    Cell::number(misses::share(share), share)
}

/// `20.1 ±0.3`; `12 [11, 72]` where the interval reaches far, for then its sides are rarely alike.
pub fn with_ends(value: f64, ci95: Option<[f64; 2]>) -> String {
    let far = |[low, high]: &[f64; 2]| (value - low).max(high - value) > FAR * value.abs();
    match ci95.filter(far) {
        Some(ends) => {
            let decimals = number::estimate_decimals(value, ci95);
            format!(
                "{} {}",
                number::fixed(value, decimals),
                number::interval(ends, decimals)
            )
        }
        None => number::with_reach(value, ci95),
    }
}

/// The cell of a point without a result.
fn absent(case: &CaseRecord, record: &Record) -> Cell {
    let cost = CostText::raw(case, record);
    Cell::words(cost.value).toned(cost.tone)
}

fn misses_much(point: &CurvePoint<'_>) -> bool {
    let most = if misses::are_missed_calls(point.case) {
        0.0
    } else {
        MANY_MISSES
    };
    point.case.misses().is_some_and(|misses| misses > most)
}

/// Suffix of titles that names a group of curves; empty for the usual one.
fn group_suffix(group: &CurveGroup<'_>) -> String {
    match group.apart.as_str() {
        "" => String::new(),
        apart => format!(", {}", line(apart)),
    }
}

/// `pairs` of `pairs_per_s`.
fn operations(rate: &str) -> &str {
    rate.strip_suffix("_per_s").unwrap_or(rate)
}

fn singular(noun: &str) -> String {
    noun.strip_suffix('s').unwrap_or(noun).to_owned()
}

/// Unit in which rates are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateUnit {
    /// Operations per unit.
    pub size: f64,
    /// Prefix of the unit: `M`.
    pub prefix: &'static str,
}

impl RateUnit {
    /// Returns the unit in which the smallest of some rates still has digits.
    pub fn fit(rates: impl Iterator<Item = f64>) -> Self {
        let least = rates
            .filter(|rate| rate.is_finite() && *rate > 0.0)
            .fold(f64::INFINITY, f64::min);
        let unit = |size, prefix| RateUnit { size, prefix };
        match least {
            least if least < 100.0 => unit(1.0, ""),
            least if least < 1e5 => unit(1e3, "k"),
            _ => unit(1e6, "M"),
        }
    }

    /// A rate without its unit, to three digits.
    pub fn plain(&self, rate: f64) -> String {
        let value = rate / self.size;
        number::fixed(value, number::plain_decimals(value).min(2))
    }

    /// A round rate without its unit.
    pub fn tick(&self, rate: f64) -> String {
        let value = rate / self.size;
        number::fixed(value, number::counted_decimals(value))
    }

    /// `M/s`.
    pub fn per_second(&self) -> String {
        format!("{}/s", self.prefix)
    }

    /// `M pairs/s`.
    pub fn rate_of(&self, operations: &str) -> String {
        format!("{} {operations}/s", self.prefix)
            .trim_start()
            .to_owned()
    }
}
