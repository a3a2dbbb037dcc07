//! Comparing records from separate sessions.
//!
//! Two sessions of the same program differ by more than the interval of either knows: minutes apart by less,
//! days apart by more. So:
//!
//! - **In turn.** Where the two sides were measured in turn (A B A B …), whatever the machine did struck both.
//!   Each [turn](crate::sittings) counts as one value, and the two-sample Hodges–Lehmann shift with the exact
//!   Mann–Whitney interval over the turns is used as soon as it can show a change among that many cases: from
//!   4 turns a side (or 3 against 5) for one case, 7 for 24. It assumes nothing on how far sessions scatter.
//! - **Otherwise** the sides' intervals are widened by the [spread between sessions](crate::session_spread).
//!   It is added once for each sitting of a side: ten sessions of one evening share that evening. Interval and
//!   spread are combined as variances, each side of the interval on its own (MOVER; Zou & Donner 2008,
//!   Statistics in Medicine 27(10)), so that a lopsided interval stays lopsided, with Student's quantile for
//!   the degrees of freedom that Satterthwaite (1946, Biometrics Bulletin 2(6)) gives the sum.
//! - **A machine that moved.** A program that shares no code with any case, the sentinel, shows whether the
//!   machine itself became slower or faster between the sides. How much of that a case shares is unknown, so
//!   that a widened interval then reaches from the change as seen to the change without that move.
//!
//! Values and intervals are those of one case; the sides are old and new, the difference new − old.
//! Lehmann, E. L. (1975), "Nonparametrics", section 2.5, for the shift and its interval.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::estimate::{CONFIDENCE, Estimate, Interval};
use crate::normal;
use crate::pairwise::{Pairs as _, Shifts};
use crate::power::{FALSE_ALARM_LEVEL, POWER};
use crate::rank_sum;
use crate::session_spread::{SessionSpread, SessionSpreads};
use crate::sittings;
pub use crate::sittings::Session;
use crate::verdict::{Budget, EQUIVALENCE_CONFIDENCE, Evidence, Policy, Verdict, decide};

/// The method by which a shift between sides was estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Basis {
    /// Exact, over the turns in which the sides were measured.
    Turns {
        /// Turns of the old side.
        old: usize,
        /// Turns of the new side.
        new: usize,
    },
    /// Too few turns: intervals widened by this spread between sessions.
    Widened(SessionSpread),
}

/// The comparison of one case between two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionComparison {
    /// new / old − 1, with the 95 % interval; 0.01 is 1 % more. `None` without a value on each side.
    pub relative: Option<Estimate>,
    /// The 90 % interval of `relative`, which decides `Same` and the budget.
    pub relative90: Option<Interval>,
    /// Two-sided p-value, before Holm.
    pub p: f64,
    /// The method by which the interval was estimated.
    pub basis: Basis,
    /// The verdict on the new side.
    pub verdict: Verdict,
    /// The relative change that would have been found in about three runs of four, whatever the verdict.
    pub detectable: Option<f64>,
    /// The budget's answer, where the policy has one.
    pub budget: Option<Budget>,
}

/// One case's sessions on the two sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Sides {
    /// Sessions of the old side.
    pub old: Vec<Session>,
    /// Sessions of the new side.
    pub new: Vec<Session>,
    /// The relative change of the sentinel from old to new; 0 without a change or a sentinel.
    pub machine: f64,
    /// The scatter of this value as a multiple of that of a whole session's level: more than 1 for a net cost, which is
    /// a part of what was measured.
    pub leverage: f64,
    /// The relative standard deviation of the case between the epochs of a session. The speed of a shared machine
    /// varies as much from minute to minute as from second to second: where the spread between sessions is assumed,
    /// it is assumed to be at least that.
    pub epochs: f64,
    /// The spread between sessions of this case.
    pub spreads: SessionSpreads,
    /// True if no spread between sessions may be assumed. An unknown spread is then estimated from these sessions,
    /// which takes two turns or sittings a side; with fewer there is no interval.
    pub unassumed: bool,
}

