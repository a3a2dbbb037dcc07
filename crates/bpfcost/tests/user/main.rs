//! `user`: real tools, with their programs in user space and with them in the kernel, print the same of the same calls. Whatever
//! ends it restores the process.

#[path = "../../../bpf/tests/require/mod.rs"]
mod require;
#[path = "../cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

mod lab;
mod loads;
mod packaged;

use std::process::Command;

use lab::{Code, Running, Way};
use loads::Called;
use tool::Tool;

/// The ways in which a tool runs, in the order in which they are tried.
const WAYS: [Way; 2] = [Way::Kernel, Way::User];

/// Runs a script of bpftrace for the calls of a process in a way; what it prints, by line and sorted, without its greeting.
fn bpftrace(called: &mut Called, script: &str, way: Way) -> Vec<String> {
    let places = script.matches("TARGET").count();
    // Those of the only script that writes some.
    let records = if script.contains("printf") { 5 } else { 0 };
    let script = script.replace("TARGET", &called.path().display().to_string());
    // All probes are there once both have printed, in whichever order bpftrace attaches them.
    let script = format!(
        "interval:ms:50 {{ printf(\"first\\n\"); }} {script} interval:ms:50 {{ printf(\"last\\n\"); }}"
    );
    let pid = called.id().to_string();
    let arguments = ["-q", "-B", "line", "-p", &pid, "-e", &script].map(str::to_owned);
    let tool = Running::start(called.id(), "bpftrace", &arguments, way);
    let mut waited = vec!["first", "last"];
    while !waited.is_empty() {
        let line = tool.lines(1).concat();
        waited.retain(|word| *word != line);
    }
    called.call(5000);
    let mut lines = Vec::new();
    while lines.len() < records {
        lines.extend(tool.lines(1).into_iter().filter(|line| is_own(line)));
    }
    let said = tool.interrupted();
    assert_eq!(said.code, Some(0), "{said:?}");
    if way == Way::User {
        let words = match places {
            1 => "In user space: 1 place, 5,000 hits, 0 missed",
            _ => "In user space: 2 places, 10,000 hits, 0 missed",
        };
        assert!(said.err.contains(words), "{said:?}");
    }
    let rest = said.out.lines().map(str::trim_end);
    lines.extend(rest.filter(|line| is_own(line)).map(str::to_owned));
    lines.sort();
    lines
}

/// Returns whether a script's own probe has written a line.
fn is_own(line: &str) -> bool {
    !["", "first", "last"].contains(&line)
}

#[test]
fn bpftrace_prints_the_same_in_both_ways() {
    if !require::host() {
        return;
    }
    let mut called = Called::start();
    for (script, line) in [
        (
            "uprobe:TARGET:work { @ = count(); @h = hist(arg0); }",
            "@: 5000",
        ),
        (
            "uprobe:TARGET:work { @[arg0 % 7] = sum(arg0); @m = max(arg0); @s = stats(arg0); }",
            "@m: 4999",
        ),
        (
            "uretprobe:TARGET:work { @l = lhist(retval, 0, 5000, 500); }",
            "@l:",
        ),
        (
            "uprobe:TARGET:work / arg0 % 1000 == 1 / { printf(\"%d %s %d\\n\", arg0, comm, pid); }",
            "2001 target PID",
        ),
        (
            "uretprobe:TARGET:work { @[ustack(2)] = count(); }",
            "]: 1250",
        ),
        ("usdt:TARGET:test:called { @u = count(); }", "@u: 5000"),
        // Programs that differ in nothing but their maps.
        (
            "uprobe:TARGET:work { @a = count(); } uprobe:TARGET:call { @b = count(); }",
            "@a: 5000",
        ),
        (
            "BEGIN { @w = 7; } uprobe:TARGET:work { @ = sum(@w); }",
            "@: 35000",
        ),
    ] {
        let [kernel, user] = WAYS.map(|way| bpftrace(&mut called, script, way));
        assert_eq!(user, kernel, "{script}");
        let line = line.replace("PID", &called.id().to_string());
        assert!(user.contains(&line), "{user:?}");
    }
}

#[test]
fn what_is_refused_is_said_with_the_reason() {
    if !require::host() {
        return;
    }
    let called = Called::start();
    let code = Code::new(called.id(), "/target");
    let script = format!("uprobe:{}:work {{ @ = curtask; }}", called.path().display());
    let pid = called.id().to_string();
    let tool = Tool::new();
    let mut command = tool.command("user --only");
    command.args([&pid, "--", "bpftrace", "-q", "-e", &script]);
    let said = tool::said(&command.output().expect("the binary runs"));
    let words = "can't run in user space: instruction ";
    assert!(said.err.contains(words), "{said:?}");
    assert!(
        said.err.contains("the helper bpf_get_current_task"),
        "{said:?}"
    );
    assert!(said.err.contains("1 program refused"), "{said:?}");
    assert_ne!(said.code, Some(0), "{said:?}");
    code.check_restored();
}

