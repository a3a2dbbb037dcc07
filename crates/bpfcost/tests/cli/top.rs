//! `top`: a program that runs is seen with its rate and its holder, and the kernel's account is on only meanwhile.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use bpfcost_bpf::idle::{self, Idle};
use bpfcost_process::wait_until;
use serde_json::Value;

use crate::{
    attached::alone,
    privilege::nobody,
    require,
    tool::{Said, Tool, said},
};

/// Does `work` while a program of this process runs; returns its result, and how often the program ran.
fn while_it_runs<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let program = Idle::load().expect("a program");
    let (over, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                program.run(100).expect("runs");
                runs.fetch_add(100, Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let done = work();
        over.store(true, Relaxed);
        done
    });
    (done, runs.into_inner())
}

/// Name of the program.
fn name() -> &'static str {
    idle::NAME.to_str().expect("UTF-8")
}

/// The programs of this process that are called so, in an interval. Other tests have others in it.
fn ours(view: &Value) -> Vec<&Value> {
    let programs = view["programs"].as_array().expect("programs");
    let own = |one: &&Value| {
        let holders = one["held_by"]["processes"].as_array().expect("processes");
        holders
            .iter()
            .any(|holder| holder["pid"] == std::process::id())
    };
    let named = |one: &&Value| one["name"] == name();
    programs.iter().filter(own).filter(named).collect()
}

fn number(value: &Value, pointer: &str) -> f64 {
    let number = value.pointer(pointer).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

#[test]
fn a_program_that_runs_is_seen() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let (answer, runs) = while_it_runs(|| tool.answers("top --once --every 300ms --json"));
    let view: Value = serde_json::from_str(&answer).expect("one object");
    let [program] = ours(&view)[..] else {
        panic!("one program of this process in {view}");
    };
    assert_eq!(program["type"], "socket_filter");
    let seen = number(program, "/runs");
    assert!(
        seen > 0.0 && seen <= runs as f64,
        "{seen} of {runs}: {view}"
    );
    let seconds = number(&view, "/seconds");
    assert!((0.3..60.0).contains(&seconds), "{view}");
    let rate = number(program, "/runs_per_s");
    assert!((rate * seconds / seen - 1.0).abs() < 1e-6, "{view}");
    // The account has its own clock read in it, and that is taken off: nothing is left of a program that does
    // nothing but what its runs differ from those that were measured.
    let (kernel, inside) = (
        number(program, "/kernel_ns_per_run"),
        number(&view, "/tax/inside_ns"),
    );
    assert!(kernel > 0.0 && inside > 0.0, "{view}");
    let left = number(program, "/ns_per_run");
    assert!((left - (kernel - inside).max(0.0)).abs() < 1e-6, "{view}");
    assert!((number(program, "/of_cpu") - rate * left / 1e9).abs() < 1e-9);
    let whole = number(&view, "/total/of_cpu");
    assert!(whole >= number(program, "/of_cpu"), "{view}");
    assert!((0.0..=1.0).contains(&number(program, "/share")), "{view}");
    assert!(view["did_not_run"].is_u64(), "{view}");

    let (table, _) = while_it_runs(|| tool.answers("top --once --every 300ms"));
    let line = table.lines().find(|line| line.contains(name()));
    let line = line.unwrap_or_else(|| panic!("no line of it in {table}"));
    assert!(
        line.contains(&format!("({})", std::process::id())),
        "{line}"
    );
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Not in any column"), "{table}");
}

#[test]
fn intervals_follow_each_other() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let (answer, runs) = while_it_runs(|| tool.answers("top --every 500ms --for 1750ms --json"));
    let views: Vec<Value> = answer
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    assert!((2..=4).contains(&views.len()), "{answer}");
    // No run is counted twice.
    let seen: f64 = views
        .iter()
        .flat_map(ours)
        .map(|program| number(program, "/runs"))
        .sum();
    assert!(seen > 0.0 && seen <= runs as f64, "{seen} of {runs}");
    // A reader that has read enough ends a watch without an end.
    let said = tool.shell("timeout 60 $BPFCOST top --every 50ms --json | head -1 | wc -l");
    assert_eq!((said.code, said.out.trim()), (Some(0), "1"), "{said:?}");
}

/// The kernel forgets a program's account with the program.
#[test]
fn a_program_that_is_unloaded_is_counted() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut program = Some(Idle::load().expect("a program"));
    let mut watch = tool
        .command("top --every 100ms --json")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let found = lines.take(600).any(|line| {
        let view: Value = serde_json::from_str(&line.expect("a line")).expect("an object");
        // It was there at the first look.
        drop(program.take());
        number(&view, "/vanished") > 0.0
    });
    watch.kill().expect("it may be killed");
    watch.wait().expect("a child");
    assert!(found, "no look counted it");
}

/// A watch that has begun: what `program` does is in the kernel's account.
fn watching(tool: &Tool, program: &Idle, line: &str) -> Child {
    let child = tool.command(line).spawn().expect("the binary runs");
    await_account(program, true);
    child
}

/// Waits until the kernel's account is on, or off.
#[track_caller]
pub(crate) fn await_account(program: &Idle, on: bool) {
    let (limit, step) = (Duration::from_secs(60), Duration::from_millis(10));
    let is_on = || program.run(1).expect("a run").stats.run_cnt > 0;
    assert!(wait_until(limit, step, || is_on() == on), "on: {on}");
}

fn signalled(child: Child, signal: &str) -> Said {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &id]).status();
    assert!(sent.expect("kill runs").success());
    said(&child.wait_with_output().expect("its end"))
}

#[test]
fn whatever_ends_it_the_account_is_as_before() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let program = Idle::load().expect("a program");
    if program.run(1).expect("a run").stats.run_cnt > 0 {
        return require::skip("bpf_stats is on: sysctl kernel.bpf_stats_enabled=0");
    }
    // A watch without an end is meant to be ended; one that has an end was ended early.
    for (line, signal, code) in [
        ("top --every 1h", "INT", Some(0)),
        ("top --every 1h --json", "TERM", Some(0)),
        ("top --once --every 1h", "INT", Some(130)),
        ("top --every 1h", "KILL", None),
    ] {
        let said = signalled(watching(&tool, &program, line), signal);
        assert_eq!(said.code, code, "{line}: {said:?}");
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""), "{line}");
        await_account(&program, false);
    }
}

#[test]
fn who_may_not_look_is_told_so() {
    let tool = Tool::new();
    for capabilities in ["", ",+bpf,+perfmon"] {
        let Some(said) = nobody(&tool, capabilities, "top --once") else {
            return;
        };
        assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{said:?}");
        said.complains(&["CAP_SYS_ADMIN", "sudo bpfcost top"]);
    }
}

#[test]
fn mistakes() {
    let tool = Tool::new();
    tool.refuses("top --once --for 3s", 2, &["--once"]);
    tool.refuses("top --every 0s", 2, &["--every"]);
}
