//! The value of a case in each epoch: undisturbed, if its slices show that state, or else as found.

use bpfcost_stats::{
    Estimate, hodges_lehmann,
    sample::epoch_medians,
    undisturbed::{Undisturbed, undisturbed},
};

use super::{CaseData, Measurements, Plan};
use crate::experiment::Slices;

/// A machine is at rest if the anchor costs at most so many times what it did in sessions before. Whoever works on the
/// same core slows it by more; where its code happens to lie changes it by less.
const AT_REST: f64 = 1.05;

impl CaseData {
    /// The undisturbed state; `None` where it is not known.
    pub fn undisturbed(&self) -> Option<Undisturbed> {
        self.undisturbed_of(&self.slices)
    }

    /// The same of a further value.
    pub fn undisturbed_secondary(&self, name: &str) -> Option<Undisturbed> {
        self.undisturbed_of(self.secondary_slices.get(name)?)
    }

    fn undisturbed_of(&self, slices: &[Vec<Slices>]) -> Option<Undisturbed> {
        let none = Vec::new();
        let batches = |epoch: usize| values(slices.get(epoch).unwrap_or(&none));
        undisturbed(&(0..self.samples.len()).map(batches).collect::<Vec<_>>())
    }

    /// The estimate that leads: of the undisturbed state, or as found where that is not known. `at_rest` is whether the
    /// machine [came to rest](Measurements::came_to_rest).
    pub fn estimate(&self, at_rest: bool) -> Option<Estimate> {
        match self.undisturbed().filter(|_| at_rest) {
            Some(known) => known.estimate(),
            None => Estimate::of_case(&epoch_medians(&self.samples)),
        }
    }
}

impl Measurements {
    /// What the anchor cost undisturbed, in nanoseconds; `None` if there is none, or it never was.
    pub fn anchor_undisturbed(&self) -> Option<f64> {
        let batches = values(&self.anchor).into_iter().map(|batch| vec![batch]);
        hodges_lehmann(&undisturbed(&batches.collect::<Vec<_>>())?.values)
    }

    /// Whether the machine came to rest during the run: a neighbour that never rests must not pass for a rest. The anchor
    /// must have been undisturbed, and cost no more than it did on this machine before. Without an anchor, nothing speaks
    /// against it.
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
