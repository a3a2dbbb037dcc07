//! The comparison as JUnit XML, which CI systems show: one test case a case, a failure where it
//! costs more, an error where it is invalid.

use anyhow::Result;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{relative, side, verdict};
use bpfcost_record::{Change, ChangeOutcome, Changes, OneSided};
use bpfcost_text::{line, number};

/// The type of a failure of a gate that could not judge a case, or not see the rise that it had to.
const COULD_NOT_SEE: &str = "could-not-see";

/// The comparison as JUnit XML.
pub fn render(changes: &Changes) -> Result<String> {
    let mut report = Report::new("bpfcost compare");
    let mut suites: Vec<TestSuite> = Vec::new();
    for change in &changes.cases {
        let case = test_case(change, changes);
        suite(&mut suites, &change.experiment, &change.target).add_test_case(case);
    }
    for (side, cases) in [("old", &changes.only_old), ("new", &changes.only_new)] {
        for case in cases {
            let case_of_one = one_sided(case, side);
            suite(&mut suites, &case.experiment, &case.target).add_test_case(case_of_one);
        }
    }
    report.add_test_suites(suites);
    Ok(number::plain_spaces(&report.to_string()?))
}

/// The suite of an experiment on a target, made where it is not there yet.
fn suite<'a>(suites: &'a mut Vec<TestSuite>, experiment: &str, target: &str) -> &'a mut TestSuite {
    let name = class(experiment, target);
    let place = suites.iter().position(|suite| suite.name.as_str() == name);
    let place = place.unwrap_or_else(|| {
        suites.push(TestSuite::new(name));
        suites.len() - 1
    });
    &mut suites[place]
}

fn class(experiment: &str, target: &str) -> String {
    format!("{} on {}", line(experiment), line(target))
}

fn test_case(change: &Change, changes: &Changes) -> TestCase {
    let (relative, interval) = relative(change);
    let (verdict, _) = verdict(change, changes);
    let unit = match change.baseline {
        Some(_) => "of the CPU time without the probe".to_owned(),
        None => change.unit.to_string(),
    };
    let words = format!(
        "{verdict}: {}, {} → {} {unit}",
        format!("{relative} {interval}").trim_end(),
        side(change, change.old),
        side(change, change.new),
    );
    let failed = |kind, name: &str, message: String| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_type(name).set_message(message);
        (status, None)
    };
    let (status, out) = match change.outcome {
        ChangeOutcome::Regressed => failed(NonSuccessKind::Failure, "regressed", words),
        ChangeOutcome::Invalid => failed(NonSuccessKind::Error, "invalid", verdict),
        _ if change.is_unjudged() || changes.blind().any(|blind| blind == change) => {
            failed(NonSuccessKind::Failure, COULD_NOT_SEE, words)
        }
        _ => (TestCaseStatus::success(), Some(words)),
    };
    let mut case = TestCase::new(line(&change.case), status);
    case.set_classname(class(&change.experiment, &change.target));
    out.map(|out| case.set_system_out(out));
    case
}

fn one_sided(case: &OneSided, side: &str) -> TestCase {
    let mut status = if case.unjudged {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type(COULD_NOT_SEE);
        status
    } else {
        TestCaseStatus::skipped()
    };
    let reason = case.reason.as_ref().map(|reason| format!(": {reason}"));
    status.set_message(line(&format!(
        "only in {side}{}",
        reason.unwrap_or_default()
    )));
    let mut shown = TestCase::new(line(&case.case), status);
    shown.set_classname(class(&case.experiment, &case.target));
    shown
}
