//! Notes on a case beside its numbers: problems, modes, too few epochs, dependence on the batch.

use crate::{
    estimate::{half_width, value},
    style::Tone,
    table::Note,
};
use bpfcost_model::{Role, Unit};
use bpfcost_record::{CaseRecord, Raw, Record, Status, rare_work};
use bpfcost_stats::REPEATS;
use bpfcost_text::{block, line, number};

/// Deviation from 2 of the 2N/N ratio above which a case is noted (METHODOLOGY: 5 %).
const RATIO_TOLERANCE: f64 = 0.05;
/// Half-width in nanoseconds that is narrow enough at any cost (METHODOLOGY.md).
const NARROW_NS: f64 = 0.1;

/// The notes of a case in one line.
pub(crate) fn in_one_line(case: &CaseRecord, record: &Record) -> String {
    joined(&notes(case, record))
}

pub(crate) fn joined(notes: &[Note]) -> String {
    let texts: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
    texts.join("; ")
}

/// Notes on a case, most important first; of one without a result only the reason.
pub(crate) fn notes(case: &CaseRecord, record: &Record) -> Vec<Note> {
    let raw = match (case.status, &case.raw) {
        (Status::Ok, Some(raw)) => raw,
        (Status::Ok, None) => return vec![Note::new(Tone::Quiet, "no trials")],
        (Status::Invalid, _) => return vec![Note::new(Tone::Alarm, first_problem(case))],
        (Status::Unsupported, _) => {
            let reason = case.reason.as_deref().unwrap_or("not on this target");
            return vec![Note::new(Tone::Quiet, line(reason))];
        }
    };
    let (unit, counted) = (record.unit, record.unit.is_counted());
    let few = (raw.ci95.is_none() && !counted).then(|| {
        let epochs = number::plural(raw.epochs, "epoch");
        format!("{epochs}: too few for an interval")
    });
    let off_two = off_two(case).map(|ratio| {
        let ratio = number::fixed(ratio, 2);
        format!("twice the batch took {ratio} times {}", as_much(unit))
    });
    let own_work = rare_work(case).filter(|_| counted).map(|work| {
        let [differ, all] = work.batches.map(|count| number::count(count as u64));
        let mean = value(work.mean, None, unit);
        format!(
            "{differ} of {all} batches count otherwise, {mean} in the mean: work done now and then"
        )
    });
    let notes = [
        disturbed(case, record),
        (raw.modes.len() > 1).then(|| modes(raw)),
        (raw.repeats == Some(0)).then(|| disagreement(raw)),
        own_work,
        few,
        wide(case, raw, record),
        off_two,
    ];
    let notes = notes.into_iter().flatten();
    notes.map(|text| Note::new(Tone::Open, text)).collect()
}

fn first_problem(case: &CaseRecord) -> String {
    let first = case.problems.first();
    let first = first.map_or("a check failed".to_owned(), |one| line(&one.to_string()));
    match case.problems.len() {
        0 | 1 => first,
        all => format!("{first} (and {} more)", all - 1),
    }
}

/// The reason that a case is as found, in a run with undisturbed cases.
fn disturbed(case: &CaseRecord, record: &Record) -> Option<String> {
    let unknown = "undisturbed cost unknown";
    (record.has_undisturbed() && case.undisturbed.is_none()).then(|| {
        let reason = case.not_undisturbed.as_ref();
        reason.map_or(unknown.to_owned(), |reason| format!("{unknown}: {reason}"))
    })
}

/// The reason that trials agree on no count.
fn disagreement(raw: &Raw) -> String {
    if raw.trials < REPEATS {
        let trials = number::plural(raw.trials, "trial");
        return format!("{trials}: too few to agree on a count");
    }
    let [low, high] = number::apart([raw.min, raw.max]);
    format!("depends on state: trials range from {low} to {high}")
}

/// An interval wider than the precision that was asked for. Floors have none, because a run does not wait for them.
fn wide(case: &CaseRecord, raw: &Raw, record: &Record) -> Option<String> {
    let asked = record.asked.precision.filter(|_| case.role == Role::Case)?;
    let width = half_width(raw)?;
    (width > asked && width * raw.value.abs() > NARROW_NS).then(|| {
        let (width, hold) = (number::fixed(width * 100.0, 2), number::HOLD);
        let asked = number::round_percent(asked);
        format!("±{width}{hold}%, asked for ±{asked}")
    })
}

/// Ratio of the cost of twice the batch to that of the batch, where it is not 2.
pub(crate) fn off_two(case: &CaseRecord) -> Option<f64> {
    let ratio = case.calibration?.ratio?;
    ((ratio / 2.0 - 1.0).abs() > RATIO_TOLERANCE).then_some(ratio)
}

/// `two modes: 83.1 in 60 % of epochs, 86.4 in 40 %`.
fn modes(raw: &Raw) -> String {
    let pairs = raw.modes.windows(2);
    let gaps = pairs.map(|pair| (pair[1].value - pair[0].value).abs());
    let decimals = gaps.fold(2, |least, gap| least.min(number::decimals(gap)));
    let modes = raw.modes.iter().enumerate().map(|(place, mode)| {
        let behind = if place == 0 { " of epochs" } else { "" };
        let value = number::fixed(mode.value, decimals);
        format!("{value} in {}{behind}", number::percent(mode.share))
    });
    let modes: Vec<String> = modes.collect();
    let count = match modes.len() {
        2 => "two".to_owned(),
        more => more.to_string(),
    };
    format!("{count} modes: {}", modes.join(", "))
}

/// Words behind `2 times`, for the ratio of two batches.
pub(crate) fn as_much(unit: Unit) -> &'static str {
    if unit.is_counted() {
        "as many instructions"
    } else {
        "as long"
    }
}

/// The problems of an invalid case: what was expected and what was seen, each with its details by lines.
pub(crate) fn problems(case: &CaseRecord, record: &Record) -> Vec<(String, Vec<String>)> {
    let name = line(&format!("{} {}", record.experiment, case.name));
    let entry = |problem: &str, detail: &str| {
        let details = block(detail);
        let details = details.lines().map(|line| line.trim_end().to_owned());
        let mut details: Vec<String> = details.collect();
        if details.iter().all(String::is_empty) {
            details = vec!["nothing is reported for this case".to_owned()];
        }
        (format!("{name}  INVALID  {}", line(problem)), details)
    };
    match case.problems.as_slice() {
        [] => vec![entry("a check failed", "")],
        all => all
            .iter()
            .map(|one| entry(&one.to_string(), &one.detail))
            .collect(),
    }
}
