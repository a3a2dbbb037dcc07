//! The texts that all views share: verdicts, notes, captions.

use bpfcost_stats::REPEATS;

use crate::{style::Tone, table::Note, target};
use bpfcost_measure::Stop;
use bpfcost_model::{Role, Unit};
use bpfcost_record::{
    self, BudgetVerdict, CaseRecord, ComparisonRecord, Net, Raw, Record, Status, TotalsRecord,
    VerdictRecord,
};
use bpfcost_text::{self, number};

/// The 2N/N ratio may miss 2 by this share before a case is noted (METHODOLOGY: 5 %).
const RATIO_TOLERANCE: f64 = 0.05;
/// A half-width below this is narrow enough at any cost, in nanoseconds (METHODOLOGY.md).
const NARROW_NS: f64 = 0.1;
/// Cases as found that a caption names.
const MOST_FOUND: usize = 4;

/// Decimals of a value: as many as its interval supports, or as a count needs.
pub fn decimals(value: f64, ci95: Option<[f64; 2]>, unit: Unit) -> usize {
    if unit.is_counted() {
        number::counted_decimals(value)
    } else {
        number::estimate_decimals(value, ci95)
    }
}

/// A value without its unit.
pub fn value(value: f64, ci95: Option<[f64; 2]>, unit: Unit) -> String {
    number::fixed(value, decimals(value, ci95, unit))
}

/// What stands beside a value: its 95 % interval, or how a count spread over loads.
pub fn spread(case: &CaseRecord, raw: &Raw, unit: Unit) -> String {
    let decimals = number::estimate_decimals(raw.value, raw.ci95);
    match (unit.is_counted(), raw.ci95) {
        (true, _) => loads(case, raw),
        (false, ci95) => ci95.map_or_else(String::new, |ends| number::interval(ends, decimals)),
    }
}

/// `100 (+53 %)`: what a case cost as found, and how much more that is than undisturbed.
pub fn as_found(found: f64, undisturbed: f64) -> String {
    let more = number::change(found / undisturbed - 1.0, None).0;
    let found = number::fixed(found, number::estimate_decimals(undisturbed, None));
    format!("{found} ({more})")
}

/// The heading above it.
pub fn spread_heading(unit: Unit) -> &'static str {
    if unit.is_counted() {
        "loads"
    } else {
        "95 % interval"
    }
}

/// The heading above relative differences.
pub fn relative_heading(unit: Unit) -> &'static str {
    if unit.is_counted() {
        "relative"
    } else {
        "relative, 95 %"
    }
}

/// `same in 3 loads`, `293–295 over 3 loads`.
fn loads(case: &CaseRecord, raw: &Raw) -> String {
    let loads = number::plural(raw.epochs, "load");
    match range(case) {
        Some(range) => format!("{range} over {loads}"),
        None if same_in_loads(case) => format!("same in {loads}"),
        None => loads,
    }
}

/// Whether a count is the same in all its loads, but for what the clock rounds; loads are several.
pub fn same_in_loads(case: &CaseRecord) -> bool {
    let raw = case.raw.as_ref().filter(|raw| raw.epochs > 1);
    raw.and_then(|raw| raw.loads)
        .is_some_and(|[low, high]| high - low <= bpfcost_record::recorded_rounding(case))
}

/// `293–295`, where a count differs from load to load.
pub fn range(case: &CaseRecord) -> Option<String> {
    let loads = case.raw.as_ref()?.loads;
    let [low, high] =
        loads.filter(|[low, high]| high - low > bpfcost_record::recorded_rounding(case))?;
    let [low, high] = number::apart([low, high]);
    Some(format!("{low}–{high}"))
}

/// Half the width of a case's interval, as a share of its value.
pub fn half_width(raw: &Raw) -> Option<f64> {
    let [low, high] = raw.ci95?;
    let share = (high - low) / 2.0 / raw.value.abs();
    share.is_finite().then_some(share)
}

/// How far a value is open, as a share of it: half its interval, or the whole range over loads.
pub fn relative_spread(raw: &Raw, unit: Unit) -> Option<f64> {
    if unit.is_counted() {
        let [low, high] = raw.loads?;
        Some((high - low) / raw.value.abs()).filter(|share| share.is_finite())
    } else {
        half_width(raw)
    }
}

