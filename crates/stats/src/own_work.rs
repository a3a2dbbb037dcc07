//! Work that a case does now and then: a sweep of a table, a sampled export, a flush. The undisturbed state is that of
//! the typical slice, and leaves such work out as it leaves out a neighbour's bursts. The two are distinguished by
//! references: floors and the anchor, measured in the same epochs, do no such work, and neighbours strike them as
//! often.
//!
//! A slice is *calm* if the slices around it took what they take undisturbed: the median of the three on each side, so
//! that a single long one among them changes nothing. Two things are compared with the references:
//!
//! 1. The mean of calm slices, as a multiple of the undisturbed cost. One operation lies within one slice, however long
//!    it takes, so work that is seldom makes single slices long, also between bursts. A timer tick does that too, and
//!    to references as well. How much a burst slows a case does not matter here.
//! 2. The share of slices that are calm. Work that slows many operations in a row looks like a burst, but only
//!    in the case. How much bursts slow a case differs from case to case, how often they come does not.
//!
//! docs/evidence/own-work.md shows how well that holds, and what was tried instead.

use std::fmt;

use crate::estimate::hodges_lehmann;
use crate::sample::median;
use crate::totals::{Total, TotalRatio};

/// The number of slices on each side that decide whether a slice is calm.
const REACH: usize = 3;

/// The median of those may be above the undisturbed cost by this share of it, or by so many times what undisturbed
/// slices may scatter.
const EDGE: f64 = 0.01;
const EDGE_SCATTERS: f64 = 3.0;

/// The share of the cost from which work of its own is too much to be left out of it.
pub const MAX_OWN_WORK: f64 = 0.01;

/// The levels of a case's calm slices.
#[derive(Debug, Clone, Copy)]
pub struct CalmLevels<'a> {
    /// The undisturbed cost in each epoch, NaN where it is unknown.
    pub values: &'a [f64],
    /// The most that a batch may scatter, as a share of that.
    pub blind: f64,
}

impl CalmLevels<'_> {
    /// The level in each epoch; where it is unknown, the usual one.
    fn levels(&self) -> impl Iterator<Item = f64> {
        let usual = hodges_lehmann(self.values).unwrap_or(f64::NAN);
        let known = self.values.iter().copied();
        let levels = known.map(move |value| if value.is_finite() { value } else { usual });
        levels.chain(std::iter::repeat(usual))
    }

    /// The highest surroundings of a calm slice, as a multiple of its level.
    fn edge(&self) -> f64 {
        1.0 + f64::max(EDGE, EDGE_SCATTERS * self.blind)
    }
}

/// The slices of one epoch, each as a multiple of the undisturbed cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CalmSlices {
    calm: Part,
    /// Calm slices whose own value is above the edge.
    long: Part,
    /// Slices that are not calm.
    other: Part,
}

/// The number and the cost of slices of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Part {
    count: f64,
    sum: f64,
}

impl Part {
    fn add(&mut self, slice: f64) {
        self.count += 1.0;
        self.sum += slice;
    }

    fn plus(self, other: Self) -> Self {
        Part {
            count: self.count + other.count,
            sum: self.sum + other.sum,
        }
    }

    /// The mean, 1 without slices.
    fn mean(self) -> f64 {
        if self.count > 0.0 {
            self.sum / self.count
        } else {
            1.0
        }
    }
}

impl CalmSlices {
    /// The slices of each epoch: `epochs[e][b]` has those of a batch in the order of time, `calm` what is known of calm
    /// ones.
    #[must_use]
    pub fn by_epoch<B: AsRef<[f64]>>(epochs: &[Vec<B>], calm: CalmLevels<'_>) -> Vec<Self> {
        let of_epoch =
            |(batches, level): (&Vec<B>, f64)| Self::new(batches, level, level, calm.edge());
        epochs.iter().zip(calm.levels()).map(of_epoch).collect()
    }

    /// The same of a reference. Slices of a few nanoseconds scatter so much that the undisturbed cost may lie above most of
    /// them, and long ones would look shorter than they are; so they are multiples of the median of calm slices, if that
    /// is lower.
    #[must_use]
    pub fn of_reference<B: AsRef<[f64]>>(epochs: &[Vec<B>], calm: CalmLevels<'_>) -> Vec<Self> {
        let edge = calm.edge();
        let of_epoch = |(batches, level): (&Vec<B>, f64)| {
            let calm = batches.iter().flat_map(|batch| {
                let batch = batch.as_ref();
                let is_calm = move |index: &usize| around(batch, *index) <= level * edge;
                let calm = (0..batch.len()).filter(is_calm);
                calm.map(move |index| batch[index])
            });
            let middle = median(&calm.collect::<Vec<_>>()).unwrap_or(level);
            Self::new(batches, level, level.min(middle), edge)
        };
        epochs.iter().zip(calm.levels()).map(of_epoch).collect()
    }

    /// The slices of an epoch, as multiples of `unit`; calm ones are near `level`.
    fn new<B: AsRef<[f64]>>(batches: &[B], level: f64, unit: f64, edge: f64) -> Self {
        let mut slices = CalmSlices::default();
        for batch in batches {
            let batch = batch.as_ref();
            for (index, slice) in batch.iter().enumerate() {
                let (slice, around) = (slice / unit, around(batch, index) / level);
                if !slice.is_finite() || !around.is_finite() {
                    continue;
                }
                if around > edge {
                    slices.other.add(slice);
                    continue;
                }
                slices.calm.add(slice);
                if slice > edge {
                    slices.long.add(slice);
                }
            }
        }
        slices
    }

