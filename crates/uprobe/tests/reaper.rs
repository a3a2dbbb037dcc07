//! The probed process after the end of the tool.

mod common;

use bpfcost_uprobe::process::{Image, Memory, Probe, Runtime};
use common::{Binary, program, wait_until};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// The process that `attach_and_wait` attaches to.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";

#[test]
#[ignore = "is the tool that the other test kills"]
fn attach_and_wait() {
    let pid: i32 = std::env::var(TARGET).unwrap().parse().unwrap();
    let function = Image::of_program(pid).unwrap().function("work").unwrap();
    let mut runtime = Runtime::open(pid).unwrap();
    let wild = program::wild(&mut runtime);
    let probe = Probe {
        function: &function,
        entry: Some(wild),
        returns: Some(wild),
        inside: &[],
    };
    let attachment = runtime.attach(&probe).unwrap();
    wait_until(|| runtime.hits(&attachment).returns.hits > 1000);
    println!("attached");
    wait_until(|| false);
}

#[test]
fn a_tool_that_is_killed_leaves_no_probe() {
    let mut process = Binary::compile("busy.c", &[]).start(&["4", "t"]);
    let function = Image::of_program(process.pid())
        .unwrap()
        .function("work")
        .unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let mut tool = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "attach_and_wait", "--ignored", "--nocapture"])
        .env(TARGET, process.pid().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(tool.stdout.take().unwrap());
    assert!(
        output
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("attached"))
    );
    assert!(function.check(&memory).is_err(), "nothing is attached");
    tool.kill().unwrap();
    tool.wait().unwrap();
    wait_until(|| function.check(&memory).is_ok());
    assert_eq!(process.stop().1, 0);
}
