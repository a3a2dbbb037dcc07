//! A comparison of records, shown: as a view, JUnit or JSON.

mod junit;

use std::collections::HashSet;

use anyhow::Result;

pub use self::junit::render as junit;
use crate::{
    record::{Basis, Change, Changes, Gate, OneSided, Outcome, Side},
    report::{
        block::{Block, Cell, Head},
        number::{self, HOLD, MISSING},
        rows,
        section::{Section, View},
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

/// The comparison for people.
pub fn view(changes: &Changes) -> View {
    let warnings = changes.warnings.iter();
    let warnings: Vec<String> = warnings.map(|warning| text::line(&warning.text)).collect();
    let mut sections = vec![Section::Table(cases(changes))];
    if !warnings.is_empty() {
        sections.push(Section::Warnings(warnings));
    }
    View {
        title: "New records against old ones".to_owned(),
        summary: sentence(changes),
        tone: match changes.gate {
            Gate::Passed => Tone::Plain,
            Gate::Regressed | Gate::Invalid => Tone::Alarm,
        },
        sections,
        ..View::default()
    }
}

/// The cases, in the order of the comparison.
fn cases(changes: &Changes) -> Block {
    let all = changes.cases.iter();
    let change = match all.clone().all(|change| change.unit.is_counted()) {
        true => "change",
        false => "change, 95\u{A0}%",
    };
    let mut block = Block {
        head: vec![
            Head::words("case"),
            Head::number("old"),
            Head::number("new"),
            Head::number(change),
            Head::words("interval").joined(),
            Head::words("verdict"),
        ],
        ..Block::default()
    };
    let runs: HashSet<_> = all
        .map(|change| (&change.experiment, &change.target))
        .collect();
    for change in &changes.cases {
        let group = rows::heading(&change.group);
        let heading = match runs.len() {
            0 | 1 => group,
            _ => {
                let (experiment, target) =
                    (text::line(&change.experiment), text::line(&change.target));
                format!("{experiment} on {target}: {group}")
            }
        };
        if block.groups.last().is_none_or(|last| last.1 != heading) {
            block.groups.push((block.rows.len(), heading));
        }
        block.rows.push(row(change, changes.threshold));
    }
    if !block.rows.is_empty() {
        block.captions = captions(changes);
    }
    block.captions.extend(one_sided(changes));
    block
}

/// One case on both sides.
fn row(change: &Change, threshold: f64) -> Vec<Cell> {
    let (relative, interval) = relative(change);
    let (verdict, tone) = verdict(change, threshold, &relative);
    let shown = |one: Option<Side>| Cell {
        key: one.map(|one| one.value),
        ..Cell::words(side(change, one))
    };
    vec![
        Cell::words(text::line(&change.case)),
        shown(change.old),
        shown(change.new),
        Cell {
            key: change.relative,
            ..Cell::words(relative)
        },
        Cell::words(interval),
        Cell::words(verdict).toned(tone),
    ]
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
        let cases = changes.cases.iter();
        cases.filter(|change| change.outcome == outcome).count()
    };
    let over = format!("cost more by over {limit}");
    let within = format!("are the same within ±{limit}");
    let parts = number::counts(&[
        (count(Outcome::Regressed), &over),
        (count(Outcome::Improved), "cost less by as much"),
        (count(Outcome::Same), &within),
        (count(Outcome::Unresolved), "are unresolved"),
        (count(Outcome::Invalid), "are INVALID"),
    ]);
    let cases = number::plural(changes.cases.len(), "case");
    let gate = match changes.gate {
        Gate::Passed => "The gate passed",
        Gate::Regressed => "The gate FAILED",
        Gate::Invalid => "The gate FAILED for an invalid case",
    };
    match parts.as_slice() {
        [] => format!("{gate}: no case was compared."),
        [one] => format!("{gate}: of {cases} {one}."),
        [start @ .., last] => format!("{gate}: of {cases} {} and {last}.", start.join(", ")),
    }
}

/// What to know to read the numbers.
fn captions(changes: &Changes) -> Vec<String> {
    let any = |wanted: &dyn Fn(&Change) -> bool| changes.cases.iter().any(wanted);
    let timed = |change: &Change| !change.unit.is_counted();
    let alone = |change: &Change| timed(change) && change.baseline.is_none();
    let mut captions = Vec::new();
    if any(&|change| !timed(change)) {
        captions.push(
            "insn/op: counts of instructions, which repeat and have no interval. insn are not ns: caches, \
             branches and TLBs are not modelled.",
        );
    }
    if any(&|change| timed(change) && change.baseline.is_some()) {
        captions.push(
            "With a probe, old and new are what it adds to CPU time on the same server, within a run; the change \
             is of all CPU time that is counted with it, had it taken the same without.",
        );
    }
    if any(&|change| alone(change) && change.basis == Some(Basis::Widened)) {
        captions.push(
            "Old and new are different sessions: their intervals are widened by how much sessions differ. \
             Several records a side, or both in one interleaved run, tell more.",
        );
    } else if any(&|change| alone(change) && change.basis.is_some()) {
        captions.push("Intervals (95 %) come from the sessions themselves.");
    }
    captions.into_iter().map(str::to_owned).collect()
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
