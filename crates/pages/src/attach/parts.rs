//! Splits the cost of an attached program into parts, and checks whether they add up. Uses only the record.
//!
//! ```text
//! mechanism = ATTACH/empty − none/DRIVER        body = ATTACH/BODY − ATTACH/empty
//! tax       = ATTACH/empty/stats − ATTACH/empty
//! total     = ATTACH/BODY/stats − none/DRIVER
//! residual  = total − (mechanism + body + tax)
//!           = (ATTACH/BODY/stats − ATTACH/BODY) − (ATTACH/empty/stats − ATTACH/empty)
//! ```
//!
//! Mechanism and body alone add up by definition. The tax is taken from the empty program, so the residual
//! is a finding: what `bpf_stats` costs a body beyond what it costs an empty one. The costs of an attach type are of one
//! reading: as found, unless all of them are known undisturbed. Everything is computed epoch by epoch; the sums of a
//! record are judged together ([`bpfcost_stats::additive`]). Counts are plain numbers.
//!
//! The kernel keeps its own account: `run_time_ns ∕ run_cnt`. It reads its clock before and after each run,
//! and each time that it records includes about one such reading: the end of the first and the beginning of
//! the second. For an empty program that is the whole time. So the kernel's figure for a body is the
//! difference, ATTACH/BODY/stats − ATTACH/empty/stats; it is shown beside the cost measured from outside.

use bpfcost_stats::{
    Additive, Estimate, Sample,
    additive::{Square, Sum, SumVerdict, judge_sums},
    hodges_lehmann,
    sample::epoch_medians,
};

use super::{KERNEL_NS, MISSED, OTHER_FUNCTIONS};
use bpfcost_model::Grid;
use bpfcost_record::{CaseRecord, Cost, CostEstimate, Reading, Record, Status};

/// The body that does nothing: the mechanism alone.
const PLAIN: &str = "empty";
/// The factor that says whether `bpf_stats` is on.
const STATS: &str = "stats";
/// A residual of counts within this share of the total counts as zero.
pub(super) const COUNTED_MARGIN: f64 = 0.001;

/// The parts of every attach type of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// The factors of attach types and of bodies.
    grid: Grid,
    /// The bodies that add something, in the record's order.
    pub bodies: Vec<String>,
    /// Attach types that were measured, the cheapest mechanism first.
    pub rows: Vec<AttachParts>,
}

/// The parts of one attach type.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachParts {
    /// Name of the attach type, as in the factors of cases.
    pub attach: String,
    /// Reading of the costs: as found, or undisturbed by neighbours.
    pub reading: Reading,
    /// The empty program, less the events alone.
    pub mechanism: Option<CostEstimate>,
    /// Cost that each of [`Parts::bodies`] adds to the empty program.
    pub bodies: Vec<Option<CostEstimate>>,
    /// Cost that `bpf_stats` adds to the empty program.
    pub tax: Option<CostEstimate>,
    /// The kernel's account of a run of the empty program: about one reading of its clock.
    pub kernel_empty: Option<CostEstimate>,
    /// Bodies that ran with `bpf_stats` too.
    pub sums: Vec<PartsSum>,
    /// Calls that the mechanism skipped, and runs for other functions, where it has them.
    pub passed: Option<OtherRuns>,
}

/// Comparison of a body's parts with its cost with `bpf_stats`: mechanism, body and tax should add up to it.
#[derive(Clone, Debug, PartialEq)]
pub struct PartsSum {
    /// Name of the body.
    pub body: String,
    /// Cost of mechanism, body and tax together, as measured.
    pub total: CostEstimate,
    /// Remainder of the total beyond mechanism, body and tax.
    pub residual: CostEstimate,
    /// Verdict on whether the residual is zero.
    pub adds_up: Additive,
    /// The body by the kernel's own account, without the reading of its clock.
    pub kernel: Option<CostEstimate>,
}

/// Calls that a mechanism skipped, and runs for other functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OtherRuns {
    /// Calls that it skipped, an event.
    pub missed_per_event: f64,
    /// Runs for other functions, an event.
    pub others_per_event: f64,
}

impl Parts {
    /// The parts of a record, where its cases have such; `None` where none was measured.
    pub fn from_record(record: &Record) -> Option<Self> {
        let grid = record.layout.grid()?;
        let record = record.in_one_reading_by(&grid.rows);
        let seen = FactorTable {
            record: &record,
            grid,
        };
        let bodies = seen.values(&grid.columns, |body| body != PLAIN);
        let mut rows: Vec<AttachParts> = seen
            .values(&grid.rows, |_| true)
            .into_iter()
            .filter_map(|attach| seen.row(attach, &bodies))
            .collect();
        for (attach, sum) in seen.sums(&rows, &bodies) {
            rows[attach].sums.push(sum);
        }
        let order = |row: &AttachParts| row.mechanism.map_or(f64::INFINITY, |part| part.value);
        rows.sort_by(|a, b| order(a).total_cmp(&order(b)));
        (!rows.is_empty()).then(|| Parts {
            grid: grid.clone(),
            bodies,
            rows,
        })
    }

