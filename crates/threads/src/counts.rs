//! The checks of a trial of `pool`: every thread did its pairs, each use of an object was counted, and all objects
//! are there afterwards, each once.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use bpfcost_model::{Batch, Problem, Trial, differs};

/// Pairs per second of all threads together.
pub const PAIRS_PER_S: &str = "pairs_per_s";

/// Counts of one thread in a trial.
#[derive(Debug)]
pub struct ThreadCount {
    /// Pairs in the timed phase.
    pub pairs: u64,
    /// Pairs that were timed one by one.
    pub single: u64,
    /// Pairs of the timed phase that found the pool empty at first.
    pub misses: u64,
    /// Objects that another had signed meanwhile, or that there are not.
    pub foreign: u64,
    /// When all were there, and when this one was done.
    pub timed: Option<(Instant, Instant)>,
    /// Nanoseconds of single pairs.
    pub latency: Histogram<u32>,
}

/// All counts of a trial.
#[derive(Debug)]
pub struct TrialCounts {
    /// Thread by thread.
    pub counts: Vec<ThreadCount>,
    /// Uses that the objects counted.
    pub uses: u64,
    /// Number of objects in the pool.
    pub objects: usize,
    /// Contents of the pool, emptied after the trial; `None` if the case has no pool.
    pub drained: Option<PoolContents>,
}

/// Objects that came out when a pool was emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolContents {
    /// Objects that came out.
    pub once: u64,
    /// Objects that came out though they were out.
    pub again: u64,
    /// Objects that there are not.
    pub strange: u64,
}

impl TrialCounts {
    /// Returns the first problem of a trial, or `None` if every object is accounted for.
    pub fn problem(&self, batch: Batch) -> Option<Problem> {
        let sum = |count: fn(&ThreadCount) -> u64| self.counts.iter().map(count).sum::<u64>();
        let done = self.counts.iter().map(|one| one.pairs).min().unwrap_or(0);
        let used = sum(|one| one.pairs + one.single);
        let objects = self.objects as u64;
        let whole = PoolContents {
            once: objects,
            ..PoolContents::default()
        };
        let out = self.drained.unwrap_or(whole);
        let moved = u64::from(!self.elapsed().is_zero());
        let checks = [
            (
                "pairs of each thread",
                batch.0,
                done,
                "a thread waited too long for an object: objects are lost, held for very long, or too few for so \
                 many threads",
            ),
            (
                "foreign objects",
                0,
                sum(|one| one.foreign),
                "two threads had the same object at once, or one that does not exist",
            ),
            (
                "uses that the objects counted",
                used,
                self.uses,
                "two threads had the same object at once, and counted it once",
            ),
            (
                "objects in the pool afterwards",
                objects,
                out.once,
                "some objects are lost",
            ),
            (
                "objects that came out twice",
                0,
                out.again,
                "an object was in the pool more than once",
            ),
            (
                "objects that do not exist",
                0,
                out.strange,
                "the pool handed out an object that was never put in",
            ),
            (
                "clock moved",
                1,
                moved,
                "the clock did not advance during the batch",
            ),
        ];
        let mut checks = checks.into_iter();
        checks.find_map(|(check, expected, got, why)| differs(check, expected, got, why))
    }

    /// From when all were there until the last was done.
    fn elapsed(&self) -> Duration {
        let timed = || self.counts.iter().filter_map(|one| one.timed);
        let begun = timed().map(|(begun, _)| begun).min();
        let ended = timed().map(|(_, ended)| ended).max();
        begun
            .zip(ended)
            .map_or(Duration::ZERO, |(begun, ended)| ended - begun)
    }

