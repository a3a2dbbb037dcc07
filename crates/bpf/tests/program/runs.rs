//! Each run in a loop does what the program does alone, and is undone.

use bpfcost_bpf::program::{
    Body, MapContents, NativeProgram, ObjectFile, ProgramKind, Restore, Settings,
};

use crate::{
    lab::{object, packet, plain_object, prepare, prepare_on, prepare_with},
    require,
};

/// Runs in a batch: packets have no room for what so many runs add.
const RUNS: [u64; 4] = [1, 2, 1000, 1001];

fn runs_as_alone(object: &ObjectFile, program: &str, code: u32, restore: Restore) {
    runs_on(object, program, &packet(), code, restore);
}

fn runs_on(object: &ObjectFile, program: &str, packet: &[u8], code: u32, restore: Restore) {
    let prepared = prepare_on(object, program, packet);
    assert_eq!(prepared.oracle.code, code, "{program}");
    assert_eq!(prepared.change.restore, restore, "{program}");
    assert!(
        prepared.is_right(&prepared.once),
        "{program}: {:?}",
        prepared.once
    );
    for ops in RUNS {
        let ran = prepared.batch(ops, Body::Program, restore);
        assert!(prepared.is_right(&ran), "{program}, {ops} runs: {ran:?}");
        let twice = prepared.batch_with(ops, Body::Program, restore, 2);
        assert!(
            prepared.is_right(&twice),
            "{program}, {ops} runs: {twice:?}"
        );
        let floor = prepared.batch(ops, Body::Return(code), restore);
        assert_eq!(floor.wrong, 0, "{program}");
        assert_eq!(floor.changes, [0; 12], "{program}");
    }
}

#[test]
fn xdp_programs_run_as_alone() {
    if !require::host() {
        return;
    }
    let object = object("xdp.bpf.c");
    let all = Restore::All { tail: false };
    for (program, code, restore) in [
        ("pass", 2, Restore::None),
        ("pass_frags", 2, Restore::None),
        ("push", 3, Restore::State),
        ("pop", 2, Restore::Front),
        ("grow", 2, Restore::State),
        ("shrink", 2, all),
        ("describe", 2, Restore::State),
        ("flip_first", 2, Restore::Front),
        ("flip_63", 2, Restore::Front),
        ("flip_later", 2, all),
        ("count", 2, Restore::None),
    ] {
        runs_as_alone(&object, program, code, restore);
    }
}

#[test]
fn programs_on_skbs_run_as_alone() {
    if !require::host() {
        return;
    }
    let object = object("skb.bpf.c");
    for (program, code, restore) in [
        ("ok", 0, Restore::None),
        ("mark", 0, Restore::State),
        ("push_vlan", 0, Restore::State),
        ("set_fields", 0, Restore::State),
        ("hash_anew", 0, Restore::State),
        ("change_type", 0, Restore::State),
        ("encapsulate", 0, Restore::All { tail: false }),
        ("lengthen", 0, Restore::All { tail: true }),
        ("lengthen_much", 0, Restore::All { tail: true }),
        ("write_byte", 7, Restore::All { tail: false }),
        ("allow_ingress", 1, Restore::State),
        ("allow_egress", 3, Restore::None),
        ("set_time", 1, Restore::State),
        ("keep_half", 50, Restore::None),
    ] {
        runs_as_alone(&object, program, code, restore);
    }
}

/// So that the second of two resets has as much to do as the first.
#[test]
fn a_reset_that_is_done_twice_undoes_half_first() {
    if !require::host() {
        return;
    }
    let xdp = object("xdp.bpf.c");
    let skb = object("skb.bpf.c");
    for (object, program, half) in [
        (&xdp, "push", [-10, -10, 0]),
        (&xdp, "pop", [7, 7, 0]),
        (&xdp, "grow", [0, 0, 50]),
        (&xdp, "shrink", [0, 0, -5]),
        (&xdp, "describe", [-4, 0, 0]),
        (&skb, "encapsulate", [10, 0, 0]),
        (&skb, "lengthen", [15, 0, 0]),
    ] {
        let prepared = prepare(object, program);
        let words = if std::ptr::eq(object, &xdp) { 3 } else { 1 };
        let undone = |resets| {
            let restore = prepared.change.restore;
            let ran = prepared.batch_with(10, Body::Program, restore, resets);
            ran.undone[..words].to_vec()
        };
        assert_eq!(undone(1), prepared.once.changes[..words], "{program}");
        assert_eq!(undone(2), half[..words], "{program}");
    }
}

