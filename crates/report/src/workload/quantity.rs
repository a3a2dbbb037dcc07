//! The quantities of every case of a workload: CPU time per operation first, then the other values of the same
//! windows; and the comparison of two cases in a quantity.

use super::tables::no_result;
use crate::{budget, scaling::with_ends, style::Tone, table::Cell, verdict};
use bpfcost_model::{Headline, ProbedWorkload, SECOND};
use bpfcost_record::{
    CaseRecord, ComparisonRecord, CostEstimate, MetricRecord, States, Status, VerdictRecord,
};
use bpfcost_text::{
    line,
    number::{self, HOLD},
};

/// Unit of shares of a CPU.
pub(crate) const SHARE: &str = "% of a CPU";
/// One percent of a CPU, in nanoseconds a second.
pub(crate) const PERCENT_NS: f64 = 1e7;

#[derive(Debug)]
pub(crate) struct Quantity<'a> {
    /// Name: `CPU per command`.
    pub(crate) name: String,
    source: ValueSource<'a>,
    base: ValueUnit,
    /// `None` if neither direction is better.
    more_is_better: Option<bool>,
}

/// Source of the values of a quantity.
#[derive(Clone, Copy, Debug)]
enum ValueSource<'a> {
    Own,
    /// Total divided by all operations.
    Total,
    /// Further value that is compared.
    Metric(&'a MetricRecord),
    /// Secondary value that only cases with a probe have.
    Probe(&'static str, WindowSet),
}

/// Windows that a value covers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WindowSet {
    Window,
    All,
}

/// Recorded unit of a quantity.
#[derive(Clone, Debug)]
enum ValueUnit {
    Nanos(f64),
    /// Nanoseconds a second, which are a share of a CPU.
    Share,
    /// Operations a second, by their plural noun.
    PerSecond(String),
    Other(String),
}

/// Unit in which values are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Size in recorded units.
    pub size: f64,
    /// Name: `µs`.
    pub unit: String,
}

/// Difference of two cases, as text.
#[derive(Debug)]
pub(crate) struct ChangeText<'a> {
    pub(crate) comparison: &'a ComparisonRecord,
    /// `+1.9 % [+1.1, +2.7]`.
    pub(crate) difference: String,
    /// `more`, `less`, `same`, `unresolved`.
    pub(crate) verdict: &'static str,
    /// Tone of the verdict: more CPU time and less throughput have the same.
    pub(crate) tone: Tone,
}

impl ValueUnit {
    /// Unit of the CPU time of a workload.
    fn for_cpu(workload: &ProbedWorkload) -> Self {
        if is_share(workload) {
            ValueUnit::Share
        } else {
            ValueUnit::Nanos(1.0)
        }
    }
}

impl<'a> Quantity<'a> {
    /// Main quantity: the CPU time per operation of the server, or of the machine.
    pub(crate) fn headline(workload: &ProbedWorkload) -> Self {
        Quantity {
            name: if is_share(workload) {
                cpu(workload).to_owned()
            } else {
                format!("{} per {}", cpu(workload), line(&workload.operation))
            },
            source: ValueSource::Own,
            base: ValueUnit::for_cpu(workload),
            more_is_better: Some(false),
        }
    }

    /// The headline in total, if the record has it.
    pub(crate) fn total(states: &States<'a>) -> Option<Self> {
        let mut comparisons = states.record.comparisons.iter();
        comparisons
            .any(|one| one.totals.is_some())
            .then(|| Quantity {
                name: "in total".to_owned(),
                source: ValueSource::Total,
                ..Quantity::headline(states.workload)
            })
    }

    /// Further quantities that are compared, in the record's order.
    pub(crate) fn metrics(states: &States<'a>) -> Vec<Self> {
        let operations = format!("{}s", line(&states.workload.operation));
        // The headline is not shown twice.
        let leads = |metric: &MetricRecord| {
            states.workload.headline == Headline::Machine && metric.metric.name == "machine_ns"
        };
        let metrics = states.record.metrics.iter();
        let shown = metrics.filter(|metric| !metric.cases.is_empty() && !leads(metric));
        shown
            .map(|metric| Quantity {
                name: line(&metric.metric.about),
                source: ValueSource::Metric(metric),
                base: match metric.metric.unit.as_str() {
                    "ns/op" => ValueUnit::for_cpu(states.workload),
                    "ns" => ValueUnit::Nanos(1.0),
                    "us" => ValueUnit::Nanos(1e3),
                    "ms" => ValueUnit::Nanos(1e6),
                    "op/s" => ValueUnit::PerSecond(operations.clone()),
                    unit => ValueUnit::Other(line(unit)),
                },
                more_is_better: metric.metric.more_is_better,
            })
            .collect()
    }

