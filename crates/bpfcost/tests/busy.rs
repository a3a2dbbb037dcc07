//! A known answer on a running server: what a program is busy for in each run, by the kernel's clock, is what the
//! CPU time says. A program of its own, so that no other test runs beside it: where both CPUs are kept busy, that says
//! less than was put in.

#[path = "workload/definition.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod definition;
#[path = "common/kept.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod kept;
#[path = "../../bpf/tests/require/mod.rs"]
mod require;
#[path = "cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

use std::iter::zip;

use bpfcost::record::Record;
use bpfcost_stats::{Estimate, sample::median};

use crate::{definition::able, kept::valid_record, tool::Tool};

/// What was asked for: of a short spell.
const SHORT_NS: f64 = 500.0;
/// Of a long one beyond a short one.
const ASKED_NS: f64 = 1000.0;
/// What spells may be longer for: they end at a reading of the clock, and interruptions may end them late.
const LONGER_NS: f64 = 500.0;
/// What the interval may lie beside what was put in: caches are colder after it.
const BESIDE_NS: f64 = 100.0;
/// An interval that is wider says nothing.
const WIDEST_NS: f64 = 500.0;

/// What runs of a case's program took in each epoch: what was put into them, and what an account says of them
/// beyond, in nanoseconds a run.
fn runs(record: &Record, case: &str, account: &str) -> Vec<[f64; 2]> {
    let case = record.cases.iter().find(|one| one.name == case);
    let case = case.unwrap_or_else(|| panic!("no {case:?}"));
    let [read, hits, spells] = [account, "hits", "spell_ns"].map(|name| &case.secondary[name]);
    let epochs = zip(read, zip(hits, spells));
    let epochs = epochs.map(|(read, (hits, spells))| {
        let beyond: Vec<f64> = zip(read, zip(hits, spells))
            .map(|(ns_per_op, (hits, spell))| ns_per_op / hits - spell)
            .collect();
        [spells, &beyond].map(|values| median(values).expect("a window"))
    });
    epochs.collect()
}

/// Holds what was put into the runs of a long spell, beyond those of a short one, against what was read of them.
fn check(record: &Record, place: &str, load: &str, account: &str) {
    let [short, long] =
        ["500", "1500"].map(|ns| runs(record, &format!("{place}/{ns}{load}"), account));
    let more = |index: usize| -> Estimate {
        let more: Vec<f64> = zip(&short, &long)
            .map(|(short, long)| long[index] - short[index])
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
    // Interruptions make spells longer, of either length, and nothing makes them shorter.
    for (spells, asked_ns) in [(&short, SHORT_NS), (&long, SHORT_NS + ASKED_NS)] {
        let least = spells.iter().map(|[spell, _]| *spell).reduce(f64::min);
        assert!(least > Some(asked_ns * 0.99), "{spells:?}");
    }
    assert!(put.low < ASKED_NS + LONGER_NS, "{put:?}");
    if beyond.high - beyond.low > WIDEST_NS {
        // Not counted as a skip: how busy a machine is must not decide a test.
        eprintln!("{place}: the machine is too busy to tell more: {put:?}, {beyond:?}");
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
    // The client makes the calls, and its own CPU clock has all of them.
    check(&record, "syscall", "", "client_ns");
    check(&record, "softirq", "/commands", "machine_ns");
}