/// END is run in the kernel, whose map is empty.
#[test]
fn a_map_of_user_space_is_not_read_in_the_kernel() {
    if !require::host() {
        return;
    }
    let mut called = Called::start();
    let code = Code::new(called.id(), "/target");
    let script = format!(
        "uprobe:{}:work {{ @n[1] = arg0; }} END {{ printf(\"%d\\n\", @n[1]); }}",
        called.path().display()
    );
    let arguments = ["-q".to_owned(), "-e".to_owned(), script];
    let tool = Running::start(called.id(), "bpftrace", &arguments, Way::User);
    code.until_probed(1);
    called.call(100);
    let said = tool.interrupted();
    let words = "it runs in the kernel, and a program in user space uses its map AT_n too";
    assert!(said.err.contains(words), "{said:?}");
    assert!(said.err.contains(", 1 program refused"), "{said:?}");
}

/// Whoever writes faster than bpfcost reads does not keep it from its other work.
#[test]
fn a_flood_of_records_does_not_keep_it_from_its_end() {
    if !require::host() {
        return;
    }
    let mut called = Called::start();
    let code = Code::new(called.id(), "/target");
    let script = format!(
        "uprobe:{}:work {{ printf(\"%d\\n\", arg0); }}",
        called.path().display()
    );
    let arguments = ["-q".to_owned(), "-e".to_owned(), script];
    let tool = Running::start(called.id(), "bpftrace", &arguments, Way::User);
    code.until_probed(1);
    called.begin(u64::MAX / 2);
    let said = tool.interrupted();
    assert!(
        said.err.contains("records handed to the tool"),
        "{}",
        said.err
    );
    code.until_restored();
}

#[test]
fn words_alone_are_refused_before_anything_starts() {
    let tool = Tool::new();
    for (line, code, words) in [
        (
            "user",
            2,
            "error: the following required arguments were not provided:\n  <TOOL>...",
        ),
        (
            "user bpftrace",
            2,
            "error: unexpected argument 'bpftrace' found",
        ),
        (
            "user --only 999999999 -- true",
            2,
            "error: --only 999999999: there is no such process\n  Look for it: pgrep -a NAME\n",
        ),
        (
            "user --only x -- true",
            2,
            "error: invalid value 'x' for '--only <PID>'",
        ),
    ] {
        let said = tool.says(line);
        assert_eq!(said.code, Some(code), "{line}: {said:?}");
        assert!(said.err.starts_with(words), "{line}: {said:?}");
    }
}

#[test]
fn a_tools_exit_code_and_output_are_its_own() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let said = tool.says("user -- no-such-tool");
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err
            .starts_with("error: no-such-tool can't be started: "),
        "{said:?}"
    );
    tool.write("tool", "#!/bin/sh\necho out; echo err >&2; exit 42\n");
    let script = "chmod +x tool; $BPFCOST user -- ./tool; echo $?; $BPFCOST user -- sh -c 'kill -TERM $$'; echo $?";
    let said = tool.shell(script);
    assert_eq!(said.out, "out\n42\n143\n");
    let words = "err\nIn user space: 0 places, 0 hits, 0 missed\nIn user space: 0 places, 0 hits, 0 missed\n";
    assert_eq!(said.err, words);
}

/// The tool, and the process as it was, whatever ends bpfcost or the tool.
#[test]
fn kills_leave_no_tool_and_no_probe() {
    if !require::host() {
        return;
    }
    let mut called = Called::start();
    let script = format!("uprobe:{}:work {{ @ = count(); }}", called.path().display());
    let arguments = ["-q".to_owned(), "-e".to_owned(), script];
    let code = Code::new(called.id(), "/target");
    for victim in ["bpfcost", "bpftrace"] {
        let tool = Running::start(called.id(), "bpftrace", &arguments, Way::User);
        code.until_probed(1);
        called.call(100);
        let (own, bpftrace) = tool.processes();
        let killed = if victim == "bpfcost" { own } else { bpftrace };
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -KILL {killed}")])
            .status();
        assert!(sent.expect("sh runs").success());
        let said = tool.end();
        assert_eq!(
            said.code,
            if victim == "bpfcost" { None } else { Some(137) },
            "{said:?}"
        );
        lab::until_gone(bpftrace);
        code.until_restored();
        called.call(100);
    }
}