    /// Quantities of the probes themselves, of which a probe has values.
    pub(crate) fn probes(states: &States<'a>) -> Vec<Self> {
        // Of no operation of the service's: hits of all that the machine did meanwhile.
        let whole = match states.workload.operation.as_str() {
            SECOND => ", on the whole machine",
            _ => "",
        };
        let hits = format!("hits per {}{whole}", line(&states.workload.operation));
        let rehearsed = format!("{hits}, in a rehearsal");
        let (plain, ms) = (ValueUnit::Other(String::new()), ValueUnit::Nanos(1e6));
        let cpu = ValueUnit::for_cpu(states.workload);
        let all = [
            ("the tool's own CPU", "tool_ns", WindowSet::Window, &cpu),
            (&hits, "hits", WindowSet::Window, &plain),
            (&rehearsed, "rehearsed_hits", WindowSet::Window, &plain),
            ("records read", "records", WindowSet::All, &plain),
            ("lost", "lost", WindowSet::All, &plain),
            ("dropped", "drops", WindowSet::All, &plain),
            ("attach", "attach_ms", WindowSet::Window, &ms),
            ("detach", "detach_ms", WindowSet::Window, &ms),
            ("hiccup", "hiccup_ms", WindowSet::Window, &ms),
        ];
        let mut all = Vec::from(all.map(|(name, value, windows, base)| Quantity {
            name: name.to_owned(),
            source: ValueSource::Probe(value, windows),
            base: base.clone(),
            more_is_better: Some(false),
        }));
        all.retain(|quantity| {
            let probes = states.all.iter().flat_map(|state| &state.probes);
            let mut values = probes.filter_map(|probed| quantity.value(probed.case));
            match quantity.source {
                // No drops are no news; that nothing was lost is news.
                ValueSource::Probe("tool_ns" | "drops", _) => values.any(|part| part.value > 0.0),
                _ => values.next().is_some(),
            }
        });
        all
    }

    /// Margin within which a metric counts as the same.
    pub(crate) fn margin(&self) -> Option<f64> {
        match self.source {
            ValueSource::Metric(metric) => Some(metric.metric.margin),
            _ => None,
        }
    }

    /// Returns true for a quantity of the probes themselves.
    pub(crate) fn is_of_probes(&self) -> bool {
        matches!(self.source, ValueSource::Probe(..))
    }

    /// Returns true for operations a second.
    pub(crate) fn is_throughput(&self) -> bool {
        matches!(self.base, ValueUnit::PerSecond(_))
    }

    /// Value of a case; `None` without one.
    pub(crate) fn value(&self, case: &CaseRecord) -> Option<CostEstimate> {
        let part = |value, ci95| CostEstimate { value, ci95 };
        let estimate = match self.source {
            ValueSource::Own => {
                let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok)?;
                part(raw.value, raw.ci95)
            }
            ValueSource::Total => part(case.total().filter(|_| case.status == Status::Ok)?, None),
            ValueSource::Metric(metric) => {
                let metric_value = metric.cases.get(&case.name)?;
                part(metric_value.value, metric_value.ci95)
            }
            ValueSource::Probe(name, WindowSet::Window) => case.secondary_part(name)?,
            ValueSource::Probe(name, WindowSet::All) => {
                case.secondary_value(name)?;
                part(case.secondary.get(name)?.iter().flatten().sum(), None)
            }
        };
        estimate.value.is_finite().then_some(estimate)
    }

    /// Difference of a case from another; `None` where it was not compared.
    pub(crate) fn change(
        &self,
        states: &States<'a>,
        case: &str,
        baseline: &str,
    ) -> Option<ChangeText<'a>> {
        let metric = match self.source {
            ValueSource::Own | ValueSource::Total => None,
            ValueSource::Metric(metric) => Some(metric),
            ValueSource::Probe(..) => return None,
        };
        let comparison = states.comparison(metric, case, baseline)?;
        if matches!(self.source, ValueSource::Total) {
            let (relative, interval) = verdict::total(&comparison.totals?);
            return Some(ChangeText {
                comparison,
                difference: format!("{relative} {interval}"),
                // The one verdict is of both.
                verdict: "",
                tone: Tone::Plain,
            });
        }
        let (word, tone) = verdict::word(comparison.verdict);
        let more =
            (comparison.verdict == VerdictRecord::Slower) != (self.more_is_better == Some(true));
        let (verdict, tone) = match (comparison.verdict, self.more_is_better) {
            (VerdictRecord::Same | VerdictRecord::Unresolved, _) => (word, tone),
            (_, None) => (if more { "more" } else { "less" }, Tone::Plain),
            (_, Some(_)) => (if more { "more" } else { "less" }, tone),
        };
        let (relative, interval) = verdict::relative(comparison);
        Some(ChangeText {
            comparison,
            difference: format!("{relative} {interval}").trim_end().to_owned(),
            verdict,
            tone,
        })
    }

    /// Scale in which the values of all these cases have digits.
    pub(crate) fn scale<'c>(&self, cases: impl Iterator<Item = &'c CaseRecord>) -> Scale {
        let sizes = cases.filter_map(|case| Some(self.value(case)?.value.abs()));
        let least = sizes
            .filter(|size| *size > 0.0)
            .fold(f64::INFINITY, f64::min);
        let scale = |size, unit: &str| Scale {
            size,
            unit: unit.to_owned(),
        };
        match &self.base {
            ValueUnit::Nanos(of) => {
                let nanos = Scale::for_nanos(least * of);
                scale(nanos.size / of, &nanos.unit)
            }
            ValueUnit::Share => scale(PERCENT_NS, SHARE),
            ValueUnit::PerSecond(operations) => match least {
                rate if rate >= 1e7 => scale(1e6, &format!("M {operations}/s")),
                rate if rate >= 1e4 => scale(1e3, &format!("k {operations}/s")),
                _ => scale(1.0, &format!("{operations}/s")),
            },
            ValueUnit::Other(unit) => scale(1.0, unit),
        }
    }

    /// Name and unit: `CPU per command, µs`.
    pub(crate) fn heading(&self, scale: &Scale) -> String {
        match scale.unit.as_str() {
            "" => self.name.clone(),
            unit => format!("{}, {unit}", self.name),
        }
    }

    /// The value of a case, or a word for why there is none.
    pub(crate) fn cell(&self, case: &CaseRecord, scale: &Scale) -> Cell {
        match self.value(case).filter(|_| case.status == Status::Ok) {
            Some(part) => Cell::number(scale.text(part), part.value),
            None => no_result(case),
        }
    }
}

