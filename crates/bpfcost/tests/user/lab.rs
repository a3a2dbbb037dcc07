//! Processes that are probed, and tools in both ways.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use bpfcost_process::wait_until;

use crate::tool::{Said, Tool};

/// No wait is longer; on an idle machine each ends within seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(5);
/// Time after which an interrupt is sent again.
const RESENT: Duration = Duration::from_secs(3);

/// Way in which a tool's programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Kernel,
    User,
}

/// A process that answers each line with one.
struct Lines {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Lines {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = Lines {
            input: child.stdin.take().expect("a pipe"),
            child,
            output,
        };
        assert!(lines.line().starts_with("ready"));
        lines
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it prints");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it reads");
        self.line()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The target `called.c` of `crates/uprobe`: its function `work` is called by four threads.
pub(crate) struct Called {
    tool: Tool,
    lines: Lines,
}

impl Called {
    pub(crate) fn start() -> Self {
        let tool = Tool::new();
        let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../uprobe/tests/targets");
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-O2", "-pthread", "-fno-omit-frame-pointer", "-o"])
            .args([tool.path("target"), targets.join("called.c")]);
        assert!(compiler.status().expect("gcc runs").success());
        let lines = Lines::start(&mut Command::new(tool.path("target")));
        Called { tool, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.lines.id()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.tool.path("target")
    }

    /// Has it called so often, and does not wait for that.
    pub(crate) fn begin(&mut self, times: u64) {
        writeln!(self.lines.input, "{times}").expect("it reads");
    }

    pub(crate) fn call(&mut self, times: u64) {
        assert_eq!(self.lines.ask(&times.to_string()), "done 0");
    }
}

/// A process that looks names up.
pub(crate) struct Resolver(Lines);

impl Resolver {
    pub(crate) fn start() -> Self {
        let script = "import socket, sys\n\
                      print('ready', flush=True)\n\
                      for line in sys.stdin:\n    \
                          for i in range(int(line)): socket.getaddrinfo('localhost', 80 + i)\n    \
                          print('done', flush=True)\n";
        Resolver(Lines::start(
            Command::new("/usr/bin/python3").args(["-c", script]),
        ))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn look_up(&mut self, times: u64) {
        assert_eq!(self.0.ask(&times.to_string()), "done");
    }
}

/// A tool that runs.
pub(crate) struct Running {
    /// The folder that it runs in.
    _tool: Tool,
    child: Child,
    output: BufReader<ChildStdout>,
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
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Running {
            _tool: tool,
            child,
            output,
            name: name.to_owned(),
            way,
        }
    }

    /// The next lines of its output.
    pub(crate) fn lines(&mut self, number: usize) -> Vec<String> {
        let lines = self.output.by_ref().lines().take(number);
        let lines: Vec<String> = lines.map(|line| line.expect("its output")).collect();
        assert_eq!(lines.len(), number, "it ended");
        lines
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
        let mut out = String::new();
        self.output.read_to_string(&mut out).expect("its output");
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
