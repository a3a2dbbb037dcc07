//! An alarm while something is switched on: does it raise a cost by more than a limit, beyond the cost's own noise?
//!
//! Readings come in *stretches*: a reading at each of a few ages (*looks*), each of the whole stretch so far. Stretches
//! without the thing are the reference, and readings are only compared with readings of the same age: what is short
//! scatters more. Of n reference readings with mean m and standard deviation s, on the log scale, a further one exceeds
//!
//! m + t(1 − [`EXCEEDED`], n − 1) · s · √(1 + 1/n)
//!
//! in a share [`EXCEEDED`] of cases, if logs are normal (the prediction bound of Hahn & Meeker 1991, "Statistical
//! Intervals", section 4.7). Costs are rarely normal, so the bound is no lower than the highest reference reading. A
//! reading is *over* above this bound times 1 + limit: what costs no more than the limit passes as nothing does.
//!
//! A run has hundreds of readings, and bursts and changes of load that the reference never met. So a reading that is over
//! decides nothing alone, and a later one of the same stretch, which contains it, adds nearly nothing. The thing is
//! switched off at once, and a stretch without it read to the same age. Where the cost does not fall by the limit, it was
//! not the thing that raised it: it stays off until a stretch is as usual, or the last [`REFERENCE`] ones have become the
//! reference. Where it falls, the thing is tried once more, and only a second such pair is an alarm.
//! `coverage -- 10000 alarm` simulates it.

use std::collections::VecDeque;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Sample;

/// Stretches that a reference needs. With half as many the bound lies a sixth farther out.
pub const REFERENCE: usize = 20;

/// Stretches of a reference: of more, the latest count, for loads drift.
const LATEST: usize = 60;

/// Share of readings that exceed their bound by chance.
pub const EXCEEDED: f64 = 1e-3;

/// An alarm above a relative limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    limit: f64,
    /// Logs of readings by look, of stretches without the thing.
    reference: VecDeque<Vec<f64>>,
    suspected: bool,
}

/// The readings to expect at one age without the thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Geometric mean.
    pub usual: f64,
    /// Upper prediction bound.
    pub upper: f64,
}

impl Expected {
    /// Rise above the usual that noise alone reaches.
    #[must_use]
    pub fn noise(&self) -> f64 {
        self.upper / self.usual - 1.0
    }
}

/// Result of a stretch without the thing, after a reading with it that was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The cost is as high without it: a burst, or the load has changed.
    NotIt,
    /// The cost fell without it: it is to be tried once more.
    Suspected,
    /// The cost fell for the second time.
    Confirmed,
}

impl Alarm {
    /// An alarm at a cost that is higher by this share (0.2 is 20 %).
    #[must_use]
    pub fn new(limit: f64) -> Self {
        Alarm {
            limit,
            reference: VecDeque::new(),
            suspected: false,
        }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Returns whether the reference is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.reference.len() >= REFERENCE
    }

    /// Adds the readings of a stretch without the thing, by look, to the reference.
    pub fn add_reference(&mut self, readings: &[f64]) {
        let logs = readings.iter().map(|&reading| ln(reading)).collect();
        self.reference.push_back(logs);
        if self.reference.len() > LATEST {
            self.reference.pop_front();
        }
    }

    /// Forgets all stretches but the last [`REFERENCE`].
    pub fn forget(&mut self) {
        let old = self.reference.len().saturating_sub(REFERENCE);
        self.reference.drain(..old);
    }

    /// The readings to expect at this look without the thing; `None` before the reference is complete.
    #[must_use]
    pub fn expected(&self, look: usize) -> Option<Expected> {
        let reference = self.reference.iter();
        let logs = reference.filter_map(|logs| logs.get(look).copied());
        let logs = Sample::new(&logs.collect::<Vec<f64>>())?;
        if logs.len() < REFERENCE {
            return None;
        }
        let n = logs.len() as f64;
        let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
        let scatter = logs.stddev()? * (1.0 + 1.0 / n).sqrt();
        let bound = logs.mean() + student.inverse_cdf(1.0 - EXCEEDED) * scatter;
        Some(Expected {
            usual: logs.mean().exp(),
            upper: bound.max(logs.max()).exp(),
        })
    }

    /// The smallest limit that noise alone does not reach at this look.
    #[must_use]
    pub fn smallest_limit(&self, look: usize) -> Option<f64> {
        self.expected(look).map(|expected| expected.noise())
    }

    /// Returns whether a reading with the thing is higher than a cost within the limit reads.
    #[must_use]
    pub fn is_over(&self, look: usize, reading: f64) -> bool {
        self.expected(look)
            .is_some_and(|expected| reading > expected.upper * (1.0 + self.limit))
    }

    /// A stretch with the thing ended without a reading that was over.
    pub fn pass(&mut self) {
        self.suspected = false;
    }

