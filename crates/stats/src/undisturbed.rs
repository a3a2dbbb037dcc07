//! The cost of an operation while nothing else slows the machine, from the slices of batches.
//!
//! Neighbours on a shared machine come in bursts, and between them it is undisturbed. Then slices that do the same work
//! differ by hundredths of a percent; beside a neighbour they differ by several percent.
//!
//! 1. A slice is not chosen for its own value, because the lowest values are the luckiest ones, but for its
//!    *surroundings*: the mean of the slices around it. A burst slows those as well, while luck does not spread.
//! 2. In each batch, the slices with the lowest surroundings show its fastest state, and how far slices scatter in it. The
//!    value of the batch is the median of all slices whose surroundings lie in a narrow band above those.
//! 3. A batch whose slices in that band scatter more than those of the run's least scattered batches was disturbed
//!    throughout, and is left out. The value of an epoch is the median of the others.
//!
//! Nothing is known if slices do different work: if they get cheaper or dearer along the batch, or scatter on a quiet
//! machine too. Work that comes now and then is left out as a burst is, so the result is held against
//! [`OwnWork`]. A neighbour that slows all slices of a batch by the same share is not noticed.
//! METHODOLOGY.md has the method, and docs/evidence/undisturbed.md how well it holds.

use std::fmt;

use crate::differences::Differences;
use crate::estimate::{Estimate, Interval};
use crate::own_work::{CalmLevels, CalmSlices, OwnWork};
use crate::sample::{Sample, median};

/// The number of slices on each side that are the surroundings of a slice.
const REACH: usize = 3;

/// The share of a batch's slices, those with the lowest surroundings, that shows its fastest state.
const LOWEST: f64 = 0.05;

/// Fewest slices that do.
const MIN_LOWEST: usize = 8;

/// The largest distance of surroundings from the lowest at which slices count as the same state, as a share of the
/// lowest.
const BAND: f64 = 0.005;

/// The same in standard deviations of surroundings, where slices scatter.
const BAND_SIGMAS: f64 = 3.0;

/// The batches of a run that scatter least show what is usual: this share of them.
const MIN_SCATTERED: f64 = 0.1;

/// A batch that scatters more than so many times what is usual was disturbed throughout.
const MAX_SCATTER: f64 = 1.5;

/// A batch that scatters less than this share of its value was not disturbed, however little others scatter.
const MIN_SCATTER: f64 = 0.002;

/// If what is usual is more than this share, slices don't do the same work, or no batch was undisturbed.
const MAX_USUAL: f64 = 0.01;

/// The largest relative difference between the slices of the first half of a batch and those of the second.
const MAX_TREND: f64 = 0.03;

/// Fewest epochs in which the undisturbed state must have been seen.
pub const MIN_EPOCHS: usize = 6;

/// The undisturbed state of a case over a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Undisturbed {
    /// The cost of an operation in each epoch, in the unit of the slices; NaN for an epoch that was disturbed
    /// throughout.
    pub values: Vec<f64>,
    /// The share of all slices that were of this state, 0 to 1.
    pub share: f64,
    /// The most that a batch of this state may scatter, as a share of its value. A neighbour that adds less is not
    /// noticed, so the values may be too high by as much.
    pub blind: f64,
    /// The most that work of the case's own, done now and then, may add without being noticed, as a share of the value:
    /// the values may be too low by as much.
    pub unnoticed: f64,
    /// The part of that in single long slices between bursts; the rest would look like bursts.
    pub unnoticed_between_bursts: f64,
}

/// The reason for which the undisturbed state of a case is unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unknown {
    /// No batch was cut into enough slices.
    NotCut,
    /// The cost of slices rises or falls along the batch, so that they do different work.
    Trend,
    /// Slices scatter in every batch: they do different work, or all were disturbed.
    Scatter,
    /// Fewer than [`MIN_EPOCHS`] epochs show it.
    FewEpochs,
    /// The case does work now and then that the undisturbed state leaves out.
    OwnWork(OwnWork),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unknown::NotCut => "its batches are not cut into slices",
            Unknown::Trend => "operations cost more or less along the batch",
            Unknown::Scatter => "its slices differ too much",
            Unknown::FewEpochs => "seen in too few epochs",
            Unknown::OwnWork(own) => return own.fmt(f),
        })
    }
}

