//! Programs that make tail calls, or leave a loop no stack, in windows.

use bpfcost_bpf::program::{Body, Change, LoopForm, ProgramSlot, Restore, Settings};

use crate::{
    lab::{Prepared, object, packet, prepare, prepare_with},
    require,
};

/// Each run does what the program does alone, in windows of so many runs.
fn runs_in_windows(prepared: &Prepared, program: &str, window: u32, code: u32) {
    assert_eq!(prepared.change.window, window, "{program}");
    assert_eq!(prepared.oracle.code, code, "{program}");
    assert!(prepared.is_right(&prepared.once), "{program}");
    let restore = prepared.change.restore;
    for ops in [1, 2, 31, 32, 33, 3000] {
        for resets in [1, 2] {
            let ran = prepared.batch_with(ops, Body::Program, restore, resets);
            assert!(
                prepared.is_right(&ran),
                "{program}, {ops} runs, {resets} resets"
            );
        }
        let floor = prepared.batch(ops, Body::Return(code), restore);
        assert_eq!((floor.wrong, floor.fallen), (0, 0), "{program}");
    }
}

#[test]
fn programs_run_in_windows_as_alone() {
    if !require::host() {
        return;
    }
    let (xdp, slots) = (object("xdp.bpf.c"), object("slots.bpf.c"));
    let form = |program: &str| xdp.program(program).expect("it is there").form;
    assert_eq!(form("pass"), LoopForm::Spliced);
    assert_eq!(form("deep_stack"), LoopForm::Windows);
    runs_in_windows(&prepare(&xdp, "deep_stack"), "deep_stack", 32, 3);
    // A tail call that is not made: there is no program in the array.
    let empty = prepare(&xdp, "calls_tail");
    runs_in_windows(&empty, "calls_tail", empty.change.window, 2);
    runs_in_windows(&prepare(&slots, "drops"), "drops", 16, 1);
    let pushing = prepare(&slots, "calls_push");
    assert_eq!(pushing.change.restore, Restore::State);
    runs_in_windows(&pushing, "calls_push", 16, 3);
}

/// A loader's work; and one tail call behind another.
#[test]
fn programs_are_put_into_arrays() {
    if !require::host() {
        return;
    }
    let slots = object("slots.bpf.c");
    let with = |program: &str| {
        let slot = ProgramSlot {
            map: "next".to_owned(),
            slot: 0,
            program: program.to_owned(),
        };
        let settings = Settings {
            slots: vec![slot],
            ..Settings::default()
        };
        prepare_with(&slots, "calls_next", &packet(), &settings)
    };
    runs_in_windows(&with("in_slot"), "calls_next", 16, 1);
    runs_in_windows(&with("drops"), "calls_next", 8, 1);
}

/// One run more than there are tail calls for is seen, also where no code is another one.
#[test]
fn a_tail_call_that_is_not_made_is_seen() {
    if !require::host() {
        return;
    }
    let mut prepared = prepare(&object("slots.bpf.c"), "drops");
    let batch = |prepared: &Prepared| prepared.batch(320, Body::Program, Restore::None);
    assert_eq!(batch(&prepared).fallen, 0);
    prepared.change = Change {
        window: 17,
        ..prepared.change
    };
    let ran = batch(&prepared);
    assert_eq!(ran.wrong, 0);
    // Behind each of 18 whole windows, and none behind the last, which has 14 runs.
    assert_eq!(ran.fallen, 18);
    assert!(!prepared.is_right(&ran));
}
