//! What trials are called, how they were made, and how to read where they lie: batches, windows of a workload,
//! or counts.

use crate::{
    record::Record,
    report::{number, view},
};

/// What a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A batch that was timed.
    Batch,
    /// Instructions that were counted.
    Count,
    /// A window of a workload.
    Window,
}

fn kind(record: &Record) -> Kind {
    match (record.unit.is_counted(), view::is_workload(record)) {
        (true, _) => Kind::Count,
        (false, true) => Kind::Window,
        (false, false) => Kind::Batch,
    }
}

/// What trials are called.
pub fn name(record: &Record) -> &'static str {
    match kind(record) {
        Kind::Count => "trials",
        Kind::Window => "windows",
        Kind::Batch => "batch means",
    }
}

/// What they are called where they are counted.
pub(super) fn noun(record: &Record) -> &'static str {
    match kind(record) {
        Kind::Window => "windows",
        Kind::Count | Kind::Batch => "trials",
    }
}

/// What one is.
pub(super) fn one(record: &Record) -> &'static str {
    match kind(record) {
        Kind::Count => "what one batch adds over another half as long",
        Kind::Window => "one window of the workload",
        Kind::Batch => "one batch",
    }
}

/// What an epoch is.
pub(super) fn epochs(record: &Record) -> &'static str {
    match kind(record) {
        Kind::Window => "epochs, the server started anew",
        Kind::Count | Kind::Batch => "epochs, everything loaded afresh",
    }
}

/// What stands before what was timed.
pub(super) fn programs(record: &Record) -> &'static str {
    match kind(record) {
        Kind::Window => "CPU time of",
        Kind::Count | Kind::Batch => "Timed programs",
    }
}

/// How to read percentiles.
pub fn percentile_caption(record: &Record) -> &'static str {
    match kind(record) {
        Kind::Count => {
            "A trial is what a batch of twice as many operations adds, over their number. The cost is the \
             value on which most trials agree; where they agree on none, their mean."
        }
        Kind::Window => {
            "Percentiles are of windows, each over many operations: the latency of operations is \
             told apart."
        }
        Kind::Batch => {
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

/// The method in a few paragraphs.
pub(super) fn method(record: &Record) -> Vec<String> {
    let margin = number::round_percent(record.asked.margin);
    let estimates = |same: &str, pairs: &str| {
        format!(
            "Estimates are Hodges–Lehmann, intervals come from the exact signed-rank test over epochs. {same} \
             where the 90 % interval lies within ±{margin}; else it costs more or less where the test says so \
             with all {pairs} allowed for; else it is unresolved, which is not the same as equal."
        )
    };
    let afresh = "An epoch loads everything afresh and runs every case a few times, in an order drawn anew each \
                  round."
        .to_owned();
    match kind(record) {
        Kind::Count => vec![
            afresh,
            "The emulated CPU's clock counts the instructions that it retires. A trial times some operations \
             and twice as many, and takes the difference, so that what a batch costs by itself drops out. The \
             cost is the value on which most trials agree (where they agree on none, their mean). It repeats, \
             so it has no interval; what it does from load to load is told instead."
                .to_owned(),
            "insn are not ns. An instruction that waits for memory counts as much as one that does not: caches, \
             branches and TLBs are not modelled. Counts are for comparing the same path with itself, from one \
             version or kernel to the next."
                .to_owned(),
        ],
        Kind::Batch => vec![
            afresh,
            "Each case is reduced to its median in the epoch, and only epochs are inferred from: trials within \
             one share its luck."
                .to_owned(),
            estimates(
                "Comparisons are taken within epochs. A pair is the same",
                "pairs",
            ),
            "The harness is measured too. Overlap in the CPU makes costs not add up, so the net is a range: the \
             reset taken as it costs within the case, and as it costs alone. Every trial proves itself while it \
             is timed; a case that fails once has no number."
                .to_owned(),
        ],
        Kind::Window => vec![
            "CPU time per operation leads. Throughput hides what a probe costs wherever something else is the \
             bottleneck, the client or the network; then the server has time to spare, pays for the probe from \
             it, and serves as many operations as before."
                .to_owned(),
            "Probes go on and off on the same running server, in windows next to each other and in random \
             order. The server is started anew for each epoch: some start faster than others, and only \
             differences within an epoch count. Each case is reduced to its median in the epoch, and only \
             epochs are inferred from."
                .to_owned(),
            estimates("A probe makes no difference", "comparisons"),
            "Every window proves itself: the operations were served, and where a probe has to see all of them, \
             it did. A case that fails once has no number. Attaching and detaching lie outside the windows, and \
             are told apart."
                .to_owned(),
        ],
    }
}