impl Undisturbed {
    /// The estimate over epochs, with the interval of [`Estimate::for_case`], whose ends reach further by `blind` and
    /// `unnoticed`. `None` below 6 epochs.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        let estimate = Estimate::for_case(&self.values)?;
        Some(Estimate {
            low: estimate.low - self.blind * estimate.value,
            high: estimate.high + self.unnoticed * estimate.value,
            ..estimate
        })
    }

    /// The levels of calm slices.
    #[must_use]
    pub fn calm(&self) -> CalmLevels<'_> {
        CalmLevels {
            values: &self.values,
            blind: self.blind,
        }
    }

    /// Holds it against the references' slices: unknown if it leaves out too much work of the case's own, or if too few
    /// epochs show that.
    pub fn held_against(
        self,
        case: &[CalmSlices],
        references: &[CalmSlices],
    ) -> Result<Self, Unknown> {
        let own = OwnWork::new(case, references).ok_or(Unknown::FewEpochs)?;
        if own.matters {
            return Err(Unknown::OwnWork(own));
        }
        Ok(Undisturbed {
            unnoticed: own.most,
            unnoticed_between_bursts: own.most_between_bursts,
            ..self
        })
    }

    /// The differences from a baseline in the same epochs. They may be too high by what a neighbour adds to this case
    /// alone without being noticed, and too low by the case's own work between bursts; the other way round for the baseline.
    #[must_use]
    pub fn differences(&self, baseline: &Self) -> Differences {
        let blind = self.blind - baseline.blind;
        Differences {
            unnoticed: Interval {
                low: -blind.max(0.0) - baseline.unnoticed_between_bursts,
                high: (-blind).max(0.0) + self.unnoticed_between_bursts,
            },
            ..Differences::pair(&self.values, &baseline.values)
        }
    }
}

/// The fastest state of one batch.
#[derive(Debug, Clone, Copy)]
struct Fastest {
    value: f64,
    /// Half the distance between the quartiles of its slices, as a share of the median.
    scatter: f64,
    /// The share of the batch's slices that were of this state.
    share: f64,
}

/// The undisturbed state, from the slices of batches by epoch: `epochs[e][b]` has those of a batch in the order of time.
pub fn undisturbed<B: AsRef<[f64]>>(epochs: &[Vec<B>]) -> Result<Undisturbed, Unknown> {
    let of_epoch = |batches: &Vec<B>| -> Vec<Fastest> {
        let fastest = batches.iter().map(|batch| fastest(batch.as_ref()));
        fastest.flatten().collect()
    };
    let fastest: Vec<Vec<Fastest>> = epochs.iter().map(of_epoch).collect();
    let all: Vec<Fastest> = fastest.concat();
    let scatters: Vec<f64> = all.iter().map(|one| one.scatter).collect();
    let scatters = Sample::new(&scatters).ok_or(Unknown::NotCut)?;
    if !are_alike(epochs) {
        return Err(Unknown::Trend);
    }
    let usual = scatters.quantile(MIN_SCATTERED);
    if usual > MAX_USUAL {
        return Err(Unknown::Scatter);
    }
    let most = (MAX_SCATTER * usual).max(MIN_SCATTER);
    let reached = |one: &&Fastest| one.scatter <= most;
    let value = |batches: &Vec<Fastest>| {
        let values: Vec<f64> = batches
            .iter()
            .filter(reached)
            .map(|one| one.value)
            .collect();
        median(&values).unwrap_or(f64::NAN)
    };
    let values: Vec<f64> = fastest.iter().map(value).collect();
    let known = values.iter().filter(|value| value.is_finite()).count();
    if known < MIN_EPOCHS {
        return Err(Unknown::FewEpochs);
    }
    Ok(Undisturbed {
        share: all.iter().filter(reached).map(|one| one.share).sum::<f64>() / all.len() as f64,
        blind: most,
        unnoticed: 0.0,
        unnoticed_between_bursts: 0.0,
        values,
    })
}

