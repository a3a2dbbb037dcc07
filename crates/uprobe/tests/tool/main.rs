//! Tools as they are: with their programs in user space, they print what they print with them in the kernel.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
mod counting;
mod forking;
mod kills;
mod tracefs;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use bpfcost_uprobe::{
    process::{Image, Memory, mappings},
    tool::Tool,
};
use common::{Binary, require};
use counting::{Counting, Running, call, called};
use object::{Object as _, ObjectSection as _};

const CALLS: u64 = 20_000;

/// All that the tool prints of so many calls.
fn printed(tool: &mut Running, target: &mut common::Target, attached: &str) -> Vec<String> {
    assert_eq!(tool.line(), attached);
    call(target, CALLS);
    tool.send(&format!("poll {}", CALLS / 10));
    let mut lines = tool.until("polled");
    tool.send("dump");
    lines.extend(tool.until("end"));
    // The order of a hash table's entries, and of records of several threads, may be another each time.
    lines.sort();
    lines
}

/// Runs a tool both ways, with one more program or without, and compares all that it prints.
fn prints_the_same_in_both_ways(tool: &Counting, extra: Option<&str>) {
    let (_binary, mut target) = called();
    let pid = target.pid();
    let mut programs = vec!["on_entry", "on_return"];
    programs.extend(extra);
    let attached = "attached".to_owned() + &" 0".repeat(programs.len());
    let mut running = Running::in_kernel(tool.command(&target, pid, extra));
    let in_kernel = printed(&mut running, &mut target, &attached);
    assert!(running.end().is_none());
    common::until_restored(&target, "work");
    let mut running = Running::in_user_space(tool.command(&target, pid, extra), None);
    let in_user_space = printed(&mut running, &mut target, &attached);
    assert_eq!(in_kernel.len(), in_user_space.len());
    for (ours, kernels) in in_user_space.iter().zip(&in_kernel) {
        assert_eq!(ours, kernels);
    }
    let end = running.end().unwrap();
    let number = programs.len() as u64;
    assert_eq!(end.code, Some(0));
    assert_eq!(end.counts.hits, number * CALLS);
    assert_eq!((end.counts.missed, end.counts.refused), (0, 0));
    assert_eq!(end.counts.places, number);
    assert_eq!(end.counts.records, 2 * CALLS / 10);
    assert_eq!((end.counts.lost, end.counts.overflowed), (0, 0));
    let events: Vec<_> = programs
        .iter()
        .map(|one| format!("{one} at work"))
        .collect();
    assert_eq!(end.events, events);
    common::until_restored(&target, "work");
    call(&mut target, 10);
}

#[test]
fn a_tool_prints_the_same_in_both_ways() {
    if require::host() {
        prints_the_same_in_both_ways(&Counting::compile(), None);
    }
}

#[test]
fn a_static_tool_in_go_prints_the_same_in_both_ways() {
    if !require::host() {
        return;
    }
    if let Some(tool) = Counting::in_go() {
        prints_the_same_in_both_ways(&tool, Some("on_several"));
    }
}

/// Runs the tool with one more program, and detaches the first. Returns what it printed of its attachments, and its end.
fn with_extra(extra: &str) -> (String, counting::Supervised) {
    let tool = Counting::compile();
    let (_binary, mut target) = called();
    let command = tool.command(&target, target.pid(), Some(extra));
    let mut running = Running::in_user_space(command, None);
    let attached = running.line();
    call(&mut target, 1000);
    let end = running.end().unwrap();
    common::until_restored(&target, "work");
    (attached, end)
}

#[test]
fn what_can_not_run_in_user_space_fails_with_the_reason() {
    if !require::host() {
        return;
    }
    let (attached, end) = with_extra("on_queue");
    assert_eq!(attached, "attached 0 0 95");
    assert_eq!((end.counts.hits, end.counts.refused), (2000, 1));
    let reason = "on_queue refused: on_queue#";
    let last = end.events.last().unwrap();
    assert!(last.starts_with(reason), "{last}");
    let reason = "can't run in user space: the map queue is of a type that is not supported in user space: queue";
    assert!(last.contains(reason), "{last}");
}

#[test]
fn a_table_is_not_in_the_kernel_and_in_user_space() {
    if !require::host() {
        return;
    }
    let (attached, end) = with_extra("in_kernel");
    assert_eq!(attached, "attached 0 0 95");
    let reason = "in_kernel refused: it runs in the kernel, and a program in user space uses its map by_rest too";
    assert_eq!(end.events.last().unwrap(), reason);
    assert_eq!(
        (end.code, end.counts.hits, end.counts.refused),
        (Some(0), 2000, 1)
    );
}

