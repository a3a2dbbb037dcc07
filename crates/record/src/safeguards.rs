//! Safeguards that records lack: a sentinel, and what was timed (provenance). A comparison names them, because it can't
//! see what they would show.

use crate::{Record, compat::what};
use bpfcost_measure::Warning;

/// Returns a warning for each safeguard that one of these records of the same experiment and target lacks.
pub(super) fn lacking(records: &[&Record]) -> Vec<Warning> {
    let sentinel = lacks(
        records,
        // Counts don't drift, and of workloads the difference to the same server without a probe is compared.
        |record| {
            let needs_none = record.unit.is_counted() || record.layout.times_windows();
            !needs_none && record.spread.sentinel.is_none()
        },
        |record| record.waivers.sentinel.as_deref(),
    );
    let programs = lacks(
        records,
        |record| record.machine.programs.is_none(),
        |record| record.waivers.programs.as_deref(),
    );
    let texts = [
        (
            "no-sentinel",
            sentinel,
            "no sentinel",
            "a change of the machine's speed looks like a change of the cases",
        ),
        (
            "no-provenance",
            programs,
            "nothing about the timed programs",
            "another build of them goes unnoticed",
        ),
    ];
    let warnings = texts.into_iter().filter_map(|(code, lack, name, effect)| {
        let (count, reason) = lack?;
        let (what, all) = (what(records.first()?), records.len());
        Some(Warning::new(
            code,
            format!("{what}: {count} of {all} records have {name} ({reason}), so {effect}"),
        ))
    });
    warnings.collect()
}

/// Number of records that lack something, and the first reason that one of them gives.
fn lacks<'a>(
    records: &[&'a Record],
    lacks: impl Fn(&Record) -> bool,
    reason: impl Fn(&'a Record) -> Option<&'a str>,
) -> Option<(usize, &'a str)> {
    let lacking: Vec<&Record> = (records.iter().copied())
        .filter(|record| lacks(record))
        .collect();
    let given = lacking.iter().find_map(|&record| reason(record));
    (!lacking.is_empty()).then(|| (lacking.len(), given.unwrap_or("they give no reason")))
}
