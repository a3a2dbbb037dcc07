//! Verdicts of comparisons as text, and relative differences.

use crate::{budget, style::Tone};
use bpfcost_model::Unit;
use bpfcost_record::{ComparisonRecord, Record, TotalsRecord, VerdictRecord};
use bpfcost_text::number;

/// A verdict in a word or two, with its tone.
pub(crate) fn word(verdict: VerdictRecord) -> (&'static str, Tone) {
    match verdict {
        VerdictRecord::Slower => ("costs more", Tone::More),
        VerdictRecord::Faster => ("costs less", Tone::Less),
        VerdictRecord::Same => ("same", Tone::Quiet),
        VerdictRecord::Unresolved => ("unresolved", Tone::Open),
    }
}

/// The verdict of a comparison with what qualifies it: detectable difference, time to resolve, budget.
pub(crate) fn sentence(comparison: &ComparisonRecord, record: &Record) -> (String, Tone) {
    let margin = number::round_percent(record.asked.margin);
    let (verdict, tone) = word(comparison.verdict);
    let detectable = comparison.detectable.filter(|percent| percent.is_finite());
    let detectable = detectable.map(|percent| number::percent(percent / 100.0));
    let resolve = comparison.resolve_s.filter(|seconds| seconds.is_finite());
    let mut words = match (comparison.verdict, detectable) {
        (VerdictRecord::Same, _) if record.asked.margin > 0.0 => {
            let (relative, _) = relative(comparison);
            format!("{verdict} ({relative}, within ±{margin})")
        }
        (VerdictRecord::Unresolved, Some(loads)) if record.unit.is_counted() => {
            format!("{verdict}: loads alone differ by {loads}")
        }
        (VerdictRecord::Unresolved, seen) if !record.unit.is_counted() => {
            let seen = seen.map(|seen| format!("could detect {seen}"));
            let resolve = resolve
                .map(|seconds| format!("{} would resolve {margin}", number::duration(seconds)));
            // Typical windows alone would have been resolved.
            let totals = comparison.totals.filter(|totals| totals.withheld);
            let in_total = totals.map(|totals| {
                let (relative, interval) = total(&totals);
                format!("{relative} {interval} in total")
            });
            with_parts(verdict, seen.into_iter().chain(in_total).chain(resolve))
        }
        _ => verdict.to_owned(),
    };
    if let Some(budget) = comparison.budget {
        let share = record.asked.budget.map(number::round_percent);
        let asked = share.map_or_else(String::new, |share| format!(" of {share}"));
        let end = budget::interval_end(comparison, record.asked.budget);
        let end = end.map_or_else(String::new, |end| format!(" ({end})"));
        words += &format!("; {} the budget{asked}{end}", budget::word(budget));
    }
    if record.has_undisturbed() && !comparison.undisturbed {
        words += "; as found";
    }
    (words, tone)
}

/// `unresolved: would have seen 2 %`.
pub(crate) fn with_parts(word: &str, parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        word.to_owned()
    } else {
        format!("{word}: {}", parts.join("; "))
    }
}

/// A relative difference and its interval, or a remark that a difference of times has none.
pub(crate) fn with_interval(share: f64, ci95: Option<[f64; 2]>, unit: Unit) -> (String, String) {
    let (text, interval) = number::change(share, ci95);
    if interval.is_empty() && !unit.is_counted() {
        (text, "(no interval)".to_owned())
    } else {
        (text, interval)
    }
}

/// `+0.4 %` and `[+0.1, +0.7]`: the relative difference and its interval.
pub(crate) fn relative(comparison: &ComparisonRecord) -> (String, String) {
    number::change(comparison.relative, comparison.relative_ci95)
}

/// `+0.4 %` and `[+0.1, +0.7]` of the totals.
pub(crate) fn total(totals: &TotalsRecord) -> (String, String) {
    number::change(totals.relative, Some(totals.ci95))
}
