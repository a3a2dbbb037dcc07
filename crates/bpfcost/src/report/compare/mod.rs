//! A comparison of records, shown: as a table, Markdown, JUnit or JSON.

mod junit;
mod markdown;
mod table;

use std::collections::HashSet;

use anyhow::Result;

pub use self::{junit::render as junit, markdown::render as markdown, table::render as table};
use crate::{
    record::{Basis, Change, Changes, Gate, OneSided, Outcome, Side},
    report::{
        number::{self, HOLD, MISSING},
        rows,
        style::Tone,
        text, words,
    },
};

/// The comparison as JSON, ending in a newline.
pub fn json(changes: &Changes) -> Result<String> {
    let mut text = serde_json::to_string_pretty(changes)?;
    text.push('\n');
    Ok(text)
}

/// One case on both sides, as text.
struct Row {
    /// What it stands under.
    heading: String,
    case: String,
    old: String,
    new: String,
    /// `+5.1 %`.
    relative: String,
    /// Its interval, or that there is none; empty for counts, which have none.
    interval: String,
    verdict: String,
    tone: Tone,
}

/// The cases, in the order of the comparison.
fn all_rows(changes: &Changes) -> Vec<Row> {
    let runs: HashSet<_> = changes
        .cases
        .iter()
        .map(|change| (&change.experiment, &change.target))
        .collect();
    changes
        .cases
        .iter()
        .map(|change| row(change, changes, runs.len() > 1))
        .collect()
}

fn row(change: &Change, changes: &Changes, name_run: bool) -> Row {
    let group = rows::heading(&change.group);
    let heading = match name_run {
        true => {
            let (experiment, target) = (text::line(&change.experiment), text::line(&change.target));
            format!("{experiment} on {target}: {group}")
        }
        false => group,
    };
    let (relative, interval) = relative(change);
    let (verdict, tone) = verdict(change, changes.threshold, &relative);
    Row {
        heading,
        case: text::line(&change.case),
        old: side(change, change.old),
        new: side(change, change.new),
        relative,
        interval,
        verdict,
        tone,
    }
}

/// What stands for a case on one side: its cost, or what a probe adds to a workload.
fn side(change: &Change, side: Option<Side>) -> String {
    let Some(side) = side else {
        return MISSING.to_owned();
    };
    match side.added.filter(|_| change.baseline.is_some()) {
        Some(added) => share(added, side.added_ci95).0,
        None => words::value(side.value, side.ci95, change.unit),
    }
}

/// `+5.1 %` and `[+4.0, +6.3]`.
fn relative(change: &Change) -> (String, String) {
    let Some(relative) = change.relative.filter(|relative| relative.is_finite()) else {
        return (MISSING.to_owned(), String::new());
    };
    let (value, interval) = share(relative, change.relative_ci95);
    let interval = interval.unwrap_or_else(|| match change.unit.is_counted() {
        true => String::new(),
        false => "(no interval)".to_owned(),
    });
    (value, interval)
}

/// A share as signed percent, and its interval.
fn share(share: f64, ci95: Option<[f64; 2]>) -> (String, Option<String>) {
    let value = share * 100.0;
    let ci95 = ci95.map(|ends| ends.map(|end| end * 100.0));
    let decimals = number::estimate_decimals(value, ci95).min(1);
    let interval = ci95.map(|ends| {
        let [low, high] = ends.map(|end| number::signed(end, decimals));
        format!("[{low}, {high}]")
    });
    (
        format!("{}{HOLD}%", number::signed(value, decimals)),
        interval,
    )
}

fn verdict(change: &Change, threshold: f64, relative: &str) -> (String, Tone) {
    let limit = number::round_percent(threshold);
    let note = change.note.as_deref().map(text::line);
    let with_note = |words: &str| match &note {
        Some(note) => format!("{words}: {note}"),
        None => words.to_owned(),
    };
    match change.outcome {
        Outcome::Regressed => (format!("costs more, beyond {limit}"), Tone::More),
        Outcome::Improved => (format!("costs less, beyond {limit}"), Tone::Less),
        Outcome::Same => (format!("same ({relative}, within ±{limit})"), Tone::Quiet),
        Outcome::Unresolved => {
            let seen = change
                .detectable
                .filter(|percent| percent.is_finite())
                .map(|percent| format!("would have seen {}", number::percent(percent / 100.0)));
            let parts: Vec<String> = seen.into_iter().chain(note).collect();
            match parts.is_empty() {
                true => ("unresolved".to_owned(), Tone::Open),
                false => (format!("unresolved: {}", parts.join("; ")), Tone::Open),
            }
        }
        Outcome::Invalid => (with_note("INVALID"), Tone::Alarm),
    }
}

