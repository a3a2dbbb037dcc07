//! From what the CPUs saw to the value of a trial.

use std::collections::BTreeMap;

use bpfcost_bpf::timing::Seen;

use crate::experiment::{Batch, Trial};

/// The trial that a proved batch came to.
pub(super) fn trial(seen: &[Seen], batch: Batch) -> Trial {
    let mut trial = Trial {
        value: mean_ns_per_op(seen),
        ops: batch.0,
        elapsed_ns: seen.iter().map(Seen::elapsed_ns).fold(0.0, f64::max),
        ticks: seen.iter().map(|seen| seen.ticks).max().unwrap_or(0),
        secondary: BTreeMap::new(),
    };
    if seen.len() > 1 {
        for seen in seen {
            trial
                .secondary
                .insert(format!("cpu{}_ns_per_op", seen.cpu), seen.ns_per_op());
        }
        let rates = seen.iter().map(|seen| 1e9 / seen.ns_per_op());
        trial.secondary.insert("ops_per_s".into(), rates.sum());
        trial.secondary.insert("overlap".into(), overlap(seen));
    }
    trial
}

/// The part of the time, from the first start to the last end, in which all CPUs ran.
pub(super) fn overlap(seen: &[Seen]) -> f64 {
    let ends = |pick: fn(&Seen) -> u64| {
        let all = seen.iter().map(pick);
        (all.clone().min().unwrap_or(0), all.max().unwrap_or(0))
    };
    let (first_start, last_start) = ends(|seen| seen.start_ns);
    let (first_end, last_end) = ends(|seen| seen.end_ns);
    let together = first_end.saturating_sub(last_start) as f64;
    together / (last_end.saturating_sub(first_start)).max(1) as f64
}

/// What an operation cost, the mean over CPUs.
pub(super) fn mean_ns_per_op(seen: &[Seen]) -> f64 {
    seen.iter().map(Seen::ns_per_op).sum::<f64>() / seen.len().max(1) as f64
}
