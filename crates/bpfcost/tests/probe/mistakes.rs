//! Mistakes with `probe` have answers that say what to do.

use bpfcost_uprobe::process::Stopped;

use super::lab::{Family, Lab, Sleep};
use crate::{require, tool::Tool};

#[test]
fn words_alone_are_refused_before_anything_is_loaded() {
    let tool = Tool::new();
    tool.write("script", "#!/bin/sh\n");
    for (line, words) in [
        ("x.bpf.o", &["--pid", "--path", "--cgroup"][..]),
        ("x.bpf.o --pid 1 --path /bin/sh", &["cannot be used with"]),
        (
            "x.bpf.o --pid 4194305",
            &["there is no process 4194305", "ps -e"],
        ),
        (
            "x.bpf.o --pid 2",
            &["process 2 runs no program", "thread of the kernel"],
        ),
        (
            "x.bpf.o --path /no/such",
            &["/no/such: No such file", "/proc/PID/exe"],
        ),
        (
            "x.bpf.o --cgroup no/such",
            &["no control group no/such", "systemd-cgls"],
        ),
        (
            "x.bpf.o -- no-such-program",
            &["no-such-program is not installed"],
        ),
    ] {
        tool.refuses(&format!("probe {line}"), 2, words);
    }
    // As its own process, which the shell becomes.
    let said = tool.shell("exec $BPFCOST probe x.bpf.o --pid $$");
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&["is bpfcost itself", "Name another process"]);
}

#[test]
fn what_can_not_be_probed_is_said_with_the_reason() {
    if !require::host() {
        return;
    }
    let lab = Lab::new("forked.c");
    let target = lab.target.display();
    let family = Family::start(&lab);
    let pid = family.id();
    let sleep = Sleep::start();
    lab.tool.write("text.bpf.o", "text");
    lab.tool.write("script", "#!/bin/sh\n");
    let before = family.code();
    for (line, code, words) in [
        (
            format!("calls.bpf.o --pid {}", sleep.id()),
            2,
            format!(
                "error: calls.bpf.o: process {} does not execute {target}, which the sections name\n  \
                 Compare the sections' files with /proc/PID/maps\n",
                sleep.id()
            ),
        ),
        (
            format!("refused.bpf.o:by_queue --pid {pid}"),
            2,
            "error: by_queue can't run in user space: the map events is of a type that is not supported in user space: \
             queue\n  use a kernel uprobe for it\n"
                .to_owned(),
        ),
        (
            format!("refused.bpf.o --pid {pid}"),
            2,
            "error: refused.bpf.o: in_kernel is of the section tracepoint/raw_syscalls/sys_enter, which has no form in \
             user space\n  Name the program that has one (uprobe/…, uretprobe/…, usdt/…): FILE.bpf.o:PROGRAM\n"
                .to_owned(),
        ),
        (
            format!("calls.bpf.o --pid {pid} --map by_numbers"),
            2,
            "error: the object has no map with entries by_numbers (did you mean by_number?)\n  It has: by_number, \
             by_thread, .bss\n"
                .to_owned(),
        ),
        (
            format!("calls.bpf.o --pid {pid} --record calls"),
            2,
            "error: the object has no struct calls (did you mean call?)\n  It has: call, place, pt_regs\n".to_owned(),
        ),
        (
            format!("text.bpf.o --pid {pid}"),
            2,
            "error: text.bpf.o: it is no BPF object\n  Compile it: clang -O2 -g -target bpf -c FILE.bpf.c\n".to_owned(),
        ),
        (
            "calls.bpf.o --path script".to_owned(),
            2,
            "error: script is a script, which its interpreter executes\n  Name the interpreter's file\n".to_owned(),
        ),
    ] {
        let said = lab.tool.refuses(&format!("probe {line}"), code, &[]);
        assert_eq!(said, words, "{line}");
    }
    let held = Stopped::all(pid.cast_signed()).expect("it stops");
    let line = format!("probe calls.bpf.o --pid {pid}");
    lab.tool.refuses(
        &line,
        4,
        &["is already traced by process", "end that debugger"],
    );
    drop(held);
    assert!(family.code() == before, "nothing was changed");
    family.end();
}