/// The fastest state that a batch shows: of its slices in the order of time. `None` with too few of them.
fn fastest(batch: &[f64]) -> Option<Fastest> {
    let around = |slice: usize| Some((surroundings(batch, slice)?, batch[slice]));
    let mut slices: Vec<(f64, f64)> = (0..batch.len()).filter_map(around).collect();
    slices.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = ((slices.len() as f64 * LOWEST) as usize).max(MIN_LOWEST);
    let lowest: Vec<f64> = slices.get(..count)?.iter().map(|slice| slice.1).collect();
    let sigma = scatter(&Sample::new(&lowest)?) / QUARTILE / ((2 * REACH) as f64).sqrt();
    let edge = slices[count / 2].0 * (1.0 + f64::max(BAND, BAND_SIGMAS * sigma));
    let same = slices.iter().take_while(|slice| slice.0 <= edge);
    let same: Vec<f64> = same.map(|slice| slice.1).collect();
    let share = same.len() as f64 / slices.len() as f64;
    let same = Sample::new(&same)?;
    Some(Fastest {
        value: same.median(),
        scatter: scatter(&same),
        share,
    })
}

/// Half the distance between the quartiles, as a share of the median.
fn scatter(sample: &Sample) -> f64 {
    (sample.quantile(0.75) - sample.quantile(0.25)) / 2.0 / sample.median()
}

/// The distance of a quartile of the normal distribution from its centre, in standard deviations.
const QUARTILE: f64 = 0.6745;

/// The mean of the slices around one, which is not among them. `None` at the ends of a batch, where some are missing.
fn surroundings(batch: &[f64], slice: usize) -> Option<f64> {
    let before = batch.get(slice.checked_sub(REACH)?..slice)?;
    let after = batch.get(slice + 1..=slice + REACH)?;
    let sum: f64 = before.iter().chain(after).sum();
    Some(sum / (2 * REACH) as f64)
}

