//! What a self-test checks, each by a bound that a right tool on a healthy machine breaks in fewer than 3 of 1000
//! self-tests. Whether each can fail is tested with planted faults (`planted.rs`).

use std::fmt;

use bpfcost_stats::session_spread::SessionSpreads;

use super::{Observed, clock, ladder::LadderReading};
use crate::{
    record::{
        self, ChangeOutcome, CompareError, ComparisonRecord, GateOptions, Reading, Record,
        VerdictRecord, case_levels,
    },
    report::number,
};

/// How improbable a count must be for the tool to be wrong.
const TOO_IMPROBABLE: f64 = 0.003;
/// How often a run may raise a false alarm over its family of comparisons.
const ALARM_RATE: f64 = 0.05;
/// How often a 95 % interval may miss.
const MISS_RATE: f64 = 0.05;
/// How far the ladder's cost per instruction may differ between its rungs.
const LADDER_TOLERANCE: f64 = 0.15;
/// Cycles of a multiplication on every CPU of the last fifteen years: what a cycle takes is read off the ladder.
const MULTIPLICATION_CYCLES: f64 = 3.0;
/// The most cycles that the loop and the call can take: twice what `bpf_loop` takes.
const MOST_FLOOR_CYCLES: f64 = 100.0;
/// How far the clock's rate may move against the CPU's counter: twice what NTP may slew it by.
const CLOCK_TOLERANCE: f64 = 0.001;
/// The spread between sessions minutes apart from which no comparison across sessions can resolve what people ask.
const MOST_SPREAD: f64 = 0.075;

/// One check, and what it found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    /// What is checked, in a word or two.
    pub(super) name: &'static str,
    /// Whether it holds.
    pub(super) passed: bool,
    /// What was seen, and what was allowed.
    pub(super) found: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check { name, found, .. } = self;
        let verdict = if self.passed { "ok" } else { "FAILED" };
        write!(f, "{name:<11} {verdict:<6}  {found}")
    }
}

/// All checks of what was seen.
pub(super) fn all(observed: &Observed) -> Result<Vec<Check>, CompareError> {
    Ok(vec![
        operations(&observed.ladder),
        ladder(&observed.ladder),
        floor(&observed.ladder),
        clock(observed),
        alarms(&observed.sessions),
        intervals(&observed.sessions),
        compare(&observed.sessions)?,
        spread(&observed.sessions),
    ])
}

/// Whether each operation that was paid for was done: the product of all multiplications says so.
fn operations(ladder: &[LadderReading]) -> Check {
    let wrong: usize = ladder.iter().map(|reading| reading.wrong).sum();
    Check {
        name: "operations",
        passed: wrong == 0 && !ladder.is_empty(),
        found: match wrong {
            0 => "the result of every batch is that of as many operations as were timed".to_owned(),
            _ => format!("{wrong} batches did not do the operations that were timed"),
        },
    }
}

/// What an instruction costs between two rungs, in nanoseconds.
fn slope(ladder: &[LadderReading], low: u32, high: u32) -> Option<f64> {
    let cost = |rung| Some(ladder.iter().find(|one| one.rung == rung)?.cost);
    Some((cost(high)? - cost(low)?) / f64::from(high - low))
}

/// Whether each added instruction costs the same on every part of the ladder.
fn ladder(ladder: &[LadderReading]) -> Check {
    let slopes = slope(ladder, 10, 100).zip(slope(ladder, 100, 1000));
    let (middle, upper) = slopes.unwrap_or((f64::NAN, f64::NAN));
    Check {
        name: "ladder",
        passed: upper > 0.0 && (middle / upper - 1.0).abs() <= LADDER_TOLERANCE,
        found: format!(
            "{upper:.3} ns per instruction from 100 to 1000, {middle:.3} from 10 to 100; they may differ by {}",
            number::round_percent(LADDER_TOLERANCE)
        ),
    }
}

/// Whether the floor is a cost that a CPU can have.
fn floor(ladder: &[LadderReading]) -> Check {
    let cost = |rung| {
        ladder
            .iter()
            .find(|one| one.rung == rung)
            .map(|one| one.cost)
    };
    let cycle = slope(ladder, 100, 1000).unwrap_or(f64::NAN) / MULTIPLICATION_CYCLES;
    let floor = cost(0).unwrap_or(f64::NAN);
    let most = MOST_FLOOR_CYCLES * cycle;
    Check {
        name: "floor",
        passed: (cycle..=most).contains(&floor),
        found: format!(
            "{floor:.2} ns for the loop and the call of an empty body; {cycle:.2} (a cycle) to {most:.1} are possible"
        ),
    }
}