/// The comparison in one sentence.
pub fn sentence(changes: &Changes) -> String {
    let limit = number::round_percent(changes.threshold);
    let count = |outcome| {
        changes
            .cases
            .iter()
            .filter(|change| change.outcome == outcome)
            .count()
    };
    let parts: Vec<String> = [
        (
            count(Outcome::Regressed),
            format!("cost more by over {limit}"),
        ),
        (count(Outcome::Improved), "cost less by as much".to_owned()),
        (
            count(Outcome::Same),
            format!("are the same within ±{limit}"),
        ),
        (count(Outcome::Unresolved), "are unresolved".to_owned()),
        (count(Outcome::Invalid), "are INVALID".to_owned()),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, words)| match number {
        1 => format!("1 {}", singular(&words)),
        _ => format!("{} {words}", number::count(number as u64)),
    })
    .collect();
    let cases = number::plural(changes.cases.len(), "case");
    let gate = match changes.gate {
        Gate::Passed => "The gate passed",
        Gate::Regressed => "The gate FAILED",
        Gate::Invalid => "The gate FAILED for an invalid case",
    };
    match parts.as_slice() {
        [] => format!("{gate}: no case was compared."),
        [start @ .., last] if !start.is_empty() => {
            format!("{gate}: of {cases} {} and {last}.", start.join(", "))
        }
        _ => format!("{gate}: of {cases} {}.", parts.join("")),
    }
}

fn singular(words: &str) -> String {
    match words.strip_prefix("cost ") {
        Some(rest) => format!("costs {rest}"),
        None => words.replacen("are ", "is ", 1),
    }
}

/// What to know to read the numbers.
fn captions(changes: &Changes) -> Vec<&'static str> {
    let (counted, timed): (Vec<&Change>, Vec<&Change>) = changes
        .cases
        .iter()
        .partition(|change| change.unit.is_counted());
    let counted = (!counted.is_empty()).then_some(
        "insn/op: counts of instructions, which repeat and have no interval. insn are not ns: caches, \
         branches and TLBs are not modelled.",
    );
    let (added, timed): (Vec<&Change>, Vec<&Change>) = timed
        .into_iter()
        .partition(|change| change.baseline.is_some());
    let added = (!added.is_empty()).then_some(
        "With a probe, old and new are what it adds to CPU time on the same server, within a run; the change is \
         of all CPU time that is counted with it, had it taken the same without.",
    );
    let told: Vec<&Change> = timed
        .into_iter()
        .filter(|change| change.basis.is_some())
        .collect();
    let timed = (!told.is_empty()).then(|| intervals(&told));
    counted.into_iter().chain(added).chain(timed).collect()
}

/// Where the intervals of times come from.
fn intervals(timed: &[&Change]) -> &'static str {
    let widened = |change: &&Change| change.basis == Some(Basis::Widened);
    match timed.iter().any(widened) {
        true => {
            "Old and new are different sessions: their intervals are widened by how much sessions differ. \
             Several records a side, or both in one interleaved run, tell more."
        }
        false => "Intervals (95 %) come from the sessions themselves.",
    }
}

/// Cases that one side lacks, as lines.
fn one_sided(changes: &Changes) -> Vec<String> {
    let line = |case: &OneSided, side: &str| {
        let name = format!(
            "{} {}",
            text::line(&case.experiment),
            text::line(&case.case)
        );
        match &case.reason {
            Some(reason) => format!("{name}: only in {side} ({})", text::line(reason)),
            None => format!("{name}: only in {side}"),
        }
    };
    let old = changes.only_old.iter().map(|case| line(case, "old"));
    let new = changes.only_new.iter().map(|case| line(case, "new"));
    old.chain(new).collect()
}
