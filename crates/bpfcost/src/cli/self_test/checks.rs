//! What a self-test checks, each by a bound that a right tool on a healthy machine breaks in fewer than 3 of 1000
//! self-tests. Whether each can fail is tested with planted faults (`planted.rs`).

use std::fmt;

use bpfcost_stats::{
    dependence::{neighbour_ratio, resemblance_p},
    sample::{Sample, epoch_medians, median},
    session_spread::SessionSpreads,
};

use super::{
    Observed,
    batches::{BatchReading, SliceReading},
    clock,
    ladder::LadderReading,
};
use bpfcost_record::{
    self, CaseRecord, ChangeOutcome, CompareError, ComparisonRecord, GateOptions, Reading, Record,
    VerdictRecord, case_levels,
};
use bpfcost_text::number;

/// How improbable a count must be for the tool to be wrong.
const TOO_IMPROBABLE: f64 = 0.003;
/// How often a run may raise a false alarm over its family of comparisons.
const ALARM_RATE: f64 = 0.05;
/// How often a 95 % interval may miss.
const MISS_RATE: f64 = 0.05;
/// How far the middle of differences between a case and itself may lie from 0, in half-widths of its 95 % interval: the mean
/// of its square, and its standard deviation. Of 6 to 20 epochs, and all kinds of noise that were simulated, these are the
/// largest (docs/experiments/ladder.md).
const SQUARED_DEPTH: f64 = 0.256;
const SQUARED_DEPTH_SD: f64 = 0.45;
/// The most that one interval counts for, so that no outlier decides.
const MAX_DEPTH: f64 = 2.0;
/// How many standard errors of the mean chance reaches: more than of a normal distribution, as cases of a run depend on each
/// other.
const DEPTH_ERRORS: f64 = 3.5;
/// How far the time of a batch inside and outside may grow apart with its length.
const BATCH_TOLERANCE: f64 = 0.05;
/// By how much of a clock read the cost of an operation may depend on the length of its slice.
const SLICE_TOLERANCE: f64 = 0.5;
/// How far the ladder's cost per instruction may differ between its rungs.
const LADDER_TOLERANCE: f64 = 0.15;
/// Cycles of a multiplication on every CPU of the last fifteen years: what a cycle takes is read off the ladder.
const MULTIPLICATION_CYCLES: f64 = 3.0;
/// The most cycles that the loop and the call can take: twice what `bpf_loop` takes.
const MAX_FLOOR_CYCLES: f64 = 100.0;
/// How far the clock's rate may move against the CPU's counter: twice what NTP may slew it by.
const CLOCK_TOLERANCE: f64 = 0.001;
/// The spread between sessions minutes apart from which no comparison across sessions can resolve what people ask. That is
/// the machine's: a busy neighbour has it.
const MAX_SPREAD: f64 = 0.075;

/// One check, and what it found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    /// Name, in a word or two.
    pub(super) name: &'static str,
    pub(super) outcome: Outcome,
    /// What was seen, and what was allowed.
    pub(super) found: String,
}

/// Result of a check, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Passed,
    /// bpfcost is right, but this machine moves so much that some questions have no answer on it.
    Noisy,
    /// bpfcost, or a clock that it relies on, is wrong.
    Failed,
}

impl Outcome {
    fn passed_if(holds: bool) -> Self {
        match holds {
            true => Outcome::Passed,
            false => Outcome::Failed,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check {
            name,
            outcome,
            found,
        } = self;
        let verdict = match outcome {
            Outcome::Passed => "ok",
            Outcome::Noisy => "noisy",
            Outcome::Failed => "FAILED",
        };
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
        batches(&observed.batches),
        slices(&observed.slices),
        alarms(&observed.sessions),
        intervals(&observed.sessions),
        epochs(&observed.sessions),
        compare(&observed.sessions)?,
        spread(&observed.sessions),
    ])
}

