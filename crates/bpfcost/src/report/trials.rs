//! What trials are called, how they were made, and how to read where they lie: batches, windows of a workload,
//! or counts.

use crate::{
    record::Record,
    report::{number, view},
};

/// The words for trials of a kind.
struct Words {
    /// What trials are called.
    name: &'static str,
    /// What they are called where they are counted.
    noun: &'static str,
    /// What one is.
    one: &'static str,
    /// What an epoch is.
    epochs: &'static str,
    /// What stands before what was timed.
    programs: &'static str,
    /// How to read percentiles.
    percentiles: &'static str,
    /// What is done in an epoch and taken from it.
    method: &'static str,
}

/// Batches that were timed.
const BATCHES: Words = Words {
    name: "batch means",
    noun: "trials",
    one: "one batch",
    epochs: "epochs, everything loaded afresh",
    programs: "Timed programs",
    percentiles: "Percentiles are of batch means, each over many operations: never read them as the latency of one \
                  operation.",
    method: "An epoch loads everything afresh and runs every case a few times, in an order drawn anew each round. Each \
             case is reduced to its median in the epoch, comparisons are taken within epochs, and only epochs are \
             inferred from. The net is a range, for overlap in the CPU makes costs not add up.",
};

/// Instructions that were counted.
const COUNTS: Words = Words {
    name: "trials",
    one: "what one batch adds over another half as long",
    percentiles: "A trial is what a batch of twice as many operations adds, over their number. The cost is the value on \
                  which most trials agree; where they agree on none, their mean.",
    method: "The emulated CPU's clock counts the instructions that it retires. A trial times some operations and twice as \
             many, and takes the difference, so that what a batch costs by itself drops out. A count repeats, so it has \
             no interval, but what it does from load to load.",
    ..BATCHES
};

/// Windows of a workload.
const WINDOWS: Words = Words {
    name: "windows",
    noun: "windows",
    one: "one window of the workload",
    epochs: "epochs, the server started anew",
    programs: "CPU time of",
    percentiles: "Percentiles are of windows, each over many operations: the latency of operations is told apart.",
    method: "CPU time per operation leads: throughput hides what a probe costs wherever something else is the \
             bottleneck. Probes go on and off on the same running server, in windows next to each other and in random \
             order. The server is started anew for each epoch; each case is reduced to its median in the epoch, and \
             only epochs are inferred from.",
};

fn words(record: &Record) -> &'static Words {
    match (record.unit.is_counted(), view::is_workload(record)) {
        (true, _) => &COUNTS,
        (false, true) => &WINDOWS,
        (false, false) => &BATCHES,
    }
}

/// What trials are called.
pub fn name(record: &Record) -> &'static str {
    words(record).name
}

/// What they are called where they are counted.
pub(super) fn noun(record: &Record) -> &'static str {
    words(record).noun
}

/// What one is.
pub(super) fn one(record: &Record) -> &'static str {
    words(record).one
}

/// What an epoch is.
pub(super) fn epochs(record: &Record) -> &'static str {
    words(record).epochs
}

/// What stands before what was timed.
pub(super) fn programs(record: &Record) -> &'static str {
    words(record).programs
}

/// How to read percentiles.
pub fn percentile_caption(record: &Record) -> &'static str {
    words(record).percentiles
}

/// How much moved with what.
pub fn spread_caption(record: &Record) -> String {
    let spread = &record.spread;
    let parts = [
        (Some(spread.trial), "between trials of an epoch"),
        (Some(spread.epoch), "between epochs"),
        (spread.session, "between sessions"),
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

/// The method in a few paragraphs.
pub(super) fn method(record: &Record) -> Vec<String> {
    let inference = format!(
        "Estimates are Hodges–Lehmann, intervals come from the exact signed-rank test over epochs. Two cases are the \
         same where the 90 % interval lies within ±{}; else one costs more where the test says so with all comparisons \
         allowed for; else it is unresolved, which is not the same as equal. Every trial proves itself while it is \
         timed; a case that fails once has no number.",
        number::round_percent(record.asked.margin)
    );
    let inference = Some(inference).filter(|_| !record.unit.is_counted());
    std::iter::once(words(record).method.to_owned())
        .chain(inference)
        .collect()
}