/// What is to know of a case beyond its numbers, most important first.
pub fn notes(case: &CaseRecord, record: &Record) -> Vec<Note> {
    match case.status {
        Status::Invalid => {
            let first = case
                .problems
                .first()
                .map(|problem| bpfcost_text::line(&problem.to_string()));
            let more = match case.problems.len().saturating_sub(1) {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let first = first.unwrap_or_else(|| "a check failed".to_owned());
            return vec![Note::new(Tone::Alarm, first + &more)];
        }
        Status::Unsupported => {
            let reason = case.reason.as_deref().unwrap_or("not on this target");
            return vec![Note::new(Tone::Quiet, bpfcost_text::line(reason))];
        }
        Status::Ok => {}
    }
    let Some(raw) = &case.raw else {
        return vec![Note::new(Tone::Quiet, "no trials")];
    };
    let counted = record.unit.is_counted();
    let modes = (raw.modes.len() > 1).then(|| modes(raw));
    let state = (raw.repeats == Some(0)).then(|| {
        if raw.trials < REPEATS {
            let trials = number::plural(raw.trials, "trial");
            return format!("{trials}: too few to agree on a count");
        }
        let [low, high] = number::apart([raw.min, raw.max]);
        format!("depends on state: trials range from {low} to {high}")
    });
    let disturbed = (record.has_undisturbed() && case.undisturbed.is_none()).then(|| {
        match &case.not_undisturbed {
            Some(why) => format!("undisturbed cost unknown: {why}"),
            None => "undisturbed cost unknown".to_owned(),
        }
    });
    let few = (raw.ci95.is_none() && !counted).then(|| {
        let epochs = number::plural(raw.epochs, "epoch");
        format!("{epochs}: too few for an interval")
    });
    // A run does not wait for its floors.
    let asked = record.asked.precision.filter(|_| case.role == Role::Case);
    let wide = asked
        .zip(half_width(raw))
        .filter(|(asked, got)| got > asked && got * raw.value.abs() > NARROW_NS);
    let wide = wide.map(|(asked, got)| {
        let got = number::fixed(got * 100.0, 2);
        format!(
            "±{got}{}%, asked for ±{}",
            number::HOLD,
            number::round_percent(asked)
        )
    });
    let off = off_two(case).map(|ratio| {
        let ratio = number::fixed(ratio, 2);
        format!(
            "twice the batch took {ratio} times {}",
            as_much(record.unit)
        )
    });
    let rare = bpfcost_record::rare_work(case).filter(|_| counted).map(|rare| {
        let [differ, all] = rare.batches.map(|count| number::count(count as u64));
        let mean = value(rare.mean, None, record.unit);
        format!(
            "{differ} of {all} batches count otherwise, {mean} in the mean: work done now and then"
        )
    });
    let notes = [disturbed, modes, state, rare, few, wide, off];
    let notes = notes.into_iter().flatten();
    notes.map(|text| Note::new(Tone::Open, text)).collect()
}

/// What twice the batch took of what a batch did, where that is not twice.
pub(crate) fn off_two(case: &CaseRecord) -> Option<f64> {
    let ratio = case.calibration?.ratio?;
    ((ratio / 2.0 - 1.0).abs() > RATIO_TOLERANCE).then_some(ratio)
}

/// `two modes: 83.1 in 60 % of epochs, 86.4 in 40 %`.
fn modes(raw: &Raw) -> String {
    let values: Vec<f64> = raw.modes.iter().map(|mode| mode.value).collect();
    let apart = values.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    let decimals = apart.fold(2, |least, gap| least.min(number::decimals(gap)));
    let modes = raw.modes.iter().map(|mode| {
        let value = number::fixed(mode.value, decimals);
        (value, number::percent(mode.share))
    });
    let modes = modes
        .enumerate()
        .map(|(place, (value, share))| match place {
            0 => format!("{value} in {share} of epochs"),
            _ => format!("{value} in {share}"),
        });
    let modes: Vec<String> = modes.collect();
    let count = match modes.len() {
        2 => "two".to_owned(),
        more => more.to_string(),
    };
    format!("{count} modes: {}", modes.join(", "))
}

/// What twice a batch takes twice of, behind `2 times`.
pub fn as_much(unit: Unit) -> &'static str {
    if unit.is_counted() {
        "as many instructions"
    } else {
        "as long"
    }
}

/// The net cost: one number, a range, or that it is indistinguishable from the harness.
pub fn net(net: Option<&Net>, unit: Unit) -> String {
    let Some(net) = net else {
        return String::new();
    };
    if let Some(count) = net.value.filter(|_| unit.is_counted()) {
        return value(count, None, unit);
    }
    if !net.distinguishable {
        return "≈ harness".to_owned();
    }
    if let Some(value) = net.value {
        return number::fixed(value, number::estimate_decimals(value, net.ci95));
    }
    let [low, high] = net.bracket;
    let [low, high] = [low, high].map(|end| number::fixed(end, number::decimals(high - low)));
    if low == high {
        low
    } else {
        format!("{low}–{high}")
    }
}

