//! Comparing records from separate sessions.
//!
//! Two sessions of the same program minutes apart differ by more than the interval of either knows. So:
//!
//! - With several records a side, each record is one value, and the two-sample Hodges–Lehmann shift with
//!   the exact Mann–Whitney interval over these values is used wherever it exists: from 4 sessions a
//!   side (or 3 against 5) at 95 %. It needs no assumption on how far sessions scatter.
//! - With fewer, the sides' intervals are widened by the session spread that was measured elsewhere. The
//!   two intervals and the spread are combined as variances, each side of the interval on its own (MOVER;
//!   Zou & Donner 2008, Statistics in Medicine 27(10)), so that a lopsided interval stays lopsided.
//!   Several sessions on a side count by their mean, and its spread shrinks with their number.
//!
//! Values and intervals are those of one case; the sides are old and new, the difference new − old.
//! Lehmann, E. L. (1975), "Nonparametrics", section 2.5, for the shift and its interval.

use crate::estimate::{CONFIDENCE, Estimate, Interval};
use crate::normal;
use crate::pairwise::{Pairs as _, Shifts};
use crate::power::{FALSE_ALARM_LEVEL, POWER};
use crate::rank_sum;
use crate::sample::Sample;
use crate::verdict::{Budget, EQUIVALENCE_CONFIDENCE, Evidence, Policy, Verdict, budget, decide};

/// How a shift between sides was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Exact, over session values, as many as given.
    Sessions {
        /// Sessions of the old side.
        old: usize,
        /// Sessions of the new side.
        new: usize,
    },
    /// Single records, or too few: intervals widened by the session spread.
    Widened,
}

/// What is known of one case between two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionComparison {
    /// new / old − 1, with the 95 % interval; 0.01 is 1 % more. `None` without a value on each side.
    pub relative: Option<Estimate>,
    /// Its 90 % interval, which decides `Same` and the budget.
    pub relative90: Option<Interval>,
    /// Two-sided p-value, before Holm.
    pub p: f64,
    /// How it was found.
    pub basis: Basis,
    /// The verdict on the new side.
    pub verdict: Verdict,
    /// The budget's answer, where the policy has one.
    pub budget: Option<Budget>,
}

/// One case's estimates on the two sides, one an estimate a session, in the unit of the case.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sides {
    /// Sessions of the old side.
    pub old: Vec<Estimate>,
    /// Sessions of the new side.
    pub new: Vec<Estimate>,
}

/// Judges all cases that two sides share, as one family. `session_spread` is the relative standard
/// deviation of one session's level (0.011 where two sessions typically differ by 1.1 %; see
/// [`session_spread`]); negative or NaN reads as 0.
#[must_use]
pub fn judge_sessions(
    cases: &[Sides],
    session_spread: f64,
    policy: &Policy,
) -> Vec<SessionComparison> {
    let judged: Vec<(Evidence, Basis)> = cases
        .iter()
        .map(|sides| compare(sides, session_spread.max(0.0), cases.len()))
        .collect();
    let evidence: Vec<Evidence> = judged.iter().map(|f| f.0).collect();
    judged
        .iter()
        .zip(decide(&evidence, policy))
        .map(|(&(evidence, basis), verdict)| SessionComparison {
            relative: evidence.shown.map(|e| e.map(f64::exp_m1)),
            relative90: evidence.deciding.map(|i| i.map(f64::exp_m1)),
            p: evidence.p,
            basis,
            verdict,
            budget: policy
                .budget
                .map(|b| budget(evidence.deciding, b, policy.sense)),
        })
        .collect()
}

