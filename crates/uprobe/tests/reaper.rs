//! The probed process after the end of the tool, whenever that comes.

mod common;

use bpfcost_uprobe::process::{
    Error, Function, Image, Memory, Probe, Result, Runtime, Stopped, fault,
};
use common::{Binary, Target, handled, program, wait_until};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
};

/// The process that the tools attach to.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";
/// The step at which one kills itself.
const STEP: &str = "BPFCOST_UPROBE_STEP";
/// Number of threads of busy.c that count apart, and the distance of their numbers.
const THREADS: usize = 4;
const LINE: usize = 64;

fn functions(pid: i32) -> [Function; 2] {
    let image = Image::of_program(pid).unwrap();
    ["work", "scaled"].map(|name| image.function(name).unwrap())
}

fn number(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}

/// Starts this program again, as one of the tools.
fn tool(name: &str, process: &Target, step: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(TARGET, process.pid().to_string())
        .env(STEP, step.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of an earlier tool's tracer process, which may have been about to stop the process.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    loop {
        match attempt() {
            Err(Error::Traced { .. }) => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

/// Attaches to two functions, and runs `between` before it detaches.
fn attach(pid: i32, between: impl FnOnce()) {
    let functions = functions(pid);
    let mut runtime = patiently(|| Runtime::open(pid));
    let wild = program::wild(&mut runtime);
    runtime.load_guard().unwrap();
    patiently(|| runtime.install_guard());
    let probes = functions.each_ref().map(|function| Probe {
        function,
        entry: Some(wild),
        returns: Some(wild),
        inside: &[],
    });
    let attachment = patiently(|| runtime.attach(&probes));
    wait_until(|| {
        let all = runtime.hits(&attachment);
        all.iter().all(|hits| hits.returns.hits > 1000)
    });
    between();
    runtime.detach(attachment).unwrap();
}

#[test]
#[ignore = "is the tool that another test kills"]
fn attach_and_wait() {
    attach(number(TARGET) as i32, || {
        println!("attached");
        wait_until(|| false);
    });
}

#[test]
#[ignore = "is the tool that kills itself"]
fn attach_and_die() {
    fault::die_at(number(STEP));
    attach(number(TARGET) as i32, || ());
}

#[test]
fn a_tool_that_is_killed_leaves_no_probe() {
    let mut process = Binary::compile("busy.c", &[]).start(&["4", "t"]);
    let [work, scaled] = functions(process.pid());
    let memory = Memory::open(process.pid()).unwrap();
    let mut tool = tool("attach_and_wait", &process, 0);
    let output = BufReader::new(tool.stdout.take().unwrap());
    assert!(
        output
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("attached"))
    );
    assert!(work.check(&memory).is_err(), "nothing is attached");
    tool.kill().unwrap();
    tool.wait().unwrap();
    wait_until(|| work.check(&memory).is_ok() && scaled.check(&memory).is_ok());
    assert_eq!(process.stop().1, 0);
}

/// Returns how many calls each of the threads has made.
fn calls(process: &Target, memory: &Memory) -> Vec<u64> {
    let counts = process.address(0);
    let threads = (0..THREADS).map(|thread| counts + (thread * LINE) as u64);
    threads
        .map(|at| memory.read_u64(at).expect("the process is alive"))
        .collect()
}

fn open_files(process: &Target) -> usize {
    let folder = format!("/proc/{}/fd", process.pid());
    std::fs::read_dir(folder).unwrap().count()
}

/// Has a tool kill itself at a step. Returns whether it ended before. After that, the process is as it was.
fn kill(process: &Target, step: u64) -> bool {
    let pid = process.pid();
    let [work, scaled] = functions(pid);
    let memory = Memory::open(pid).unwrap();
    let files = open_files(process);
    let handlers = handled(pid);
    let status = tool("attach_and_die", process, step).wait().unwrap();
    if status.success() {
        return true;
    }
    assert_eq!(status.signal(), Some(libc::SIGKILL), "step {step}");
    wait_until(|| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let are_restored = work.check(&memory).is_ok() && scaled.check(&memory).is_ok();
        status.contains("TracerPid:\t0\n") && are_restored && handled(pid) == handlers
    });
    assert_eq!(open_files(process), files, "step {step}");
    let before = calls(process, &memory);
    wait_until(|| {
        let after = calls(process, &memory);
        before.iter().zip(after).all(|(&one, other)| one < other)
    });
    attach(pid, || ());
    assert_eq!(handled(pid), handlers, "step {step}");
    false
}

/// Kills a tool at each step in turn, from `first` on, of a process in a mode of busy.c.
fn kill_at_steps(mode: &str, first: u64, distance: usize) {
    let binary = Binary::compile("busy.c", &[]);
    let mut process = binary.start(&[&THREADS.to_string(), mode]);
    let mut steps = (first..).step_by(distance);
    let last = steps.find(|&step| kill(&process, step)).unwrap();
    assert!(last > 20, "{last}");
    assert_eq!(process.stop().1, 0, "{mode}");
}

/// Threads that work, and threads that wait in the kernel and have handlers: each step with one of the two.
#[test]
fn a_tool_may_be_killed_at_any_step() {
    kill_at_steps("", 1, 2);
    kill_at_steps("bt", 2, 2);
}

#[test]
#[ignore = "the same with both at each step: make endurance"]
fn many_tools_are_killed_at_any_step() {
    kill_at_steps("", 1, 1);
    kill_at_steps("bt", 1, 1);
}

/// Kills the first tool of a process, which has the most to make there, at every other step from `first` on.
fn kill_first_tool(first: u64) {
    let binary = Binary::compile("busy.c", &[]);
    for step in (first..).step_by(2) {
        let mut process = binary.start(&[&THREADS.to_string()]);
        let is_last = kill(&process, step);
        assert_eq!(process.stop().1, 0, "step {step}");
        if is_last {
            break;
        }
    }
}

/// Half of the steps each, at the same time.
#[test]
fn the_first_tool_of_a_process_may_be_killed_at_any_odd_step() {
    kill_first_tool(1);
}

#[test]
fn the_first_tool_of_a_process_may_be_killed_at_any_even_step() {
    kill_first_tool(2);
}

#[test]
fn the_probes_of_another_tool_stay() {
    let mut process = Binary::compile("busy.c", &[]).start(&["4", "t"]);
    let [work, scaled] = functions(process.pid());
    let memory = Memory::open(process.pid()).unwrap();
    let mut other = tool("attach_and_wait", &process, 0);
    let mut output = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap().ends_with("attached")));
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let empty = program::empty(&mut runtime);
    let probe = |function| Probe {
        function,
        entry: Some(empty),
        returns: None,
        inside: &[],
    };
    assert!(runtime.attach(&[probe(&work)]).is_err());
    other.kill().unwrap();
    other.wait().unwrap();
    wait_until(|| work.check(&memory).is_ok() && scaled.check(&memory).is_ok());
    let attachment = runtime.attach(&[probe(&work), probe(&scaled)]).unwrap();
    let mut last = tool("attach_and_die", &process, 0);
    assert!(!last.wait().unwrap().success(), "both are probed already");
    let before = runtime.hits(&attachment)[1].entry.hits;
    wait_until(|| runtime.hits(&attachment)[1].entry.hits > before + 1000);
    runtime.detach(attachment).unwrap();
    assert_eq!(process.stop().1, 0);
}

