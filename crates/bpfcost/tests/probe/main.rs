//! `probe`: every call of a probed function is counted, in all processes that are meant, and what the programs count and write is
//! shown. Whatever ends it restores the processes.

#[path = "../overhead/object.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod object;
#[path = "../../../bpf/tests/require/mod.rs"]
mod require;
#[path = "../cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

mod lab;
mod mistakes;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use bpfcost_process::wait_until;
use serde_json::{Value, json};

use lab::{Family, Lab, Probing, Sleep, events, hits, map};
use tool::Tool;

/// The letter with which children call `work`.
const LETTER: u64 = b'c' as u64;
/// No wait is longer; on an idle machine each ends within a second.
const TIMEOUT: Duration = Duration::from_secs(240);

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

#[test]
fn calls_records_lines_and_maps_of_a_family() {
    if !require::host() {
        return;
    }
    let lab = Lab::new("forked.c");
    let mut family = Family::start(&lab);
    let pid = family.id();
    let line = format!("calls.bpf.o --pid {pid} --format json --record call");
    let probing = Probing::start(&lab.tool, &line);
    family.fork();
    (0..3).for_each(|_| family.call());
    family.end();
    // It ends with the processes.
    let said = probing.end();
    assert_eq!(said.code, Some(0), "{said:?}");
    let (events, result) = events(&said);
    let (on_work, processes) = hits(&result, "on_work", 9);
    let (on_return, _) = hits(&result, "on_return", 9);
    assert_eq!(processes, 1, "children are not counted: {result}");
    assert_eq!(
        keys(&result),
        [
            "forgotten_processes",
            "lost_records",
            "maps",
            "missed_elsewhere",
            "programs",
            "seconds",
            "type"
        ]
    );
    let of_type = |kind: &str| -> Vec<&Value> {
        events
            .iter()
            .filter(|event| event["type"] == kind)
            .collect()
    };
    assert_eq!(
        of_type("attached"),
        [&json!({ "type": "attached", "pid": pid })]
    );
    assert_eq!(of_type("ended"), [&json!({ "type": "ended", "pid": pid })]);
    let records = of_type("record");
    assert_eq!(records.len() as u64, on_work, "{said:?}");
    for record in &records {
        assert_eq!(keys(record), ["map", "pid", "type", "value"]);
        assert_eq!(
            (&record["map"], &record["pid"]),
            (&json!("records"), &json!(pid))
        );
        let value = &record["value"];
        assert_eq!(value["text"], "\u{1b}[31m");
        let number = if value["process"] == pid {
            0
        } else {
            -(LETTER as i64)
        };
        assert_eq!(value["negative"], number, "{record}");
    }
    let lines = of_type("line");
    assert_eq!(lines.len() as u64, on_return, "{said:?}");
    for line in lines {
        assert_eq!(
            keys(line),
            ["cpu", "pid", "text", "thread", "time_ns", "type"]
        );
        assert_eq!(line["text"], "\u{1b}[31m returned");
    }
    let own = records
        .iter()
        .filter(|one| one["value"]["process"] == pid)
        .count() as u64;
    let entry = |number, count| json!({ "key": { "number": number, "half": 7, "zero": 0 }, "value": count });
    let expected = [entry(0, own), entry(LETTER, on_work - own)];
    assert_eq!(map(&result, "by_number"), &json!(expected));
    assert_eq!(
        map(&result, "by_thread"),
        &json!([{ "key": 1, "value": on_work }])
    );
    let variables = &map(&result, ".bss")[0]["value"];
    assert_eq!(variables["calls"], on_work, "{result}");
}

#[test]
fn the_text_drives_no_terminal_and_has_the_same() {
    if !require::host() {
        return;
    }
    let lab = Lab::new("started.c");
    let line = format!("probe calls.bpf.o -- {} 30", lab.target.display());
    let said = lab.tool.says(&line);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.out.contains('\u{1b}'), "{said:?}");
    let section = format!("uprobe/{}:work", lab.target.display());
    for words in [
        "60 hits, 0 missed, in",
        "bpf_trace_printk: \u{FFFD}[31m returned",
        ".[31m...|",
        &section,
        "by_number (hash, 30 of 256)\n  {number: 0, half: 7, zero: 0}: 1\n",
        "  … and 10 more: --map by_number\n",
        "by_thread (array, threads summed, 1 of 2)\n  1: 30\n",
        ".bss\n  calls: 30\n",
    ] {
        assert!(said.out.contains(words), "no `{words}` in {}", said.out);
    }
    let said = lab.tool.answers(&line.replace("--", "--map by_number --"));
    assert!(
        said.contains("\n  {number: 29, half: 7, zero: 0}: 1\n"),
        "{said}"
    );
    assert!(!said.contains(" more: "), "{said}");
    assert!(!said.contains("by_thread"), "{said}");
}

#[test]
fn processes_that_start_a_file() {
    if !require::host() {
        return;
    }
    let lab = Lab::new("started.c");
    let target = lab.target.display();
    let line = format!("calls.bpf.o:on_work --path {target} --format json");
    let probing = Probing::start(&lab.tool, &line);
    for arguments in [&["20"][..], &["10", "3"]] {
        let status = Command::new(&lab.target).args(arguments).status();
        assert!(status.expect("it runs").success());
    }
    let said = probing.signalled("INT");
    assert_eq!(said.code, Some(0), "{said:?}");
    let (_, result) = events(&said);
    let (counted, processes) = hits(&result, "on_work", 20 + 4 * 10);
    assert_eq!(processes, 2, "{result}");
    // Of ended processes, too.
    assert_eq!(
        map(&result, "by_thread"),
        &json!([{ "key": 1, "value": counted }])
    );
}

