//! The description of a case's trials.

use bpfcost_measure::Centre;
use bpfcost_stats::{Sample, modes, undisturbed::Undisturbed};

use crate::{ModeRecord, Raw};

/// A case's own value and the description of its trials; `None` without trials.
pub(super) fn raw(
    samples: &[Vec<f64>],
    found: &[f64],
    undisturbed: Option<&Undisturbed>,
    centre: Centre,
) -> Option<Raw> {
    let trials = Sample::new(&samples.concat())?;
    let epochs = undisturbed.map_or(found, |one| &one.values);
    Some(Raw {
        epochs: epochs.iter().filter(|value| value.is_finite()).count(),
        trials: trials.len(),
        value: centre.value(epochs)?,
        ci95: match undisturbed {
            Some(known) => known.estimate(),
            None => centre.estimate(found),
        }
        .map(|e| [e.low, e.high]),
        loads: None,
        repeats: None,
        min: trials.min(),
        max: trials.max(),
        p50: trials.median(),
        p90: trials.quantile(0.90),
        p99: trials.quantile(0.99),
        // A single trial has no spread.
        stddev: trials.stddev().unwrap_or(0.0),
        cv: trials.cv().unwrap_or(0.0),
        outliers: trials.outliers(),
        modes: modes::two_modes(epochs)
            .into_iter()
            .flatten()
            .map(|mode| ModeRecord {
                value: mode.value,
                share: mode.share,
            })
            .collect(),
    })
}
