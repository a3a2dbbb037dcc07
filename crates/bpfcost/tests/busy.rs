//! A known answer on a running server: the time for which a program is busy in each run, by the kernel's clock, is
//! the CPU time that is measured. A separate program, so that no other test runs beside it: where the CPUs are kept
//! busy, spells are interrupted, and last longer by the kernel's clock than they take of a CPU.

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

use bpfcost_record::Record;
use bpfcost_stats::{Estimate, sample::median};

use crate::{definition::able, kept::valid_record, tool::Tool};

/// Length of a short spell, as asked for.
const SHORT_NS: f64 = 500.0;
/// Length of a long one beyond a short one.
const ASKED_NS: f64 = 1000.0;
/// The most that spells may be longer: they end at a reading of the clock, and interruptions may end them late.
const LONGER_NS: f64 = 500.0;
/// Distance that the interval may have from what was put in: caches are colder after it.
const BESIDE_NS: f64 = 100.0;
/// An interval that is wider says nothing.
const WIDEST_NS: f64 = 500.0;

/// Times that runs of a case's program took in each epoch: what was put into them, and what an account says of them
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

/// Times put into the runs of a long spell, beyond those of a short one, and what was read of them beyond that.
fn more(record: &Record, place: &str, load: &str, account: &str) -> [Estimate; 2] {
    let [short, long] =
        ["500", "1500"].map(|ns| runs(record, &format!("{place}/{ns}{load}"), account));
    // Interruptions make spells longer, of either length, and nothing makes them shorter.
    for (spells, asked_ns) in [(&short, SHORT_NS), (&long, SHORT_NS + ASKED_NS)] {
        let least = spells.iter().map(|[spell, _]| *spell).reduce(f64::min);
        assert!(least > Some(asked_ns * 0.99), "{spells:?}");
    }
    [0, 1].map(|index| {
        let more: Vec<f64> = zip(&short, &long)
            .map(|(short, long)| long[index] - short[index])
            .collect();
        Estimate::for_difference(&more).expect("epochs")
    })
}

/// The built-in description.
const BUSY: &str = include_str!("../../../experiments/busy.toml");

/// The record of a run of a description, where it can be had; every case in it is valid, so that each event was a run of
/// the program.
fn measured(description: &str) -> Option<Record> {
    if !able(&["redis-server", "redis-benchmark", "dd"]) {
        return None;
    }
    let tool = Tool::new();
    tool.write("x.toml", description);
    let cases = "--case syscall/* --case softirq/*/commands";
    let said = tool.says(&format!("run x.toml {cases} --quick --seed 7 --out x.json"));
    assert_eq!(said.code, Some(0), "{said:?}");
    Some(valid_record(&tool))
}

/// The client makes the calls, and its own CPU clock has all of them.
const CALLS: [&str; 3] = ["syscall", "", "client_ns"];
const PACKETS: [&str; 3] = ["softirq", "/commands", "machine_ns"];

#[test]
fn what_is_put_into_a_probe_runs_there_and_is_in_the_account() {
    // Short windows: nothing here goes by time.
    let short = BUSY.replace("400000", "200000").replace("40000", "8000");
    let Some(record) = measured(&short) else {
        return;
    };
    for [place, load, account] in [CALLS, PACKETS] {
        more(&record, place, load, account);
    }
    // A call's account has what its program was asked for: it runs on the caller's clock.
    let [place, load, account] = CALLS;
    for (ns, asked_ns) in [("500", SHORT_NS), ("1500", SHORT_NS + ASKED_NS)] {
        for [spell, beyond] in runs(&record, &format!("{place}/{ns}{load}"), account) {
            assert!(spell + beyond > asked_ns * 0.99, "{spell} and {beyond}");
        }
    }
}

/// To a tenth of a microsecond. Noise decides it: it is for an idle machine.
#[test]
#[ignore = "judges times: cargo test -p bpfcost --test busy -- --ignored, on an idle machine"]
fn what_is_put_into_a_probe_is_all_that_is_read() {
    let Some(record) = measured(BUSY) else {
        return;
    };
    for [place, load, account] in [CALLS, PACKETS] {
        let [put, beyond] = more(&record, place, load, account);
        assert!(put.low < ASKED_NS + LONGER_NS, "{place}: {put:?}");
        let wide = beyond.high - beyond.low;
        assert!(wide <= WIDEST_NS, "{place}: too busy to tell: {beyond:?}");
        let found = beyond.low <= BESIDE_NS && beyond.high >= -BESIDE_NS;
        assert!(found, "{place}: {beyond:?}");
    }
}
