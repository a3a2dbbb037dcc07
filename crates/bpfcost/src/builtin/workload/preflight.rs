//! Checks that a probe fires, by the kernel's run counts (`bpf_stats`). Counting costs time, so it is done in a window whose
//! results are not used.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bpfcost_bpf::stats::{RunStats, StatsOn};

use crate::{
    experiment::{Fault, Problem},
    probe::Probe,
    process::RunContext,
    workload::LoadResult,
};

/// Makes the load of a window, or watches the load of others.
pub(super) type LoadMaker<'a> = &'a mut dyn FnMut(&RunContext) -> Result<LoadResult, Fault>;

/// The result of a probe's preflight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Preflight {
    /// How long attaching took.
    pub(super) attach: Duration,
    /// Runs of its programs per operation; `None` if it has no programs, or counts operations itself.
    pub(super) hits_per_op: Option<f64>,
}

/// Attaches a probe for one window. A probe that never fires makes the case invalid.
pub(super) fn preflight(
    context: &RunContext,
    make: LoadMaker<'_>,
    probe: &mut dyn Probe,
) -> Result<Preflight, Fault> {
    let begun = Instant::now();
    probe.attach(context)?;
    let attach = begun.elapsed();
    let counted = count(context, make, &probe.programs());
    let seen = probe.detach();
    let counted = counted?;
    seen?;
    let Some((hits, ops)) = counted else {
        return Ok(Preflight {
            attach,
            hits_per_op: None,
        });
    };
    if hits == 0 {
        return Err(silent());
    }
    Ok(Preflight {
        attach,
        hits_per_op: Some(hits as f64 / ops),
    })
}

/// The problem of a probe that never fired: a cost of nothing would be true and worthless.
pub(super) fn silent() -> Fault {
    Fault::Invalid(Problem {
        check: "runs of the probe".to_owned(),
        expected: "at least 1".to_owned(),
        got: "0".to_owned(),
        detail: "The probe fired 0 times: nothing was measured. Is the symbol used by this binary?"
            .to_owned(),
    })
}

/// Runs of these programs and operations in a window; `None` if there are no programs.
fn count(
    context: &RunContext,
    make: LoadMaker<'_>,
    programs: &[u32],
) -> Result<Option<(u64, f64)>, Fault> {
    if programs.is_empty() {
        make(context)?;
        return Ok(None);
    }
    let _account = StatsOn::start()?;
    let runs = || -> BTreeMap<u32, RunStats> {
        // Those that are gone meanwhile ran for the tool's own start.
        let stats = programs
            .iter()
            .filter_map(|&id| Some((id, RunStats::of_id(id).ok()?)));
        stats.collect()
    };
    let before = runs();
    let made = make(context)?;
    let after = runs();
    let since = after.iter().map(|(id, runs)| {
        let before = before.get(id).copied().unwrap_or_default();
        runs.since(before).run_cnt
    });
    Ok(Some((since.sum(), made.reading.ops())))
}
