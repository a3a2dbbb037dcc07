//! What trials are called, and how to read where they lie: batches, windows of a workload, or counts.

use crate::{record::Record, report::number};

/// What trials are called.
pub fn name(record: &Record) -> &'static str {
    match (record.unit.is_counted(), record.layout.workload().is_some()) {
        (true, _) => "trials",
        (false, true) => "windows",
        (false, false) => "batch means",
    }
}

/// How to read percentiles.
pub fn percentile_caption(record: &Record) -> &'static str {
    match (record.unit.is_counted(), record.layout.workload().is_some()) {
        (true, _) => {
            "A trial is what a batch of twice as many operations adds, over their number. The cost is the \
             value on which most trials agree; where they agree on none, their mean."
        }
        (false, true) => {
            "Percentiles are of windows, each over many operations: the latency of operations is \
             told apart."
        }
        (false, false) => {
            "Percentiles are of batch means, each over many operations: never read them as the \
             latency of one operation."
        }
    }
}

/// How much moved with what.
pub fn spread_caption(record: &Record) -> String {
    let share = |percent: f64| number::percent(percent / 100.0);
    let spread = &record.spread;
    let mut text = format!(
        "Typical spread: {} between trials of an epoch, {} between epochs",
        share(spread.trial),
        share(spread.epoch)
    );
    if let Some(session) = spread.session {
        text += &format!(", {} between sessions", share(session));
    }
    if let Some(drift) = spread.sentinel_drift {
        text += &format!(
            "; a program that stayed loaded through the run moved by {}",
            share(drift)
        );
    }
    text + "."
}
