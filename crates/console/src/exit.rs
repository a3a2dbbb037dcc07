//! Exit codes, and how errors map to them.

use std::{cmp::Ordering, error::Error, io, process::ExitCode};

use bpfcost_measure::{self, Stop};
use bpfcost_model::{ENDED, Role};
use bpfcost_record::{BudgetAnswer, Gate, Record, Status};

/// How the program ends; the numbers are a contract (docs/commands.md). Where several apply, the greatest is returned,
/// in the order in which they stand here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Done = 0,
    /// Wrong usage or input.
    Usage = 2,
    /// The machine lacks what was asked.
    Lacking = 4,
    /// A case was invalid.
    Invalid = 3,
    /// A gate failed.
    Gate = 1,
    /// Something that the user named and bpfcost started, or watched, failed or ended: a server, a client, a tool.
    Failed = 5,
    /// Aborted by `--abort-above`.
    Aborted = 6,
    /// Interrupted: 128 + SIGINT, as shells have it.
    Interrupted = 130,
}

/// All of them, from the one that any other takes precedence over.
pub const BY_PRECEDENCE: [Exit; 8] = [
    Exit::Done,
    Exit::Usage,
    Exit::Lacking,
    Exit::Invalid,
    Exit::Gate,
    Exit::Failed,
    Exit::Aborted,
    Exit::Interrupted,
];

impl Ord for Exit {
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |one: &Self| BY_PRECEDENCE.iter().position(|exit| exit == one);
        place(self).cmp(&place(other))
    }
}

impl PartialOrd for Exit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<BudgetAnswer> for Exit {
    fn from(answer: BudgetAnswer) -> Self {
        match answer {
            BudgetAnswer::Within | BudgetAnswer::CantTell => Exit::Done,
            BudgetAnswer::NotJudged => Exit::Lacking,
            BudgetAnswer::Over => Exit::Gate,
        }
    }
}

impl From<Gate> for Exit {
    fn from(gate: Gate) -> Self {
        match gate {
            Gate::Passed => Exit::Done,
            Gate::Regressed | Gate::Blind => Exit::Gate,
            Gate::Invalid => Exit::Invalid,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error that knows its exit code: what, why, and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Refusal {
    exit: Exit,
    text: String,
}

/// Wrong usage or input.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    refusal(Exit::Usage, text.into())
}

/// An error for an interrupt before there was anything to show.
pub fn interrupted(text: impl Into<String>) -> anyhow::Error {
    refusal(Exit::Interrupted, text.into())
}

/// The machine lacks what was asked.
pub fn lacking(text: impl Into<String>) -> anyhow::Error {
    refusal(Exit::Lacking, text.into())
}

/// An error with this exit code.
pub fn refusal(exit: Exit, text: String) -> anyhow::Error {
    Refusal { exit, text }.into()
}

impl Exit {
    /// The exit code of this number, as the same program in a guest reports it.
    pub fn known(code: u8) -> Exit {
        let exits = BY_PRECEDENCE.into_iter();
        let mut failures = exits.filter(|exit| *exit != Exit::Done);
        failures
            .find(|exit| *exit as u8 == code)
            .unwrap_or(Exit::Lacking)
    }

    /// The exit code of a run, from its record alone: what the report says of it, as a number.
    pub fn of_record(record: &Record) -> Exit {
        let stopped = match record.stop {
            Stop::Interrupted => Exit::Interrupted,
            Stop::Aborted if record.warnings.iter().any(|one| one.code == ENDED) => Exit::Failed,
            Stop::Aborted => Exit::Aborted,
            Stop::Precision | Stop::Time | Stop::Rounds => Exit::Done,
        };
        let cases = record.cases.iter();
        let statuses = || {
            let measured = cases.clone().filter(|case| case.role == Role::Case);
            measured.map(|case| case.status)
        };
        let is_unsupported = |status| status == Status::Unsupported;
        let lacking = if statuses().next().is_some() && statuses().all(is_unsupported) {
            Exit::Lacking
        } else {
            Exit::Done
        };
        let invalid = if cases.clone().any(|case| case.status == Status::Invalid) {
            Exit::Invalid
        } else {
            Exit::Done
        };
        let budget = record.budget_answer().map_or(Exit::Done, Exit::from);
        stopped.max(lacking).max(invalid).max(budget)
    }

    /// The exit code of an error: its own, else that of the first cause that has one. `own` knows causes that only one
    /// program has.
    pub fn from_error(
        error: &anyhow::Error,
        own: impl Fn(&(dyn Error + 'static)) -> Option<Exit>,
    ) -> Exit {
        let mut causes = error.chain();
        let exit = causes.find_map(|cause| own(cause).or_else(|| exit_of_cause(cause)));
        exit.unwrap_or(Exit::Lacking)
    }
}

fn exit_of_cause(cause: &(dyn Error + 'static)) -> Option<Exit> {
    if let Some(refusal) = cause.downcast_ref::<Refusal>() {
        return Some(refusal.exit);
    }
    if let Some(error) = cause.downcast_ref::<bpfcost_measure::Error>() {
        return match error {
            bpfcost_measure::Error::TooShort { .. } | bpfcost_measure::Error::OtherPlan { .. } => {
                Some(Exit::Usage)
            }
            bpfcost_measure::Error::Broken { .. } | bpfcost_measure::Error::Unobserved(_) => None,
        };
    }
    // A full disk or a machine without memory is the machine's; any other path is the user's.
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some(match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::OutOfMemory => Exit::Lacking,
            _ => Exit::Usage,
        });
    }
    let input = cause.is::<bpfcost_record::FileError>()
        || cause.is::<bpfcost_record::JournalError>()
        || cause.is::<bpfcost_record::CompareError>();
    // Their own cause comes first where there is one: it may be a full disk.
    (input && cause.source().is_none()).then_some(Exit::Usage)
}

/// The error and its causes as one text, none of them said twice. Its further lines are indented, so that none
/// of what others wrote passes for a message of its own.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| indented(&cause.to_string())) {
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text += ": ";
        }
        text += &cause;
    }
    text
}