#[test]
#[ignore = "is the tool that kills itself"]
fn attach_at_the_return_and_die() {
    fault::die_at(number(STEP));
    let pid = number(TARGET) as i32;
    let held = Image::of_program(pid).unwrap().function("held").unwrap();
    let mut runtime = patiently(|| Runtime::open(pid));
    let wild = program::wild(&mut runtime);
    let probe = Probe {
        function: &held,
        entry: None,
        returns: Some(wild),
        inside: &[],
    };
    let probes = [probe];
    let attachment = patiently(|| runtime.attach(&probes));
    runtime.detach(attachment).unwrap();
}

#[test]
fn a_thread_that_was_moved_to_a_probe_has_its_program() {
    let mut process = Binary::compile("held.c", &[]).start(&[]);
    let pid = process.pid();
    let held = Image::of_program(pid).unwrap().function("held").unwrap();
    let memory = Memory::open(pid).unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut moved = 0;
    // The first makes the memory, which the others find there: they take fewer steps.
    for step in 0.. {
        process.send("go");
        wait_until(|| status().contains("State:\tT"));
        let ret = process.address(0) + 4;
        let rip = || {
            let stopped = patiently(|| Stopped::all(pid));
            stopped.registers(pid).unwrap().rip
        };
        {
            let stopped = patiently(|| Stopped::all(pid));
            let mut registers = stopped.registers(pid).unwrap();
            registers.rip = ret;
            stopped.set_registers(pid, registers).unwrap();
        }
        let ended = tool("attach_at_the_return_and_die", &process, step).wait();
        wait_until(|| held.check(&memory).is_ok() && status().contains("TracerPid:\t0\n"));
        moved += u64::from(rip() != ret);
        signal::kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
        process.ready();
        if ended.unwrap().success() && step > 0 {
            break;
        }
    }
    assert!(moved > 2, "{moved}");
}