/// The interval of a net that is one number; empty otherwise.
pub fn net_interval(net: Option<&Net>) -> String {
    net.filter(|net| net.distinguishable)
        .and_then(|net| Some((net.value?, net.ci95?)))
        .map(|(value, ci95)| number::interval(ci95, number::estimate_decimals(value, Some(ci95))))
        .unwrap_or_default()
}

/// A verdict in a word or two, and the tone to say it in.
pub fn of_verdict(verdict: VerdictRecord) -> (&'static str, Tone) {
    match verdict {
        VerdictRecord::Slower => ("costs more", Tone::More),
        VerdictRecord::Faster => ("costs less", Tone::Less),
        VerdictRecord::Same => ("same", Tone::Quiet),
        VerdictRecord::Unresolved => ("unresolved", Tone::Open),
    }
}

/// What can be said of a comparison, and the tone to say it in.
pub fn verdict(comparison: &ComparisonRecord, record: &Record) -> (String, Tone) {
    let margin = number::round_percent(record.asked.margin);
    let (word, tone) = of_verdict(comparison.verdict);
    let detectable = comparison.detectable.filter(|percent| percent.is_finite());
    let detectable = detectable.map(|percent| number::percent(percent / 100.0));
    let resolve = comparison.resolve_s.filter(|seconds| seconds.is_finite());
    let mut words = match (comparison.verdict, detectable) {
        (VerdictRecord::Same, _) if record.asked.margin > 0.0 => {
            let (relative, _) = relative(comparison);
            format!("{word} ({relative}, within ±{margin})")
        }
        (VerdictRecord::Unresolved, Some(loads)) if record.unit.is_counted() => {
            format!("{word}: loads alone differ by {loads}")
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
            with_parts(word, seen.into_iter().chain(in_total).chain(resolve))
        }
        _ => word.to_owned(),
    };
    if let Some(budget) = comparison.budget {
        let share = record.asked.budget.map(number::round_percent);
        let asked = share.map_or_else(String::new, |share| format!(" of {share}"));
        let end = budget_end(comparison, record.asked.budget);
        let end = end.map_or_else(String::new, |end| format!(" ({end})"));
        words += &format!("; {} the budget{asked}{end}", of_budget(budget));
    }
    if record.has_undisturbed() && !comparison.undisturbed {
        words += "; as found";
    }
    (words, tone)
}

/// What stands before the budget.
pub fn of_budget(budget: BudgetVerdict) -> &'static str {
    match budget {
        BudgetVerdict::Within => "within",
        BudgetVerdict::Over => "over",
        BudgetVerdict::CantTell => "can't tell if within",
    }
}

/// `90 % interval: at most 4.6 %`: the end of the interval on which the budget was judged; `None` where it is not
/// recorded. What is claimed holds of typical windows and of the total.
pub fn budget_end(comparison: &ComparisonRecord, budget: Option<f64>) -> Option<String> {
    let (verdict, typical) = (comparison.budget?, comparison.relative_ci90?);
    let total = comparison.totals.map_or(typical, |totals| totals.ci90);
    let (least, most) = (typical[0].max(total[0]), typical[1].max(total[1]));
    let (words, end) = match verdict {
        BudgetVerdict::Within => ("at most", most),
        BudgetVerdict::Over => ("at least", least),
        BudgetVerdict::CantTell => ("up to", most),
    };
    let near = budget.is_some_and(|budget| (end - budget).abs() < 0.000_95);
    let end = number::fixed(end * 100.0, if near { 2 } else { 1 });
    let hold = number::HOLD;
    Some(format!("90{hold}% interval: {words} {end}{hold}%"))
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

/// `+0.4 %` and `[+0.1, +0.7]`: the relative difference and its interval.
pub fn relative(comparison: &ComparisonRecord) -> (String, String) {
    number::change(comparison.relative, comparison.relative_ci95)
}

/// The same of the totals.
pub fn total(totals: &TotalsRecord) -> (String, String) {
    number::change(totals.relative, Some(totals.ci95))
}

/// Why the run ended, as the end of a sentence about it.
pub fn stop(stop: Stop) -> &'static str {
    match stop {
        Stop::Precision => "every interval was narrow enough",
        Stop::Time => "the time was up",
        Stop::Rounds => "the first look was reached",
        Stop::Aborted => "it was aborted",
        Stop::Interrupted => "it was interrupted",
    }
}

