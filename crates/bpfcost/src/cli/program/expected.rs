//! Files of what programs are expected to do: whether one fits a run, and how one is written.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Result;

use crate::cli::{exit::usage, output::note};
use bpfcost_measure::Plan;
use bpfcost_model::Behaviour;
use bpfcost_model::{Case, Role};
use bpfcost_program::{Expectation, OwnPrograms, expected_file};
use bpfcost_record::{CaseRecord, Record, Status};

/// Refuses files that say nothing of a program and a packet that are measured.
pub(super) fn complete<'a>(
    subject: &OwnPrograms,
    mut plans: impl Iterator<Item = &'a Plan>,
) -> Result<()> {
    if subject.expected.behaviours.is_empty() {
        return Ok(());
    }
    let lacking = plans.find_map(|plan| plan.cases.iter().find_map(|case| lacks(subject, case)));
    lacking.map_or(Ok(()), |why| {
        Err(usage(format!(
            "--expect: {why}\n  Record it again (--record-expected FILE), or measure what was recorded (--case)"
        )))
    })
}

/// Why files say nothing of a case, if so.
fn lacks(subject: &OwnPrograms, case: &Case) -> Option<String> {
    let (program, input) = of_new(case.role, &case.factors)?;
    match subject.expected.behaviour(program, input) {
        None => Some(format!("nothing is expected there of {program} on {input}")),
        Some(known) if known.input_digest != subject.input_digest(input) => Some(format!(
            "it was recorded with another packet than this one of the name {input}"
        )),
        Some(_) => None,
    }
}

/// The program and the packet of a case, unless it is a floor or of the version that is compared with.
fn of_new(role: Role, factors: &BTreeMap<String, String>) -> Option<(&str, &str)> {
    let factor = |name: &str| factors.get(name).map_or("", String::as_str);
    let is_new = role == Role::Case && factor("version") == "new";
    is_new.then(|| (factor("program"), factor("packet")))
}

/// Refuses a file that can't be written, before anything is measured.
pub(super) fn recordable(file: &Path, targets: usize) -> Result<()> {
    if targets > 1 {
        return Err(usage(
            "--record-expected takes one target\n  Record on one, and compare the others with it: --expect FILE",
        ));
    }
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) || file.is_dir() {
        return Err(usage(format!(
            "--record-expected {}: no file can be written there\n  Name a file in a folder that exists",
            file.display()
        )));
    }
    Ok(())
}

/// Writes what the programs of a run did, if all have a result.
pub(super) fn record(file: &Path, subject: &OwnPrograms, records: &[Record]) -> Result<()> {
    let (mut expected, mut missing) = (Vec::new(), Vec::new());
    for case in records.iter().flat_map(|record| &record.cases) {
        let Some((program, input)) = of_new(case.role, &case.factors) else {
            continue;
        };
        match behaviour(case) {
            Some(behaviour) => expected.push(Expectation {
                program: program.to_owned(),
                input: input.to_owned(),
                input_digest: subject.input_digest(input),
                behaviour,
            }),
            None => missing.push(case.name.as_str()),
        }
    }
    if !missing.is_empty() || expected.is_empty() {
        note!(
            "{} is not written, as not every case has a result: {}\n  Run it again, for those that have one: --case GLOB",
            file.display(),
            missing.join(", ")
        );
        return Ok(());
    }
    fs::write(file, expected_file(expected)).map_err(|error| {
        usage(format!(
            "cannot write {}: {error}\n  Name another file with --record-expected",
            file.display()
        ))
    })?;
    Ok(())
}

/// What a case did, if it has a result.
fn behaviour(case: &CaseRecord) -> Option<Behaviour> {
    let facts = case
        .observed
        .clone()
        .filter(|_| case.status == Status::Ok)?;
    let behaviour: Behaviour = serde_json::from_value(facts).ok()?;
    Some(Behaviour {
        // They are how it was found, not what is expected.
        window: None,
        returned: None,
        drifts: BTreeMap::new(),
        ..behaviour
    })
}