    /// The same of several cases together, epoch by epoch.
    #[must_use]
    pub fn together(cases: &[Vec<Self>]) -> Vec<Self> {
        let epochs = cases.iter().map(Vec::len).max().unwrap_or(0);
        let of_epoch = |epoch: usize| {
            let slices = cases.iter().filter_map(|case| case.get(epoch));
            slices.fold(Self::default(), |all, one| all.plus(one))
        };
        (0..epochs).map(of_epoch).collect()
    }

    fn plus(self, other: &Self) -> Self {
        CalmSlices {
            calm: self.calm.plus(other.calm),
            long: self.long.plus(other.long),
            other: self.other.plus(other.other),
        }
    }

    fn count(&self) -> f64 {
        self.calm.count + self.other.count
    }
}

impl fmt::Display for OwnWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slices = |share: f64, times: f64| {
            let decimals = usize::from(share < 0.01);
            format!("{:.decimals$} % ({times:.1} times as long)", 100.0 * share)
        };
        write!(
            f,
            "{} of its slices take longer, and {} of those of the floors and the anchor: it does work of its own now and \
             then, or interruptions slow it more",
            slices(self.share, self.times),
            slices(self.reference_share, self.reference_times),
        )
    }
}

/// Work of its own that a case does now and then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnWork {
    /// The most that it may add to the undisturbed cost, as a share of it: the upper end of the 95 % interval.
    pub most: f64,
    /// The most that single long slices between bursts may add.
    pub most_between_bursts: f64,
    /// True if the work is too much to be left out: the 95 % interval is above 0, and more than [`MAX_OWN_WORK`] is
    /// added.
    pub matters: bool,
    /// The share of slices that it makes longer, 0 to 1.
    pub share: f64,
    /// The same of the references, for which neighbours and timer ticks account.
    pub reference_share: f64,
    /// The time of such slices as a multiple of that of usual ones.
    pub times: f64,
    /// The same of the references.
    pub reference_times: f64,
}

impl OwnWork {
    /// Compares a case with the references, epoch by epoch. `None` if there is too little to compare.
    #[must_use]
    pub fn new(case: &[CalmSlices], references: &[CalmSlices]) -> Option<Self> {
        let between = Added::between_bursts(case, references)?;
        let instead = Added::instead_of_bursts(case, references)?;
        let leads = if instead.more > between.more {
            &instead
        } else {
            &between
        };
        Some(OwnWork {
            most: instead.most + between.most,
            most_between_bursts: between.most,
            matters: instead.matters() || between.matters(),
            share: leads.share,
            reference_share: leads.reference_share,
            times: leads.times,
            reference_times: leads.reference_times,
        })
    }
}

/// The result of one of the two comparisons.
struct Added {
    more: f64,
    least: f64,
    most: f64,
    share: f64,
    reference_share: f64,
    times: f64,
    reference_times: f64,
}

impl Added {
    fn matters(&self) -> bool {
        self.least > 0.0 && self.more > MAX_OWN_WORK
    }

    /// Single long slices between bursts.
    fn between_bursts(case: &[CalmSlices], references: &[CalmSlices]) -> Option<Self> {
        let calm = |one: &CalmSlices| (one.calm.count > 0.0).then(|| one.calm.total());
        let relative = ratio(case, references, calm)?.relative()?;
        let (case, references) = (sum(case), sum(references));
        Some(Added {
            more: relative.value,
            least: relative.low,
            most: relative.high.max(0.0),
            share: case.long.count / case.calm.count,
            reference_share: references.long.count / references.calm.count,
            times: case.long.mean(),
            reference_times: references.long.mean(),
        })
    }

    /// Fewer calm slices than the references have.
    fn instead_of_bursts(case: &[CalmSlices], references: &[CalmSlices]) -> Option<Self> {
        let calm = |one: &CalmSlices| {
            (one.count() > 0.0).then(|| Total {
                sum: one.calm.count,
                per: one.count(),
            })
        };
        let fewer = ratio(references, case, calm)?.relative()?;
        let (case, references) = (sum(case), sum(references));
        let [share, reference_share] =
            [&case, &references].map(|one| one.other.count / one.count());
        let times = case.other.mean();
        // So many of the references' calm slices are burst-like in the case.
        let adds =
            |fewer: f64| (1.0 - reference_share) * (1.0 - 1.0 / (1.0 + fewer)) * (times - 1.0);
        Some(Added {
            more: adds(fewer.value),
            least: adds(fewer.low),
            most: adds(fewer.high).max(0.0),
            share,
            reference_share,
            times,
            reference_times: references.other.mean(),
        })
    }
}

impl Part {
    fn total(self) -> Total {
        Total {
            sum: self.sum,
            per: self.count,
        }
    }
}

/// The median of the slices around one, NaN without any.
fn around(batch: &[f64], index: usize) -> f64 {
    let before = &batch[index.saturating_sub(REACH)..index];
    let after = &batch[index + 1..(index + 1 + REACH).min(batch.len())];
    let mut slices = [f64::NAN; 2 * REACH];
    let count = before.len() + after.len();
    let around = &mut slices[..count];
    around[..before.len()].copy_from_slice(before);
    around[before.len()..].copy_from_slice(after);
    around.sort_by(f64::total_cmp);
    match count {
        0 => f64::NAN,
        _ => (around[(count - 1) / 2] + around[count / 2]) / 2.0,
    }
}

fn sum(epochs: &[CalmSlices]) -> CalmSlices {
    epochs
        .iter()
        .fold(CalmSlices::default(), |all, one| all.plus(one))
}

fn ratio(
    case: &[CalmSlices],
    baseline: &[CalmSlices],
    total: impl Fn(&CalmSlices) -> Option<Total>,
) -> Option<TotalRatio> {
    let totals = |epochs: &[CalmSlices]| epochs.iter().map(&total).collect::<Vec<_>>();
    TotalRatio::from_epochs(&totals(case), &totals(baseline))
}
