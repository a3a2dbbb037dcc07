//! The ladder counts what it ran.

mod require;

use bpfcost_bpf::{
    ladder::{Ladder, RUNGS},
    timing::Loop,
};

#[test]
fn every_rung_runs_as_often_as_asked_in_both_loops() {
    if !require::host() {
        return;
    }
    let mut loops = vec![Loop::BpfLoop];
    if Loop::probe().expect("probe") == Loop::CanLoop {
        loops.push(Loop::CanLoop);
    }
    for looping in loops {
        let mut ladder = Ladder::load(&RUNGS, looping).expect("load");
        for rung in RUNGS {
            for ops in [1, 2, 1000] {
                let seen = ladder
                    .batch(rung, ops, 0, false)
                    .expect("run")
                    .expect("loaded");
                assert_eq!(seen.ops, ops, "rung {rung} {looping:?}");
                // Odd times odd stays odd: XDP_PASS.
                assert_eq!(seen.code, 2, "rung {rung} {looping:?}");
            }
        }
    }
}

#[test]
fn a_rung_that_was_not_loaded_has_no_batch() {
    if !require::host() {
        return;
    }
    let mut ladder = Ladder::load(&[0], Loop::probe().expect("probe")).expect("load");
    assert!(ladder.batch(7, 1, 0, false).expect("no run").is_none());
}