impl Sides {
    /// Two sides on a machine that did not move, and of whose sessions nothing is known.
    #[must_use]
    pub fn new(old: Vec<Session>, new: Vec<Session>) -> Self {
        Self {
            old,
            new,
            machine: 0.0,
            leverage: 1.0,
            epochs: 0.0,
            spreads: SessionSpreads::ASSUMED,
            unassumed: false,
        }
    }

    /// Returns whether the exact test decides among `family` cases.
    #[must_use]
    pub fn are_exact(&self, family: usize) -> bool {
        let sides = logs(self);
        let [old, new] = sittings::turns(&sides.old, &sides.new);
        exact_suffices(old.len(), new.len(), family)
    }
}

/// Judges cases that two sides share, as members of a family of `family` comparisons, which has no fewer
/// members than there are cases. Sessions that are not above zero throughout are skipped.
#[must_use]
pub fn judge_sessions(cases: &[Sides], family: usize, policy: &Policy) -> Vec<SessionComparison> {
    let family = family.max(cases.len());
    let judged: Vec<(Evidence, Basis)> = cases
        .iter()
        .map(|sides| compare(&logs(sides), family))
        .collect();
    let evidence: Vec<Evidence> = judged.iter().map(|f| f.0).collect();
    judged
        .iter()
        .zip(decide(&evidence, policy))
        .map(|(&(evidence, basis), decision)| SessionComparison {
            relative: evidence.shown.map(|e| e.map(f64::exp_m1)),
            relative90: evidence.deciding.map(|i| i.map(f64::exp_m1)),
            p: evidence.p,
            basis,
            verdict: decision.verdict,
            detectable: evidence.detectable.map(f64::exp_m1),
            budget: decision.budget,
        })
        .collect()
}

/// Returns whether the exact test can show any change among `family` cases with so many turns a side: its smallest p is
/// 2 over the number of ways to draw one side from both.
#[must_use]
pub fn exact_suffices(old: usize, new: usize, family: usize) -> bool {
    let ways: f64 = (1..=new).map(|i| (old + i) as f64 / i as f64).product();
    2.0 / ways <= FALSE_ALARM_LEVEL / family.max(1) as f64
}

/// The turns a side from which the exact test can show a change among `family` cases.
#[must_use]
pub fn turns_needed(family: usize) -> usize {
    // At 40 a side it suffices for more cases than there can be.
    (1..40)
        .find(|count| exact_suffices(*count, *count, family))
        .unwrap_or(40)
}

/// The exact two-sample interval of the shift `second − first` at `confidence`, with the Hodges–Lehmann
/// estimate; `None` where the samples are too small for that confidence.
#[must_use]
pub fn shift(first: &[f64], second: &[f64], confidence: f64) -> Option<Estimate> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let shifts = Shifts::new(first, second)?;
    let (m, n) = shifts.sizes();
    let k = rank_sum::critical(m, n, (1.0 - confidence) / 2.0)? + 1;
    let k = k.min(shifts.pairs().div_ceil(2));
    Some(Estimate {
        value: shifts.median(),
        low: shifts.select(k),
        high: shifts.select(shifts.pairs() + 1 - k),
    })
}

/// The two-sided exact Mann–Whitney p-value of "no shift"; ties count against a shift. 1 when a sample is
/// empty.
#[must_use]
pub fn shift_p(first: &[f64], second: &[f64]) -> f64 {
    let Some(shifts) = Shifts::new(first, second) else {
        return 1.0;
    };
    let (m, n) = shifts.sizes();
    let against = shifts.at_most(0.0).min(shifts.at_least(0.0));
    (2.0 * rank_sum::lower_tail(m, n, against)).min(1.0)
}