/// The relative standard deviation of one session's level, from cases' values in repeated sessions: a
/// list a case, a value a session. It is set so that it explains both the typical distance between two
/// sessions and the distance that 95 % stay below, since sessions stray further now and then than a
/// normal distribution allows. `None` without a pair of sessions.
#[must_use]
pub fn session_spread<S: AsRef<[f64]>>(cases: &[S]) -> Option<f64> {
    let mut distances = Vec::new();
    for values in cases {
        let logs: Vec<f64> = values
            .as_ref()
            .iter()
            .filter(|v| v.is_finite() && **v > 0.0)
            .map(|v| v.ln())
            .collect();
        for (i, a) in logs.iter().enumerate() {
            distances.extend(logs[i + 1..].iter().map(|b| (a - b).abs()));
        }
    }
    let distances = Sample::new(&distances)?;
    let at = |p: f64| distances.quantile(p) / normal::quantile(0.5 + p / 2.0);
    Some(at(0.5).max(at(0.95)) / std::f64::consts::SQRT_2)
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

fn compare(sides: &Sides, session_spread: f64, family: usize) -> (Evidence, Basis) {
    let (old, new) = (logs(&sides.old), logs(&sides.new));
    let values = |side: &[Estimate]| side.iter().map(|e| e.value).collect::<Vec<_>>();
    let (old_values, new_values) = (values(&old), values(&new));

    if let Some(shown) = shift(&old_values, &new_values, CONFIDENCE) {
        let strictest = 1.0 - FALSE_ALARM_LEVEL / family.max(1) as f64;
        let standard_error = shown.half_width() / z(CONFIDENCE);
        let evidence = Evidence {
            shown: Some(shown),
            deciding: shift(&old_values, &new_values, EQUIVALENCE_CONFIDENCE).map(|e| e.interval()),
            p: shift_p(&old_values, &new_values),
            detectable: shift(&old_values, &new_values, strictest)
                .map(|e| e.half_width() + normal::quantile(POWER) * standard_error),
        };
        return (
            evidence,
            Basis::Sessions {
                old: old.len(),
                new: new.len(),
            },
        );
    }
    (widened(&old, &new, session_spread, family), Basis::Widened)
}

/// The comparison from intervals widened by the session spread.
fn widened(old: &[Estimate], new: &[Estimate], session_spread: f64, family: usize) -> Evidence {
    let (Some(old), Some(new)) = (
        SideLevel::of(old, session_spread),
        SideLevel::of(new, session_spread),
    ) else {
        return Evidence {
            shown: None,
            deciding: None,
            p: 1.0,
            detectable: None,
        };
    };
    let value = new.value - old.value;
    let below = new.below.hypot(old.above);
    let above = new.above.hypot(old.below);
    let at = |confidence: f64| Interval {
        low: value - z(confidence) * below,
        high: value + z(confidence) * above,
    };
    let Interval { low, high } = at(CONFIDENCE);
    let toward_zero = if value > 0.0 { below } else { above };
    let p = if value == 0.0 {
        1.0
    } else {
        2.0 * normal::cdf(-value.abs() / toward_zero)
    };
    let reach = normal::quantile(1.0 - FALSE_ALARM_LEVEL / family.max(1) as f64 / 2.0)
        + normal::quantile(POWER);
    Evidence {
        shown: Some(Estimate { value, low, high }),
        deciding: Some(at(EQUIVALENCE_CONFIDENCE)),
        p,
        detectable: Some(reach * (below / 2.0 + above / 2.0)),
    }
}

/// One side's level: the mean of its sessions, with standard errors downwards and upwards that include
/// the session spread.
struct SideLevel {
    value: f64,
    below: f64,
    above: f64,
}

impl SideLevel {
    fn of(sessions: &[Estimate], session_spread: f64) -> Option<Self> {
        if sessions.is_empty() {
            return None;
        }
        let n = sessions.len() as f64;
        let error = |width: fn(&Estimate) -> f64| {
            let squares: f64 = sessions
                .iter()
                .map(|e| (width(e) / z(CONFIDENCE)).powi(2))
                .sum::<f64>()
                / n;
            ((squares + session_spread.powi(2)) / n).sqrt()
        };
        Some(Self {
            value: sessions.iter().map(|e| e.value).sum::<f64>() / n,
            below: error(|e| e.value - e.low),
            above: error(|e| e.high - e.value),
        })
    }
}

/// Estimates as logs; those that are not above zero throughout are skipped.
fn logs(side: &[Estimate]) -> Vec<Estimate> {
    side.iter()
        .filter(|e| e.low > 0.0 && e.low <= e.value && e.value <= e.high && e.high.is_finite())
        .map(|e| e.map(f64::ln))
        .collect()
}

/// Half the width of a central normal interval, in standard errors.
fn z(confidence: f64) -> f64 {
    normal::quantile(0.5 + confidence / 2.0)
}
