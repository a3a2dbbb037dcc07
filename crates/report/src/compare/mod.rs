//! A comparison of records, shown: as a view, JUnit or JSON.

mod junit;

use std::collections::HashSet;

use anyhow::Result;

pub use self::junit::render as junit;
use crate::{
    estimate, rows,
    section::{Section, View, Warnings},
    style::Tone,
    table::{Cell, Head, Table},
    verdict::{with_interval, with_parts},
};
use bpfcost_record::{Change, ChangeBasis, ChangeOutcome, Changes, Gate, OneSided, Side};
use bpfcost_text::{
    line,
    number::{self, MISSING},
};

/// The cases that the first sentence names, at most.
const MAX_NAMED: usize = 3;

/// The comparison as JSON, ending in a newline.
pub fn json(changes: &Changes) -> Result<String> {
    let mut text = serde_json::to_string_pretty(changes)?;
    text.push('\n');
    Ok(text)
}

/// The comparison for people.
pub fn view(changes: &Changes) -> View {
    let warnings = changes.warnings.iter();
    let warnings: Vec<String> = warnings.map(|warning| line(&warning.text)).collect();
    let mut sections = vec![Section::Table(cases(changes))];
    if !warnings.is_empty() {
        sections.push(Section::Warnings(Warnings {
            lines: warnings,
            more: 0,
        }));
    }
    View {
        title: "New records against old ones".to_owned(),
        summary: sentence(changes),
        tone: match changes.gate {
            Gate::Passed => Tone::Plain,
            Gate::Regressed | Gate::Invalid | Gate::Blind => Tone::Alarm,
        },
        sections,
        ..View::default()
    }
}

/// The cases, in the order of the comparison.
fn cases(changes: &Changes) -> Table {
    let mut cases = changes.cases.iter();
    let head = if cases.all(|change| change.unit.is_counted()) {
        "change"
    } else {
        "change, 95\u{A0}%"
    };
    let runs = changes.cases.iter();
    let runs: HashSet<_> = runs.map(|one| (&one.experiment, &one.target)).collect();
    let heading = |change: &Change| match runs.len() {
        0 | 1 => rows::group_heading(&change.group, &change.case),
        _ => format!(
            "{} on {}: {}",
            line(&change.experiment),
            line(&change.target),
            rows::group_heading(&change.group, &change.case)
        ),
    };
    let groups = changes
        .cases
        .chunk_by(|one, next| heading(one) == heading(next))
        .map(|group| (heading(&group[0]), group));
    let side_cell = |change: &Change, one: Option<Side>| {
        Cell::keyed(side(change, one), one.map(|one| one.value))
    };
    let columns = vec![
        Head::words("case").cells(|change: &Change| Cell::words(line(&change.case))),
        Head::number("old").cells(|change: &Change| side_cell(change, change.old)),
        Head::number("new").cells(|change: &Change| side_cell(change, change.new)),
        Head::number(head)
            .cells(|change: &Change| Cell::keyed(relative(change).0, change.relative)),
        Head::words("interval")
            .joined()
            .cells(|change: &Change| Cell::words(relative(change).1)),
        Head::words("verdict").cells(|change: &Change| {
            let (verdict, tone) = verdict(change, changes);
            Cell::words(verdict).toned(tone)
        }),
    ];
    let table = Table::by_group(columns, groups);
    let captions = captions(changes)
        .into_iter()
        .filter(|_| !table.rows.is_empty());
    Table {
        captions: captions.chain(one_sided(changes)).collect(),
        ..table
    }
}

/// Cost of a case on one side, or the share that a probe adds to a workload.
fn side(change: &Change, side: Option<Side>) -> String {
    let Some(side) = side else {
        return MISSING.to_owned();
    };
    match side.added.filter(|_| change.baseline.is_some()) {
        Some(added) => number::change(added, side.added_ci95).0,
        None => estimate::value(side.value, side.ci95, change.unit),
    }
}

/// `+5.1 %` and `[+4.0, +6.3]`.
fn relative(change: &Change) -> (String, String) {
    match change.relative.filter(|relative| relative.is_finite()) {
        Some(relative) => with_interval(relative, change.relative_ci95, change.unit),
        None => (MISSING.to_owned(), String::new()),
    }
}

/// The verdict, with a mark where another reading is compared than in other cases.
fn verdict(change: &Change, changes: &Changes) -> (String, Tone) {
    let (mut words, tone) = outcome(change, changes.threshold, &relative(change).0);
    let others = changes.cases.iter().any(|one| one.undisturbed);
    if others && !change.undisturbed && change.basis.is_some() {
        words += "; as found";
    }
    (words, tone)
}

fn outcome(change: &Change, threshold: f64, relative: &str) -> (String, Tone) {
    let limit = number::round_percent(threshold);
    let note = change.note.as_deref().map(line);
    match change.outcome {
        ChangeOutcome::Regressed => (format!("costs more, beyond {limit}"), Tone::More),
        ChangeOutcome::Improved => (format!("costs less, beyond {limit}"), Tone::Less),
        ChangeOutcome::Same => (format!("same ({relative}, within ±{limit})"), Tone::Quiet),
        ChangeOutcome::Unresolved => {
            let seen = change.detectable.filter(|percent| percent.is_finite());
            let seen =
                seen.map(|percent| format!("could detect {}", number::percent(percent / 100.0)));
            let words = with_parts("unresolved", seen.into_iter().chain(note));
            (words, Tone::Open)
        }
        ChangeOutcome::Invalid => (with_parts("INVALID", note.into_iter()), Tone::Alarm),
    }
}