/// The comparison of sides in logs.
fn compare(sides: &Sides, family: usize) -> (Evidence, Basis) {
    let spreads = sides.spreads;
    let [old, new] = sittings::turns(&sides.old, &sides.new);
    if exact_suffices(old.len(), new.len(), family) {
        let basis = Basis::Turns {
            old: old.len(),
            new: new.len(),
        };
        return (exact(&old, &new, family), basis);
    }
    let all = [sides.old.as_slice(), &sides.new].concat();
    let (units, spread) = match sittings::count(&all) {
        // In one sitting, what the machine did meanwhile strikes a turn as a whole.
        Some(1) => ([old.len(), new.len()], spreads.within),
        Some(_) => {
            let units = [&sides.old, &sides.new].map(|side| sittings::count(side).unwrap_or(1));
            (units, spreads.between)
        }
        None => ([1, 1], spreads.between),
    };
    let usable = match spread.freedom {
        Some(_) => Some(spread),
        None => {
            let assumed = SessionSpread {
                share: spread.share.max(sides.epochs), // NaN is passed over
                ..spread
            };
            if sides.unassumed {
                of_these(sides, [old, new], assumed)
            } else {
                Some(assumed)
            }
        }
    };
    let evidence = usable.map_or(Evidence::NONE, |spread| {
        widened(sides, units, spread, family)
    });
    (evidence, Basis::Widened(usable.unwrap_or(spread)))
}

/// The spread between the turns of each side, or between its sittings where there are several, but no less than is
/// assumed; `None` with fewer than two a side.
fn of_these(
    sides: &Sides,
    turns: [Vec<Estimate>; 2],
    assumed: SessionSpread,
) -> Option<SessionSpread> {
    let all = [sides.old.as_slice(), &sides.new].concat();
    let units = match sittings::count(&all)? {
        1 => turns,
        _ => [&sides.old, &sides.new].map(|side| sittings::means(side)),
    };
    if units.iter().any(|side| side.len() < 2) {
        return None;
    }
    let squares = |side: &Vec<Estimate>| {
        let mean = side.iter().map(|one| one.value).sum::<f64>() / side.len() as f64;
        side.iter()
            .map(|one| (one.value - mean).powi(2))
            .sum::<f64>()
    };
    let freedom = units.iter().map(Vec::len).sum::<usize>() - 2;
    let variance = units.iter().map(squares).sum::<f64>() / freedom as f64;
    Some(SessionSpread {
        share: assumed.share.max(variance.sqrt() / sides.leverage.max(1.0)),
        freedom: Some(u32::try_from(freedom).unwrap_or(u32::MAX)),
    })
}

/// The comparison from the values of turns alone.
fn exact(old: &[Estimate], new: &[Estimate], family: usize) -> Evidence {
    let [old, new] = [old, new].map(|side| side.iter().map(|e| e.value).collect::<Vec<_>>());
    let at = |confidence| shift(&old, &new, confidence);
    let shown = at(CONFIDENCE);
    let error = shown.map(|shown| shown.half_width() / z(CONFIDENCE));
    Evidence {
        shown,
        deciding: at(EQUIVALENCE_CONFIDENCE).map(|e| e.interval()),
        p: shift_p(&old, &new),
        detectable: at(1.0 - FALSE_ALARM_LEVEL / family.max(1) as f64)
            .zip(error)
            .map(|(strictest, error)| strictest.half_width() + normal::quantile(POWER) * error),
    }
}