/// What to know to read the costs of this record.
pub fn cost_caption(record: &Record) -> String {
    let unit = record.unit;
    if unit.is_counted() {
        format!(
            "cost: {unit}, retired instructions per operation, and their spread over loads. net: cost minus the \
             harness."
        )
    } else {
        let (how, found) = if record.has_undisturbed() {
            (
                "without what neighbours and timer ticks added (one that never rests goes unnoticed)",
                " as found: with everything that slowed it.",
            )
        } else {
            ("as measured", "")
        };
        format!(
            "cost: {unit} {how}, the estimate over epochs with its 95 % interval (of this run; epochs count as \
             independent).{found} net: cost minus the harness, a range where overlap in the CPU leaves it open."
        )
    }
}

/// Which costs of a grid are undisturbed; `None` if none is.
pub fn reading_caption(record: &Record) -> Option<String> {
    let found = |case: &&CaseRecord| case.raw.is_some() && case.undisturbed.is_none();
    let found: Vec<&CaseRecord> = record.cases.iter().filter(found).collect();
    let named: Vec<String> = found
        .iter()
        .take(MOST_FOUND)
        .map(|case| bpfcost_text::line(&case.name))
        .collect();
    let more = found.len() - named.len();
    record.has_undisturbed().then(|| {
        let others = match (named.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!(" As found: {}.", named.join(", ")),
            (false, more) => format!(" As found: {} and {more} more.", named.join(", ")),
        };
        format!(
            "Costs are undisturbed: without what neighbours and timer ticks added; what a neighbour that never rests \
             adds stays in them.{others}"
        )
    })
}

/// What to know to read the comparisons of this record.
pub fn pair_caption(record: &Record) -> String {
    if record.unit.is_counted() {
        "Differences of counts have no interval. same: equal in every load. more or less: the ranges over loads do \
         not overlap."
            .to_owned()
    } else {
        let all = match record.comparisons.len() {
            0 | 1 => String::new(),
            several => format!(", and the verdicts account for all {several} of them"),
        };
        format!(
            "Differences are within epochs. Each 95 % interval is for its comparison alone{all}."
        )
    }
}

/// The run's peak memory, as far as it is known.
pub fn memory_caption(record: &Record) -> Option<String> {
    let machine = &record.machine;
    let parts = [
        (machine.kernel_bytes, "in the kernel"),
        (machine.user_bytes, "in this process"),
    ];
    let sizes = parts.into_iter();
    let sizes =
        sizes.filter_map(|(bytes, place)| Some(format!("{} {place}", number::bytes(bytes?))));
    let sizes: Vec<String> = sizes.collect();
    (!sizes.is_empty()).then(|| format!("Peak memory: {}.", sizes.join(", ")))
}

/// What to know below the costs of a record, most important first.
pub fn captions(record: &Record) -> Vec<String> {
    let below = [
        target::unit_caption(record),
        session_caption(record),
        target::identity(record),
    ];
    std::iter::once(cost_caption(record))
        .chain(below.into_iter().flatten())
        .collect()
}

/// How far an interval reaches: sessions differ by more. Counts have none, and repeat.
pub fn session_caption(record: &Record) -> Option<String> {
    if record.unit.is_counted() {
        return None;
    }
    let spread = record.spread.within_sitting();
    let spread = spread.filter(|spread| spread.is_finite());
    let size = spread.map(|spread| format!(" ({} here)", number::percent(spread / 100.0)));
    Some(format!(
        "Two sessions minutes apart differ by more than an interval{}. To compare two things, measure them in one \
         run.",
        size.unwrap_or_default()
    ))
}

/// The block that stands in for the numbers of an invalid case: what was expected, what was seen.
pub fn invalid_lines(case: &CaseRecord, record: &Record) -> Vec<(String, Vec<String>)> {
    let name = bpfcost_text::line(&format!("{} {}", record.experiment, case.name));
    let line = |problem: &str, detail: &str| {
        let details = bpfcost_text::block(detail);
        let details = details.lines().map(|line| line.trim_end().to_owned());
        let mut details: Vec<String> = details.collect();
        if details.iter().all(String::is_empty) {
            details = vec!["nothing is reported for this case".to_owned()];
        }
        (
            format!("{name}  INVALID  {}", bpfcost_text::line(problem)),
            details,
        )
    };
    match case.problems.as_slice() {
        [] => vec![line("a check failed", "")],
        all => all
            .iter()
            .map(|one| line(&one.to_string(), &one.detail))
            .collect(),
    }
}
