//! The name of trials (batches, windows of a workload, or counts), how they were made, and how to read their
//! distribution.

use bpfcost_record::Record;
use bpfcost_text::number;

/// The words for trials of a kind.
pub(crate) struct TrialWords {
    /// Name of the values of trials.
    pub(crate) name: &'static str,
    /// Noun for trials that are counted.
    pub(crate) noun: &'static str,
    pub(crate) one: &'static str,
    pub(crate) epochs: &'static str,
    /// Words before the programs that were timed.
    pub(crate) programs: &'static str,
    pub(crate) percentiles: &'static str,
}

const BATCHES: TrialWords = TrialWords {
    name: "batch means",
    noun: "trials",
    one: "one batch",
    epochs: "epochs, each with everything loaded afresh",
    programs: "Timed programs",
    percentiles: "Batch means are as found. Percentiles are of batch means over many operations; they are not \
        latencies of single operations.",
};

const COUNTS: TrialWords = TrialWords {
    name: "trials",
    one: "the difference between a batch and one half as long",
    percentiles: "A trial is the difference between batches of 2N and N operations, divided by N. The cost is the \
        value on which most trials agree, or their mean if they agree on none.",
    ..BATCHES
};

const WINDOWS: TrialWords = TrialWords {
    name: "windows",
    noun: "windows",
    one: "one window of the workload",
    epochs: "epochs, each with a fresh server",
    programs: "CPU time of",
    percentiles: "Percentiles are of windows over many operations; latencies of operations are separate values.",
};

/// The words for the trials of a record.
pub(crate) fn words(record: &Record) -> &'static TrialWords {
    match (record.unit.is_counted(), record.layout.times_windows()) {
        (true, _) => &COUNTS,
        (false, true) => &WINDOWS,
        (false, false) => &BATCHES,
    }
}

/// Typical spread between trials, epochs and sessions.
pub(crate) fn spread_caption(record: &Record) -> String {
    let spread = &record.spread;
    let parts = [
        (Some(spread.trial), "between trials of an epoch"),
        (Some(spread.epoch), "between epochs"),
        (spread.within_sitting(), "between sessions"),
        (
            spread.sentinel_drift,
            "of a program that stayed loaded through the run",
        ),
    ];
    let parts = parts.into_iter().filter_map(|(percent, what)| {
        let percent = number::percent(percent? / 100.0);
        Some(format!("{percent} {what}"))
    });
    format!("Typical spread: {}.", parts.collect::<Vec<_>>().join(", "))
}
