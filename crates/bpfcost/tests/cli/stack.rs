//! `stack`: the stacks of a known load are shown in each form, every event is accounted for, and whatever ends it leaves
//! nothing attached. The load makes system calls all the time, on one CPU.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use bpfcost_bpf::idle::Idle;
use regex::Regex;
use serde_json::Value;

use crate::{
    attached::alone,
    browser::{self, Browser},
    privilege::nobody,
    require,
    running::Running,
    tool::{Tool, said},
    top::await_account,
};

/// Runs until an event was seen, at most. The load may be kept from its CPU.
const RUNS: usize = 100;

/// A process that reads and writes single bytes; ended when dropped.
struct Load {
    child: Child,
    cpu: u32,
}

impl Load {
    fn start() -> Self {
        let cpu = bpfcost_bpf::allowed_cpus()[0];
        let child = Command::new("taskset")
            .args(["-c", &cpu.to_string()])
            .args(["dd", "if=/dev/zero", "of=/dev/null", "bs=1"])
            .args(["status=none"])
            .spawn();
        Load {
            child: child.expect("taskset runs"),
            cpu,
        }
    }

    /// The options that pick its events.
    fn events(&self) -> String {
        format!(
            "stack raw_syscalls:sys_enter --pid {} --comm dd",
            self.child.id()
        )
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answer of such a run once an event came: its stdout and stderr.
fn with_events(tool: &Tool, line: &str) -> (String, String) {
    let said = (0..RUNS)
        .map(|_| tool.says(&format!("{line} --duration 200ms")))
        .find(|said| {
            let nothing = [" 0 events", "\"events\":0,"];
            !nothing
                .iter()
                .any(|one| said.out.contains(one) || said.err.contains(one))
        });
    let said = said.expect("an event");
    assert_eq!(said.code, Some(0), "{line}: {said:?}");
    (said.out, said.err)
}

fn number(value: &Value, pointer: &str) -> u64 {
    let number = value.pointer(pointer).and_then(Value::as_u64);
    number.unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

/// The stacks of a profile by their functions, the innermost first. Every event is one of its accounts.
#[track_caller]
fn accounted(json: &str) -> BTreeMap<Vec<String>, u64> {
    let profile: Value = serde_json::from_str(json).expect("one object");
    let total = |name: &str| number(&profile, &format!("/totals/{name}"));
    let known = total("counted") + total("reported");
    assert_eq!(total("events"), known + total("lost"), "{profile}");
    let mut stacks = BTreeMap::new();
    for stack in profile["stacks"].as_array().expect("stacks") {
        let frames = stack["frames"].as_array().expect("frames");
        let name = |frame: &Value| frame["name"].as_str().expect("a name").to_owned();
        let names: Vec<String> = frames.iter().map(name).collect();
        *stacks.entry(names).or_default() += number(stack, "/count");
    }
    assert_eq!(stacks.values().sum::<u64>(), known, "{profile}");
    assert!(number(&profile, "/cost/runs") >= known, "{profile}");
    assert!(number(&profile, "/cost/kernel_bytes") > 0, "{profile}");
    stacks
}

#[test]
fn every_event_of_a_load_is_accounted_for() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let (tool, load) = (Tool::new(), Load::start());
    for by in ["", "--helper", "--attach tracepoint"] {
        let (json, errors) = with_events(&tool, &format!("{} --json {by}", load.events()));
        assert_eq!(errors, "", "{by}");
        for names in accounted(&json).into_keys() {
            // Those of an interrupt begin elsewhere; a system call always goes through here.
            assert!(
                names.iter().any(|name| name == "do_syscall_64"),
                "{names:?}"
            );
        }
    }
    // Tracepoints of system calls have no raw form, and bpftrace writes what kind of event it is before each.
    for event in [
        "syscalls:sys_enter_write",
        "tracepoint:raw_syscalls:sys_enter",
    ] {
        let line = load.events().replace("raw_syscalls:sys_enter", event);
        let (json, errors) = with_events(&tool, &format!("{line} --json"));
        assert_eq!(errors, "", "{event}");
        assert!(!accounted(&json).is_empty(), "{event}");
    }
    let (json, _) = with_events(&tool, &format!("{} --json --depth 2", load.events()));
    let stacks = accounted(&json);
    assert!(stacks.keys().all(|names| names.len() == 2), "{stacks:?}");
    let cut = number(&serde_json::from_str(&json).expect("JSON"), "/totals/cut");
    assert_eq!(cut, stacks.values().sum::<u64>(), "{json}");
}

#[test]
fn the_most_frequent_stacks_are_shown() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let (tool, load) = (Tool::new(), Load::start());
    let (text, errors) = with_events(&tool, &load.events());
    assert_eq!(errors, "");
    for words in [
        "raw_syscalls:sys_enter: ",
        "do_syscall_64+0x",
        "accounts: ",
        "cost: ",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    // Of nobody there is nothing, and it says what to try.
    let said = tool.says("stack raw_syscalls:sys_enter --comm none-such --duration 1ms");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("0 events = 0 counted"), "{said:?}");
    assert!(said.err.contains("--comm"), "{said:?}");
}

#[test]
fn folded_lines_begin_with_the_outermost_function() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let (tool, load) = (Tool::new(), Load::start());
    let (lines, summary) = with_events(&tool, &format!("{} --folded", load.events()));
    let line = Regex::new(r"^[^; ][^;]*(;[^;]+)* ([0-9]+)$").expect("a pattern");
    let mut sum = 0;
    for text in lines.lines() {
        let groups = line.captures(text).unwrap_or_else(|| panic!("{text}"));
        sum += groups[2].parse::<u64>().expect("a count");
        let place = |name| text.find(name).unwrap_or_else(|| panic!("{text}"));
        assert!(place("do_syscall_64") < place("syscall_trace_enter"));
    }
    let summary = summary.replace(',', "");
    let known = format!("= {sum} counted in the kernel + 0 reported");
    assert!(summary.contains(&known), "{sum}: {summary}");
}

