//! The ladder counts what it ran.

mod require;

use bpfcost_bpf::{
    ladder::{Ladder, RUNGS},
    timing::{Loop, SLICES},
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

/// Between the first and the last body lies what the slices took; the first and the last of them are left out.
#[test]
fn a_batch_is_cut_into_slices_by_the_newer_loop() {
    if !require::host() {
        return;
    }
    let mut whole = Ladder::load(&[1000], Loop::BpfLoop).expect("load");
    let seen = whole.batch(1000, 1000, 0, false).expect("run");
    let seen = seen.expect("loaded");
    assert_eq!((seen.edges, seen.clock_ns, seen.slices.len()), (0, 0, 0));
    let looping = Loop::probe().expect("probe");
    if looping == Loop::CanLoop {
        let mut ladder = Ladder::with_anchor(1000, looping).expect("load");
        for (ops, slice) in [(100, 1), (SLICES, 1), (1000, 4), (100 * SLICES, 100)] {
            let seen = ladder.batch(1000, ops, 0, false).expect("run");
            let seen = seen.expect("loaded");
            // The first body stands before the first slice.
            let edges = (ops - 1).div_ceil(slice) - 1;
            assert_eq!(seen.edges, edges, "{ops} {looping:?}");
            assert_eq!(seen.slices.len() as u64, edges - 1, "{ops} {looping:?}");
            assert!(seen.clock_ns > 0, "{ops} {looping:?}");
            let cut = seen.slices.iter().sum::<f64>() * slice as f64;
            assert!(cut > 0.0 && cut < seen.elapsed_ns(), "{cut} of {seen:?}");
        }
        // Where instructions are counted, a batch is in one piece.
        let counted = ladder.batch(1000, 1000, 0, true).expect("run");
        let counted = counted.expect("loaded");
        assert_eq!((counted.edges, counted.clock_ns), (0, 0), "{looping:?}");
        assert!(counted.slices.is_empty(), "{looping:?}");

        let anchor = ladder.anchor(10 * SLICES, 0).expect("run");
        assert_eq!(anchor.slices.len() as u64, SLICES - 2, "{looping:?}");
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