impl Scale {
    /// Returns the scale for a number of nanoseconds.
    pub fn for_nanos(ns: f64) -> Self {
        let (size, unit) = match ns {
            ns if ns < 1e3 || ns.is_infinite() => (1.0, "ns"),
            ns if ns < 1e6 => (1e3, "µs"),
            ns if ns < 1e9 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        Scale {
            size,
            unit: unit.to_owned(),
        }
    }

    /// A value alone, with the digits that its interval supports.
    pub(crate) fn plain(&self, part: CostEstimate) -> String {
        let ci95 = part.ci95.map(|ends| ends.map(|end| end / self.size));
        let value = part.value / self.size;
        number::fixed(value, number::estimate_decimals(value, ci95))
    }

    /// A value with how far its interval reaches.
    pub fn text(&self, part: CostEstimate) -> String {
        estimate_text(CostEstimate {
            value: part.value / self.size,
            ci95: part.ci95.map(|ends| ends.map(|end| end / self.size)),
        })
    }
}

impl ChangeText<'_> {
    /// `more +1.9 % [+1.1, +2.7]`: all of it in one cell, what is read first in front.
    pub(crate) fn cell(&self) -> Cell {
        let words = format!("{} {}", self.verdict, self.difference);
        Cell::number(words, self.comparison.relative).toned(self.tone)
    }

    /// The verdict, with what follows of the budget.
    pub(crate) fn verdict_cell(&self) -> Cell {
        if self.verdict.is_empty() {
            return Cell::default();
        }
        let budget = self.comparison.budget.map(budget::word);
        let budget = budget.map_or_else(String::new, |word| format!(", {word} budget"));
        Cell::words(format!("{}{budget}", self.verdict)).toned(self.tone)
    }
}

/// The value itself, with the reach of its interval.
pub(crate) fn estimate_text(part: CostEstimate) -> String {
    let value = part.value;
    match part.ci95 {
        Some([low, high]) if high > low => with_ends(value, Some([low, high])),
        // Every window reported the same value.
        Some(_) => number::fixed(value, number::counted_decimals(value)),
        None if value.fract() == 0.0 => number::fixed(value, 0),
        None => number::fixed(value, number::plain_decimals(value)),
    }
}

/// Returns true if CPU time is shown as a share of a CPU.
pub(crate) fn is_share(workload: &ProbedWorkload) -> bool {
    workload.operation == SECOND
}

/// Name of the CPU time of the headline.
pub(crate) fn cpu(workload: &ProbedWorkload) -> &'static str {
    match workload.headline {
        Headline::Server => "CPU",
        Headline::Machine => "CPU of the machine",
    }
}

/// A number and its unit on one line.
pub fn with_unit(number: &str, unit: &str) -> String {
    format!("{number}{HOLD}{unit}")
}
