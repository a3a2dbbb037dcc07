//! Events in a process while it is probed: libraries go, breakpoints come, the process ends, a stack overflows.

mod common;
#[path = "common/compile.rs"]
mod compile;
#[path = "common/in_kernel.rs"]
mod in_kernel;

use bpfcost_uprobe::process::{
    Attachment, Error, Function, Image, Memory, Probe, Program, Runtime, Stopped,
};
use common::{Binary, Target, program, wait_until, write_code};
use in_kernel::InKernel;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::os::unix::process::ExitStatusExt;

const BREAKPOINT: u8 = 0xcc;
const JUMP: u8 = 0xe9;

fn entry(function: &Function, program: Program) -> Probe<'_> {
    Probe {
        function,
        entry: Some(program),
        returns: None,
        inside: &[],
    }
}

/// Attaches an empty program to some functions.
fn attach(runtime: &mut Runtime, functions: &[&Function]) -> Attachment {
    let empty = program::empty(runtime);
    let probes: Vec<_> = functions.iter().map(|one| entry(one, empty)).collect();
    runtime.attach(&probes).unwrap()
}

/// A program whose function `plugged` is a library's.
struct Plugin {
    process: Target,
    plugged: Function,
    own: Function,
    memory: Memory,
    _files: [Binary; 2],
}

