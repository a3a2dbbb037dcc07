//! Processes that start while the tool is there: every call of theirs is counted, from the first one.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
mod missed;
mod reused;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Place, Probes},
    process::{Counts, Error, Image, Memory, Starters, Starts, fault, mappings},
};
use common::{Binary, attach_at_entry, wait_until};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

const WAIT: Duration = Duration::from_millis(50);
/// The file that tools follow, and the step at which they kill themselves.
const FILE: &str = "BPFCOST_UPROBE_FILE";
const STEP: &str = "BPFCOST_UPROBE_STEP";

fn open() -> Probes {
    let object = compile::bpf("tests/starts/count.bpf.c");
    Probes::new(LoadedObject::from_bytes("count", &object, &Choice::default()).unwrap()).unwrap()
}

/// Runs a program so many times, at several of them at once, and checks that each ends well.
fn run(program: &Path, arguments: &[&str], times: usize) {
    let running: Vec<_> = (0..times)
        .map(|_| Command::new(program).args(arguments).spawn().unwrap())
        .collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
}

/// Attaches to a function of a file in each process that starts one of these files while `work` runs. Returns what the
/// probes counted, and how many processes were stopped.
fn follow(
    probes: &mut Probes,
    files: &[&Path],
    (file, function): (&Path, &str),
    work: impl FnOnce() + Send,
) -> (Counts, usize) {
    let mut starts = Starts::new(files, Starters::All).unwrap();
    let mut attached = Vec::new();
    let mut stops = 0;
    thread::scope(|scope| {
        let work = scope.spawn(work);
        let mut is_over = false;
        while !is_over {
            // Before the wait, which then finds the last ones.
            is_over = work.is_finished();
            for started in starts.wait(WAIT).unwrap() {
                stops += 1;
                let pid = started.pid();
                let function = Image::open(pid, file).unwrap().function(function).unwrap();
                let place = Place {
                    program: "count",
                    function: &function,
                    at: At::Entry,
                    cookie: 0,
                };
                attached.push(probes.attach(pid, &[place]).unwrap());
            }
        }
    });
    assert_eq!(starts.missed(), 0);
    let mut counts = Counts::default();
    for one in attached {
        let hits = probes.detach(one).unwrap().entry;
        counts.hits += hits.hits;
        counts.missed += hits.missed;
    }
    (counts, stops)
}

/// Returns what the object's maps have counted.
fn counted(probes: &mut Probes) -> [u64; 4] {
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes[..8].try_into().unwrap());
    let mut events = 0;
    probes.consume("events", |_, _| events += 1).unwrap();
    let dropped = probes.map("events").unwrap().dropped().unwrap();
    let by_cpu = probes.map("by_cpu").unwrap().of_threads(0).unwrap();
    let by_process = probes.map("by_process").unwrap().entries().unwrap();
    let all = probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap();
    [
        number(&all),
        by_cpu.iter().map(|value| number(value)).sum(),
        by_process.iter().map(|(_, value)| number(value)).sum(),
        events + dropped,
    ]
}

#[test]
fn every_call_of_programs_that_start_is_counted() {
    let mut probes = open();
    let mut calls = 0;
    for flags in [&[][..], &["-static"], &["-static-pie"], &["-no-pie"]] {
        let binary = Binary::compile("started.c", flags);
        let path = binary.path();
        let (counts, stops) = follow(&mut probes, &[&path], (&path, "work"), || {
            for _ in 0..5 {
                run(&path, &["10"], 5);
            }
        });
        assert_eq!(stops, 25, "{flags:?}");
        assert_eq!((counts.hits, counts.missed), (250, 0), "{flags:?}");
        calls += counts.hits;
        assert_eq!(counted(&mut probes)[..3], [calls; 3]);
    }
}

#[test]
fn every_call_of_programs_in_go_is_counted() {
    let binary = Binary::compile_by("go", &["build"], "started.go");
    let path = binary.path();
    let mut probes = open();
    let (counts, stops) = follow(&mut probes, &[&path], (&path, "main.work"), || {
        for _ in 0..10 {
            run(&path, &["1000"], 1);
        }
    });
    assert_eq!(stops, 10);
    assert_eq!(counts.hits + counts.missed, 10_000, "{counts:?}");
    assert_eq!(counted(&mut probes)[..3], [counts.hits; 3]);
}

#[test]
fn a_library_is_probed_before_its_constructors() {
    let library = Binary::compile("started_library.c", &["-shared", "-fPIC"]);
    let arguments = [
        "-DLIBRARY".to_owned(),
        format!("-Wl,-rpath,{}", library.path().parent().unwrap().display()),
        library.path().display().to_string(),
    ];
    let binary = Binary::compile("started.c", &arguments.each_ref().map(String::as_str));
    let (path, library) = (binary.path(), library.path());
    let mut probes = open();
    let (counts, stops) = follow(&mut probes, &[&library], (&library, "library_work"), || {
        for _ in 0..10 {
            run(&path, &["10"], 2);
        }
    });
    assert_eq!(stops, 20);
    assert_eq!((counts.hits, counts.missed), (200, 0));
}

