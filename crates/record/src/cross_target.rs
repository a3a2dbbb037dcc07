//! One experiment on several targets, side by side: the cost of each case on each target, and how targets differ.
//!
//! This describes; it gates nothing. [`compare()`](super::compare()) answers "did it get slower?" and
//! rejects counts of different kernels, emulators or builds, because a failed gate must mean the
//! program under test. Here the kernel *is* the question, so counts of two kernels are compared, and
//! everything else that differs between the two is shown beside them.
//!
//! Only what is measured alike is compared: counts with counts, times of hardware with times of
//! hardware, and times of one emulator with its own. The first target of each kind is what the others
//! of that kind are compared with. Times are those of separate sessions and judged as such, intervals
//! widened by the spread between sessions, as one family over all cases and targets; counts repeat and
//! are judged with a margin of zero. Cases of a grid are compared by what they cost without their floors
//! ([`Record::cost`]), and only they and the floors are shown.

use std::{borrow::Cow, collections::HashSet};

use bpfcost_stats::{
    session_spread::{SessionSpread, SessionSpreads},
    sessions::{Basis, Sides},
};

use crate::{
    CaseRecord, ChangeOutcome, CompareError, Cost, Reading, Record, VerdictRecord, compat, exact,
    record_group::{self, RecordGroup},
};
use bpfcost_model::{Grid, Role, Unit};

/// Records of one experiment, one a target.
#[derive(Debug)]
pub struct CrossTarget<'a> {
    /// The targets, in the order given.
    pub columns: Vec<CrossTargetColumn<'a>>,
    /// Every case of every record once, in the experiment's order, floors last; of a grid, its cells.
    pub rows: Vec<CrossTargetRow<'a>>,
    /// The spread between sessions that widened the intervals of times most; `None` where no times are compared.
    pub session_spread: Option<SessionSpread>,
    /// Earlier sessions of the same targets, which are left out.
    pub left_out: usize,
}

/// One target and the target that it is compared with.
#[derive(Debug)]
pub struct CrossTargetColumn<'a> {
    /// The target's record.
    pub record: &'a Record,
    /// The target that it is compared with.
    pub against: Reference,
    /// The differences from that one besides the kernel: the programs, the CPU, ….
    pub also_differs: Vec<String>,
}

/// The target that a target is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The first of its kind: others are compared with it.
    First,
    /// The target in this column.
    Column(usize),
    /// Nothing, though there is one of its kind: the reason.
    Nothing(String),
}

/// One case on every target.
#[derive(Debug)]
pub struct CrossTargetRow<'a> {
    /// The case's name.
    pub name: &'a str,
    /// The heading under which tables show it.
    pub group: &'a str,
    /// `case`, or `floor` for a part of the harness.
    pub role: Role,
    /// A cell for each column.
    pub cells: Vec<CrossTargetCell<'a>>,
}

/// One case on one target.
#[derive(Debug)]
pub struct CrossTargetCell<'a> {
    /// The case; `None` where it was no part of that run.
    pub case: Option<Cow<'a, CaseRecord>>,
    /// The difference from the target that this one is compared with.
    pub difference: Option<Difference>,
}

/// The difference of a case between two targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// here ∕ there − 1.
    pub relative: f64,
    /// The 95 % interval of `relative`, the spread between sessions included; `None` for counts.
    pub relative_ci95: Option<[f64; 2]>,
    /// The verdict: [`VerdictRecord::Slower`] where it costs more here.
    pub verdict: VerdictRecord,
}

/// The records of each experiment, in the order in which experiments first appear.
pub fn by_experiment(records: &[Record]) -> Vec<Vec<&Record>> {
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        match groups
            .iter_mut()
            .find(|group| group[0].experiment == record.experiment)
        {
            Some(group) => group.push(record),
            None => groups.push(vec![record]),
        }
    }
    groups
}

impl<'a> CrossTarget<'a> {
    /// The records of one experiment side by side; of several sessions on the same target and kernel,
    /// the one that started last.
    pub fn new(records: &[&'a Record]) -> Self {
        let records_given = records.len();
        let records = latest(records);
        let columns = columns_of(&records);
        let mut rows = rows(&records);
        let session_spread = judge(&columns, &mut rows);
        CrossTarget {
            left_out: records_given - columns.len(),
            columns,
            rows,
            session_spread,
        }
    }
}

/// The key that distinguishes one column from another.
fn place(record: &Record) -> (&str, &str, bool) {
    let machine = &record.machine;
    (&record.target, &machine.kernel, machine.emulates_time())
}

/// One record a target and kernel, in the order in which they first appear.
fn latest<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let mut kept: Vec<&Record> = Vec::new();
    for &record in records {
        match kept.iter_mut().find(|one| place(one) == place(record)) {
            // RFC 3339 in UTC sorts as text.
            Some(one) if one.started <= record.started => *one = record,
            Some(_) => {}
            None => kept.push(record),
        }
    }
    kept
}

