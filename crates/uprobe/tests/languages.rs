//! Probes in programs that no C compiler made.

mod common;

use bpfcost_uprobe::process::{Counts, Function, Image, Inside, Memory, Probe, Runtime, Site};
use common::{Binary, Target, program};
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

/// Has busy.go make its calls while programs are inside of a function; how many calls, and what was counted.
fn run_with(
    process: &mut Target,
    runtime: &mut Runtime,
    function: &Function,
    inside: &[Inside],
) -> (u64, Counts) {
    let probe = Probe {
        function,
        entry: None,
        returns: None,
        inside,
    };
    let attachment = runtime.attach(&[probe]).unwrap();
    process.send("go");
    assert_eq!(process.line(), "done");
    let (calls, wrong) = process.stop();
    assert_eq!(wrong, 0);
    let hits = runtime.detach(attachment).unwrap()[0].inside;
    function
        .check(&Memory::open(process.pid()).unwrap())
        .unwrap();
    (calls, hits)
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
    let inside: Vec<Inside> = decoder
        .iter()
        .filter(|one| one.flow_control() == FlowControl::Return)
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
    let (calls, hits) = run_with(&mut process, &mut runtime, &function, &inside);
    assert_eq!(hits.hits + hits.missed, calls);
    assert!(hits.hits > calls / 2, "{hits:?}");
    let memory = Memory::open(process.pid()).unwrap();
    assert_eq!(memory.read_u64(seen).unwrap(), 0);
}

#[test]
fn amid_go_functions() {
    if Command::new("go").arg("version").output().is_err() {
        return common::require::skip("go is not installed");
    }
    let mut process = Binary::compile_by("go", &["build"], "busy.go").start(&[]);
    let image = Image::of_program(process.pid()).unwrap();
    let [deep, work] = ["main.deep", "main.work"].map(|name| image.function(name).unwrap());
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let program = program::wild(&mut runtime);
    let mut decoder = Decoder::with_ip(64, &deep.code, deep.address, DecoderOptions::NONE);
    let (mut inside, mut refused) = (Vec::new(), 0);
    for one in decoder.iter().skip(1) {
        let offset = one.ip() - deep.address;
        match Site::at(&deep, offset) {
            Ok(_) if one.flow_control() == FlowControl::Return => (),
            Ok(_) => {
                assert!(one.len() >= 5, "+{offset:#x}");
                if [work.address, deep.address].contains(&one.near_branch_target()) {
                    inside.push(Inside {
                        offset,
                        program,
                        semaphore: None,
                    });
                }
            }
            Err(error) => {
                let error = error.to_string();
                let (short, full) = ("has to have 5 bytes", "no room on the stack");
                assert!(error.contains(short) || error.contains(full), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 10, "{refused}");
    // It calls the other once, and itself but the last time: a jump back to its start is none of the two.
    assert_eq!(inside.len(), 2);
    let (calls, hits) = run_with(&mut process, &mut runtime, &deep, &inside);
    assert_eq!(hits.hits + hits.missed, calls + calls * 100 / 101);
    assert!(hits.hits > calls, "{hits:?}");
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
