//! Runs of guests that count instructions, as many at the same time as there are CPUs: none changes what another counts.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Result;

use super::MeasurementJob;
use crate::cli::{
    place, select,
    session::{Ended, Session},
};
use bpfcost_measure::Plan;

/// True if nothing that runs beside it changes what is measured, and it loads nothing from outside of its guest.
pub(super) fn may_be(plan: &Plan) -> bool {
    plan.counts() && !plan.subject.is_workload()
}

/// Runs all, and returns what came of them in their order. None begins after one that ended early or failed.
pub(super) fn run(jobs: Vec<MeasurementJob>, interrupted: &Arc<AtomicBool>) -> Vec<Result<Ended>> {
    let workers = jobs.len().min(place::here() as usize);
    // Experiments stay in their threads, each of which makes its own from the plan.
    let waiting = jobs.into_iter().map(|(_, plan, out)| (plan, out));
    let waiting: Mutex<VecDeque<(usize, (Plan, PathBuf))>> =
        Mutex::new(waiting.enumerate().collect());
    let results: Mutex<BTreeMap<usize, Result<Ended>>> = Mutex::default();
    let next = || locked(&waiting).pop_front();
    let work = || {
        while let Some((number, (plan, out))) = next() {
            let result = beside_others(plan, &out, interrupted);
            if interrupted.load(Ordering::Relaxed) || !matches!(&result, Ok(one) if !one.early()) {
                locked(&waiting).clear();
            }
            locked(&results).insert(number, result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let results = results.into_inner();
    results
        .unwrap_or_else(PoisonError::into_inner)
        .into_values()
        .collect()
}

fn beside_others(plan: Plan, out: &Path, interrupted: &Arc<AtomicBool>) -> Result<Ended> {
    let experiment = select::planned(&plan)?;
    let session = Session::start(experiment, plan, out, interrupted)?;
    session.beside_others().run(interrupted)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
