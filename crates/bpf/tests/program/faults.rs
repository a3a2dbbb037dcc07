//! Planted faults: what a run does that the program alone did not do is seen.

use bpfcost_bpf::program::{Body, Restore};

use crate::{
    lab::{object, prepare},
    require,
};

/// One wrong code in 100,000 runs.
#[test]
fn a_rare_wrong_code_is_counted() {
    if !require::host() {
        return;
    }
    let prepared = prepare(&object("xdp.bpf.c"), "rarely_drops");
    let ran = prepared.batch(300_000, Body::Program, prepared.change.restore);
    assert_eq!((ran.wrong, ran.wrong_code), (3, 1));
    assert!(!prepared.is_right(&ran));
}

/// A byte, the head and the tail, which only a later run changes.
#[test]
fn what_the_last_run_left_is_compared() {
    if !require::host() {
        return;
    }
    let object = object("xdp.bpf.c");
    for program in ["later_writes", "later_pushes", "later_grows"] {
        let prepared = prepare(&object, program);
        assert_eq!(prepared.change.restore, Restore::None, "{program}");
        let ran = prepared.batch(10_000, Body::Program, prepared.change.restore);
        assert_eq!(ran.wrong, 0, "{program}");
        assert!(!prepared.is_right(&ran), "{program}");
    }
}

/// A batch shows that less is undone than a run changes.
#[test]
fn a_restore_that_is_too_small_shows() {
    if !require::host() {
        return;
    }
    let xdp = object("xdp.bpf.c");
    let skb = object("skb.bpf.c");
    for (object, program, restore, ops) in [
        (&xdp, "push", Restore::None, 100),
        (&xdp, "grow", Restore::None, 100),
        (&xdp, "describe", Restore::None, 100),
        (&xdp, "pop", Restore::None, 100),
        (&xdp, "shrink", Restore::None, 2),
        // A byte that is flipped twice is what it was before.
        (&xdp, "flip_first", Restore::State, 2),
        (&xdp, "flip_later", Restore::Front, 2),
        (&skb, "mark", Restore::None, 2),
        (&skb, "push_vlan", Restore::None, 2),
        (&skb, "encapsulate", Restore::State, 2),
        (&skb, "lengthen", Restore::State, 2),
        (&skb, "write_byte", Restore::State, 2),
        (&skb, "allow_ingress", Restore::None, 2),
    ] {
        let prepared = prepare(object, program);
        let ran = prepared.batch(ops, Body::Program, restore);
        assert!(!prepared.is_right(&ran), "{program}");
    }
}