    /// The trial, once it is proved. `clock_ns` is what a look at the clock takes.
    pub fn trial(&self, batch: Batch, clock_ns: f64) -> Trial {
        let elapsed_ns = self.elapsed().as_nanos() as f64;
        let threads = self.counts.len() as f64;
        let pairs = threads * batch.0 as f64;
        let misses: u64 = self.counts.iter().map(|one| one.misses).sum();
        let mut secondary = BTreeMap::from([
            (PAIRS_PER_S.to_owned(), 1e9 * pairs / elapsed_ns),
            ("misses".to_owned(), misses as f64 / pairs),
            ("fairness".to_owned(), fairness(&self.rates())),
        ]);
        let mut latency: Histogram<u32> = self.counts[0].latency.clone();
        for other in &self.counts[1..] {
            // Both grow as they must, so that there is nothing to refuse.
            let _ = latency.add(&other.latency);
        }
        if !latency.is_empty() {
            for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                let ns = latency.value_at_quantile(share) as f64;
                secondary.insert(format!("latency_{name}_ns"), ns);
            }
            secondary.insert("latency_clock_ns".to_owned(), clock_ns);
        }
        Trial::of_batch(batch, elapsed_ns, secondary)
    }

    /// Pairs per nanosecond of each thread, by its own end.
    fn rates(&self) -> Vec<f64> {
        let rate = |one: &ThreadCount| {
            let (begun, ended) = one.timed?;
            Some(one.pairs as f64 / (ended - begun).as_nanos().max(1) as f64)
        };
        self.counts.iter().filter_map(rate).collect()
    }
}

/// Jain's index: 1 where all have the same, 1/n where one has all (Jain, Chiu, Hawe 1984).
fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares > 0.0 {
        sum * sum / (rates.len() as f64 * squares)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const PAIRS: u64 = 100;

    /// Two threads, the second twice as fast as the first, of whose 200 pairs each took 10 ns or less.
    fn good() -> TrialCounts {
        let begun = Instant::now();
        let count = |ns| {
            let mut latency = Histogram::new(2).unwrap();
            (0..20).for_each(|ns| latency.record(ns).unwrap());
            ThreadCount {
                pairs: PAIRS,
                single: 20,
                misses: 5,
                foreign: 0,
                timed: Some((begun, begun + Duration::from_nanos(ns))),
                latency,
            }
        };
        TrialCounts {
            counts: vec![count(1000), count(500)],
            uses: 240,
            objects: 4,
            drained: Some(PoolContents {
                once: 4,
                again: 0,
                strange: 0,
            }),
        }
    }

    #[test]
    fn a_trial_is_what_its_threads_did() {
        let seen = good();
        assert_eq!(seen.problem(Batch(PAIRS)), None);
        let trial = seen.trial(Batch(PAIRS), 17.0);
        assert_eq!(
            (trial.value, trial.ops, trial.elapsed_ns),
            (10.0, 100, 1000.0)
        );
        let told = |name: &str| trial.secondary[name];
        assert_eq!(told(PAIRS_PER_S), 200e6);
        assert_eq!(told("misses"), 0.05);
        assert!((told("fairness") - 0.9).abs() < 1e-12);
        assert_eq!(told("latency_p50_ns"), 9.0);
        assert_eq!(told("latency_p999_ns"), 19.0);
        assert_eq!(told("latency_clock_ns"), 17.0);
    }

    /// Each check fails for its own reason: one value that is not as it should be.
    #[test]
    fn each_fault_is_found() {
        let check = |spoil: fn(&mut TrialCounts)| {
            let mut seen = good();
            spoil(&mut seen);
            let problem = seen.problem(Batch(PAIRS));
            problem.map(|problem| problem.check).unwrap_or_default()
        };
        let drained = |spoil: fn(&mut PoolContents)| {
            let mut seen = good();
            seen.drained.as_mut().map(spoil);
            let problem = seen.problem(Batch(PAIRS));
            problem.map(|problem| problem.check).unwrap_or_default()
        };
        assert_eq!(
            check(|seen| seen.counts[1].pairs -= 1),
            "pairs of each thread"
        );
        assert_eq!(check(|seen| seen.counts[1].foreign = 1), "foreign objects");
        let uses = "uses that the objects counted";
        assert_eq!(check(|seen| seen.uses -= 1), uses);
        assert_eq!(check(|seen| seen.uses += 1), uses);
        let lost = drained(|drained| drained.once -= 1);
        assert_eq!(lost, "objects in the pool afterwards");
        let twice = drained(|drained| drained.again = 1);
        assert_eq!(twice, "objects that came out twice");
        let strange = drained(|drained| drained.strange = 1);
        assert_eq!(strange, "objects that do not exist");
        let still = check(|seen| {
            for count in &mut seen.counts {
                count.timed = count.timed.map(|(begun, _)| (begun, begun));
            }
        });
        assert_eq!(still, "clock moved");
    }

    #[test]
    fn fairness_is_the_share_that_could_have_had_as_much() {
        assert_eq!(fairness(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(fairness(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(fairness(&[]), 1.0);
    }
}