#[test]
fn live_events_have_their_process_and_cpu() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let (tool, load) = (Tool::new(), Load::start());
    let mut watch = tool
        .command(&format!("{} --live", load.events()))
        .spawn()
        .expect("the binary runs");
    let lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let lines: Vec<String> = lines.take(200).map(|line| line.expect("a line")).collect();
    watch.kill().expect("it may be killed");
    watch.wait().expect("a child");
    let (frames, heads): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with("    "));
    let id = load.child.id();
    // It moves to its CPU before it becomes what the filter lets through.
    let head = format!(r"^ *[0-9]+\.[0-9]{{6}}  CPU {}\s+dd {id}/{id}$", load.cpu);
    let head = Regex::new(&head).expect("a pattern");
    assert!(heads.len() > 10, "{lines:?}");
    assert!(heads.iter().all(|line| head.is_match(line)), "{heads:?}");
    let call = |line: &&&String| line.contains("do_syscall_64+0x");
    assert!(frames.iter().filter(call).count() + 1 >= heads.len());
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let (tool, load) = (Tool::new(), Load::start());
    for shape in [
        "--live",
        "--folded --duration 50ms",
        "--json --duration 50ms",
    ] {
        let line = format!("{} {shape}", load.events());
        let said = tool.shell(&format!(
            "{{ $BPFCOST {line}; echo \"code $?\" >&2; }} | head -c 1 | wc -c"
        ));
        assert!(said.err.contains("code 0"), "{shape}: {said:?}");
        assert!(!said.err.contains("error"), "{shape}: {said:?}");
    }
    let said = tool.shell("$BPFCOST stack raw_syscalls:sys_enter --json --duration 1ms >/dev/full");
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["cannot write to standard output"]);
}