    /// Judges a reading that was over by the reading at the same age without the thing, right after it; `None` where
    /// that is not known, which blames nothing.
    pub fn judge(&mut self, with: f64, without: Option<f64>) -> Judgement {
        if without.is_none_or(|without| ln(with) - ln(without) <= self.limit.ln_1p()) {
            self.suspected = false;
            return Judgement::NotIt;
        }
        if std::mem::replace(&mut self.suspected, true) {
            Judgement::Confirmed
        } else {
            Judgement::Suspected
        }
    }
}

/// Logarithm of a cost; of none, that of the least above it.
fn ln(cost: f64) -> f64 {
    cost.max(f64::MIN_POSITIVE).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An alarm with this limit that knows stretches of two looks, whose costs scatter by ±10 % and ±2 % around 100.
    fn alarm(limit: f64) -> Alarm {
        let mut alarm = Alarm::new(limit);
        for stretch in 0..REFERENCE {
            let sign = if stretch % 2 == 0 { 1.0 } else { -1.0 };
            alarm.add_reference(&[100.0 + 10.0 * sign, 100.0 + 2.0 * sign]);
        }
        alarm
    }

    #[test]
    fn without_a_whole_reference_there_is_no_alarm() {
        let mut alarm = Alarm::new(0.2);
        for _ in 1..REFERENCE {
            alarm.add_reference(&[100.0]);
        }
        assert!(!alarm.is_ready() && alarm.expected(0).is_none());
        assert!(!alarm.is_over(0, 1e9));
        alarm.add_reference(&[100.0]);
        assert!(alarm.is_ready() && alarm.is_over(0, 121.0) && !alarm.is_over(0, 119.0));
        assert!(!alarm.is_over(1, 1e9), "a look that no stretch had");
    }

    #[test]
    fn readings_are_compared_with_those_of_the_same_age() {
        let alarm = alarm(0.2);
        // 3.58 √(1 + 1/20) standard deviations of 10.3 % and of 2.05 %.
        let noise = |look| alarm.smallest_limit(look).unwrap();
        assert!((0.45..0.47).contains(&noise(0)), "{}", noise(0));
        assert!((0.07..0.08).contains(&noise(1)), "{}", noise(1));
        assert!(!alarm.is_over(0, 170.0) && alarm.is_over(0, 180.0));
        assert!(!alarm.is_over(1, 125.0) && alarm.is_over(1, 132.0));
    }

    #[test]
    fn the_bound_is_no_lower_than_the_highest_reference() {
        let mut alarm = alarm(0.2);
        for _ in 0..LATEST - 1 {
            alarm.add_reference(&[100.0]);
        }
        alarm.add_reference(&[300.0]);
        assert!(alarm.expected(0).unwrap().upper >= 299.9, "{alarm:?}");
        // It is forgotten once enough came after it.
        for _ in 0..LATEST {
            alarm.add_reference(&[100.0]);
        }
        assert!(alarm.smallest_limit(0).unwrap() < 1e-9);
    }

    #[test]
    fn two_falls_are_an_alarm_and_one_is_not() {
        let mut alarm = alarm(0.2);
        assert_eq!(alarm.judge(200.0, Some(100.0)), Judgement::Suspected);
        alarm.pass();
        assert_eq!(alarm.judge(200.0, Some(100.0)), Judgement::Suspected);
        assert_eq!(alarm.judge(200.0, Some(100.0)), Judgement::Confirmed);
    }

    #[test]
    fn a_cost_that_stays_without_it_is_of_the_load() {
        let mut alarm = alarm(0.2);
        assert_eq!(alarm.judge(200.0, Some(100.0)), Judgement::Suspected);
        assert_eq!(alarm.judge(200.0, Some(180.0)), Judgement::NotIt);
        assert_eq!(alarm.judge(200.0, Some(100.0)), Judgement::Suspected);
        // Of another load, after as many stretches as a reference needs.
        for _ in 0..REFERENCE {
            alarm.add_reference(&[200.0, 200.0]);
        }
        alarm.forget();
        assert!((alarm.expected(1).unwrap().usual - 200.0).abs() < 1e-9);
        assert!(!alarm.is_over(1, 239.0) && alarm.is_over(1, 241.0));
    }

    #[test]
    fn limits_above_all_costs_and_odd_readings() {
        let mut alarm = alarm(5.0);
        assert!(!alarm.is_over(1, 600.0) && alarm.is_over(1, 660.0));
        assert_eq!(alarm.judge(660.0, Some(0.0)), Judgement::Suspected);
        assert_eq!(alarm.judge(0.0, Some(0.0)), Judgement::NotIt);
        assert_eq!(alarm.judge(660.0, None), Judgement::NotIt);
        for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let mut alarm = Alarm::new(0.2);
            for _ in 0..REFERENCE {
                alarm.add_reference(&[odd]);
            }
            assert!(!alarm.is_over(0, f64::NAN), "{odd}");
        }
    }
}