/// Whether the clock keeps its rate.
fn clock(observed: &Observed) -> Check {
    let drift = clock::drift(&observed.clock);
    Check {
        name: "clock",
        passed: drift.is_some_and(|drift| drift.abs() <= CLOCK_TOLERANCE),
        found: match drift {
            Some(drift) => format!(
                "its rate against the CPU's counter moved by {:+.0} ppm; {:.0} are allowed",
                1e6 * drift,
                1e6 * CLOCK_TOLERANCE
            ),
            None => "too few readings, or the clock did not advance".to_owned(),
        },
    }
}

/// Whether false alarms are as rare as promised.
fn alarms(sessions: &[Record]) -> Check {
    let differs = |one: &&ComparisonRecord| {
        matches!(one.verdict, VerdictRecord::Slower | VerdictRecord::Faster)
    };
    let differing = |session: &&Record| session.comparisons.iter().any(|one| differs(&one));
    let alarmed = sessions.iter().filter(differing).count();
    let named = sessions.iter().flat_map(|session| &session.comparisons);
    let named = named.filter(differs);
    let named: Vec<String> = named
        .map(|one| format!("{} by {:+.2} %", one.baseline, 100.0 * one.relative))
        .collect();
    let allowed = allowed(sessions.len(), ALARM_RATE);
    let list = match named.is_empty() {
        true => String::new(),
        false => format!(" ({})", named.join(", ")),
    };
    Check {
        name: "A/A",
        passed: alarmed <= allowed,
        found: format!(
            "a case differs from itself in {alarmed} of {} runs{list}; chance allows {allowed}",
            sessions.len()
        ),
    }
}

/// Whether intervals are as wide as they should be: those of no difference hold none.
fn intervals(sessions: &[Record]) -> Check {
    let comparisons = || sessions.iter().flat_map(|session| &session.comparisons);
    let all = || comparisons().filter_map(|one| one.relative_ci95);
    let missed = all()
        .filter(|[low, high]| *low > 0.0 || *high < 0.0)
        .count();
    let allowed = allowed(all().count(), MISS_RATE);
    Check {
        name: "intervals",
        passed: missed <= allowed,
        found: format!(
            "{missed} of {} 95 % intervals of a case against itself exclude 0; chance allows {allowed}",
            all().count()
        ),
    }
}

/// Whether `compare` finds no change between neighbours more often than chance lets it: nothing was changed. It leaves
/// the two out of the kept sessions, from which it learns the spread.
fn compare(sessions: &[Record]) -> Result<Check, CompareError> {
    let kept = Reading::ALL.map(|reading| case_levels(sessions, reading));
    // Any change that is shown, however small.
    let asked = GateOptions {
        threshold: Some(0.0),
        must_see: None,
    };
    let mut reported = 0;
    for pair in sessions.windows(2) {
        let changes = record::compare(&pair[..1], &pair[1..], asked, |_, reading| {
            kept[reading as usize].clone()
        })?;
        let mut outcomes = changes.cases.iter().map(|change| change.outcome);
        let differs = |one| matches!(one, ChangeOutcome::Regressed | ChangeOutcome::Improved);
        reported += usize::from(outcomes.any(differs));
    }
    let pairs = sessions.len().saturating_sub(1);
    let allowed = allowed(pairs, ALARM_RATE);
    Ok(Check {
        name: "compare",
        passed: reported <= allowed,
        found: format!(
            "a case is said to differ between {reported} of {pairs} pairs of consecutive runs, although nothing \
             changed; chance allows {allowed}"
        ),
    })
}

/// Whether sessions minutes apart resemble each other.
fn spread(sessions: &[Record]) -> Check {
    let levels = case_levels(sessions, Reading::AsFound);
    let spread = SessionSpreads::learnt(&levels, &SessionSpreads::ASSUMED).within;
    let known = spread.freedom.is_some();
    Check {
        name: "sessions",
        // Of too few runs it is an assumption, and no finding.
        passed: !known || spread.share <= MOST_SPREAD,
        found: match known {
            true => format!(
                "levels of a case differ by {} from run to run (relative standard deviation); up to {} is normal",
                number::percent(spread.share),
                number::round_percent(MOST_SPREAD)
            ),
            false => "too few runs to estimate how far they differ".to_owned(),
        },
    }
}

/// The most among so many that are no evidence against a rate.
fn allowed(count: usize, rate: f64) -> usize {
    let mut exactly = (1.0 - rate).powi(count as i32);
    let mut at_most = exactly;
    for seen in 0..count {
        if 1.0 - at_most <= TOO_IMPROBABLE {
            return seen;
        }
        let (left, next) = ((count - seen) as f64, (seen + 1) as f64);
        exactly *= left / next * rate / (1.0 - rate);
        at_most += exactly;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_allows_four_alarms_in_twenty_runs() {
        assert_eq!(allowed(20, 0.05), 4);
        assert_eq!(allowed(80, 0.05), 10);
        assert_eq!(allowed(5, 0.05), 2);
        assert_eq!(allowed(1, 0.05), 1);
    }
}