#[test]
fn a_link_to_several_places_prints_the_same_in_both_ways() {
    if !require::host() {
        return;
    }
    let tool = Counting::compile();
    let (_binary, mut target) = called();
    let ways: [fn(Command) -> Running; 2] = [Running::in_kernel, |command| {
        Running::in_user_space(command, None)
    }];
    let [kernels, ours] = ways.map(|start| {
        let mut running = start(tool.command(&target, target.pid(), Some("on_several")));
        assert_eq!(running.line(), "attached 0 0 0");
        call(&mut target, 700);
        running.send("dump");
        let mut lines = running.until("end");
        lines.sort();
        drop(running.end());
        common::until_restored(&target, "work");
        lines
    });
    assert_eq!(ours, kernels);
    for line in ["by_rest 100 7700", "folder -9"] {
        assert!(ours.contains(&line.to_owned()), "{ours:?}");
    }
}

/// Runs the tool with a semaphore at an offset of the program's file. Returns what it printed of its attachments, and its end.
fn with_semaphore(offset: u64) -> (String, counting::Supervised) {
    let tool = Counting::compile();
    let (_binary, mut target) = called();
    let (pid, memory) = (target.pid(), Memory::open(target.pid()).unwrap());
    let image = Image::of_program(pid).unwrap();
    let start = mappings(pid).unwrap();
    let mut start = start
        .iter()
        .filter(|one| Path::new(&one.name) == image.path());
    let header = start.next().expect("it has mapped its file").start;
    let before = memory.read_vec(header, 64).unwrap();
    let mut command = tool.command(&target, pid, None);
    command.env("SEMAPHORE", offset.to_string());
    let mut running = Running::in_user_space(command, None);
    let attached = running.line();
    assert_eq!(memory.read_vec(header, 64).unwrap(), before);
    call(&mut target, 1000);
    let end = running.end().unwrap();
    common::until_restored(&target, "work");
    (attached, end)
}

/// As bcc's Python tools give it: an offset at random.
#[test]
fn a_semaphore_that_can_not_be_written_is_left_alone() {
    if !require::host() {
        return;
    }
    let (attached, end) = with_semaphore(6);
    assert_eq!(attached, "attached 0 0");
    assert_eq!((end.counts.hits, end.counts.refused), (2000, 0));
}

#[test]
fn a_variable_is_no_semaphore() {
    if !require::host() {
        return;
    }
    let binary = Binary::compile("called.c", &["-fno-omit-frame-pointer"]);
    let file = fs::read(binary.path()).unwrap();
    let file = object::File::parse(&*file).unwrap();
    let data = file.section_by_name(".data").unwrap();
    let (attached, end) = with_semaphore(data.file_range().unwrap().0);
    assert_eq!(attached, "attached 95 95");
    assert_eq!((end.counts.hits, end.counts.refused), (0, 2));
    let reason = "has its semaphore there: it would change a variable";
    assert!(
        end.events.iter().all(|one| one.contains(reason)),
        "{:?}",
        end.events
    );
}

#[test]
fn all_processes_are_those_that_run_and_those_that_start() {
    if !require::host() {
        return;
    }
    let tool = Counting::compile();
    let binary = Binary::compile("called.c", &["-fno-omit-frame-pointer"]);
    let (mut one, mut two) = (binary.start(&[]), binary.start(&[]));
    let command = tool.command(&one, -1, None);
    let running = Running::attached(command, None);
    let mut late = binary.start(&[]);
    for (process, times) in [(&mut one, 100), (&mut two, 1000), (&mut late, 50)] {
        call(process, times);
    }
    // What it did in a process that has ended counts too.
    late.kill();
    call(&mut one, 7);
    let end = running.end().unwrap();
    assert_eq!((end.counts.hits, end.counts.missed), (2 * 1157, 0));
    assert_eq!((end.counts.places, end.counts.left_out), (2, 0));
    assert_eq!(end.events.len(), 6, "{:?}", end.events);
    for process in [&one, &two] {
        common::until_restored(process, "work");
    }
}

#[test]
fn of_all_processes_one_can_be_meant() {
    if !require::host() {
        return;
    }
    let tool = Counting::compile();
    let binary = Binary::compile("called.c", &["-fno-omit-frame-pointer"]);
    let (mut one, mut two) = (binary.start(&[]), binary.start(&[]));
    let command = tool.command(&one, -1, None);
    let running = Running::attached(command, Some(one.pid()));
    call(&mut one, 100);
    call(&mut two, 1000);
    assert_eq!(running.end().unwrap().counts.hits, 200);
}