fn indented(text: &str) -> String {
    let further = || text.lines().skip(1).filter(|line| !line.is_empty());
    if further().all(|line| line.starts_with("  ")) {
        text.to_owned()
    } else {
        text.replace('\n', "\n  ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpfcost_model::Unit;
    use bpfcost_record::{
        BudgetVerdict, TotalsRecord, VerdictRecord,
        samples::{rare, record},
    };
    use bpfcost_report::summary;

    const VERDICTS: [VerdictRecord; 4] = [
        VerdictRecord::Slower,
        VerdictRecord::Faster,
        VerdictRecord::Same,
        VerdictRecord::Unresolved,
    ];
    const BUDGETS: [Option<BudgetVerdict>; 4] = [
        Some(BudgetVerdict::Within),
        Some(BudgetVerdict::Over),
        Some(BudgetVerdict::CantTell),
        None,
    ];
    const UNITS: [Unit; 2] = [Unit::NanosPerOp, Unit::InstructionsPerOp];

    /// The exit code that the words of a sentence promise.
    fn promised(sentence: &str) -> Exit {
        let starts = |words: &[&str]| words.iter().any(|word| sentence.starts_with(word));
        match sentence {
            _ if starts(&["Over the budget", "1 of ", "2 of "]) => Exit::Gate,
            _ if starts(&["Within the budget", "Not resolved yet for the budget"]) => Exit::Done,
            _ if starts(&["Not everything could be judged"]) => Exit::Lacking,
            other => panic!("no answer to the budget: {other}"),
        }
    }

    #[test]
    fn the_sentence_promises_the_exit_code() {
        let totals = TotalsRecord {
            relative: 0.3,
            ci95: [0.1, 0.5],
            ci90: [0.2, 0.4],
            apart: true,
            withheld: true,
        };
        // A workload (made from windows), and single operations.
        for whole in [rare(Some(0.05)), record(10)] {
            assert_eq!(whole.comparisons.len(), 1);
            let mut tried = 0;
            for (first, second) in VERDICTS.iter().flat_map(|a| VERDICTS.map(|b| (*a, b))) {
                for (budget, other) in BUDGETS.iter().flat_map(|a| BUDGETS.map(|b| (*a, b))) {
                    for (totals, unit) in [None, Some(totals)]
                        .iter()
                        .flat_map(|totals| UNITS.map(|unit| (*totals, unit)))
                    {
                        let mut record = whole.clone();
                        record.unit = unit;
                        record.comparisons.push(record.comparisons[0].clone());
                        let answers = [(first, budget), (second, other)];
                        for (one, (verdict, budget)) in record.comparisons.iter_mut().zip(answers) {
                            (one.verdict, one.budget, one.totals) = (verdict, budget, totals);
                        }
                        let sentence = summary::sentence(&record);
                        let exit = Exit::of_record(&record);
                        assert_eq!(promised(&sentence), exit, "{sentence}");
                        let is_over = |one| one == Some(BudgetVerdict::Over);
                        assert_eq!(exit == Exit::Gate, is_over(budget) || is_over(other));
                        tried += 1;
                    }
                }
            }
            assert_eq!(tried, 4 * 4 * 4 * 4 * 2 * 2);
        }
    }

    /// One window of ten costs four times as much: over the budget by the total, without a verdict on typical windows.
    #[test]
    fn over_by_the_total_alone_fails() {
        let record = rare(Some(0.05));
        assert_eq!(record.comparisons[0].verdict, VerdictRecord::Unresolved);
        assert!(summary::sentence(&record).starts_with("Over the budget of 5"));
        assert_eq!(Exit::of_record(&record), Exit::Gate);
        assert_eq!(Exit::of_record(&rare(None)), Exit::Done);
    }

    #[test]
    fn a_case_without_a_value_is_not_judged() {
        for (status, exit) in [
            (Status::Unsupported, Exit::Lacking),
            (Status::Invalid, Exit::Invalid),
        ] {
            let mut record = record(10);
            record.cases[0].status = status;
            record.comparisons[0].budget = Some(BudgetVerdict::Within);
            assert_eq!(Exit::of_record(&record), exit);
            assert_eq!(promised(&summary::sentence(&record)), Exit::Lacking);
            record.comparisons[0].budget = Some(BudgetVerdict::Over);
            assert_eq!(Exit::of_record(&record), Exit::Gate);
            record.asked.budget = None;
            assert_eq!(record.unjudged().count(), 0);
        }
    }

    #[test]
    fn every_code_survives_a_guest() {
        for exit in BY_PRECEDENCE.into_iter().skip(1) {
            assert_eq!(Exit::known(exit as u8), exit);
        }
        assert_eq!(Exit::known(77), Exit::Lacking);
        assert_eq!(Exit::known(0), Exit::Lacking);
    }
}
