//! A known answer on a running server: what a program is busy for in each run, by the kernel's clock, is what the
//! machine's CPU time says.

use std::iter::zip;

use bpfcost::record::Record;
use bpfcost_stats::{Estimate, sample::median};

use crate::{definition::able, kept::valid_record, tool::Tool};

/// What was asked for, beyond a spell of none.
const ASKED_NS: f64 = 1000.0;
/// What spells may be longer for: they end at a reading of the clock, and interruptions may end them late.
const LONGER_NS: f64 = 500.0;
/// What the interval may lie beside what was put in: caches are colder after it.
const BESIDE_NS: f64 = 100.0;
/// An interval that is wider says nothing.
const WIDEST_NS: f64 = 500.0;

/// What runs of a case's program took in each epoch: what was put into them, and what the machine's CPU time says of
/// them beyond, in nanoseconds a run.
fn runs(record: &Record, case: &str) -> Vec<[f64; 2]> {
    let case = record.cases.iter().find(|one| one.name == case);
    let case = case.unwrap_or_else(|| panic!("no {case:?}"));
    let [hits, spells] = ["hits", "spell_ns"].map(|name| &case.secondary[name]);
    let epochs = zip(&case.samples, zip(hits, spells));
    let epochs = epochs.map(|(samples, (hits, spells))| {
        let beyond: Vec<f64> = zip(samples, zip(hits, spells))
            .map(|(ns_per_op, (hits, spell))| ns_per_op / hits - spell)
            .collect();
        [spells, &beyond].map(|values| median(values).expect("a window"))
    });
    epochs.collect()
}

/// Holds what was put into the runs of `busy`, beyond those of `idle`, against what was read of them.
fn check(record: &Record, place: &str, load: &str) {
    let [idle, busy] = ["idle", "busy"].map(|name| runs(record, &format!("{place}/{name}{load}")));
    let more = |index: usize| -> Estimate {
        let more: Vec<f64> = zip(&idle, &busy)
            .map(|(idle, busy)| busy[index] - idle[index])
            .collect();
        Estimate::of(&more).expect("epochs")
    };
    let (put, beyond) = (more(0), more(1));
    eprintln!(
        "{place}: {:.0} ns put in, {:.0} [{:.0}, {:.0}] read",
        put.value,
        put.value + beyond.value,
        put.value + beyond.low,
        put.value + beyond.high
    );
    assert!(put.low > ASKED_NS * 0.95, "{put:?}");
    if beyond.high - beyond.low > WIDEST_NS || put.high > ASKED_NS + LONGER_NS {
        eprintln!("SKIPPED: the machine is too busy to tell: {put:?}, {beyond:?}");
        return;
    }
    let found = beyond.low <= BESIDE_NS && beyond.high >= -BESIDE_NS;
    assert!(found, "{beyond:?}");
}

#[test]
fn what_is_put_into_a_probe_is_read() {
    if !able(&["redis-server", "redis-benchmark", "dd"]) {
        return;
    }
    let tool = Tool::new();
    let said = tool.says("run busy --quick --seed 7 --out x.json");
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = valid_record(&tool);
    check(&record, "syscall", "");
    check(&record, "softirq", "/commands");
}