#[test]
fn a_program_ends_with_its_link_and_all_with_the_tool() {
    if !require::host() {
        return;
    }
    let tool = Counting::compile();
    let (_binary, mut target) = called();
    let memory = Memory::open(target.pid()).unwrap();
    let work = Image::of_program(target.pid())
        .unwrap()
        .function("work")
        .unwrap();
    let mut entry = [0; 5];
    memory.read(work.address, &mut entry).unwrap();
    for round in 0..20 {
        let command = tool.command(&target, target.pid(), None);
        let mut running = Running::attached(command, None);
        call(&mut target, 100);
        running.send("detach");
        assert_eq!(running.line(), "detached");
        // The entry is as it was, some time after; the returns are not.
        common::wait_until(|| {
            let mut now = [0; 5];
            memory.read(work.address, &mut now).unwrap();
            now == entry
        });
        assert!(work.check(&memory).is_err(), "{round}");
        call(&mut target, 10);
        let end = running.end().unwrap();
        assert_eq!((end.counts.hits, end.counts.missed), (210, 0), "{round}");
        assert!(work.check(&memory).is_ok(), "{round}");
    }
}

#[test]
fn a_tool_may_be_started_by_others_and_fork() {
    if !require::host() {
        return;
    }
    let tool = Counting::compile();
    let (_binary, mut target) = called();
    for script in ["exec \"$@\"", "\"$@\"; exit 7"] {
        let counting = tool.command(&target, target.pid(), None);
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh"])
            .arg(counting.get_program())
            .args(counting.get_args());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let running = Running::attached(command, None);
        call(&mut target, 100);
        let end = running.end().unwrap();
        assert_eq!(end.counts.hits, 200);
        assert_eq!(
            end.code,
            Some(if script.starts_with("exec") { 0 } else { 7 })
        );
    }
}

#[test]
fn a_process_that_ends_ends_its_probes_alone() {
    if !require::host() {
        return;
    }
    let tool = Counting::compile();
    let (_binary, mut target) = called();
    let command = tool.command(&target, target.pid(), None);
    let mut running = Running::attached(command, None);
    call(&mut target, 100);
    target.kill();
    running.send("dump");
    let lines = running.until("end");
    assert!(lines.contains(&"by_rest 1 15".to_owned()), "{lines:?}");
    let end = running.end().unwrap();
    assert_eq!((end.code, end.counts.hits), (Some(0), 200));
}

/// Calls of 32 bits would go past the supervisor.
#[test]
fn calls_of_32_bits_fail() {
    if !require::host() {
        return;
    }
    let old = Binary::compile("old_calls.c", &[]);
    let alone = Command::new(old.path()).output().unwrap();
    let mut command = Command::new(old.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::in_user_space(command, None);
    let [bpf, events] = [running.line(), running.line()];
    assert_eq!(running.end().unwrap().code, Some(0));
    // Of kernels without such calls, the filter sees none.
    let alone = String::from_utf8(alone.stdout).unwrap();
    if alone.starts_with("-38\n") {
        return require::skip("this kernel has no system calls of 32 bits");
    }
    assert_eq!(
        [bpf.as_str(), events.as_str()],
        ["-95", "-95"],
        "alone: {alone}"
    );
}

/// A control group's processes are not known, and a session's program runs twice a call.
#[test]
fn uprobes_that_can_not_run_in_user_space_do_not_run_in_the_kernel() {
    if !require::host() {
        return;
    }
    let calls = Binary::compile("past_user_space.c", &[]);
    let mut command = Command::new(calls.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::in_user_space(command, None);
    assert_eq!([running.line(), running.line()], ["95", "95"]);
    let end = running.end().unwrap();
    assert_eq!(end.code, Some(0));
    let refused = (end.counts.calls_refused, end.counts.refused);
    assert_eq!(refused, (1, 1), "{:?}", end.events);
}

#[test]
fn what_is_no_tool_is_an_error() {
    let start = |name: &str| {
        Tool::start(Command::new(name), None)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        start("/nonexistent/tool"),
        "/nonexistent/tool can't be started: No such file or directory (os error 2)\n  Name a command that is in PATH, or a program's file"
    );
    assert!(start("/etc/passwd").starts_with("/etc/passwd can't be started: Permission denied"));
}