/// Whether each operation that was paid for was done: the product of all multiplications says so.
fn operations(ladder: &[LadderReading]) -> Check {
    let wrong: usize = ladder.iter().map(|reading| reading.wrong).sum();
    Check {
        name: "operations",
        outcome: Outcome::passed_if(wrong == 0 && !ladder.is_empty()),
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
        outcome: Outcome::passed_if(
            upper > 0.0 && (middle / upper - 1.0).abs() <= LADDER_TOLERANCE,
        ),
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
    let most = MAX_FLOOR_CYCLES * cycle;
    Check {
        name: "floor",
        outcome: Outcome::passed_if((cycle..=most).contains(&floor)),
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
        outcome: Outcome::passed_if(drift.is_some_and(|drift| drift.abs() <= CLOCK_TOLERANCE)),
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
        outcome: Outcome::passed_if(alarmed <= allowed),
        found: format!(
            "a case differs from itself in {alarmed} of {} runs{list}; chance allows {allowed}",
            sessions.len()
        ),
    }
}

/// Whether the time of a batch by its program is that which passes outside: what is added around it, by the thread's CPU
/// time, must not grow with the batch. That time is without what other threads and the host take, within a batch too; and
/// interrupts behind a batch add to it. So the longer batches count with their median, and the shorter ones with their upper
/// quartile: noise hides a fault before it makes one up.
fn batches(batches: &[BatchReading]) -> Check {
    let too_long = batches
        .iter()
        .filter(|one| !one.outside.holds(one.inside_ns))
        .count();
    let growth = |value: fn(&BatchReading) -> f64, [short, long]: [f64; 2]| {
        let of = |twice: bool, share: f64| {
            let all = batches.iter().filter(|one| one.twice == twice).map(value);
            Some(Sample::new(&all.collect::<Vec<f64>>())?.quantile(share))
        };
        Some(of(true, long)? - of(false, short)?)
    };
    let around = growth(
        |one| one.outside.cpu_ns as f64 - one.inside_ns as f64,
        [0.75, 0.5],
    );
    let inside = growth(|one| one.inside_ns as f64, [0.5, 0.5]);
    let missing = around.zip(inside).map(|(around, inside)| around / inside);
    let missing = missing.filter(|share| share.is_finite());
    Check {
        name: "batches",
        outcome: Outcome::passed_if(
            too_long == 0 && missing.is_some_and(|share| share <= BATCH_TOLERANCE),
        ),
        found: match missing {
            Some(share) => format!(
                "{too_long} of {} took longer by the clock of their program than outside; of the time of twice the operations \
                 the program's clock lacks {} of what the thread's shows, and may lack {}",
                batches.len(),
                number::percent(share.max(0.0)),
                number::round_percent(BATCH_TOLERANCE)
            ),
            None => "too few batches, or twice the operations took no longer".to_owned(),
        },
    }
}

/// Whether the reads of the clock between slices are subtracted, from slices and from whole batches.
fn slices(slices: &[SliceReading]) -> Check {
    let excess = |value: fn(&SliceReading) -> f64| {
        let reads = |one: &SliceReading| (value(one) - one.long_ns) * one.ops as f64 / one.read_ns;
        median(&slices.iter().map(reads).collect::<Vec<f64>>())
    };
    let excess = excess(|one| one.slice_ns).zip(excess(|one| one.batch_ns));
    let right = |reads: f64| reads.abs() <= SLICE_TOLERANCE;
    Check {
        name: "slices",
        outcome: Outcome::passed_if(
            slices.is_empty() || excess.is_some_and(|(slice, batch)| right(slice) && right(batch)),
        ),
        found: match excess {
            Some((slice, batch)) => format!(
                "short slices cost {slice:+.2} clock reads more than long ones, and the batches of them {batch:+.2}; \
                 {SLICE_TOLERANCE} are allowed"
            ),
            None => "no batch is cut: the loop of this kernel does not, or the clock is too coarse"
                .to_owned(),
        },
    }
}

/// Whether intervals are as wide as they should be: those of no difference hold none, and their middles lie as far from it
/// as chance brings them.
fn intervals(sessions: &[Record]) -> Check {
    let comparisons = || sessions.iter().flat_map(|session| &session.comparisons);
    let depths: Vec<f64> = comparisons().filter_map(depth).collect();
    let missed = depths.iter().filter(|depth| **depth > 1.0).count();
    let allowed = allowed(depths.len(), MISS_RATE);
    let squares = depths.iter().map(|depth| depth.min(MAX_DEPTH).powi(2));
    let n = depths.len().max(1) as f64;
    let mean = squares.sum::<f64>() / n;
    let most = SQUARED_DEPTH + DEPTH_ERRORS * SQUARED_DEPTH_SD / n.sqrt();
    Check {
        name: "intervals",
        outcome: Outcome::passed_if(missed <= allowed && mean <= most),
        found: format!(
            "{missed} of {} 95 % intervals of a case against itself exclude 0; chance allows {allowed}; differences are \
             {:.2} times as large as the intervals say, and by chance up to {:.2} times",
            depths.len(),
            (mean / SQUARED_DEPTH).sqrt(),
            (most / SQUARED_DEPTH).sqrt()
        ),
    }
}

/// How far 0 is from the middle of a comparison's interval, in half-widths on its side: more than 1 outside of it.
fn depth(comparison: &ComparisonRecord) -> Option<f64> {
    let [low, high] = comparison.relative_ci95?.map(f64::ln_1p);
    let middle = comparison.relative.ln_1p();
    let width = if middle > 0.0 {
        middle - low
    } else {
        high - middle
    };
    match middle.abs() / width {
        depth if depth.is_nan() => Some(0.0),
        depth => Some(depth),
    }
}

/// Whether epochs are independent, as intervals take them to be: of a case against itself, the difference in one epoch says
/// nothing of that in the next.
fn epochs(sessions: &[Record]) -> Check {
    let of_session = |session: &Record| {
        let case = |name: &str| session.cases.iter().find(|case| case.name == name);
        let levels = |case: &CaseRecord| epoch_medians(&case.samples);
        let ratio = |one: &ComparisonRecord| {
            let (case, baseline) = (levels(case(&one.case)?), levels(case(&one.baseline)?));
            let both = case.iter().zip(&baseline);
            let differences: Vec<f64> = both.map(|(case, other)| (case / other).ln()).collect();
            neighbour_ratio(&differences)
        };
        let ratios: Vec<f64> = session.comparisons.iter().filter_map(ratio).collect();
        Some(Sample::new(&ratios)?.mean())
    };
    let ratios: Vec<f64> = sessions.iter().filter_map(of_session).collect();
    let found = Sample::new(&ratios).zip(resemblance_p(&ratios));
    Check {
        name: "epochs",
        // Few runs show nothing.
        outcome: Outcome::passed_if(found.as_ref().is_none_or(|(_, p)| *p > TOO_IMPROBABLE)),
        found: match found {
            Some((ratios, p)) => format!(
                "von Neumann's ratio of ranks is {:.2} over the epochs of a case against itself (2 if they are independent, less \
                 if neighbours resemble each other): p is {p:.3}, and chance goes down to {TOO_IMPROBABLE}",
                ratios.mean()
            ),
            None => "too few runs to tell whether epochs are independent".to_owned(),
        },
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
        let changes = bpfcost_record::compare(&pair[..1], &pair[1..], asked, |_, reading| {
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
        outcome: Outcome::passed_if(reported <= allowed),
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
        outcome: match known && spread.share > MAX_SPREAD {
            true => Outcome::Noisy,
            false => Outcome::Passed,
        },
        found: match known {
            true => format!(
                "levels of a case differ by {} from run to run (relative standard deviation); above {}, comparisons across \
                 sessions resolve little",
                number::percent(spread.share),
                number::round_percent(MAX_SPREAD)
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
