//! Each kind of probe, measured, and gone afterwards.

use std::path::Path;

use serde_json::Value;

use crate::{
    measuring::{Measuring, record, says},
    object::{calls, compiled, ends, talkative},
    require,
    tool::Tool,
};

/// A load of some system calls, which takes a tenth of a second.
const LOAD: [&str; 4] = ["--", "sh", "-c", "echo took 5 ms; sleep 0.1"];

#[test]
fn nothing_beside_a_command_runs_to_the_end() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let asked = [
        "builtin:nothing",
        "--budget",
        "90%",
        "--metric",
        "took ([0-9]+) ms",
    ];
    let said = says(&tool, &[&asked[..], &LOAD].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("nothing"), "{said:?}");
    assert!(
        said.err
            .contains("\ndetached; nothing left behind\nrecord: "),
        "{said:?}"
    );
    let record = record(&tool);
    assert!(record.contains("\"experiment\":\"sh\""), "{record}");
    assert!(
        record.contains("\"metric\""),
        "the number of the output is compared: {record}"
    );
    // It is unknown which way is better.
    assert!(record.contains("\"more_is_better\":null"), "{record}");
    tool.answers("report x.json -o x.md");
    let told = std::fs::read_to_string(tool.path("x.md")).expect("a report");
    assert!(
        told.contains("nothing") && told.contains("metric"),
        "{told}"
    );
}

#[test]
fn two_objects_are_compared_with_none_and_with_each_other() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compiled(&tool);
    talkative(&tool);
    // Of a build that did pin it.
    let pin = Path::new("/sys/fs/bpf/bpfcost_ring");
    let _ = std::fs::remove_file(pin);
    let asked = ["a=talkative.bpf.o", "x.bpf.o:leave + x.bpf.o:enter"];
    let mut run = Measuring::start(&tool, &[&asked[..], &LOAD].concat());
    run.until_trials_of(&[0, 1, 2]);
    run.interrupt();
    let record = record(&tool);
    assert!(record.contains("\"rehearsed_hits\""), "{record}");
    // What is written into buffers is read, by a process that is counted apart; without buffers there is no such process.
    let [_, a, joined]: [Value; 3] = cases(&record).try_into().expect("three cases");
    for value in ["records", "tool_ns"] {
        assert!(least(&a, value) > Some(0.0), "{value} of {a}");
    }
    assert!(!pin.exists());
    assert_eq!(least(&joined, "records"), None, "{joined}");
    assert_eq!(least(&joined, "tool_ns"), Some(0.0), "{joined}");
    let journal = std::fs::read_to_string(tool.path("x.json.journal")).expect("a journal");
    for pair in [
        ("a", "off"),
        ("x:leave+x:enter", "off"),
        ("x:leave+x:enter", "a"),
    ] {
        let pair = format!(r#""case":"{}","baseline":"{}""#, pair.0, pair.1);
        assert!(journal.contains(&pair), "{pair} in {journal}");
    }
}

#[test]
fn bpftrace_as_it_is_typed() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let script = "bpftrace -e 'tracepoint:raw_syscalls:sys_enter { @ = count(); }'";
    let mut run = Measuring::start(&tool, &[&[script][..], &LOAD].concat());
    run.until_trials_of(&[0, 1]);
    run.interrupt();
    let record = record(&tool);
    // They were counted in rehearsals, and no record says more.
    assert!(record.contains("\"rehearsed_hits\""), "{record}");
    assert!(!record.contains("\"hits\""), "{record}");
    assert!(record.contains("\"tool_ns\""), "{record}");
}

#[test]
fn a_tool_that_attaches_in_its_first_run_alone_is_invalid() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    // Later it attaches where nothing happens.
    tool.write(
        "tool",
        "event=oom:mark_victim\n[ -e ran ] || event=raw_syscalls:sys_enter\n: >ran\n\
         exec bpftrace -e \"tracepoint:$event { @ = count(); }\"\n",
    );
    let mut run = Measuring::start(&tool, &[&["sh tool"][..], &LOAD].concat());
    run.until(|journal| journal.contains("\"invalid\""));
    run.interrupt();
    let record = record(&tool);
    let case = &cases(&record)[1];
    assert_eq!(case["status"], "invalid", "{case}");
    let problem = case["problems"][0].to_string();
    for words in [
        "parts of the probe in the kernel at the begin of a window",
        "1 × perf event tracepoint sys_enter",
        "0 × perf event tracepoint sys_enter",
        "1 × perf event tracepoint mark_victim",
    ] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
}