/// Returns whether the low slices of both halves of a typical batch cost the same, within [`MAX_TREND`]. The halves
/// are compared batch by batch, because a program may cost less in some batches than in others.
fn are_alike<B: AsRef<[f64]>>(epochs: &[Vec<B>]) -> bool {
    let low = |half: &[f64]| Some(Sample::new(half)?.quantile(LOWEST).max(f64::MIN_POSITIVE));
    let trend = |batch: &B| {
        let (first, second) = batch.as_ref().split_at(batch.as_ref().len() / 2);
        Some((low(first)? / low(second)?).ln())
    };
    let trends: Vec<f64> = epochs.iter().flatten().filter_map(trend).collect();
    median(&trends).is_some_and(|trend| trend.abs() <= MAX_TREND)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices of a batch around 100, which differ by hundredths of a percent.
    fn batch(of_slice: impl Fn(usize) -> f64) -> Vec<f64> {
        let crisp = |slice: usize| 1.0 + 1e-4 * (slice * 7 % 5) as f64;
        (0..250)
            .map(|slice| 100.0 * crisp(slice) * of_slice(slice))
            .collect()
    }

    fn epochs(count: usize, batch: impl Fn(usize) -> Vec<f64>) -> Vec<Vec<Vec<f64>>> {
        (0..count)
            .map(|epoch| vec![batch(3 * epoch), batch(3 * epoch + 1), batch(3 * epoch + 2)])
            .collect()
    }

    /// Slower by 20 to 40 %, differently from slice to slice.
    fn beside_a_neighbour(slice: usize) -> f64 {
        1.2 + 0.02 * (slice * 13 % 11) as f64
    }

    #[test]
    fn a_calm_machine_is_undisturbed_all_the_time() {
        let known = undisturbed(&epochs(10, |_| batch(|_| 1.0))).unwrap();
        assert_eq!(known.values.len(), 10);
        assert!(
            known
                .values
                .iter()
                .all(|value| (value - 100.02).abs() < 0.011)
        );
        assert_eq!(known.share, 1.0);
        assert!(known.blind == MIN_SCATTER, "{known:?}");
    }

    #[test]
    fn bursts_are_left_out() {
        let bursty = |slice: usize| match slice {
            30..=140 | 160..=230 => beside_a_neighbour(slice),
            _ => 1.0,
        };
        let known = undisturbed(&epochs(10, |_| batch(bursty))).unwrap();
        assert!(
            known
                .values
                .iter()
                .all(|value| (value - 100.02).abs() < 0.011),
            "{known:?}"
        );
        assert!((0.15..0.3).contains(&known.share), "{}", known.share);
        let estimate = known.estimate().unwrap();
        assert!(
            estimate.low < 100.02 && estimate.high < 100.05,
            "{estimate:?}"
        );
    }

    #[test]
    fn epochs_that_were_disturbed_throughout_have_no_value() {
        let disturbed = |number: usize| !(3 * 7..3 * 14).contains(&number);
        let mixed = |number: usize| {
            if disturbed(number) {
                batch(beside_a_neighbour)
            } else {
                batch(|_| 1.0)
            }
        };
        let known = undisturbed(&epochs(20, mixed)).unwrap();
        for (epoch, value) in known.values.iter().enumerate() {
            assert_eq!(value.is_finite(), (7..14).contains(&epoch), "{known:?}");
        }
        assert!((known.share - 0.35).abs() < 0.01, "{}", known.share);
        // One epoch less than there must be.
        let few = |number: usize| {
            if (3 * 7..3 * 12).contains(&number) {
                batch(|_| 1.0)
            } else {
                batch(beside_a_neighbour)
            }
        };
        assert_eq!(undisturbed(&epochs(20, few)), Err(Unknown::FewEpochs));
    }

    #[test]
    fn a_machine_that_never_rests_is_not_undisturbed() {
        assert_eq!(
            undisturbed(&epochs(20, |_| batch(beside_a_neighbour))),
            Err(Unknown::Scatter)
        );
    }

    #[test]
    fn work_that_differs_along_the_batch_is_not_known() {
        let colder = |slice: usize| 1.1 - 0.1 * slice as f64 / 250.0;
        assert_eq!(
            undisturbed(&epochs(20, |_| batch(colder))),
            Err(Unknown::Trend)
        );
    }

    /// A program that is a sixth faster in some batches: they show its other state, not another work.
    #[test]
    fn states_of_a_program_are_no_trend() {
        let mut states = epochs(20, |_| batch(|_| 1.0));
        for batch in states.iter_mut().flatten().step_by(18) {
            // Faster after some slices, so that the second halves of all batches have more such slices than the first.
            batch.iter_mut().skip(40).for_each(|slice| *slice *= 0.83);
        }
        let known = undisturbed(&states).unwrap();
        let usual = known
            .values
            .iter()
            .filter(|value| (*value - 100.02).abs() < 0.011);
        assert_eq!(usual.count(), 20, "{known:?}");
    }

    #[test]
    fn odd_input_is_no_panic() {
        let none: [Vec<Vec<f64>>; 0] = [];
        assert_eq!(undisturbed(&none), Err(Unknown::NotCut));
        for batch in [
            vec![],
            vec![1.0; 5],
            vec![f64::NAN; 300],
            vec![0.0; 300],
            vec![-1.0; 300],
        ] {
            assert!(undisturbed(&vec![vec![batch; 3]; 20]).is_err());
        }
        let infinite = vec![f64::INFINITY; 300];
        assert!(undisturbed(&vec![vec![infinite]; 20]).is_err());
    }
}
