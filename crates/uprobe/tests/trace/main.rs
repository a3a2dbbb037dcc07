//! Lines that programs write by `bpf_printk`, in running processes.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
#[path = "../common/in_kernel.rs"]
mod in_kernel;

use bpfcost_uprobe::{
    mount::MountedFs,
    object::{Choice, LoadedObject, PrintkOff, load_quietly},
    probes::Probes,
    process::{Child, Hits},
};
use common::{Binary, Target, attach_at_entry};
use in_kernel::InKernel;
use libbpf_rs::{Object, ObjectBuilder};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The words of the object's variables.
const RETURNED: usize = 1;
const FAILED: usize = 2;
const CALLS: u64 = 60;

fn open() -> Probes {
    let object = compile::bpf("tests/trace/trace.bpf.c");
    Probes::new(LoadedObject::from_bytes("trace", &object, &Choice::default()).unwrap()).unwrap()
}

/// Has the process make its calls with a program attached.
fn run(probes: &mut Probes, process: &mut Target, program: &str) -> Hits {
    let attached = attach_at_entry(probes, process.pid(), program, "handle").unwrap();
    process.go();
    probes.detach(attached).unwrap()
}

fn variable(bytes: &[u8], index: usize) -> u64 {
    u64::from_ne_bytes(bytes[8 * index..][..8].try_into().unwrap())
}

fn user_variable(probes: &Probes, index: usize) -> u64 {
    let bytes = probes.map(".bss").unwrap().get(&[0; 4]).unwrap();
    variable(&bytes.unwrap(), index)
}

fn until_zero(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|&byte| byte == 0).next().unwrap().to_vec()
}

/// The text of each line, and what the helper returned.
fn in_kernel(binary: &Binary, process: &mut Target) -> (Vec<Vec<u8>>, u64) {
    let object = compile::bpf("tests/trace/trace.bpf.c");
    let kernel = InKernel::attach(&object, &["on_handle"], 0, (binary, process));
    process.go();
    let lines = (0..2 * CALLS as u32).map(|line| until_zero(&kernel.value("lines", line)));
    let left = (
        lines.collect(),
        variable(&kernel.value(".bss", 0), RETURNED),
    );
    drop(kernel);
    common::until_restored(process, "handle");
    left
}

const SWITCH: &str = "events/bpf_trace/bpf_trace_printk/enable";

/// Returns whether the kernel's own tracepoint of lines is on.
fn state() -> String {
    let tracefs = MountedFs::ask("tracefs").unwrap();
    std::fs::read_to_string(tracefs.path(SWITCH)).unwrap()
}

/// Sets it while no test loads an object: who found it off would switch it off again.
fn set_state(state: &str) {
    let tracefs = MountedFs::ask("tracefs").unwrap();
    let locked = std::fs::File::open(tracefs.path(SWITCH)).unwrap();
    locked.lock().unwrap();
    std::fs::write(tracefs.path(SWITCH), state.trim()).unwrap();
}

/// One test at a time: each loads programs, for which the kernel moves the switch.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts the switch back when dropped.
struct AsBefore(String);

impl Drop for AsBefore {
    fn drop(&mut self) {
        set_state(&self.0);
    }
}

/// Somebody's tool has printed since the machine booted, so that it is on.
#[test]
fn the_kernels_switch_is_off_for_a_while_and_then_on_again() {
    let _turn = alone();
    let before = AsBefore(load_quietly(state));
    // Where there is nothing to do. A worker of the kernel's may still switch it on for an earlier test's program.
    common::wait_until(|| {
        set_state("0");
        PrintkOff::switch_off().is_none()
    });
    set_state("1");
    let off = PrintkOff::switch_off().expect("it was on");
    assert_eq!(state().trim(), "0");
    // A load under it leaves it off.
    drop(open());
    assert_eq!(state().trim(), "0");
    drop(off);
    assert_eq!(state().trim(), "1");
    // The tool is killed while it is off.
    let tool = Child::fork(&[], || {
        let _off = PrintkOff::switch_off();
        std::thread::sleep(std::time::Duration::from_secs(1000));
    });
    let tool = tool.unwrap();
    common::wait_until(|| state().trim() == "0");
    tool.kill();
    common::wait_until(|| state().trim() == "1");
    drop(before);
}

