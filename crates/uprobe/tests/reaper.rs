//! The probed process after the end of the tool.

mod common;

use bpfcost_uprobe::process::{Image, Inside, Memory, Probe, Runtime};
use common::{Binary, Target, program, wait_until};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// The process that `attach_and_wait` attaches to.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";

/// Starts a tool, and waits until it is attached.
fn tool(name: &str, process: &Target) -> Child {
    let mut tool = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
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
    tool
}

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
    let mut tool = tool("attach_and_wait", &process);
    assert!(function.check(&memory).is_err(), "nothing is attached");
    tool.kill().unwrap();
    tool.wait().unwrap();
    wait_until(|| function.check(&memory).is_ok());
    assert_eq!(process.stop().1, 0);
}

#[test]
#[ignore = "is the tool that the other test kills"]
fn attach_to_usdt_and_wait() {
    let pid: i32 = std::env::var(TARGET).unwrap().parse().unwrap();
    let image = Image::of_program(pid).unwrap();
    let sites = image.usdt("test", "armed").unwrap();
    let function = image.function_around(sites[0].address).unwrap();
    let mut runtime = Runtime::open(pid).unwrap();
    let program = program::wild(&mut runtime);
    let inside = sites.iter().map(|site| Inside {
        offset: site.address - function.address,
        program,
        semaphore: site.semaphore,
    });
    let probe = Probe {
        function: &function,
        entry: None,
        returns: None,
        inside: &inside.collect::<Vec<_>>(),
    };
    let attachment = runtime.attach(&probe).unwrap();
    wait_until(|| runtime.hits(&attachment).inside.hits > 1000);
    println!("attached");
    wait_until(|| false);
}

#[test]
fn a_tool_that_is_killed_leaves_no_semaphore_raised() {
    let mut process = Binary::compile("inside.c", &[]).start(&["2", "bt"]);
    let image = Image::of_program(process.pid()).unwrap();
    let site = image.usdt("test", "armed").unwrap().remove(0);
    let function = image.function_around(site.address).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let semaphore = || memory.read_u64(site.semaphore.unwrap()).unwrap() & 0xffff;
    let mut tool = tool("attach_to_usdt_and_wait", &process);
    assert_eq!(semaphore(), 2);
    tool.kill().unwrap();
    tool.wait().unwrap();
    wait_until(|| function.check(&memory).is_ok() && semaphore() == 0);
    assert_eq!(process.stop().1, 0);
}