#[test]
fn what_a_command_starts() {
    if !require::host() {
        return;
    }
    let lab = Lab::new("started.c");
    lab.tool
        .write("twice", "./target 10; ./target 20 2; exit 3");
    let said = lab
        .tool
        .says("probe calls.bpf.o --format json --follow -- sh twice");
    assert_eq!(said.code, Some(5), "{said:?}");
    said.complains(&["sh: ended with exit code 3"]);
    let (_, result) = events(&said);
    let (_, processes) = hits(&result, "on_work", 10 + 3 * 20);
    assert_eq!(processes, 2, "{result}");
    // Without --follow, the shell alone is meant.
    let said = lab.tool.says("probe calls.bpf.o -- sh twice");
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&["it does not execute", "no process could be probed"]);
}

/// A control group of a test, removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Makes one; `None` where the hierarchy can't be written.
    fn make() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let place = mounts.find_map(|mut words| {
            let place = words.nth(1)?;
            (words.next()? == "cgroup2").then(|| PathBuf::from(place))
        })?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = place.join(format!("probe-test-{}-{number}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        Some(Group(folder))
    }

    fn name(&self) -> String {
        let name = self.0.file_name().expect("a name");
        name.to_string_lossy().into_owned()
    }

    fn add(&self, family: &Family) {
        let pid = family.id().to_string();
        fs::write(self.0.join("cgroup.procs"), pid).expect("it joins");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel takes a moment to see that the last process ended.
        wait_until(TIMEOUT, Duration::from_millis(2), || {
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

#[test]
fn processes_of_a_control_group_and_those_that_join_it() {
    if !require::host() {
        return;
    }
    let Some(group) = Group::make() else {
        require::skip("no control group (version 2) can be made");
        return;
    };
    let lab = Lab::new("forked.c");
    let mut first = Family::start(&lab);
    let mut second = Family::start(&lab);
    group.add(&first);
    // One that does not execute the file.
    let other = Sleep::start();
    fs::write(group.0.join("cgroup.procs"), other.id().to_string()).expect("it joins");
    let line = format!(
        "calls.bpf.o:on_work --cgroup {} --follow --format json",
        group.name()
    );
    let mut probing = Probing::start(&lab.tool, &line);
    group.add(&second);
    for family in [&first, &second] {
        let event = probing.event();
        assert_eq!(event, json!({ "type": "attached", "pid": family.id() }));
    }
    for family in [&mut first, &mut second] {
        family.fork();
        family.call();
    }
    let said = probing.signalled("TERM");
    assert_eq!(said.code, Some(0), "{said:?}");
    let (_, result) = events(&said);
    let (_, processes) = hits(&result, "on_work", 6);
    assert_eq!(processes, 2, "{result}");
    first.end();
    second.end();
    drop(other);
}

#[test]
fn an_interrupt_shows_what_there_is_and_restores_the_process() {
    if !require::host() {
        return;
    }
    let lab = Lab::new("forked.c");
    let mut family = Family::start(&lab);
    let before = family.code();
    let line = format!(
        "calls.bpf.o --pid {} --duration 1h --format json",
        family.id()
    );
    let probing = Probing::start(&lab.tool, &line);
    assert!(family.code() != before, "there are jumps");
    family.fork();
    family.call();
    let said = probing.signalled("INT");
    assert_eq!(said.code, Some(130), "{said:?}");
    hits(&events(&said).1, "on_work", 3);
    assert!(family.code() == before, "they are gone");
    family.call();
    family.end();
}

#[test]
fn a_kill_restores_the_process() {
    if !require::host() {
        return;
    }
    let lab = Lab::new("forked.c");
    let mut family = Family::start(&lab);
    let before = family.code();
    let line = format!("calls.bpf.o --pid {}", family.id());
    let probing = Probing::start(&lab.tool, &line);
    family.fork();
    family.call();
    assert!(family.code() != before, "there are jumps");
    assert_eq!(probing.signalled("KILL").code, None);
    let is_restored = wait_until(TIMEOUT, Duration::from_millis(2), || {
        family.code() == before
    });
    assert!(is_restored, "there are jumps still");
    family.call();
    family.end();
}

#[test]
fn it_ends_where_a_process_executes_another_program() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    object::calls(&tool);
    let mut shell = Command::new("sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sh runs");
    let pid = shell.id();
    let line = format!("calls.bpf.o --pid {pid} --format json");
    let probing = Probing::start(&tool, &line);
    let input = shell.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut &input, b"echo a\necho b\nexec cat\n").expect("it reads");
    let said = probing.end();
    drop(input);
    shell.wait().expect("it ends");
    assert_eq!(said.code, Some(0), "{said:?}");
    let (events, result) = events(&said);
    let (enter, _) = hits(&result, "enter", 2);
    let records = events.iter().filter(|event| event["type"] == "record");
    // Two returns, each of eight bytes.
    assert_eq!(records.clone().count() as u64, hits(&result, "leave", 2).0);
    for record in records {
        assert_eq!(record["bytes"], "0700000000000000");
    }
    assert_eq!(map(&result, ".bss")[0]["value"]["calls"], enter, "{result}");
    assert!(
        events.contains(&json!({ "type": "ended", "pid": pid })),
        "{events:?}"
    );
}