#[test]
fn what_a_slow_reader_loses_is_counted() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let (tool, load) = (Tool::new(), Load::start());
    let run = format!(
        "'{}' {} --live --duration 1s 2>errors | (sleep 2; cat >answer)",
        env!("CARGO_BIN_EXE_bpfcost"),
        load.events()
    );
    let accounts =
        r"(\S+) events = (\S+) counted in the kernel \+ (\S+) reported one by one \+ (\S+) lost";
    let accounts = Regex::new(accounts).expect("a pattern");
    let loses = || {
        let status = Command::new("sh")
            .args(["-c", &run])
            .current_dir(tool.path(""))
            .status();
        assert!(status.expect("sh runs").success());
        let errors = fs::read_to_string(tool.path("errors")).expect("errors");
        let groups = accounts.captures(&errors);
        let groups = groups.unwrap_or_else(|| panic!("no accounts in {errors}"));
        let number = |at: usize| {
            groups[at]
                .replace(',', "")
                .parse::<u64>()
                .expect("a number")
        };
        let [events, counted, reported, lost] = [1, 2, 3, 4].map(number);
        assert_eq!(events, counted + reported + lost, "{errors}");
        let answer = fs::read_to_string(tool.path("answer")).expect("an answer");
        let shown = answer
            .lines()
            .filter(|line| line.contains("  CPU "))
            .count();
        assert_eq!(shown as u64, reported, "{errors}");
        lost > 0
    };
    // The load may be kept from its CPU.
    assert!((0..RUNS).any(|_| loses()), "nothing is lost");
}

#[test]
fn the_flame_graph_opens_in_a_browser() -> anyhow::Result<()> {
    let _turn = alone();
    if !require::host() {
        return Ok(());
    }
    let Some(chromium) = browser::find() else {
        require::skip("there is no Chromium in /usr/bin/chromium or BPFCOST_CHROMIUM");
        return Ok(());
    };
    let (tool, load) = (Tool::new(), Load::start());
    let (out, summary) = with_events(&tool, &format!("{} --svg stacks.svg", load.events()));
    assert_eq!(out, "");
    assert!(summary.contains("flame graph: stacks.svg"), "{summary}");
    assert_eq!(tool.names(), ["stacks.svg"]);
    let mut browser = Browser::start(&chromium)?;
    browser.open(&tool.path("stacks.svg"), 1200, "light")?;
    let text = browser.eval("document.documentElement.textContent")?;
    let text = text.as_str().expect("text");
    for words in ["Kernel stacks of raw_syscalls:sys_enter", "do_syscall_64 ("] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    let frames = browser.eval("document.querySelectorAll('#frames > g').length")?;
    assert!(frames.as_u64() > Some(2), "{frames}");
    // Its script has begun, and a click makes a function as wide as the picture.
    let reset = "document.getElementById('unzoom').classList.contains('hide')";
    assert_eq!(browser.eval(reset)?, Value::Bool(true));
    browser.click("#frames > g:last-of-type > rect")?;
    assert_eq!(browser.eval(reset)?, Value::Bool(false));
    assert_eq!(browser.complaints, [""; 0]);
    Ok(())
}

#[test]
fn without_stacks_no_flame_graph_is_written() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    tool.write("old.svg", "what was there");
    let line = "stack raw_syscalls:sys_enter --comm none-such --duration 1ms --svg old.svg";
    tool.refuses(line, 4, &["no stacks", "--duration"]);
    let old = fs::read_to_string(tool.path("old.svg")).expect("the file");
    assert_eq!(old, "what was there");
}

#[test]
fn whatever_ends_it_nothing_stays_attached() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let program = Idle::load().expect("a program");
    if program.run(1).expect("a run").stats.run_cnt > 0 {
        return require::skip("bpf_stats is on: sysctl kernel.bpf_stats_enabled=0");
    }
    let event = "stack raw_syscalls:sys_enter --comm none-such";
    // One without an end is meant to be ended; one that has an end was ended early.
    for (options, signal, code) in [
        ("--json", "INT", Some(0)),
        ("--json --duration 1h", "INT", Some(130)),
        ("--json --duration 1h", "TERM", Some(130)),
        ("--live", "KILL", None),
        ("--helper", "KILL", None),
    ] {
        let mut run = Running::without_record(&tool, &format!("{event} {options}"));
        // What it holds before is the self-test's.
        await_account(&program, true);
        let held = run.until_it_holds();
        run.signal(signal);
        let said = run.end();
        assert_eq!(said.code, code, "{options}: {said:?}");
        held.assert_freed();
        await_account(&program, false);
        if code.is_some() {
            // What was seen until then.
            assert!(accounted(&said.out).is_empty(), "{said:?}");
            assert_eq!(said.err, "", "{said:?}");
        }
    }
}

