//! The answer of a run to its budget. The sentence of a report and the exit code of a run are both made from it.

use crate::{BudgetVerdict, CaseRecord, ComparisonRecord, Record, Status, off::is_off};
use bpfcost_model::Role;

/// The answer of a run to its budget, over all comparisons that it judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetAnswer {
    /// All comparisons are within it.
    Within,
    /// No comparison is over it, and some may or may not be within it.
    CantTell,
    /// No comparison is over it, and some case could not be compared.
    NotJudged,
    /// Some comparison is over it.
    Over,
}

impl Record {
    /// Returns the answer to the budget; `None` where the run has none.
    pub fn budget_answer(&self) -> Option<BudgetAnswer> {
        self.asked.budget?;
        let any = |wanted| {
            self.judged_by_budget()
                .any(|(_, verdict)| verdict == wanted)
        };
        Some(if any(BudgetVerdict::Over) {
            BudgetAnswer::Over
        } else if self.unjudged().next().is_some() || self.judged_by_budget().next().is_none() {
            BudgetAnswer::NotJudged
        } else if any(BudgetVerdict::CantTell) {
            BudgetAnswer::CantTell
        } else {
            BudgetAnswer::Within
        })
    }

    /// The comparisons that the budget judges, with its verdict on each.
    pub fn judged_by_budget(&self) -> impl Iterator<Item = (&ComparisonRecord, BudgetVerdict)> {
        let comparisons = self.comparisons.iter();
        comparisons.filter_map(|one| Some((one, one.budget?)))
    }

    /// The cases that the budget can't judge, because they have no value.
    pub fn unjudged(&self) -> impl Iterator<Item = &CaseRecord> {
        let asked = self.asked.budget.is_some();
        let cases = self.cases.iter();
        cases.filter(move |case| asked && case.role == Role::Case && case.status != Status::Ok)
    }

    /// Leaves the budget to comparisons with no probe: it is what a probe may cost, not what one probe may cost more than
    /// another.
    pub(super) fn budget_of_probes(mut self) -> Self {
        if !self.layout.times_windows() {
            return self;
        }
        let cases = &self.cases;
        let without_probe = |name: &str| cases.iter().any(|case| case.name == name && is_off(case));
        for one in &mut self.comparisons {
            if !without_probe(&one.baseline) {
                (one.budget, one.budget_s) = (None, None);
            }
        }
        self
    }
}
