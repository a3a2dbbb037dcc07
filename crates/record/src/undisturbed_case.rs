//! The undisturbed values of a case, or why they are not known.

use bpfcost_measure::{CaseData, Centre, Plan};
use bpfcost_stats::undisturbed::{MIN_EPOCHS, Undisturbed, Unknown};

use crate::{
    OwnWorkRecord,
    net::{RESET_TWICE, minus, reset_twice_undisturbed},
};

/// The undisturbed values of a case.
#[derive(Clone)]
pub(crate) struct UndisturbedCase {
    pub(crate) known: Undisturbed,
    /// The same with its reset done twice, if it has a reset.
    pub(crate) reset_twice: Option<Undisturbed>,
}

impl UndisturbedCase {
    /// Time that a second reset adds, by epoch.
    pub(crate) fn second_reset(&self) -> Option<Vec<f64>> {
        let twice = self.reset_twice.as_ref()?;
        Some(minus(&twice.values, &self.known.values))
    }
}

/// Reason why the undisturbed cost of a case is not known.
#[derive(Clone)]
pub(crate) struct NotUndisturbed {
    pub(crate) why: String,
    pub(crate) own_work: Option<OwnWorkRecord>,
}

impl NotUndisturbed {
    pub(crate) fn of_itself(why: impl Into<String>) -> Self {
        NotUndisturbed {
            why: why.into(),
            own_work: None,
        }
    }
}

impl From<Unknown> for NotUndisturbed {
    fn from(unknown: Unknown) -> Self {
        let own_work = match unknown {
            Unknown::OwnWork(own) => Some(OwnWorkRecord {
                share: own.share,
                reference_share: own.reference_share,
                times: own.times,
                reference_times: own.reference_times,
            }),
            _ => None,
        };
        NotUndisturbed {
            why: unknown.to_string(),
            own_work,
        }
    }
}

/// The centre of a case's cost as found.
pub(crate) fn centre(known: &Result<UndisturbedCase, NotUndisturbed>) -> Centre {
    match known {
        Err(not) if not.own_work.is_some() => Centre::Mean,
        _ => Centre::Typical,
    }
}

/// The undisturbed values of each case. A case whose net has a part that is not known undisturbed is not either, so that
/// raw and net are one reading.
pub(crate) fn undisturbed(
    plan: &Plan,
    cases: &[CaseData],
    alone: Vec<Result<Undisturbed, Unknown>>,
) -> Vec<Result<UndisturbedCase, NotUndisturbed>> {
    let floor_of = |index: usize| {
        let name = plan.cases[index].floor.as_deref()?;
        let floor = plan.cases.iter().position(|case| case.name == name)?;
        cases[floor].live().then_some(floor)
    };
    let of_case = |index: usize| {
        let known = alone[index].clone()?;
        let reset_twice = if cases[index].secondary.contains_key(RESET_TWICE) {
            let twice = reset_twice_undisturbed(&cases[index]);
            let why =
                |unknown| NotUndisturbed::of_itself(format!("with the reset twice, {unknown}"));
            Some(twice.map_err(why)?)
        } else {
            None
        };
        let mut parts: Vec<&[f64]> = vec![&known.values];
        parts.extend(reset_twice.iter().map(|twice| twice.values.as_slice()));
        let mut floor = floor_of(index);
        while let Some(at) = floor.filter(|_| parts.len() <= cases.len() + 1) {
            let of_floor = |unknown: &Unknown| {
                NotUndisturbed::of_itself(format!("of {}, {unknown}", plan.cases[at].name))
            };
            parts.push(&alone[at].as_ref().map_err(of_floor)?.values);
            floor = floor_of(at);
        }
        let is_whole = |epoch: &usize| parts.iter().all(|part| part[*epoch].is_finite());
        let whole = (0..known.values.len()).filter(is_whole).count();
        if whole < MIN_EPOCHS {
            return Err(NotUndisturbed::of_itself(
                "seen in too few epochs together with its floors",
            ));
        }
        Ok(UndisturbedCase { known, reset_twice })
    };
    (0..cases.len()).map(of_case).collect()
}
