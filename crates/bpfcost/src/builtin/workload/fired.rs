//! Whether a probe fires at all, and how often: told by the kernel's account of its programs (`bpf_stats`), which
//! is not free, in a window of its own that nothing is inferred from.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bpfcost_bpf::stats::{RunStats, StatsOn};

use crate::{
    experiment::{Fault, Problem},
    probe::Probe,
    process::RunContext,
    workload::Made,
};

/// Makes the load of a window, or watches what comes.
pub(super) type Make<'a> = &'a mut dyn FnMut(&RunContext) -> Result<Made, Fault>;

/// What a window of rehearsal showed of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rehearsal {
    /// How long it took to switch on.
    pub(super) attach: Duration,
    /// Runs of its programs an operation; `None` where it has none, or counts them itself.
    pub(super) hits_per_op: Option<f64>,
}

/// Switches a probe on for a window and off again. One that never fires makes the case invalid.
pub(super) fn rehearse(
    context: &RunContext,
    make: Make<'_>,
    probe: &mut dyn Probe,
) -> Result<Rehearsal, Fault> {
    let begun = Instant::now();
    probe.attach(context)?;
    let attach = begun.elapsed();
    let counted = count(context, make, &probe.programs());
    let seen = probe.detach();
    let counted = counted?;
    seen?;
    let Some((hits, ops)) = counted else {
        return Ok(Rehearsal {
            attach,
            hits_per_op: None,
        });
    };
    if hits == 0 {
        return Err(silent());
    }
    Ok(Rehearsal {
        attach,
        hits_per_op: Some(hits as f64 / ops),
    })
}

/// A probe that never fired: that it costs nothing would be true and worthless.
pub(super) fn silent() -> Fault {
    Fault::Invalid(Problem {
        check: "runs of the probe".to_owned(),
        expected: "at least 1".to_owned(),
        got: "0".to_owned(),
        detail: "The probe fired 0 times: nothing was measured. Is the symbol used by this binary?"
            .to_owned(),
    })
}

/// Runs of these programs, and operations, in a window; `None` where there are no programs to count.
fn count(
    context: &RunContext,
    make: Make<'_>,
    programs: &[u32],
) -> Result<Option<(u64, f64)>, Fault> {
    if programs.is_empty() {
        make(context)?;
        return Ok(None);
    }
    let _account = StatsOn::start()?;
    let runs = || -> BTreeMap<u32, RunStats> {
        // Those that are gone meanwhile ran for the tool's own start.
        let known = programs
            .iter()
            .filter_map(|&id| Some((id, RunStats::of_id(id).ok()?)));
        known.collect()
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