#[test]
fn only_descendants_are_stopped_where_these_are_meant() {
    let binary = Binary::compile("started.c", &[]);
    let path = binary.path();
    let mut shell = Command::new("sh")
        .args([
            "-c",
            "read line; \"$0\" 3; sh -c '\"$0\" 3; true' \"$0\"; true",
        ])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let of = [shell.id().cast_signed()];
    let mut starts = Starts::new(&[&path], Starters::DescendantsOf(&of)).unwrap();
    run(&path, &["3"], 3);
    assert!(starts.wait(Duration::ZERO).unwrap().is_empty());
    writeln!(shell.stdin.take().unwrap(), "go").unwrap();
    let mut stops = 0;
    wait_until(|| {
        stops += starts.wait(WAIT).unwrap().len();
        shell.try_wait().unwrap().is_some()
    });
    assert_eq!(stops, 2);
}

#[test]
fn a_process_that_is_stopped_goes_on_when_nothing_follows_it_any_more() {
    let binary = Binary::compile("started.c", &[]);
    let path = binary.path();
    let mut starts = Starts::new(&[&path], Starters::All).unwrap();
    let children = [(); 2].map(|()| Command::new(&path).arg("3").spawn().unwrap());
    let mut one = Vec::new();
    wait_until(|| {
        one.extend(starts.wait(WAIT).unwrap());
        !one.is_empty()
    });
    drop(starts);
    drop(one);
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    run(&path, &["3"], 1);
}

#[test]
#[ignore = "is the tool that another test kills"]
fn follow_and_die() {
    let path = PathBuf::from(std::env::var(FILE).unwrap());
    let step = std::env::var(STEP).unwrap().parse().unwrap();
    let mut probes = open();
    let mut starts = Starts::new(&[&path], Starters::All).unwrap();
    println!("ready");
    let mut started = Vec::new();
    wait_until(|| {
        started = starts.wait(WAIT).unwrap();
        !started.is_empty()
    });
    fault::die_at(step);
    if step == 1 {
        // Here no other process has begun to work on it.
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    let pid = started[0].pid();
    let _attached = attach_at_entry(&mut probes, pid, "count", "work").unwrap();
    started.clear();
    // Not detached: the process may have ended.
}

#[test]
fn a_tool_may_be_killed_while_a_process_is_stopped() {
    let binary = Binary::compile("started.c", &[]);
    let mut is_last = false;
    let mut step = 1;
    while !is_last {
        let mut tool = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "follow_and_die", "--ignored", "--nocapture"])
            .env(FILE, binary.path())
            .env(STEP, step.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(tool.stdout.take().unwrap()).lines();
        assert!(output.any(|line| line.unwrap().ends_with("ready")));
        let mut child = Command::new(binary.path()).arg("10").spawn().unwrap();
        is_last = tool.wait().unwrap().success();
        assert!(child.wait().unwrap().success(), "step {step}");
        // The first steps one by one, then some.
        step += 1 + step / 6;
    }
    assert!(step > 20);
    run(&binary.path(), &["3"], 1);
}

#[test]
fn every_call_of_forked_children_is_counted() {
    let mut probes = open();
    probes.follow_children();
    let mut calls = 0;
    for flags in [&[][..], &["-static"]] {
        let binary = Binary::compile("started.c", flags);
        let path = binary.path();
        let (counts, stops) = follow(&mut probes, &[&path], (&path, "work"), || {
            run(&path, &["10", "50"], 3);
        });
        assert_eq!(stops, 3);
        assert_eq!((counts.hits, counts.missed), (3 * 510, 0), "{flags:?}");
        calls += counts.hits;
        let counted = counted(&mut probes);
        assert_eq!(counted[..3], [calls; 3], "{flags:?}");
        assert_eq!(counted[3], counts.hits, "{flags:?}");
    }
}

#[test]
fn calls_of_too_many_children_are_missed() {
    let mut probes = open();
    probes.follow_children();
    let binary = Binary::compile("started.c", &[]);
    let path = binary.path();
    let (counts, _) = follow(&mut probes, &[&path], (&path, "work"), || {
        run(&path, &["2", "1030"], 1);
    });
    assert_eq!((counts.hits, counts.missed), (2 + 2 * 1024, 2 * 6));
}

/// The child of a process, and its child.
fn descendants(pid: i32) -> [i32; 2] {
    let child = |pid: i32| {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(path).unwrap();
        text.trim().parse().unwrap()
    };
    [child(pid), child(child(pid))]
}