/// The comparison in one sentence.
pub fn sentence(changes: &Changes) -> String {
    let limit = number::round_percent(changes.threshold);
    let count = |outcome| {
        let cases = changes.cases.iter();
        cases.filter(|change| change.outcome == outcome).count()
    };
    let over = format!("cost over {limit} more");
    let under = format!("cost over {limit} less");
    let within = format!("are the same within ±{limit}");
    let parts = number::counts(&[
        (count(ChangeOutcome::Regressed), &over),
        (count(ChangeOutcome::Improved), &under),
        (count(ChangeOutcome::Same), &within),
        (count(ChangeOutcome::Unresolved), "are unresolved"),
        (count(ChangeOutcome::Invalid), "are INVALID"),
    ]);
    let cases = number::plural(changes.cases.len(), "case");
    let gate = match changes.gate {
        Gate::Passed => "The gate passed",
        Gate::Regressed => "The gate FAILED",
        Gate::Invalid => "The gate FAILED for an invalid case",
        Gate::Blind if changes.unjudged().next().is_some() => {
            "The gate FAILED, because it could not judge every case"
        }
        Gate::Blind => "The gate FAILED, because it could not see enough",
    };
    if parts.is_empty() {
        format!("{gate}: no case was compared.{}", sight(changes))
    } else {
        format!(
            "{gate}: of {cases} {}.{}",
            number::list(&parts),
            sight(changes)
        )
    }
}

/// The smallest rise that the gate could detect, if a case is unresolved or a rise had to be detectable.
fn sight(changes: &Changes) -> String {
    let percent = |share: f64| number::percent(share / 100.0);
    if changes.gate == Gate::Blind {
        let blind = changes.blind().count();
        let must_see = changes.must_see.filter(|_| blind > 0);
        let too_small = must_see.map(|must_see| {
            format!(
                " A rise of {} could have gone unnoticed in {}.",
                number::round_percent(must_see),
                number::plural(blind, "case")
            )
        });
        return unjudged(changes) + &too_small.unwrap_or_default();
    }
    let open = changes.cases.iter();
    let open = open.filter(|change| change.outcome == ChangeOutcome::Unresolved);
    let sees: Vec<f64> = open.filter_map(|change| change.gate_sees).collect();
    let (least, most) = (
        sees.iter().copied().reduce(f64::min),
        sees.iter().copied().reduce(f64::max),
    );
    match least.zip(most) {
        Some((least, most)) if percent(least) != percent(most) => format!(
            " In those, a rise of less than {} to {} could pass unseen, depending on the case.",
            percent(least),
            percent(most)
        ),
        Some((_, most)) => {
            format!(
                " There, a rise of less than {} could pass unseen.",
                percent(most)
            )
        }
        None => String::new(),
    }
}

/// The cases that the gate could not judge, so that a rise of any size could have gone unnoticed.
fn unjudged(changes: &Changes) -> String {
    let mut names: Vec<String> = changes.unjudged().map(line).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    if names.is_empty() {
        return String::new();
    }
    names.truncate(MAX_NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    format!(
        " A rise of any size could have gone unnoticed in {}.",
        number::list(&names)
    )
}

fn captions(changes: &Changes) -> Vec<String> {
    let any = |wanted: &dyn Fn(&Change) -> bool| changes.cases.iter().any(wanted);
    let timed = |change: &Change| !change.unit.is_counted();
    let widened = |change: &Change| {
        timed(change) && change.baseline.is_none() && change.basis == Some(ChangeBasis::Widened)
    };
    let captions = [
        (
            any(&|change| !timed(change)),
            "insn/op are counts of instructions; they have no interval. insn are not ns: caches, branches and TLBs \
             are not modelled.",
        ),
        (
            any(&|change| timed(change) && change.baseline.is_some()),
            "For a probe, old and new are the share of CPU time that it adds within a run; the change is in the \
             CPU time with the probe.",
        ),
        (
            any(&widened),
            "Old and new are different sessions; the intervals include the spread between sessions.",
        ),
    ];
    let captions = captions.into_iter().filter(|one| one.0);
    captions.map(|one| one.1.to_owned()).collect()
}

/// Cases that one side lacks, as lines.
fn one_sided(changes: &Changes) -> Vec<String> {
    let entry = |case: &OneSided, side: &str| {
        let reason = case.reason.as_ref().map(|reason| format!(" ({reason})"));
        let reason = reason.unwrap_or_default();
        line(&format!(
            "{} {}: only in {side}{reason}",
            case.experiment, case.case
        ))
    };
    let old = changes.only_old.iter().map(|case| entry(case, "old"));
    let new = changes.only_new.iter().map(|case| entry(case, "new"));
    old.chain(new).collect()
}
