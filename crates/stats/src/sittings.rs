//! When sessions were measured: sittings, and the turns in which two sides were measured.
//!
//! Sessions that follow each other closely resemble each other: the same neighbours, the same clock, the
//! same hour of the day. A **sitting** is a sequence of sessions without a long pause. Sessions of one side
//! that follow each other without one of the other side between them are one **turn**: had the machine
//! changed between two turns, all sessions of a turn would show that change.

use crate::estimate::Estimate;

/// A case's value in one session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Session {
    /// When it began, in seconds from any fixed moment; not finite where that is unknown.
    pub began_s: f64,
    /// The case's value with its 95 % interval within the session, in the unit of the case.
    pub estimate: Estimate,
}

/// The pause, in seconds, after which a session belongs to another sitting: between a long evening and the
/// next morning.
pub const SITTING_PAUSE_S: f64 = 6.0 * 3600.0;

/// The sittings that sessions begun at these times form: for each time, the number of its sitting, from 0 in
/// order of time. A time that is not finite is a sitting of its own.
#[must_use]
pub fn sittings(began_s: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..began_s.len()).collect();
    order.sort_by(|&a, &b| began_s[a].total_cmp(&began_s[b]));
    let mut numbers = vec![0; began_s.len()];
    let mut number = 0;
    for pair in order.windows(2) {
        let pause = began_s[pair[1]] - began_s[pair[0]];
        // NaN too: what is unknown is not close.
        number += usize::from(pause.is_nan() || pause > SITTING_PAUSE_S);
        numbers[pair[1]] = number;
    }
    numbers
}

/// The number of sittings; `None` if a time is unknown, or there is no session.
pub(crate) fn count(sessions: &[Session]) -> Option<usize> {
    let began: Vec<f64> = sessions.iter().map(|s| s.began_s).collect();
    let known = began.iter().all(|began_s| began_s.is_finite());
    sittings(&began)
        .into_iter()
        .max()
        .filter(|_| known)
        .map(|last| last + 1)
}

/// The two sides' values with each turn as one: its mean. Without all times known, each side is one turn.
pub(crate) fn turns(old: &[Session], new: &[Session]) -> [Vec<Estimate>; 2] {
    let side = |sessions: &[Session], is_new| -> Vec<(f64, bool, Estimate)> {
        let one = |s: &Session| (s.began_s, is_new, s.estimate);
        sessions.iter().map(one).collect()
    };
    let mut all = [side(old, false), side(new, true)].concat();
    if all.iter().any(|(began_s, ..)| !began_s.is_finite()) {
        all.iter_mut().for_each(|(began_s, ..)| *began_s = 0.0);
    }
    // What began at once can't have alternated: the sort keeps such sessions of a side together.
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged = [Vec::new(), Vec::new()];
    for turn in all.chunk_by(|a, b| a.1 == b.1) {
        let estimates: Vec<Estimate> = turn.iter().map(|one| one.2).collect();
        merged[usize::from(turn[0].1)].extend(mean(&estimates));
    }
    merged
}

/// The mean of each sitting, in order of time.
pub(crate) fn means(sessions: &[Session]) -> Vec<Estimate> {
    let began: Vec<f64> = sessions.iter().map(|s| s.began_s).collect();
    let numbers = sittings(&began);
    let of_sitting = |number| {
        let own = sessions.iter().zip(&numbers);
        let own = own.filter_map(|(one, &of)| (of == number).then_some(one.estimate));
        mean(&own.collect::<Vec<_>>())
    };
    let last = numbers.iter().max().map_or(0, |last| last + 1);
    (0..last).filter_map(of_sitting).collect()
}

/// Several estimates as one: their mean, with the interval that it has if they scatter by no more than their
/// own intervals. `None` for none.
pub(crate) fn mean(estimates: &[Estimate]) -> Option<Estimate> {
    let n = estimates.len() as f64;
    let over = |part: fn(&Estimate) -> f64| estimates.iter().map(part).sum::<f64>() / n;
    let value = over(|e| e.value);
    (!estimates.is_empty()).then(|| Estimate {
        value,
        low: value - (over(|e| (e.value - e.low).powi(2)) / n).sqrt(),
        high: value + (over(|e| (e.high - e.value).powi(2)) / n).sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: f64 = 3600.0;

    fn at(hours: &[f64]) -> Vec<Session> {
        let session = |(i, hour): (usize, &f64)| Session {
            began_s: hour * HOUR,
            estimate: Estimate {
                value: i as f64,
                low: i as f64 - 2.0,
                high: i as f64 + 1.0,
            },
        };
        hours.iter().enumerate().map(session).collect()
    }

    fn turned(old: &[f64], new: &[f64]) -> [Vec<f64>; 2] {
        turns(&at(old), &at(new)).map(|side| side.iter().map(|e| e.value).collect())
    }

    #[test]
    fn a_long_pause_begins_a_sitting() {
        let hours = [30.0, 0.0, 1.0, 6.5, 31.0, f64::NAN];
        let numbers = sittings(&hours.map(|hour| hour * HOUR));
        assert_eq!(numbers, [1, 0, 0, 0, 1, 2]);
        assert_eq!(sittings(&[f64::NAN, f64::NAN]), [0, 1]);
        assert_eq!(sittings(&[]), [0; 0]);
        assert_eq!(count(&at(&[0.0, 5.0, 12.0])), Some(2));
        assert_eq!((count(&at(&[0.0, f64::NAN])), count(&[])), (None, None));
    }

    #[test]
    fn sessions_of_a_side_in_a_row_are_one_turn() {
        assert_eq!(
            turned(&[0.0, 1.0, 2.0], &[3.0, 4.0]),
            [vec![1.0], vec![0.5]]
        );
        let [old, new] = turned(&[0.0, 2.0, 4.0], &[1.0, 3.0, 5.0]);
        assert_eq!((old.len(), new.len()), (3, 3));
        // In whatever order they are given: old at 0, 3, 4; new at 1, 2, 5.
        assert_eq!(
            turned(&[4.0, 0.0, 3.0], &[2.0, 5.0, 1.0]),
            [vec![1.0, 1.0], vec![1.0, 1.0]]
        );
        // Unknown or equal times are no turns.
        assert_eq!(
            turned(&[0.0, f64::NAN], &[1.0, 2.0]),
            [vec![0.5], vec![0.5]]
        );
        assert_eq!(turned(&[7.0, 7.0], &[7.0, 7.0]), [vec![0.5], vec![0.5]]);
        assert_eq!(turned(&[], &[7.0]), [vec![], vec![0.0]]);
    }

    #[test]
    fn the_mean_of_several_is_known_better() {
        let two = at(&[0.0, 0.0])
            .iter()
            .map(|s| s.estimate)
            .collect::<Vec<_>>();
        let mean = mean(&two).unwrap();
        assert_eq!(mean.value, 0.5);
        assert!((mean.value - mean.low - 2.0 / 2f64.sqrt()).abs() < 1e-12);
        assert!((mean.high - mean.value - 1.0 / 2f64.sqrt()).abs() < 1e-12);
    }
}