/// Arguments of a tracepoint, and the context of a program that writes its sum there.
#[test]
fn programs_with_a_context_run_as_alone() {
    if !require::host() {
        return;
    }
    let object = object("context.bpf.c");
    let words: Vec<u8> = [3u64, 4, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    runs_on(&object, "second_argument", &words, 4, Restore::None);
    runs_on(&object, "compare", &words, 1, Restore::None);
    runs_on(&object, "sum", &words, 7, Restore::All { tail: false });
    for (program, code) in [("flip_last", 5), ("count_last", 1)] {
        runs_on(
            &object,
            program,
            &[0; 11],
            code,
            Restore::All { tail: false },
        );
    }
}

/// A constant, and a map of two entries where the object has room for one.
#[test]
fn variables_and_maps_are_set_before_programs_run() {
    if !require::host() {
        return;
    }
    let object = object("xdp.bpf.c");
    let entry = |key: u32, value: u64| (key.to_le_bytes().to_vec(), value.to_le_bytes().to_vec());
    let settings = Settings {
        variables: vec![("allowed".to_owned(), 300)],
        maps: vec![MapContents {
            name: "limits".to_owned(),
            max_entries: Some(2),
            entries: vec![entry(1, 8), entry(2, 9)],
        }],
        ..Settings::default()
    };
    let configured = prepare_with(&object, "configured", &packet(), &settings);
    assert_eq!(configured.oracle.code, 3);
    let ran = configured.batch(1000, Body::Program, Restore::None);
    assert!(configured.is_right(&ran), "{ran:?}");
    assert_eq!(prepare(&object, "configured").oracle.code, 2);
    let limits = object.maps().expect("maps");
    let limits = limits.iter().find(|map| map.name == "limits");
    let sizes = limits.map(|map| (map.key_bytes, map.value_bytes));
    assert_eq!(sizes, Some((4, 8)));
    object.check_variable("allowed", 7).expect("it is there");
    for value in [0, 300, 0xffff, -0x8000i64 as u64, -1i64 as u64] {
        let checked = object.check_variable("allowed", value);
        checked.unwrap_or_else(|error| panic!("{error}"));
    }
    for value in [0x1_0000, -0x8001i64 as u64] {
        let error = object.check_variable("allowed", value);
        let error = error.expect_err("it is cut").to_string();
        assert!(error.contains("-32768 to 65535"), "{error}");
        let settings = Settings {
            variables: vec![("allowed".to_owned(), value)],
            ..Settings::default()
        };
        NativeProgram::load(&object, "configured", &settings).expect_err("it is cut");
    }
    let error = object
        .check_variable("forbidden", 7)
        .expect_err("it is not");
    assert!(error.to_string().contains("variable forbidden"), "{error}");
}

/// libbpf fills the array with all programs that it names.
#[test]
fn programs_in_an_array_are_loaded_too() {
    if !require::host() {
        return;
    }
    runs_as_alone(&object("slots.bpf.c"), "apart", 2, Restore::None);
}

#[test]
fn a_program_without_types_runs_as_alone() {
    if !require::host() {
        return;
    }
    runs_as_alone(&plain_object("plain.bpf.c"), "longer", 1, Restore::None);
}

#[test]
fn programs_are_listed_without_privilege() {
    let programs = object("skb.bpf.c").programs().expect("it opens");
    let kind = |name: &str| {
        let program = programs.iter().find(|one| one.name == name);
        program.expect(name).kind.clone()
    };
    assert_eq!(kind("mark"), Ok(ProgramKind::Tc));
    assert_eq!(kind("allow_egress"), Ok(ProgramKind::CgroupSkb));
    assert_eq!(kind("keep_half"), Ok(ProgramKind::SocketFilter));
}

#[test]
fn the_verifier_is_asked_for_its_figures() {
    if !require::host() {
        return;
    }
    let object = object("xdp.bpf.c");
    let pass = prepare(&object, "pass");
    let figures = pass.native.figures();
    assert_eq!(
        (figures.processed, figures.xlated_bytes),
        (2, 16),
        "{figures:?}"
    );
    assert_eq!(figures.stack_bytes, [0]);
    let count = prepare(&object, "count");
    let figures = count.native.figures();
    assert!(figures.processed > 20 && figures.states > 0, "{figures:?}");
    // The program, a function inside of a global one, that one, and the callback.
    assert_eq!(figures.stack_bytes.len(), 4, "{figures:?}");
    assert!(
        figures.map_bytes > 0 && figures.jited_bytes > 0,
        "{figures:?}"
    );
}
