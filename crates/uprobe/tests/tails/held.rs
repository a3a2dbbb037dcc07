//! Calls that are under way for long, or are left in other ways.

use super::{Runtime, Tails, at_return, attach, only, program, sum};
use crate::common::{Target, wait_until};
use bpfcost_uprobe::process::{Error, Memory, fault};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// The process that a tool attaches to, and the step at which that kills itself.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";
const STEP: &str = "BPFCOST_UPROBE_STEP";

#[test]
fn handlers_may_call_it_leave_it_and_move_it_to_another_thread() {
    let mut tails = Tails::start(&[]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let program = tails.summing(&mut runtime);
    let function = tails.function("leaves");
    for (command, returns) in [("handled 1000", 1), ("left 1000", 0), ("moved 100", 1)] {
        let attachment = attach(&mut runtime, &[&function], program);
        let (calls, results) = tails.call(command);
        let counts = only(&runtime.detach(attachment).unwrap());
        assert_eq!(sum(counts), returns * calls, "{command}: {counts:?}");
        // A thread that comes in the middle of a call may miss it.
        if counts.missed == 0 {
            assert_eq!(tails.take_sum(), results, "{command}");
        }
        tails.take_sum();
        assert_eq!(tails.call("leaves 100").0, 100);
    }
}

#[test]
fn calls_that_are_under_way_when_probes_go_return_without_them() {
    let mut tails = Tails::start(&[]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let function = tails.function("leaves");
    let program = tails.summing(&mut runtime);
    let counting = program::count(&mut runtime, tails.process.address(0) + 8);
    for round in 0..20 {
        let first = attach(&mut runtime, &[&function], program);
        hold(&mut tails, 3);
        assert_eq!(sum(only(&runtime.detach(first).unwrap())), 0);
        function.check(&tails.memory).unwrap();
        if round % 2 == 0 {
            release(&mut tails, 3);
        } else {
            // As at a RET, calls that were under way before run the program that is there now.
            let second = attach(&mut runtime, &[&function], counting);
            release(&mut tails, 3);
            assert_eq!(sum(only(&runtime.detach(second).unwrap())), 3);
        }
        assert_eq!(tails.take_sum(), 0);
    }
}

#[test]
fn probes_come_and_go_while_threads_and_handlers_are_in_it() {
    let mut tails = Tails::start(&[]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let functions = ["leaves", "keeper"].map(|name| tails.function(name));
    let wild = program::wild(&mut runtime);
    tails.process.send("busy 4");
    assert_eq!(tails.process.line(), "busy");
    for _ in 0..100 {
        let probes = functions.each_ref().map(|one| at_return(one, wild));
        let prepared = runtime.prepare(&probes).unwrap();
        let attachment = loop {
            let session = runtime.stop().unwrap();
            match runtime.attach_in(session, &prepared) {
                Err(Error::SavedAddress { .. }) => {}
                other => break other.unwrap(),
            }
        };
        wait_until(|| {
            let hits = runtime.hits(&attachment);
            hits.iter().all(|one| one.returns.hits > 100)
        });
        runtime.detach(attachment).unwrap();
        for function in &functions {
            function.check(&tails.memory).unwrap();
        }
    }
    assert_eq!(tails.ask("stop").wrong, 0);
}

#[test]
#[ignore = "is the tool that another test kills"]
fn attach_and_wait() {
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let pid = number(TARGET) as i32;
    fault::die_at(number(STEP));
    let image = bpfcost_uprobe::process::Image::of_program(pid).unwrap();
    let function = image.function("leaves").unwrap();
    let mut runtime = Runtime::open(pid).unwrap();
    let wild = program::wild(&mut runtime);
    let attachment = attach(&mut runtime, &[&function], wild);
    if number(STEP) == 0 {
        println!("attached");
        wait_until(|| false);
    }
    runtime.detach(attachment).unwrap();
}

fn tool(process: &Target, step: u64) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "held::attach_and_wait",
            "--ignored",
            "--nocapture",
        ])
        .env(TARGET, process.pid().to_string())
        .env(STEP, step.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn calls_that_are_under_way_when_the_tool_is_killed_return() {
    let mut tails = Tails::start(&[]);
    let function = tails.function("leaves");
    for _ in 0..3 {
        let mut tool = tool(&tails.process, 0);
        let mut output = BufReader::new(tool.stdout.take().unwrap()).lines();
        assert!(output.any(|line| line.unwrap().ends_with("attached")));
        assert!(function.check(&tails.memory).is_err());
        hold(&mut tails, 4);
        tool.kill().unwrap();
        tool.wait().unwrap();
        wait_until(|| function.check(&tails.memory).is_ok());
        release(&mut tails, 4);
        assert_eq!(tails.call("leaves 100").0, 100);
    }
}

#[test]
fn the_tool_may_be_killed_at_any_step_while_calls_are_under_way() {
    let mut tails = Tails::start(&[]);
    let function = tails.function("leaves");
    let pid = tails.process.pid();
    let is_untraced = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains("TracerPid:\t0\n")
    };
    for step in 1.. {
        assert!(step < 200);
        hold(&mut tails, 2);
        let status = tool(&tails.process, step).wait().unwrap();
        wait_until(|| function.check(&tails.memory).is_ok() && is_untraced());
        release(&mut tails, 2);
        if status.success() {
            break;
        }
    }
    assert_eq!(tails.call("leaves 100").0, 100);
}

#[test]
fn another_tool_has_tables_of_its_own() {
    let mut tails = Tails::start(&[]);
    let function = tails.function("leaves");
    for _ in 0..3 {
        let mut runtime = Runtime::open(tails.process.pid()).unwrap();
        let program = tails.summing(&mut runtime);
        let attachment = attach(&mut runtime, &[&function], program);
        let (calls, results) = tails.call("leaves 1000");
        hold(&mut tails, 2);
        let counts = only(&runtime.detach(attachment).unwrap());
        assert_eq!((counts.hits, counts.missed), (calls, 0));
        assert_eq!(tails.take_sum(), results);
        drop(runtime);
        release(&mut tails, 2);
        assert_eq!(tails.take_sum(), 0);
    }
    let memory = Memory::open(tails.process.pid()).unwrap();
    function.check(&memory).unwrap();
}

/// Has so many threads wait in the function that `leaves` jumps to.
pub(crate) fn hold(tails: &mut Tails, threads: u64) {
    tails.process.send(&format!("held {threads}"));
    assert_eq!(tails.process.line(), "held");
}

/// Lets them go on. Their results are right.
pub(crate) fn release(tails: &mut Tails, threads: u64) {
    assert_eq!(tails.call("release").0, threads);
}