    /// Returns the part that a case is, its cost, and the sum if the case has all parts together; `None` if it is no
    /// part or has no value.
    pub fn role(
        &self,
        case: &CaseRecord,
    ) -> Option<(&'static str, CostEstimate, Option<&PartsSum>)> {
        let factor = |name: &str| case.factors.get(name).map(String::as_str);
        let (attach, body) = (factor(&self.grid.rows)?, factor(&self.grid.columns)?);
        let row = self.rows.iter().find(|row| row.attach == attach)?;
        let taxed = factor(STATS) == Some("on");
        Some(match (body == PLAIN, taxed) {
            (true, false) => ("mechanism", row.mechanism?, None),
            (true, true) => ("tax", row.tax?, None),
            (false, true) => {
                let sum = row.sums.iter().find(|sum| sum.body == body)?;
                ("together", sum.total, Some(sum))
            }
            (false, false) => {
                let place = self.bodies.iter().position(|name| name == body)?;
                ("body", row.bodies[place]?, None)
            }
        })
    }

    /// Every sum, with the attach type that it is of.
    pub fn sums(&self) -> impl Iterator<Item = (&AttachParts, &PartsSum)> {
        self.rows
            .iter()
            .flat_map(|row| row.sums.iter().map(move |sum| (row, sum)))
    }
}

/// A record as a table of factors.
struct FactorTable<'a> {
    record: &'a Record,
    grid: &'a Grid,
}

impl FactorTable<'_> {
    /// The values of a factor, in the record's order.
    fn values(&self, factor: &str, keep: impl Fn(&str) -> bool) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for case in &self.record.cases {
            if let Some(value) = case.factors.get(factor)
                && keep(value)
                && !values.contains(value)
            {
                values.push(value.clone());
            }
        }
        values
    }

    /// A case whose numbers count.
    fn case(&self, attach: &str, body: &str, stats: bool) -> Option<&CaseRecord> {
        let is = |case: &CaseRecord, factor: &str, value: &str| {
            case.factors.get(factor).is_some_and(|level| level == value)
        };
        self.record.cases.iter().find(|case| {
            is(case, &self.grid.rows, attach)
                && is(case, &self.grid.columns, body)
                && is(case, STATS, "on") == stats
                && case.status == Status::Ok
                && case.raw.is_some()
        })
    }

    fn row(&self, attach: String, bodies: &[String]) -> Option<AttachParts> {
        let empty = self.case(&attach, PLAIN, false)?;
        let taxed = self.case(&attach, PLAIN, true);
        let body = |body: &String| self.difference(self.case(&attach, body, false)?, empty);
        Some(AttachParts {
            reading: empty.reading(),
            mechanism: net(empty),
            bodies: bodies.iter().map(body).collect(),
            tax: taxed.and_then(|taxed| self.difference(taxed, empty)),
            kernel_empty: taxed.and_then(|taxed| self.part(&kernel(taxed)?)),
            sums: Vec::new(),
            passed: self.passed(empty),
            attach,
        })
    }

    /// One case less another.
    fn difference(&self, case: &CaseRecord, baseline: &CaseRecord) -> Option<CostEstimate> {
        self.part(&minus(&self.values_of(case), &self.values_of(baseline)))
    }

    /// Returns the case's values by epoch; a counted case has a single number.
    fn values_of(&self, case: &CaseRecord) -> Vec<f64> {
        if self.record.unit.is_counted() {
            case.raw.iter().map(|raw| raw.value).collect()
        } else {
            values(case)
        }
    }

    /// A value of which each epoch has one.
    fn part(&self, epochs: &[f64]) -> Option<CostEstimate> {
        if self.record.unit.is_counted() {
            let value = Sample::new(epochs)?.median();
            return Some(CostEstimate { value, ci95: None });
        }
        Some(CostEstimate {
            value: hodges_lehmann(epochs)?,
            ci95: Estimate::for_difference(epochs).map(|e| [e.low, e.high]),
        })
    }

    /// The sums of all rows, judged together; each with the place of its row.
    fn sums(&self, rows: &[AttachParts], bodies: &[String]) -> Vec<(usize, PartsSum)> {
        let rows = rows.iter().enumerate();
        let squares = rows.flat_map(|(place, row)| {
            let squares = bodies.iter().map(|body| self.square(&row.attach, body));
            squares.flatten().map(move |square| (place, square))
        });
        let squares: Vec<(usize, Corners<'_>)> = squares.collect();
        let corners = squares.iter().map(|(_, corners)| corners);
        let judged = if self.record.unit.is_counted() {
            corners.map(Corners::counted).collect()
        } else {
            timed(corners, self.record.asked.margin)
        };
        let sums = squares.iter().zip(judged);
        sums.map(|((place, corners), judged)| (*place, self.sum(corners, judged)))
            .collect()
    }

    fn sum(
        &self,
        corners: &Corners<'_>,
        (residual, adds_up): (CostEstimate, Additive),
    ) -> PartsSum {
        let kernel = || self.part(&minus(&kernel(corners.both)?, &kernel(corners.second)?));
        let body = corners.both.factors.get(&self.grid.columns);
        PartsSum {
            body: body.cloned().unwrap_or_default(),
            total: corners.total,
            residual,
            adds_up,
            kernel: kernel(),
        }
    }

    /// The four cases of a sum, where all of them have values.
    fn square(&self, attach: &str, body: &str) -> Option<Corners<'_>> {
        let both = self.case(attach, body, true)?;
        Some(Corners {
            neither: self.case(attach, PLAIN, false)?,
            first: self.case(attach, body, false)?,
            second: self.case(attach, PLAIN, true)?,
            both,
            total: net(both)?,
        })
    }

    fn passed(&self, case: &CaseRecord) -> Option<OtherRuns> {
        let mean = |name: &str| Some(Sample::new(&case.secondary.get(name)?.concat())?.mean());
        Some(OtherRuns {
            missed_per_event: mean(MISSED)?,
            others_per_event: mean(OTHER_FUNCTIONS)?,
        })
    }
}

