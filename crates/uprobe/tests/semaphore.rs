//! Semaphores after the end of the tool, whenever that comes.

mod common;

use bpfcost_uprobe::process::{Function, Image, Inside, Memory, Probe, Runtime, UsdtSite, fault};
use common::{Binary, program, wait_until};
use std::{os::unix::process::ExitStatusExt, process::Command};

/// The process that the tools attach to.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";
/// The step at which one kills itself.
const STEP: &str = "BPFCOST_UPROBE_STEP";
/// Number of probes that another tool has there.
const OTHERS: u16 = 3;

fn sites(pid: i32) -> (Function, Vec<UsdtSite>) {
    let image = Image::of_program(pid).unwrap();
    let sites = image.usdt("test", "armed").unwrap();
    (image.function_around(sites[0].address).unwrap(), sites)
}

fn number(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}

#[test]
#[ignore = "is the tool that kills itself"]
fn attach_and_die() {
    let pid = number(TARGET) as i32;
    let (function, sites) = sites(pid);
    let mut runtime = Runtime::open(pid).unwrap();
    let program = program::wild(&mut runtime);
    let inside: Vec<Inside> = sites
        .iter()
        .map(|site| Inside {
            offset: site.address - function.address,
            program,
            semaphore: site.semaphore,
        })
        .collect();
    let probe = Probe {
        function: &function,
        entry: None,
        returns: None,
        inside: &inside,
    };
    // One of them is raised for the second program of its site.
    let mut fewer = inside.clone();
    fewer[0].semaphore = None;
    let first = Probe {
        inside: &fewer,
        ..probe.clone()
    };
    fault::die_at(number(STEP));
    let first = runtime.attach(&[first]).unwrap();
    let second = runtime.attach(&[probe]).unwrap();
    runtime.detach(first).unwrap();
    runtime.detach(second).unwrap();
}

#[test]
fn a_tool_that_is_killed_at_any_step_leaves_no_semaphore_raised() {
    let mut process = Binary::compile("inside.c", &[]).start(&["2", "bt"]);
    let (function, sites) = sites(process.pid());
    assert_eq!(sites.len(), 2);
    let memory = Memory::open(process.pid()).unwrap();
    let at = sites[0].semaphore.unwrap();
    memory.write(at, &OTHERS.to_le_bytes()).unwrap();
    let is_restored = || {
        let raised = memory.read_u64(at).unwrap() & 0xffff;
        raised == u64::from(OTHERS) && function.check(&memory).is_ok()
    };
    for step in 1.. {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attach_and_die", "--ignored"])
            .env(TARGET, process.pid().to_string())
            .env(STEP, step.to_string())
            .status()
            .unwrap();
        wait_until(is_restored);
        if status.success() {
            assert!(step > 20, "{step}");
            break;
        }
        assert_eq!(status.signal(), Some(libc::SIGKILL), "step {step}");
        // Nor is it lowered too often, a moment later.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(is_restored(), "step {step}");
    }
    assert_eq!(process.stop().1, 0);
}