/// The kernel switches its own tracepoint of lines on when it loads such a program, and leaves it on.
#[test]
fn the_kernels_switch_of_lines_is_as_before() {
    let _turn = alone();
    let before = load_quietly(state);
    drop(open());
    assert_eq!(load_quietly(state), before);
}

/// A tool is killed when the kernel has switched it on, and nobody has switched it off yet. Another load waits until it is.
#[test]
fn a_kill_leaves_the_kernels_switch_as_before() {
    let _turn = alone();
    let _before = AsBefore(load_quietly(state));
    set_state("0");
    let before = load_quietly(state);
    let object = compile::bpf("tests/trace/trace.bpf.c");
    let tool = Child::fork(&[], || {
        let open = ObjectBuilder::default().open_memory(&object).unwrap();
        let _object = load_quietly(|| {
            let object: Object = open.load().unwrap();
            std::thread::sleep(std::time::Duration::from_secs(1000));
            object
        });
    });
    let tool = tool.unwrap();
    common::wait_until(|| state() != before);
    let other = std::thread::spawn(|| load_quietly(state));
    std::thread::sleep(std::time::Duration::from_millis(50));
    tool.kill();
    assert_eq!(other.join().unwrap(), before);
    assert_eq!(load_quietly(state), before);
}

#[test]
fn lines_are_the_kernels() {
    let _turn = alone();
    let binary = Binary::compile("serve.c", &[]);
    let mut process = binary.start(&["1", &CALLS.to_string()]);
    let (expected, returned) = in_kernel(&binary, &mut process);
    assert!(expected[0].starts_with(b"  0: \"request 0\" of 9"));
    let mut probes = open();
    run(&mut probes, &mut process, "on_handle");
    let mut lines = Vec::new();
    let mut last = 0;
    let pid = process.pid();
    let read = probes.trace(|line| {
        assert_eq!(line.pid, pid);
        assert!(
            line.thread > pid as u32,
            "a thread that the process started"
        );
        assert!(line.time >= last);
        last = line.time;
        lines.push(line.text.to_vec());
    });
    read.unwrap();
    assert_eq!(lines, expected);
    assert_eq!(user_variable(&probes, RETURNED), returned);
    assert_eq!(probes.trace_dropped(), 0);
}

#[test]
fn lines_without_room_are_counted() {
    let _turn = alone();
    let binary = Binary::compile("serve.c", &[]);
    let mut process = binary.start(&["8", "4000"]);
    let mut probes = open();
    let hits = run(&mut probes, &mut process, "on_many").entry.hits;
    let mut lines = 0;
    let mut count = |probes: &mut Probes| {
        let read = probes.trace(|line| {
            let text = std::str::from_utf8(line.text).unwrap();
            let (length, request) = text.split_once(" and ").unwrap();
            assert_eq!(length, request.len().to_string());
            assert!(request.starts_with("request "));
            lines += 1;
        });
        read.unwrap();
        lines
    };
    let read = count(&mut probes);
    let dropped = probes.trace_dropped();
    assert!(dropped > 0);
    assert_eq!(read + dropped, hits);
    // There is room again.
    let again = run(&mut probes, &mut process, "on_many").entry.hits;
    assert!(count(&mut probes) > read);
    let dropped = probes.trace_dropped();
    assert_eq!(count(&mut probes) + dropped, hits + again);
    assert_eq!(user_variable(&probes, FAILED), 0);
}

#[test]
fn what_is_wrong_is_an_error_in_the_program_alone() {
    let _turn = alone();
    let mut process = Binary::compile("serve.c", &[]).start(&["1", "10"]);
    let mut probes = open();
    let hits = run(&mut probes, &mut process, "on_wrong").entry.hits;
    let mut lines = 0;
    let read = probes.trace(|line| {
        assert_eq!(line.text, b"nothing: ''");
        lines += 1;
    });
    read.unwrap();
    assert_eq!((lines, user_variable(&probes, FAILED)), (hits, 0));
}