/// The net of a case, as other views show it.
fn net(case: &CaseRecord) -> Option<CostEstimate> {
    let net = case.net.as_ref()?;
    Some(CostEstimate {
        value: net.value?,
        ci95: net.ci95,
    })
}

/// The value of each epoch, in the reading of the case's net.
fn values(case: &CaseRecord) -> Vec<f64> {
    case.epoch_values(case.reading()).unwrap_or_default()
}

/// The kernel's account of a case's runs, by epoch.
fn kernel(case: &CaseRecord) -> Option<Vec<f64>> {
    Some(epoch_medians(case.secondary.get(KERNEL_NS)?))
}

/// The cases of a sum.
struct Corners<'a> {
    /// The empty program.
    neither: &'a CaseRecord,
    /// The body.
    first: &'a CaseRecord,
    /// The tax.
    second: &'a CaseRecord,
    both: &'a CaseRecord,
    /// Cost of `both`, less its events.
    total: CostEstimate,
}

impl Corners<'_> {
    /// Without noise there is nothing to test: the residual is a number, or a range where a case's count
    /// differs from load to load.
    fn counted(&self) -> (CostEstimate, Additive) {
        let cases = [self.both, self.neither, self.first, self.second];
        let costs = cases.map(|case| Cost::raw(case).expect("corners have values"));
        let [both, neither, first, second] = costs.map(|cost| cost.value);
        let residual = (both - first) - (second - neither);
        let [both, neither, first, second] = costs.map(|cost| cost.ends.unwrap_or([f64::NAN; 2]));
        let low = both[0] + neither[0] - first[1] - second[1];
        let high = both[1] + neither[1] - first[0] - second[0];
        // Each of two differences is rounded.
        let rounding = 2.0
            * costs
                .map(|cost| cost.rounding)
                .into_iter()
                .fold(0.0, f64::max);
        let tolerance = rounding.max(COUNTED_MARGIN * self.total.value.abs());
        let part = CostEstimate {
            value: residual,
            ci95: None,
        };
        let adds_up = match () {
            () if residual.abs() <= tolerance => Additive::Yes,
            () if low > tolerance || high < -tolerance => Additive::No,
            () => Additive::CantTell,
        };
        (part, adds_up)
    }
}

/// Times: all sums together, each against a margin of its total.
fn timed<'a>(
    all: impl Iterator<Item = &'a Corners<'a>>,
    margin: f64,
) -> Vec<(CostEstimate, Additive)> {
    let sum = |corners: &Corners<'_>| {
        let cases = [corners.neither, corners.first, corners.second, corners.both];
        let [neither, first, second, both] = cases.map(values);
        Sum {
            residuals: Square {
                neither: &neither,
                first: &first,
                second: &second,
                both: &both,
            }
            .residuals(),
            tolerance: margin * corners.total.value.abs(),
        }
    };
    let sums: Vec<Sum> = all.map(sum).collect();
    let judged = judge_sums(&sums).into_iter().zip(&sums);
    let part = |(judged, sum): (SumVerdict, &Sum)| {
        let part = CostEstimate {
            value: hodges_lehmann(&sum.residuals).unwrap_or(f64::NAN),
            ci95: judged.residual.map(|e| [e.low, e.high]),
        };
        (part, judged.additive)
    };
    judged.map(part).collect()
}

/// One case's epochs less another's.
fn minus(case: &[f64], baseline: &[f64]) -> Vec<f64> {
    case.iter().zip(baseline).map(|(a, b)| a - b).collect()
}
