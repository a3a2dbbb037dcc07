//! Addresses of a program's machine code, and what lies there.

use std::collections::BTreeSet;

use bpfcost_bpf::{
    current_cpu,
    program::{NativeProgram, Settings, Traceable},
};

use crate::{
    lab::{object, packet, plain_object},
    require,
};

#[test]
fn addresses_are_those_of_lines_and_calls() {
    if !require::host() {
        return;
    }
    let native = NativeProgram::load(&object("xdp.bpf.c"), "count", &Settings::default());
    let native = native.expect("it loads");
    let cpu = current_cpu();
    let code = native.oracle(cpu, &packet()).expect("it runs").code;
    let program = Traceable::load(&native).expect("it loads again");
    let program = program.expect("it was compiled with -g");
    assert_eq!(program.run(cpu, &packet()).expect("it runs"), code);

    let functions = &program.machine_code().functions;
    assert!(functions.len() > 1);
    let (mut lines, mut calls) = (BTreeSet::new(), BTreeSet::new());
    for function in functions {
        assert!(function.start < function.end);
        for address in function.start..function.end {
            let place = program.place(address).expect("it is its code");
            lines.extend(place.line.map(|line| line.text.clone()));
            calls.extend(place.call);
        }
    }
    assert!(
        lines
            .iter()
            .any(|line| line.contains("bpf_map_lookup_elem(&packets_by_length"))
    );
    assert!(calls.contains("map_lookup_elem"), "{calls:?}");
}

#[test]
fn without_line_numbers_there_is_nothing_to_show() {
    if !require::host() {
        return;
    }
    let native = NativeProgram::load(&plain_object("plain.bpf.c"), "longer", &Settings::default());
    let native = native.expect("it loads");
    assert!(Traceable::load(&native).expect("it can be asked").is_none());
}