/// The kind of a record's numbers: only numbers of one kind can be compared.
fn kind(record: &Record) -> (Unit, Option<&str>) {
    // Another emulator of counts is noted, but counts are counts; and KVM leaves the times to the CPU.
    let emulator = record.machine.emulator.as_deref();
    (
        record.unit,
        emulator.filter(|_| record.machine.emulates_time() && !record.unit.is_counted()),
    )
}

fn columns_of<'a>(records: &[&'a Record]) -> Vec<CrossTargetColumn<'a>> {
    let column = |(index, &record): (usize, &&'a Record)| {
        let alike = |other: &&Record| kind(other) == kind(record);
        let first = records[..index].iter().position(alike);
        let (against, also_differs) = match first {
            None => (Reference::First, Vec::new()),
            Some(first) => (
                against(record, first, records[first]),
                differences(records[first], record),
            ),
        };
        CrossTargetColumn {
            record,
            against,
            also_differs,
        }
    };
    records.iter().enumerate().map(column).collect()
}

/// The reference of a record: the first of its kind, in that column, where the two can be compared.
fn against(record: &Record, column: usize, first: &Record) -> Reference {
    match compat::compatible(&[first, record]) {
        // Refused in a gate; the very question here.
        Ok(_) | Err(CompareError::Exact(..)) => Reference::Column(column),
        Err(CompareError::Quick(..)) => Reference::Nothing(
            "one was measured with --quick, the other was not; short batches cost more where data are cold"
                .to_owned(),
        ),
        Err(error) => Reference::Nothing(error.to_string()),
    }
}

/// The differences between two runs besides the kernel, as far as costs depend on them.
fn differences(one: &Record, other: &Record) -> Vec<String> {
    let machines = compat::unlike(&one.machine, &other.machine);
    let relevant = machines.filter_map(|(name, one, other)| match name {
        "CPU" | "hypervisor" | "emulator" | "programs" => {
            let (one, other) = unlike_parts(&one, &other);
            Some(format!("{name} ({one} → {other})"))
        }
        // Each is a sentence long; the page of a record has them all.
        "mitigations" | "JIT" => Some(name.to_owned()),
        _ => None,
    });
    let mut differs: Vec<String> = relevant.collect();
    if one.unit.is_counted() {
        differs.extend(
            compat::Terms::from_record(one).different_choices(&compat::Terms::from_record(other)),
        );
    }
    differs
}

/// Lists without what both have: `build 1, can_loop` and `build 1, bpf_loop` differ in the loop.
fn unlike_parts(one: &str, other: &str) -> (String, String) {
    let without = |list: &str, parts: &str| {
        let parts: HashSet<&str> = parts.split(", ").collect();
        let rest: Vec<&str> = list
            .split(", ")
            .filter(|part| !parts.contains(part))
            .collect();
        rest.join(", ")
    };
    match (without(one, other), without(other, one)) {
        (one, other) if !one.is_empty() && !other.is_empty() => (one, other),
        _ => (one.to_owned(), other.to_owned()),
    }
}

/// Every case once. A case that only later records have stands where they have it.
fn rows<'a>(records: &[&'a Record]) -> Vec<CrossTargetRow<'a>> {
    let mut order: Vec<&'a CaseRecord> = Vec::new();
    for record in records {
        // A new case goes behind the one that stands before it in its record.
        let mut at = 0;
        for case in &record.cases {
            let outside = |grid: &Grid| case.role == Role::Case && case.cell(grid).is_none();
            if record.layout.grid().is_some_and(outside) {
                continue;
            }
            let position = order.iter().position(|one| one.name == case.name);
            if position.is_none() {
                order.insert(at, case);
            }
            at = position.unwrap_or(at) + 1;
        }
    }
    order.sort_by_key(|case| case.role == Role::Floor);
    let row = |case: &'a CaseRecord| {
        // One reading of all times: a kernel whose batches are not cut has no other than as found.
        let found = records.iter().any(|record| {
            let timed = record
                .case(&case.name)
                .filter(|_| !record.unit.is_counted());
            timed.is_some_and(|case| case.raw.is_some() && case.reading() == Reading::AsFound)
        });
        let cell = |record: &&'a Record| CrossTargetCell {
            case: record.case(&case.name).map(|case| {
                if found && case.reading() == Reading::Undisturbed {
                    Cow::Owned(case.clone().into_found())
                } else {
                    Cow::Borrowed(case)
                }
            }),
            difference: None,
        };
        CrossTargetRow {
            name: &case.name,
            group: &case.group,
            role: case.role,
            cells: records.iter().map(cell).collect(),
        }
    };
    order.into_iter().map(row).collect()
}