/// The comparison from intervals widened by the spread between sessions, which is added `units` times over
/// on each side, and by the machine's move.
fn widened(sides: &Sides, units: [usize; 2], spread: SessionSpread, family: usize) -> Evidence {
    let level = |side: &[Session]| {
        let estimates: Vec<Estimate> = side.iter().map(|s| s.estimate).collect();
        sittings::mean(&estimates)
    };
    let (Some(old), Some(new)) = (level(&sides.old), level(&sides.new)) else {
        return Evidence::NONE;
    };
    let between: f64 = units
        .iter()
        .map(|count| (spread.share.max(0.0) * sides.leverage).powi(2) / *count as f64)
        .sum();
    // The interval's lower end comes from the lowest that new and the highest that old may be.
    let error =
        |new: f64, old: f64| StandardError::new(new.hypot(old) / z(CONFIDENCE), between, spread);
    let below = error(new.value - new.low, old.high - old.value);
    let above = error(new.high - new.value, old.value - old.low);
    let value = new.value - old.value;
    // Without the machine's move the change would lie there.
    let slower = (sides.machine * sides.leverage).max(0.0).ln_1p();
    let faster = -(sides.machine * sides.leverage).clamp(-0.99, 0.0).ln_1p();
    let at = |confidence: f64| {
        let tail = 0.5 + confidence / 2.0;
        Interval {
            low: value - below.reach(tail) - slower,
            high: value + above.reach(tail) + faster,
        }
    };
    let Interval { low, high } = at(CONFIDENCE);
    let p = if value > slower {
        2.0 * below.beyond(value - slower)
    } else if -value > faster {
        2.0 * above.beyond(-value - faster)
    } else {
        1.0
    };
    let strictest = 1.0 - FALSE_ALARM_LEVEL / family.max(1) as f64 / 2.0;
    let visible = |error: &StandardError| error.reach(strictest) + error.reach(POWER);
    Evidence {
        shown: Some(Estimate { value, low, high }),
        deciding: Some(at(EQUIVALENCE_CONFIDENCE)),
        p,
        detectable: Some(slower + faster + f64::midpoint(visible(&below), visible(&above))),
    }
}

/// A standard error, and how well it is known.
struct StandardError {
    value: f64,
    /// Degrees of freedom; infinite where all parts are taken for known.
    freedom: f64,
}

impl StandardError {
    /// Combines the error within a session (`own`) with a variance between sessions. Only the second is estimated from
    /// few values.
    fn new(own: f64, between: f64, spread: SessionSpread) -> Self {
        let variance = own.powi(2) + between;
        let freedom = match spread.freedom {
            Some(freedom) if between > 0.0 => f64::from(freedom) * (variance / between).powi(2),
            _ => f64::INFINITY,
        };
        Self {
            value: variance.sqrt(),
            freedom,
        }
    }

    fn student(&self) -> Option<StudentsT> {
        // Beyond, it is the normal distribution to six digits.
        let few = self.freedom.is_finite() && self.freedom < 1e6;
        few.then(|| StudentsT::new(0.0, 1.0, self.freedom.max(1.0)).ok())?
    }

    /// The distance from the estimate to the quantile `tail` of the distribution.
    fn reach(&self, tail: f64) -> f64 {
        let quantile = match self.student() {
            Some(student) => student.inverse_cdf(tail),
            None => normal::quantile(tail),
        };
        quantile * self.value
    }

    /// The share of the distribution beyond a distance.
    fn beyond(&self, distance: f64) -> f64 {
        if self.value <= 0.0 {
            return 0.0;
        }
        match self.student() {
            Some(student) => student.sf(distance / self.value),
            None => normal::cdf(-distance / self.value),
        }
    }
}

/// The sides in logs, without sessions that are not above zero throughout.
fn logs(sides: &Sides) -> Sides {
    let side = |sessions: &[Session]| {
        let usable = |e: &Estimate| {
            e.low > 0.0 && e.low <= e.value && e.value <= e.high && e.high.is_finite()
        };
        let usable_sessions = sessions.iter().filter(|s| usable(&s.estimate));
        let log = |s: &Session| Session {
            estimate: s.estimate.map(f64::ln),
            ..*s
        };
        usable_sessions.map(log).collect()
    };
    Sides {
        old: side(&sides.old),
        new: side(&sides.new),
        ..sides.clone()
    }
}

/// Half the width of a central normal interval, in standard errors.
fn z(confidence: f64) -> f64 {
    normal::quantile(0.5 + confidence / 2.0)
}
