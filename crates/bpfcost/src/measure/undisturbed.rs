//! Undisturbed costs: what slices show of them, and whether the machine came to rest at all.

use bpfcost_stats::{
    hodges_lehmann,
    sample::{epoch_medians, median},
    undisturbed::{Undisturbed, Unknown, undisturbed},
};

use super::{CaseData, Measurements, Plan};
use crate::experiment::Slices;

/// A machine came to rest if the anchor costs at most so many times what it did in earlier sessions. A neighbour on the
/// same core adds more; the address at which its code is loaded changes it by less.
const AT_REST: f64 = 1.05;

impl CaseData {
    /// The undisturbed values, or why they are not known.
    pub fn undisturbed(&self) -> Result<Undisturbed, Unknown> {
        self.undisturbed_of(&self.slices)
    }

    /// The same of a further value.
    pub fn undisturbed_secondary(&self, name: &str) -> Result<Undisturbed, Unknown> {
        self.undisturbed_of(self.secondary_slices.get(name).ok_or(Unknown::NotCut)?)
    }

    fn undisturbed_of(&self, slices: &[Vec<Slices>]) -> Result<Undisturbed, Unknown> {
        let none = Vec::new();
        let batches = |epoch: usize| values(slices.get(epoch).unwrap_or(&none));
        undisturbed(&(0..self.samples.len()).map(batches).collect::<Vec<_>>())
    }

    /// The epoch values that lead: undisturbed, or medians if those are not known. `at_rest` is whether the machine
    /// [came to rest](Measurements::came_to_rest).
    pub fn leading(&self, at_rest: bool) -> Vec<f64> {
        let known = self.undisturbed().ok().filter(|_| at_rest);
        known.map_or_else(|| epoch_medians(&self.samples), |known| known.values)
    }
}

impl Measurements {
    /// The undisturbed cost of the anchor, as a multiple of the sentinel's: both take twice as long at half the clock
    /// frequency. `None` without an anchor, in too few batches, or if it was disturbed throughout.
    pub fn anchor_undisturbed(&self) -> Option<f64> {
        let batches = values(&self.anchor).into_iter().map(|batch| vec![batch]);
        let known = undisturbed(&batches.collect::<Vec<_>>()).ok()?;
        Some(hodges_lehmann(&known.values)? / median(&self.sentinel.concat())?)
    }

    /// Whether the machine came to rest during the run: a neighbour that never rests must not pass for a rest. The anchor
    /// must have been undisturbed, and cost no more than it did on this machine before. Without an anchor, nothing
    /// contradicts it.
    pub fn came_to_rest(&self, plan: &Plan) -> bool {
        match (plan.anchor, self.anchor_undisturbed()) {
            (Some(known), Some(seen)) => seen <= known * AT_REST,
            (None, Some(_)) => true,
            (_, None) => self.anchor.is_empty(),
        }
    }
}

fn values(batches: &[Slices]) -> Vec<Vec<f64>> {
    let values = |slices: &Slices| slices.values().collect();
    batches.iter().map(values).collect()
}