/// Fills in the differences; returns the spread between sessions that times were judged with.
fn judge(
    columns: &[CrossTargetColumn<'_>],
    rows: &mut [CrossTargetRow<'_>],
) -> Option<SessionSpread> {
    let margins = columns.iter().map(|column| column.record.asked.margin);
    let margin = margins.fold(0.0, f64::max);
    let spreads = Reading::ALL.map(|reading| stated_spreads(columns, reading));
    let mut places: Vec<(usize, usize)> = Vec::new();
    let mut sides: Vec<Sides> = Vec::new();
    for (place, first) in pairs(columns) {
        let [old, new] = [first, place].map(|at| columns[at].record);
        let group = RecordGroup {
            old: vec![old],
            new: vec![new],
        };
        for (index, row) in rows.iter_mut().enumerate() {
            let costs =
                [(first, old), (place, new)].map(|(at, record)| comparable(&row.cells[at], record));
            let [Some(old), Some(new)] = costs else {
                continue;
            };
            let case = row.cells[place].case.as_deref();
            let reading = case.map_or(Reading::AsFound, CaseRecord::reading);
            if group.counts() {
                row.cells[place].difference = count_difference(old, new);
            } else if let Some(spreads) = spreads[reading as usize] {
                places.push((index, place));
                sides.push(group.sides(row.name, spreads, |side, _| costs[side]));
            }
        }
    }
    let comparisons = record_group::judge(&sides, sides.len(), margin);
    for ((row, column), comparison) in places.into_iter().zip(&comparisons) {
        let relative = comparison.relative.filter(|one| one.value.is_finite());
        rows[row].cells[column].difference = relative.map(|relative| Difference {
            relative: relative.value,
            relative_ci95: Some([relative.low, relative.high]),
            verdict: VerdictRecord::from(comparison.verdict),
        });
    }
    let widened = comparisons.iter().filter_map(|one| match one.basis {
        Basis::Widened(spread) => Some(spread),
        Basis::Turns { .. } => None,
    });
    widened.reduce(|one, other| if one.share >= other.share { one } else { other })
}

/// Each column that is compared, with the column that it is compared with.
fn pairs(columns: &[CrossTargetColumn<'_>]) -> impl Iterator<Item = (usize, usize)> {
    let columns = columns.iter().enumerate();
    columns.filter_map(|(place, column)| match column.against {
        Reference::Column(first) => Some((place, first)),
        Reference::First | Reference::Nothing(_) => None,
    })
}

/// The largest spreads between sessions that records of compared times state; `None` if no times are compared.
fn stated_spreads(columns: &[CrossTargetColumn<'_>], reading: Reading) -> Option<SessionSpreads> {
    let timed = pairs(columns).filter(|(place, _)| !columns[*place].record.unit.is_counted());
    let records = timed.flat_map(|(place, first)| [place, first].map(|at| columns[at].record));
    let stated = records.map(|record| record.stated_spreads(reading));
    stated.reduce(SessionSpreads::larger)
}

/// A case whose cost can be compared: a share of a cost indistinguishable from zero means nothing.
fn comparable(cell: &CrossTargetCell<'_>, record: &Record) -> Option<Cost> {
    let cost = record.cost(cell.case.as_deref()?)?;
    (!record.layout.compares_nets() || cost.is_something()).then_some(cost)
}

/// The difference of two counts. They repeat, so the margin is zero.
fn count_difference(old: Cost, new: Cost) -> Option<Difference> {
    let (outcome, relative) = exact::change(&[old], &[new], 0.0);
    Some(Difference {
        relative: relative?,
        relative_ci95: None,
        verdict: match outcome {
            ChangeOutcome::Regressed => VerdictRecord::Slower,
            ChangeOutcome::Improved => VerdictRecord::Faster,
            ChangeOutcome::Same => VerdictRecord::Same,
            ChangeOutcome::Unresolved | ChangeOutcome::Invalid => VerdictRecord::Unresolved,
        },
    })
}
