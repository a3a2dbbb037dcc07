//! Tools in both ways, and the code of processes that they probe.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::FileExt as _,
    process::{Child, Command},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use bpfcost_process::wait_until;

use crate::tool::{Said, Tool};

/// No wait is longer; on an idle machine each ends within seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(5);
/// Time after which an interrupt is sent again.
const RESENT: Duration = Duration::from_secs(3);

/// Numbers of `epoll_wait`, `epoll_pwait` and `clock_nanosleep`.
const WAITS: [u32; 3] = [232, 281, 230];

/// Way in which a tool's programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Kernel,
    User,
}

/// A tool that runs.
pub(crate) struct Running {
    /// The folder that it runs in.
    _tool: Tool,
    child: Child,
    /// The lines of its output.
    output: Receiver<String>,
    name: String,
    way: Way,
}

impl Running {
    pub(crate) fn start(pid: u32, name: &str, arguments: &[String], way: Way) -> Self {
        let tool = Tool::new();
        let mut command = match way {
            Way::Kernel => tool.wrapped("stdbuf", &format!("-oL {name}")),
            Way::User => tool.command(&format!("user --only {pid} -- stdbuf -oL {name}")),
        };
        let mut child = command.args(arguments).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (send, output) = channel();
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Running {
            _tool: tool,
            child,
            output,
            name: name.to_owned(),
            way,
        }
    }

    /// The next lines of its output.
    pub(crate) fn lines(&self, number: usize) -> Vec<String> {
        let name = &self.name;
        let next = |_| match self.output.recv_timeout(TIMEOUT) {
            Ok(line) => line,
            Err(error) => panic!("no more output of {name}: {error}"),
        };
        (0..number).map(next).collect()
    }

    /// Waits until it prints a line with these words.
    pub(crate) fn until_said(&self, words: &str) {
        while !self.lines(1)[0].contains(words) {}
    }

    /// Waits until it waits for records, or for a signal: tools say that they are there before they have all buffers.
    pub(crate) fn until_waiting(&self) {
        let tool = self.process();
        until("it waits", || {
            let call = fs::read_to_string(format!("/proc/{tool}/syscall")).unwrap_or_default();
            let number = call.split(' ').next().and_then(|call| call.parse().ok());
            number.is_some_and(|number| WAITS.contains(&number))
        });
    }

    /// Does something again and again until it prints a line with these words.
    pub(crate) fn until_seen(&self, words: &str, mut act: impl FnMut()) {
        until(words, || {
            act();
            self.output.try_iter().any(|line| line.contains(words))
        });
    }

    /// The tool's process.
    fn process(&self) -> u32 {
        match self.way {
            Way::Kernel => self.child.id(),
            Way::User => self.processes().1,
        }
    }

    /// bpfcost's process, and the tool's.
    pub(crate) fn processes(&self) -> (u32, u32) {
        assert_eq!(self.way, Way::User);
        let own = self.child.id();
        let children = fs::read_dir(format!("/proc/{own}/task")).expect("threads");
        let mut names = children.flatten().flat_map(|thread| {
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            let numbers = children.split_whitespace().map(str::to_owned);
            numbers.collect::<Vec<_>>()
        });
        let is_tool = |pid: &String| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| self.name.starts_with(name.trim_end()))
        };
        let tool = names.find(is_tool).expect("the tool runs");
        (own, tool.parse().expect("a number"))
    }

    /// Interrupts it, and waits for its end. Tools that are about to wait for their first record may not heed a signal.
    pub(crate) fn interrupted(mut self) -> Said {
        let tool = self.process();
        until("it has ended", || {
            let kill = format!("kill -INT {tool}");
            let sent = Command::new("sh").args(["-c", &kill]).status();
            assert!(sent.is_ok());
            wait_until(RESENT, INTERVAL, || has_ended(&mut self.child))
        });
        self.end()
    }

    /// Waits for its end. The output is what was not read yet.
    pub(crate) fn end(mut self) -> Said {
        let out = self.output.iter().map(|line| line + "\n").collect();
        let mut err = String::new();
        let mut errors = self.child.stderr.take().expect("a pipe");
        errors.read_to_string(&mut err).expect("its errors");
        let status = self.child.wait().expect("a child");
        let code = status.code();
        Said { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process that is not a child of the test.
pub(crate) fn until_gone(pid: u32) {
    until("it has ended", || {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    });
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().expect("a child").is_some()
}

#[track_caller]
fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(wait_until(TIMEOUT, INTERVAL, is_so), "in vain: {what}");
}

/// Code of a process, as it is before it is probed.
pub(crate) struct Code {
    pid: u32,
    start: u64,
    bytes: Vec<u8>,
}

impl Code {
    /// That of a file which it executes.
    pub(crate) fn new(pid: u32, file: &str) -> Self {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("mappings");
        let mut lines = maps.lines();
        let code = lines.find(|line| line.contains(" r-xp ") && line.ends_with(file));
        let range = code.expect("code").split(' ').next().expect("a range");
        let (start, end) = range.split_once('-').expect("two addresses");
        let number = |hex| u64::from_str_radix(hex, 16).expect("an address");
        let (start, end) = (number(start), number(end));
        let mut bytes = vec![0; (end - start) as usize];
        read(pid, start, &mut bytes);
        Code { pid, start, bytes }
    }

    /// Number of stretches of it that are not what they were: places with probes.
    fn places(&self) -> usize {
        let mut now = vec![0; self.bytes.len()];
        read(self.pid, self.start, &mut now);
        let differs: Vec<bool> = now.iter().zip(&self.bytes).map(|(a, b)| a != b).collect();
        let mut places = 0;
        let mut last = None;
        for (at, _) in differs.iter().enumerate().filter(|(_, differs)| **differs) {
            // A jump may have some of the bytes that it replaces.
            places += usize::from(last.is_none_or(|last| at - last > 4));
            last = Some(at);
        }
        places
    }

    /// Waits until so many places at least have a probe.
    pub(crate) fn until_probed(&self, places: usize) {
        until("the probes are there", || self.places() >= places);
    }

    pub(crate) fn until_restored(&self) {
        until("the code is restored", || self.places() == 0);
    }

    #[track_caller]
    pub(crate) fn check_restored(&self) {
        assert_eq!(self.places(), 0, "its code is not what it was");
    }
}

fn read(pid: u32, at: u64, bytes: &mut [u8]) {
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("memory");
    memory.read_exact_at(bytes, at).expect("code");
}
