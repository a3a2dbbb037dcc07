//! SIGKILL of a tool, of its supervisor, or of the process that restores, at moments from the start to the end of all: the
//! probed process goes on as it was, and nothing is left running.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpfcost_uprobe::{
    process::{Image, Memory},
    tool::Tool,
};

use super::{
    common::{Binary, Target, require, wait_until},
    counting::Counting,
};

/// The tool's command, a word on each line. Processes of a round are known by it.
const COMMAND: &str = "BPFCOST_UPROBE_COMMAND";
const THREADS: usize = 2;
/// The distance of the threads' numbers of calls in busy.c.
const LINE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Tool,
    Supervisor,
    /// The process that traces the probed one, and restores it. To kill it while it does so is not provided for.
    Tracer,
}

/// A supervisor in a process of its own, and what it has started.
struct Supervised {
    child: Child,
    command: String,
}

#[test]
#[ignore = "is the supervisor that another test kills"]
fn supervise() {
    let words = env::var(COMMAND).unwrap();
    let mut words = words.lines();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    let mut tool = Tool::start(command, None).unwrap();
    while tool
        .run(Duration::from_secs(1), &mut |_| ())
        .unwrap()
        .is_none()
    {}
    tool.finish().1.unwrap();
}

impl Supervised {
    fn start(tool: &Command, input: Stdio) -> Self {
        let words = [tool.get_program()].into_iter().chain(tool.get_args());
        let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
        let command = words.join("\n");
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "kills::supervise", "--ignored", "--nocapture"])
            .env(COMMAND, &command)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Supervised { child, command }
    }

    fn until_attached(&mut self) {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("attached 0 0")));
    }

    /// The processes of it: the tool, itself, and those that it has forked.
    fn processes(&self) -> Vec<i32> {
        let variable = format!("{COMMAND}={}", self.command);
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|one| one == variable.as_bytes())
        })
        .collect()
    }

    /// Kills processes that are there by now. Returns whether there was one.
    fn kill(&mut self, victim: Victim) -> bool {
        let own = self.child.id() as i32;
        let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let tool = PathBuf::from(self.command.lines().next().unwrap());
        let mut victims = self.processes();
        victims.retain(|pid| match victim {
            Victim::Tool => program(*pid) == tool,
            Victim::Supervisor => *pid == own,
            Victim::Tracer => *pid != own && program(*pid) == program(own),
        });
        for pid in &victims {
            let pid = nix::unistd::Pid::from_raw(*pid);
            // It may have ended just now.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        !victims.is_empty()
    }
}

/// The calls of each thread so far.
fn calls(target: &Target, memory: &Memory) -> [u64; THREADS] {
    let at = |thread: usize| target.address(0) + (thread * LINE) as u64;
    std::array::from_fn(|thread| memory.read_u64(at(thread)).unwrap())
}

/// Waits until the process is as it was, nothing of the round runs, and the calls go on.
fn check(target: &Target, round: &mut Supervised) {
    let pid = target.pid();
    let work = Image::of_program(pid).unwrap().function("work").unwrap();
    let memory = Memory::open(pid).unwrap();
    round.child.wait().unwrap();
    wait_until(|| round.processes().is_empty());
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
    work.check(&memory).unwrap();
    let before = calls(target, &memory);
    wait_until(|| {
        let after = calls(target, &memory);
        before
            .iter()
            .zip(after)
            .all(|(before, after)| *before < after)
    });
}

fn kills(moments: u32) {
    if !require::host() {
        return;
    }
    let tool = Counting::compile();
    let busy = Binary::compile("busy.c", &[]);
    let mut target = busy.start(&[&THREADS.to_string()]);
    let command = tool.command(&target, target.pid(), None);
    // From start to end, without a kill.
    let begun = Instant::now();
    let mut whole = Supervised::start(&command, Stdio::null());
    assert!(whole.child.wait().unwrap().success());
    let takes = begun.elapsed();
    check(&target, &mut whole);
    let mut killed = [0; 3];
    for moment in 0..moments {
        let victim = [Victim::Tool, Victim::Supervisor, Victim::Tracer][moment as usize % 3];
        let part = takes * (moment * 37 % moments) / moments;
        let mut round;
        if victim == Victim::Tracer {
            round = Supervised::start(&command, Stdio::piped());
            round.until_attached();
            thread::sleep(part / 4);
        } else {
            // The tool attaches, and detaches at once.
            round = Supervised::start(&command, Stdio::null());
            thread::sleep(part);
        }
        killed[moment as usize % 3] += u32::from(round.kill(victim));
        drop(round.child.stdin.take());
        check(&target, &mut round);
    }
    println!("{moments} moments of {takes:?}; killed tools, supervisors, tracers: {killed:?}");
    assert_eq!(target.stop().1, 0);
}

#[test]
fn kills_at_any_moment_leave_nothing() {
    kills(9);
}

#[test]
#[ignore = "takes minutes; make endurance runs it"]
fn many_kills_at_any_moment_leave_nothing() {
    kills(100);
}