#[test]
fn a_tool_that_ends_in_a_later_window_is_said_to_have_ended() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    tool.write(
        "tool",
        "trace=\"tracepoint:raw_syscalls:sys_enter { @ = count(); }\"\n\
         [ -e ran ] || { : >ran; exec bpftrace -e \"$trace\"; }\n\
         timeout 1 bpftrace -e \"$trace\"; exit 7\n",
    );
    let said = says(&tool, &[&["sh tool"][..], &LOAD].concat());
    assert_ne!(said.code, Some(0), "{said:?}");
    said.complains(&["exit code 7 during the run"]);
}

#[test]
fn a_tool_that_prints_much_takes_no_memory_and_no_disk() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    // With so little room that none of it could be stored.
    tool.write(
        "script",
        "mkdir small && mount -t tmpfs -o size=1m none small || exit 99\n\
         TMPDIR=$PWD/small $BPFCOST overhead --quick --out x.json \"$PROBE\" -- sh -c 'sleep 0.1' 2>said &\n\
         run=$!\n\
         until grep -q '^{\"trial\".*\"case\":1,' x.json.journal 2>/dev/null; do kill -0 $run || exit 98; sleep 0.05; done\n\
         grep VmHWM /proc/$run/status >memory\n\
         kill -INT $run\n\
         wait $run\n\
         echo $? >code\n",
    );
    let mut shell = tool.wrapped("unshare", "--mount sh script");
    shell.env("BPFCOST", env!("CARGO_BIN_EXE_bpfcost"));
    shell.env(
        "PROBE",
        "process:head -c 250000000 /dev/zero | tr '\\0' x; echo lost 12 events; exec sleep 1234",
    );
    let status = shell.status().expect("it starts");
    let read = |name| std::fs::read_to_string(tool.path(name)).unwrap_or_default();
    if status.code() == Some(99) {
        require::skip("no file system can be mounted");
        return;
    }
    assert_eq!(read("code").trim(), "130", "{status}: {}", read("said"));
    let memory = read("memory");
    let kib = memory.split_whitespace().nth(1).expect("a number");
    let kib: u64 = kib.parse().expect("a number");
    assert!(kib < 200_000, "{memory}");
    // Reading it was the tool's CPU time; so is what it printed itself.
    let case = &cases(&record(&tool))[1];
    assert!(least(case, "tool_ns") > Some(0.0), "{case}");
}

#[test]
fn a_tool_without_bpf_has_to_say_so() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    // It starts a process that leaves its session and its parents.
    let stray = "sh -c 'echo $$ >> strays; while :; do :; done'";
    let with = format!("process:(setsid {stray} &); exec sleep 1234");
    let mut run = Measuring::start(&tool, &[&[with.as_str()][..], &LOAD].concat());
    run.until_trials_of(&[0, 1]);
    run.interrupt();
    let record = record(&tool);
    assert!(!record.contains("\"hits\""), "nothing fires in it");
    assert!(least(&cases(&record)[1], "tool_ns") > Some(0.0), "{record}");
    let strays = std::fs::read_to_string(tool.path("strays")).expect("it ran");
    for stray in strays.lines() {
        // One that has ended is listed until its parent, here the first of all processes, has asked how.
        let stat = std::fs::read_to_string(format!("/proc/{stray}/stat"));
        let left = stat.is_ok_and(|stat| !stat.contains(") Z "));
        assert!(!left, "{stray} of {strays} is left");
    }
}

/// The cases of a record.
fn cases(record: &str) -> Vec<Value> {
    let record: Value = serde_json::from_str(record).expect("JSON");
    record["cases"].as_array().expect("cases").clone()
}

/// The least of a secondary value in all windows of a case.
fn least(case: &Value, name: &str) -> Option<f64> {
    let epochs = case["secondary"].get(name)?.as_array()?;
    let trials = epochs.iter().filter_map(Value::as_array).flatten();
    trials.filter_map(Value::as_f64).reduce(f64::min)
}

#[test]
fn a_server_of_its_own_is_started_and_ended() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let server = "redis-server --port {port} --bind 127.0.0.1 --save '' --appendonly no";
    let client = "redis-benchmark -p {port} -q -t set -n 5000";
    let words = ["builtin:nothing", "--server", server, "--client", client];
    let mut run = Measuring::start(&tool, &words);
    run.until_trials_of(&[0, 1]);
    run.interrupt();
    let record = record(&tool);
    assert!(record.contains("\"operation\":\"command\""), "{record}");
    assert!(record.contains("\"server_ns\""), "{record}");
    assert!(!record.contains("open-port"), "{record}");
}

