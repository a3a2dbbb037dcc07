//! Probes in programs that no C compiler made.

mod common;

use bpfcost_uprobe::process::{Counts, Image, Inside, Memory, Probe, Runtime, Site};
use common::{Binary, program};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::process::Command;

/// Probes all calls of a function of a program, at entry and, if asked to, at return.
fn probe_all(binary: &Binary, name: &str, returns: bool) {
    let mut process = binary.start(&[]);
    let function = Image::of_program(process.pid())
        .unwrap()
        .function(name)
        .unwrap();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let wild = program::wild(&mut runtime);
    let probe = Probe {
        function: &function,
        entry: Some(wild),
        returns: returns.then_some(wild),
        inside: &[],
    };
    let attachment = runtime.attach(&[probe]).unwrap();
    process.send("go");
    assert_eq!(process.line(), "done");
    let (calls, wrong) = process.stop();
    let hits = runtime.detach(attachment).unwrap()[0];
    assert_eq!(wrong, 0);
    assert!(calls >= 100_000, "{calls}");
    // Go's entry is called again after each growth of the stack.
    let all = |counts: Counts| counts.hits + counts.missed;
    assert!(
        (calls..calls + calls / 10).contains(&all(hits.entry)),
        "{hits:?} of {calls}"
    );
    if returns {
        assert_eq!(all(hits.returns), calls, "{hits:?}");
    }
    assert!(hits.entry.hits > calls / 2, "{hits:?}");
    function
        .check(&Memory::open(process.pid()).unwrap())
        .unwrap();
}

#[test]
fn go_with_growing_stacks_and_garbage_collection() {
    if Command::new("go").arg("version").output().is_err() {
        return common::require::skip("go is not installed");
    }
    let binary = Binary::compile_by("go", &["build"], "busy.go");
    probe_all(&binary, "main.work", true);
}

#[test]
fn rets_of_go_as_plain_uprobes() {
    if Command::new("go").arg("version").output().is_err() {
        return common::require::skip("go is not installed");
    }
    let mut process = Binary::compile_by("go", &["build"], "busy.go").start(&[]);
    let image = Image::of_program(process.pid()).unwrap();
    let function = image.function("main.work").unwrap();
    let code = image.mapping(function.address).unwrap();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let seen = process.address(0);
    let mut decoder = Decoder::with_ip(64, &function.code, 0, DecoderOptions::NONE);
    let (rets, others): (Vec<_>, Vec<_>) = decoder
        .iter()
        .partition(|one| one.flow_control() == FlowControl::Return);
    let inside: Vec<Inside> = rets
        .iter()
        .map(|ret| Inside {
            offset: ret.ip(),
            program: program::check_ret(
                &mut runtime,
                seen,
                function.address + ret.ip(),
                code.start..code.end,
            ),
            semaphore: None,
        })
        .collect();
    assert!(!inside.is_empty());
    for other in &others[1..] {
        let error = Site::at(&function, other.ip()).unwrap_err().to_string();
        assert!(
            error.contains("can't be probed: in a Go function, no register is free there"),
            "{error}"
        );
    }
    let probe = Probe {
        function: &function,
        entry: None,
        returns: None,
        inside: &inside,
    };
    let attachment = runtime.attach(&[probe]).unwrap();
    process.send("go");
    assert_eq!(process.line(), "done");
    let (calls, wrong) = process.stop();
    let hits = runtime.detach(attachment).unwrap()[0].inside;
    assert_eq!(wrong, 0);
    assert_eq!(hits.hits + hits.missed, calls);
    assert!(hits.hits > calls / 2, "{hits:?}");
    let memory = Memory::open(process.pid()).unwrap();
    assert_eq!(memory.read_u64(seen).unwrap(), 0);
    function.check(&memory).unwrap();
}

#[test]
fn rust() {
    let binary = Binary::compile_by(
        "rustc",
        &["-O", "--edition=2024", "-Cstrip=none"],
        "busy.rs",
    );
    probe_all(&binary, "work", false);
}
