//! Undisturbed costs: what slices show of them, and whether the machine came to rest at all.

use bpfcost_stats::{
    Estimate, Sample, hodges_lehmann, mean_of_epochs,
    own_work::CalmSlices,
    sample::{epoch_medians, median},
    undisturbed::{Undisturbed, Unknown, undisturbed},
};

use crate::{CaseData, Measurements, Plan};
use bpfcost_model::{Role, Slices};

/// A machine came to rest if the anchor costs at most so many times what it did in earlier sessions. A neighbour on the
/// same core adds more; the address at which its code is loaded changes it by less.
const AT_REST: f64 = 1.05;

impl CaseData {
    /// The undisturbed values, or why they are not known; work of its own may be left out of them.
    fn undisturbed(&self) -> Result<Undisturbed, Unknown> {
        undisturbed(&self.by_epoch(&self.slices))
    }

    /// The same of a further value.
    pub fn undisturbed_secondary(&self, name: &str) -> Result<Undisturbed, Unknown> {
        let slices = self.secondary_slices.get(name).ok_or(Unknown::NotCut)?;
        undisturbed(&self.by_epoch(slices))
    }

    /// The slices of each epoch that has trials.
    fn by_epoch(&self, slices: &[Vec<Slices>]) -> Vec<Vec<Vec<f64>>> {
        let batches = |epoch: usize| slices.get(epoch).map_or_else(Vec::new, |one| values(one));
        (0..self.samples.len()).map(batches).collect()
    }
}

impl Measurements {
    /// The undisturbed values of each case of the plan, or why they are not known. They are held against the floors and
    /// the anchor, which do no work of their own now and then.
    pub fn undisturbed(&self, plan: &Plan) -> Vec<Result<Undisturbed, Unknown>> {
        let empty = CaseData::default();
        let data = |index: usize| self.cases.get(index).unwrap_or(&empty);
        let alone: Vec<_> = (0..plan.cases.len())
            .map(|index| data(index).undisturbed())
            .collect();
        let is_floor = |index: &usize| plan.cases[*index].role == Role::Floor;
        let slices = |index: usize| data(index).by_epoch(&data(index).slices);
        let floors = (0..plan.cases.len()).filter(|index| is_floor(index) && data(*index).live());
        let floors = floors.filter_map(|index| {
            let known = alone[index].as_ref().ok()?;
            Some(CalmSlices::of_reference(&slices(index), known.calm()))
        });
        let references: Vec<_> = floors.chain(self.calm_anchor()).collect();
        let references = CalmSlices::together(&references);
        let held = |(index, known): (usize, Result<Undisturbed, Unknown>)| match known {
            Ok(known) if !is_floor(&index) => {
                let slices = CalmSlices::by_epoch(&slices(index), known.calm());
                known.held_against(&slices, &references)
            }
            other => other,
        };
        alone.into_iter().enumerate().map(held).collect()
    }

    /// The anchor's slices; `None` if it is not known undisturbed.
    fn calm_anchor(&self) -> Option<Vec<CalmSlices>> {
        let batches: Vec<_> = self.anchor.iter().map(|epoch| values(epoch)).collect();
        let known = undisturbed(&batches).ok()?;
        Some(CalmSlices::of_reference(&batches, known.calm()))
    }

    /// The epoch values of each case that lead: undisturbed, or those as found.
    pub fn leading(&self, plan: &Plan) -> Vec<Vec<f64>> {
        let known = if self.came_to_rest(plan) {
            self.undisturbed(plan)
        } else {
            vec![Err(Unknown::Scatter); plan.cases.len()]
        };
        let cases = self.cases.iter().zip(known);
        let leads = cases.map(|(data, known)| match known {
            Ok(known) => known.values,
            Err(why) => Centre::new(&why).epochs(&data.samples),
        });
        leads.collect()
    }

    /// The undisturbed cost of the anchor, as a multiple of the sentinel's: both take twice as long at half the clock
    /// frequency. `None` without an anchor, in too few batches, or if it was disturbed throughout.
    pub fn anchor_undisturbed(&self) -> Option<f64> {
        let batches = self.anchor.iter().flat_map(|epoch| values(epoch));
        let known = undisturbed(&batches.map(|batch| vec![batch]).collect::<Vec<_>>()).ok()?;
        Some(hodges_lehmann(&known.values)? / median(&self.sentinel.concat())?)
    }

    /// Batches of the anchor that were cut.
    pub fn anchor_batches(&self) -> usize {
        self.anchor.iter().map(Vec::len).sum()
    }

    /// Returns whether the machine came to rest during the run: a neighbour that never rests must not pass for a rest.
    /// The anchor
    /// must have been undisturbed, and cost no more than it did on this machine before. Without an anchor, nothing
    /// contradicts it.
    pub fn came_to_rest(&self, plan: &Plan) -> bool {
        match (plan.anchor, self.anchor_undisturbed()) {
            (Some(known), Some(seen)) => seen <= known * AT_REST,
            (None, Some(_)) => true,
            (_, None) => self.anchor_batches() == 0,
        }
    }
}

/// The centre of trials and epochs as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centre {
    /// Medians of trials, and the Hodges–Lehmann estimate over epochs: precise, and without what comes seldom.
    Typical,
    /// Means, of a case that does work of its own now and then.
    Mean,
}

impl Centre {
    /// The centre for a case whose undisturbed cost is not known for this reason.
    pub fn new(why: &Unknown) -> Self {
        match why {
            Unknown::OwnWork(_) => Centre::Mean,
            _ => Centre::Typical,
        }
    }

    /// The value of each epoch, NaN without trials.
    pub fn epochs(self, trials: &[Vec<f64>]) -> Vec<f64> {
        match self {
            Centre::Typical => epoch_medians(trials),
            Centre::Mean => {
                let mean = |trials: &Vec<f64>| Sample::new(trials).map(|sample| sample.mean());
                let means = trials.iter().map(mean);
                means.map(|mean| mean.unwrap_or(f64::NAN)).collect()
            }
        }
    }

    /// The centre of epochs; `None` without any.
    pub fn value(self, epochs: &[f64]) -> Option<f64> {
        match self {
            Centre::Typical => hodges_lehmann(epochs),
            Centre::Mean => Some(Sample::new(epochs)?.mean()),
        }
    }

    /// The same with its 95 % interval; `None` with too few epochs.
    pub fn estimate(self, epochs: &[f64]) -> Option<Estimate> {
        match self {
            Centre::Typical => Estimate::for_case(epochs),
            Centre::Mean => mean_of_epochs(epochs),
        }
    }
}

fn values(batches: &[Slices]) -> Vec<Vec<f64>> {
    let values = |slices: &Slices| slices.values().collect();
    batches.iter().map(values).collect()
}