#[test]
fn functions_of_children_are_restored() {
    let mut process = Binary::compile("forked.c", &[]).start(&[]);
    let mut probes = open();
    probes.follow_children();
    let pid = process.pid();
    let function = Image::of_program(pid).unwrap().function("work").unwrap();
    let attached = attach_at_entry(&mut probes, pid, "count", "work").unwrap();
    // A child, and a child of that: none has called anything yet.
    process.send("fork");
    assert_eq!(process.line(), "forked");
    let pids = descendants(pid);
    process.send("call");
    assert_eq!(process.line(), "called");
    assert_eq!(probes.hits(&attached).entry.hits, 3);
    let memories: Vec<_> = pids.iter().map(|&pid| Memory::open(pid).unwrap()).collect();
    assert!(memories.iter().all(|one| function.check(one).is_err()));
    assert_eq!(probes.detach(attached).unwrap().entry.hits, 3);
    for memory in &memories {
        function.check(memory).unwrap();
    }
    process.send("call");
    assert_eq!(process.line(), "called");
    // Now they are processes of their own.
    let attached: Vec<_> = pids
        .iter()
        .map(|&pid| attach_at_entry(&mut probes, pid, "count", "work").unwrap())
        .collect();
    process.send("call");
    assert_eq!(process.line(), "called");
    for one in attached {
        assert_eq!(probes.detach(one).unwrap().entry.hits, 1);
    }
}

#[test]
#[ignore = "is the tool that another test kills"]
fn follow_children_and_wait() {
    let mut probes = open();
    probes.follow_children();
    let pid = std::env::var(FILE).unwrap().parse().unwrap();
    let _attached = attach_at_entry(&mut probes, pid, "count", "work").unwrap();
    println!("ready");
    wait_until(|| false);
}

/// A tool that works on a process, to be killed: an ignored test in a process of its own. It is ready.
fn tool(test: &str, pid: i32) -> Child {
    let mut tool = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(FILE, pid.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(tool.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap().ends_with("ready")));
    tool
}

#[test]
fn functions_of_children_are_restored_when_the_tool_is_killed() {
    let mut process = Binary::compile("forked.c", &[]).start(&[]);
    let pid = process.pid();
    let function = Image::of_program(pid).unwrap().function("work").unwrap();
    let mut tool = tool("follow_children_and_wait", pid);
    process.send("fork");
    assert_eq!(process.line(), "forked");
    let pids = descendants(pid);
    let memories: Vec<_> = pids.iter().map(|&pid| Memory::open(pid).unwrap()).collect();
    assert!(memories.iter().all(|one| function.check(one).is_err()));
    tool.kill().unwrap();
    tool.wait().unwrap();
    wait_until(|| memories.iter().all(|one| function.check(one).is_ok()));
    process.send("call");
    assert_eq!(process.line(), "called");
}

#[test]
fn files_that_no_process_starts_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut narrow = std::fs::read("/proc/self/exe").unwrap();
    narrow.truncate(4096);
    narrow[4] = 1;
    let object = compile::bpf("tests/starts/count.bpf.c");
    for (path, says) in [
        (folder.path().join("none"), "there is no such file"),
        (path("script", b"#!/bin/sh\n"), "it is a script"),
        (path("text", b"hello"), "no ELF file"),
        (path("empty", b""), "no ELF file"),
        (path("narrow", &narrow), "not a 64-bit program"),
        (path("object.o", &object), "not a 64-bit x86 program"),
        (folder.path().to_owned(), "directory"),
    ] {
        let error = Starts::new(&[&path], Starters::All).unwrap_err();
        let words = error.to_string();
        assert!(words.contains(says), "{words}");
        assert!(words.contains(path.to_str().unwrap()), "{words}");
        assert!(matches!(error, Error::Elf { .. } | Error::System { .. }));
    }
}

#[test]
fn functions_are_found_in_other_processes() {
    let binary = Binary::compile("started.c", &[]);
    let path = binary.path();
    let mut starts = Starts::new(&[&path], Starters::All).unwrap();
    let children = [(); 2].map(|()| Command::new(&path).arg("3").spawn().unwrap());
    let mut started = Vec::new();
    wait_until(|| {
        started.extend(starts.wait(WAIT).unwrap());
        started.len() == 2
    });
    let found = [0, 1].map(|index: usize| {
        let pid = started[index].pid();
        let all = mappings(pid).unwrap();
        let is_it = |one: &&bpfcost_uprobe::process::Mapping| {
            one.is_executable() && Path::new(&one.name) == path
        };
        let mapping = all.iter().find(is_it).unwrap().clone();
        (
            Image::of_program(pid).unwrap().function("work").unwrap(),
            mapping,
        )
    });
    let [(one, first), (other, second)] = &found;
    assert_eq!(one.shifted(second.shift_from(first)), *other);
    drop(started);
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}