#[test]
fn who_may_not_look_is_told_so() {
    let tool = Tool::new();
    for capabilities in ["", ",+bpf,+perfmon"] {
        let line = "stack sched:sched_switch --duration 1ms";
        let Some(said) = nobody(&tool, capabilities, line) else {
            return;
        };
        assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{said:?}");
        said.complains(&["CAP_SYS_ADMIN", "sudo bpfcost stack"]);
    }
}

#[test]
fn mistakes() {
    let tool = Tool::new();
    for (line, words) in [
        ("stack", &["SYMBOL|TRACEPOINT"][..]),
        ("stack a:b --depth 500", &["--depth", "1..=127"]),
        ("stack a:b --depth 0", &["--depth", "1..=127"]),
        ("stack a:b --live --json", &["--live", "--json"]),
        ("stack a:b --live --helper", &["--live", "--helper"]),
        ("stack a:b --manual --helper", &["--manual", "--helper"]),
        (
            "stack a:b --comm a-command-of-many-letters",
            &["15 bytes", "a-command-of-ma"],
        ),
        (
            "stack a:b --pid 99999999",
            &["no process 99999999", "ps -e"],
        ),
        ("stack a:b --duration 0s", &["--duration"]),
        ("stack a:b --svg x/y.svg", &["no folder x", "mkdir -p x"]),
        ("stack a:b --svg .", &["is a folder", "--svg ./stacks.svg"]),
        (
            "stack a:b --svg /proc/y.svg",
            &["cannot write /proc/y.svg", "--svg FILE"],
        ),
    ] {
        tool.refuses(line, 2, words);
    }
    assert_eq!(tool.names(), [""; 0]);
}

/// A name that several functions have.
fn ambiguous() -> Option<String> {
    let list = fs::read_to_string("/proc/kallsyms").expect("symbols");
    let mut seen = BTreeMap::new();
    for line in list.lines() {
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next().is_some_and(|kind| kind == "t") {
            *seen.entry(words.next()?).or_insert(0) += 1;
        }
    }
    let name = seen.into_iter().find(|(_, count)| *count > 1)?.0;
    Some(name.to_owned())
}

#[test]
fn wrong_names_have_right_ones_beside_them() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    for (line, words) in [
        (
            "vfs_red",
            &["no function vfs_red", "did you mean vfs_read?"][..],
        ),
        ("sched:sched_swich", &["did you mean sched:sched_switch?"]),
        ("shed:sched_switch", &["did you mean sched:sched_switch?"]),
        (
            "sched_switch",
            &["a tracepoint", "Write sched:sched_switch"],
        ),
        ("sched:*", &["sched:* is not a tracepoint", "category:name"]),
        (":", &["category:name"]),
        ("sched:sched_switch --attach kprobe", &["is a tracepoint"]),
        ("vfs_read --attach raw_tp", &["is a function"]),
        ("kprobe:vfs_red", &["did you mean vfs_read?"]),
        (
            "kretprobe:vfs_read",
            &["stack takes no kretprobe", "kprobe:FUNCTION"],
        ),
        (
            "tracepoint:syscalls:sys_enter_writ",
            &["did you mean syscalls:sys_enter_write?"],
        ),
        (
            "syscalls:sys_enter_write --attach raw_tp",
            &["syscalls:sys_enter_write:"],
        ),
    ] {
        tool.refuses(&format!("stack {line} --duration 1ms"), 2, words);
    }
    if let Some(name) = ambiguous() {
        let line = format!("stack {name} --duration 1ms");
        tool.refuses(&line, 2, &["is ambiguous", "caller"]);
    }
    // Functions need kprobes or trampolines, which this kernel may have.
    let mut command = tool.command("stack vfs_read --duration 1ms");
    let read = said(&command.stdin(Stdio::null()).output().expect("it runs"));
    match read.code {
        Some(4) => read.complains(&["cannot attach to vfs_read", "Name a tracepoint"]),
        code => assert_eq!(code, Some(0), "{read:?}"),
    }
}