#[test]
fn a_server_that_other_machines_can_reach_is_noted() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let server = "redis-server --port {port} --save '' --appendonly no";
    let client = "redis-benchmark -p {port} -q -t set -n 5000";
    let words = ["builtin:nothing", "--server", server, "--client", client];
    let mut run = Measuring::start(&tool, &words);
    run.until_trials_of(&[0, 1]);
    run.interrupt();
    let record: Value = serde_json::from_str(&record(&tool)).expect("JSON");
    let warnings = record["warnings"].as_array().expect("warnings");
    let open: Vec<&Value> = (warnings.iter())
        .filter(|warning| warning["code"] == "open-port")
        .collect();
    assert_eq!(open.len(), 1, "{warnings:?}");
    let text = open[0]["text"].as_str().expect("a text");
    assert!(
        text.contains("redis-server listens on 0.0.0.0") && text.contains("--bind 127.0.0.1"),
        "{text}"
    );
}

#[test]
fn uprobes_run_in_the_servers_processes() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    calls(&tool);
    let server = "redis-server --port {port} --bind 127.0.0.1 --save '' --appendonly no";
    let client = "redis-benchmark -p {port} -q -t set -n 5000";
    let probes = ["user:calls.bpf.o", "user:calls.bpf.o:enter"];
    let mut run = Measuring::start(
        &tool,
        &[&probes[..], &["--server", server, "--client", client]].concat(),
    );
    run.until_trials_of(&[0, 1, 2]);
    run.interrupt();
    let record: Value = serde_json::from_str(&record(&tool)).expect("JSON");
    let cases = record["cases"].as_array().expect("cases");
    let of = |name: &str| {
        let is_it = |case: &&Value| case["name"].as_str().is_some_and(|one| one == name);
        cases.iter().find(is_it).expect(name)
    };
    // redis answers each request by a call.
    for (name, probes) in [("user:calls", 2.0), ("user:calls:enter", 1.0)] {
        let hits = least(of(name), "hits").expect("hits");
        assert!(hits >= probes, "{name}: {hits} hits a request");
        assert_eq!(least(of(name), "lost"), Some(0.0), "{name}");
    }
    let records = least(of("user:calls"), "records").expect("records");
    assert!(records >= 100.0, "{records}");
}

#[test]
fn what_can_not_run_in_a_servers_process_is_told() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    calls(&tool);
    let server = "redis-server --port {port} --bind 127.0.0.1 --save '' --appendonly no";
    let client = "redis-benchmark -p {port} -q -t set -n 10";
    for (probe, code, words) in [
        ("user:calls.bpf.o:no_such", 2, &["no program no_such"][..]),
        (
            "user:misplaced.bpf.o:in_kernel",
            2,
            &["has no form in user space", "FILE.bpf.o:PROGRAM"],
        ),
        (
            "user:misplaced.bpf.o:nowhere",
            2,
            &["none of the processes executes libnothing.so"],
        ),
        (
            "user:misplaced.bpf.o:misspelt",
            4,
            &["has no function writte", "write"],
        ),
    ] {
        let said = says(&tool, &[probe, "--server", server, "--client", client]);
        assert_eq!(said.code, Some(code), "{said:?}");
        said.complains(words);
    }
    let joined = "user:calls.bpf.o:enter + user:calls.bpf.o:leave";
    let said = says(&tool, &[joined, "--", "true"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&["joins two objects in user space", "into one object"]);
    // Nothing is there yet that executes a file of that name.
    let said = says(&tool, &["user:calls.bpf.o:enter", "--", "true"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&["none of the processes executes libc.so.6", "file's path"]);
}

#[test]
fn uprobes_run_in_what_a_command_starts() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    ends(&tool);
    let command = "/usr/bin/true; /usr/bin/true; /usr/bin/env true; exec true";
    let mut run = Measuring::start(&tool, &["user:ends.bpf.o", "--", "sh", "-c", command]);
    run.until_trials_of(&[0, 1]);
    run.interrupt();
    let cases = cases(&record(&tool));
    assert_eq!(least(&cases[1], "hits"), Some(4.0), "{cases:?}");
    assert_eq!(least(&cases[1], "lost"), Some(0.0), "{cases:?}");
}