impl Plugin {
    fn start() -> Self {
        let library = Binary::compile("plugin.c", &["-DLIBRARY", "-shared", "-fPIC"]);
        let host = Binary::compile("plugin.c", &["-ldl"]);
        let process = host.start(&[library.path().to_str().unwrap()]);
        let pid = process.pid();
        let image = Image::open(pid, &library.path()).unwrap();
        Plugin {
            plugged: image.function("plugged").unwrap(),
            own: Image::of_program(pid).unwrap().function("own").unwrap(),
            memory: Memory::open(pid).unwrap(),
            process,
            _files: [library, host],
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.process.send(line);
        self.process.line()
    }

    fn first_bytes(&self) -> Vec<u8> {
        self.memory.read_vec(self.plugged.address, 5).unwrap()
    }
}

#[test]
fn a_library_that_was_unloaded_is_not_restored() {
    let mut plugin = Plugin::start();
    let mut runtime = Runtime::open(plugin.process.pid()).unwrap();
    let attachment = attach(&mut runtime, &[&plugin.plugged, &plugin.own]);
    assert_eq!(plugin.ask("call"), "1000 0");
    assert_eq!(plugin.ask("unload"), "0");
    assert!(plugin.memory.read_vec(plugin.plugged.address, 5).is_err());
    let all = runtime.detach(attachment).unwrap();
    assert!(all.iter().all(|hits| hits.entry.hits == 1000), "{all:?}");
    plugin.own.check(&plugin.memory).unwrap();
    assert_eq!(plugin.ask("call"), "1000 0");
}

/// A thread of io_uring has the registers of the one that it was made by, as far as they tell threads apart.
#[test]
fn threads_of_the_kernel_are_none_of_the_process() {
    let binary = Binary::compile("late.c", &[]);
    let mut process = binary.start(&["u"]);
    if process.address(0) == 0 {
        common::require::skip_as("features", "io_uring_setup(2) is refused here");
        return;
    }
    let image = Image::of_program(process.pid()).unwrap();
    let work = image.function("work").unwrap();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let attachment = attach(&mut runtime, &[&work]);
    let seen = || runtime.hits(&attachment)[0].entry.hits > 10;
    wait_until(seen);
    let all = runtime.detach(attachment).unwrap();
    assert_eq!(all[0].entry.missed, 0, "{all:?}");
    assert_eq!(process.stop().1, 0);
}

#[test]
fn memory_in_place_of_a_library_is_not_touched() {
    // Neither by the tool nor after its end.
    for is_detached in [true, false] {
        let mut plugin = Plugin::start();
        let mut runtime = Runtime::open(plugin.process.pid()).unwrap();
        let attachment = attach(&mut runtime, &[&plugin.plugged, &plugin.own]);
        let jump = plugin.first_bytes();
        assert_eq!(jump[0], JUMP);
        assert_eq!(plugin.ask("unload"), "0");
        assert_eq!(plugin.ask("map"), "mapped");
        assert_eq!(plugin.first_bytes(), jump);
        if is_detached {
            runtime.detach(attachment).unwrap();
        } else {
            drop(runtime);
            wait_until(|| plugin.own.check(&plugin.memory).is_ok());
        }
        assert_eq!(plugin.first_bytes(), jump, "{is_detached}");
        assert_eq!(plugin.ask("call"), "1000 0");
    }
}

/// A program that calls nothing before a "go".
fn waiting() -> (Target, Function, Memory, Binary) {
    let binary = Binary::compile("busy.c", &[]);
    let process = binary.start(&["2", "w", "1000"]);
    let image = Image::of_program(process.pid()).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    (process, image.function("work").unwrap(), memory, binary)
}

fn run(process: &mut Target) {
    process.send("go");
    process.ready();
    assert_eq!(process.stop().1, 0);
}

#[test]
fn a_breakpoint_over_a_jump_stays_and_the_function_is_whole() {
    // One that is there, and one that was there and left the file's byte.
    for is_there in [true, false] {
        let (mut process, work, memory, _binary) = waiting();
        let mut runtime = Runtime::open(process.pid()).unwrap();
        let attachment = attach(&mut runtime, &[&work]);
        let byte = if is_there { BREAKPOINT } else { work.code[0] };
        write_code(&process, work.address, &[byte]);
        let error = runtime.detach(attachment).unwrap_err();
        assert!(
            matches!(error, Error::Changed { found, .. } if found == byte),
            "{error}"
        );
        let bytes = memory.read_vec(work.address, 5).unwrap();
        assert_eq!(bytes, [&[byte], &work.code[1..5]].concat());
        write_code(&process, work.address, &work.code[..1]);
        run(&mut process);
    }
}

#[test]
fn bytes_of_others_stay() {
    let (mut process, work, memory, _binary) = waiting();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let attachment = attach(&mut runtime, &[&work]);
    let others = [JUMP, 1, 2, 3, 4];
    write_code(&process, work.address, &others);
    let error = runtime.detach(attachment).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert_eq!(memory.read_vec(work.address, 5).unwrap(), others);
    write_code(&process, work.address, &work.code[..5]);
    run(&mut process);
}

#[test]
fn a_kernel_uprobe_over_a_jump_works_once_the_jump_is_gone() {
    let (mut process, work, memory, binary) = waiting();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let attachment = attach(&mut runtime, &[&work]);
    let object = compile::bpf("tests/starts/count.bpf.c");
    let kernel = InKernel::attach_to("work", &object, &["count"], 0, (&binary, &process));
    assert_eq!(memory.read_vec(work.address, 1).unwrap(), [BREAKPOINT]);
    assert!(matches!(
        runtime.detach(attachment).unwrap_err(),
        Error::Changed {
            found: BREAKPOINT,
            ..
        }
    ));
    run(&mut process);
    assert_eq!(kernel.value(".bss", 0), 2000_u64.to_ne_bytes());
}

#[test]
fn a_process_that_dies_while_it_is_stopped_is_gone() {
    let (process, work, ..) = waiting();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let empty = program::empty(&mut runtime);
    let prepared = runtime.prepare(&[entry(&work, empty)]).unwrap();
    let session = runtime.stop().unwrap();
    signal::kill(Pid::from_raw(process.pid()), Signal::SIGKILL).unwrap();
    let error = runtime.attach_in(session, &prepared).unwrap_err();
    assert!(matches!(error, Error::Gone { .. }), "{error}");

    let (process, work, ..) = waiting();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let attachment = attach(&mut runtime, &[&work]);
    let session = runtime.stop().unwrap();
    signal::kill(Pid::from_raw(process.pid()), Signal::SIGKILL).unwrap();
    assert_eq!(runtime.detach_in(session, attachment).unwrap().len(), 1);
}

#[test]
fn what_could_not_be_detached_does_not_run_beside_what_comes_later() {
    let (mut process, work, memory, _binary) = waiting();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let seen = process.address(2);
    let count = program::count(&mut runtime, seen);
    let first = runtime.attach(&[entry(&work, count)]).unwrap();
    {
        let _stopped = Stopped::all(process.pid()).unwrap();
        let is_traced = |error| matches!(error, Error::Traced { .. });
        assert!(is_traced(runtime.detach(first).unwrap_err()));
        assert!(is_traced(
            runtime.attach(&[entry(&work, count)]).unwrap_err()
        ));
    }
    let second = runtime.attach(&[entry(&work, count)]).unwrap();
    process.send("go");
    process.ready();
    let (calls, wrong) = process.stop();
    assert_eq!(wrong, 0);
    // Of two new threads that ask for memory at once, one misses a call.
    let entry = runtime.detach(second).unwrap()[0].entry;
    assert_eq!(memory.read_u64(seen).unwrap(), entry.hits);
    assert_eq!(entry.hits + entry.missed, calls);
    work.check(&memory).unwrap();
}

/// Threads may come to such functions in ways that the code around them does not show, or did not show before.
#[test]
fn functions_that_are_written_by_hand_are_refused() {
    let mut process = Binary::compile("by_hand.c", &[]).start(&[]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let image = Image::of_program(process.pid()).unwrap();
    let empty = program::empty(&mut runtime);
    for (name, says) in [
        ("entered", "a branch leads into its first 5 bytes"),
        ("silent", "its file does not say how to unwind it"),
    ] {
        let function = image.function(name).unwrap();
        let error = runtime.attach(&[entry(&function, empty)]).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    // Who knows that nothing jumps there may say so.
    let mut known = image.function("silent").unwrap();
    known.is_described = true;
    let spoken = image.function("spoken").unwrap();
    let attachment = attach(&mut runtime, &[&known, &spoken]);
    process.send("go");
    assert_eq!(process.line(), "2 2 3 10");
    let hits = runtime.detach(attachment).unwrap();
    assert_eq!(
        hits.iter().map(|one| one.entry.hits).collect::<Vec<_>>(),
        [1, 1]
    );
}

#[test]
fn a_program_that_overflows_its_stack_faults() {
    let (mut process, work, ..) = waiting();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let deep = program::deep(&mut runtime);
    let attachment = runtime.attach(&[entry(&work, deep)]).unwrap();
    process.send("go");
    let status = process.wait();
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
    let hits = runtime.detach(attachment).unwrap();
    assert!(hits[0].entry.hits > 0);
}
