//! Programs that tests compile, start and probe.

#![allow(dead_code, reason = "each test program uses a part of it")]

#[path = "../../../bpf/tests/require/mod.rs"]
pub(crate) mod require;

pub(crate) mod program;

use bpfcost_uprobe::{
    probes::{self, At, Attached, Place, Probes},
    process::{Image, Memory, Stopped, mappings},
};
use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// Waits for what another process will do. To yield instead of sleeping would have that process's threads take all of
/// the CPUs for long.
#[track_caller]
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < TIMEOUT, "in vain");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Longer than anything takes that a test waits for.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until no uprobe of the kernel is left in a function of a process. A link that was closed may still be open in a
/// fork of this process that has not yet closed its files.
pub(crate) fn until_restored(process: &Target, function: &str) {
    let image = Image::of_program(process.pid()).unwrap();
    let function = image.function(function).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    wait_until(|| function.check(&memory).is_ok());
}

/// Attaches a program of an object at the entry of a function of a process's own file.
pub(crate) fn attach_at_entry(
    probes: &mut Probes,
    pid: i32,
    program: &str,
    function: &str,
) -> probes::Result<Attached> {
    let function = Image::of_program(pid).unwrap().function(function).unwrap();
    let place = Place {
        program,
        function: &function,
        at: At::Entry,
        cookie: 0,
    };
    probes.attach(pid, &[place])
}

/// The signals that a process has handlers of.
pub(crate) fn handled(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("SigCgt:"));
    line.unwrap().to_owned()
}

/// The bytes of a process's vDSO.
pub(crate) fn vdso(pid: i32) -> Vec<u8> {
    let all = mappings(pid).unwrap();
    let vdso = all.iter().find(|mapping| mapping.name == "[vdso]").unwrap();
    let memory = Memory::open(pid).unwrap();
    let length = (vdso.end - vdso.start) as usize;
    memory.read_vec(vdso.start, length).unwrap()
}

/// Writes code of a process, as a debugger does: some kernels let only its tracer write it.
pub(crate) fn write_code(process: &Target, address: u64, bytes: &[u8]) {
    let _stopped = Stopped::all(process.pid()).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    memory.write(address, bytes).unwrap();
}

/// A compiled C program in a folder of its own.
pub(crate) struct Binary {
    folder: tempfile::TempDir,
}

impl Binary {
    /// Compiles `tests/targets/NAME`.
    pub(crate) fn compile(name: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/targets")
            .join(name);
        let output = Command::new("gcc")
            .args(["-O2", "-g0", "-pthread", "-o"])
            .arg(folder.path().join("target"))
            .arg(source)
            .args(flags)
            .output()
            .expect("gcc runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Binary { folder }
    }

    /// Compiles `tests/targets/NAME` by another compiler, which takes the output after `-o`.
    pub(crate) fn compile_by(compiler: &str, arguments: &[&str], name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/targets")
            .join(name);
        let output = Command::new(compiler)
            .args(arguments)
            .arg("-o")
            .arg(folder.path().join("target"))
            .arg(source)
            .env("CGO_ENABLED", "0")
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Binary { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("target")
    }

    /// Starts it, up to its "ready".
    pub(crate) fn start(&self, arguments: &[&str]) -> Target {
        self.start_by(&[], arguments)
    }

    /// Starts it by another program, which gets its path and arguments behind its own, and has its process unless it
    /// forks.
    pub(crate) fn start_by(&self, starter: &[&str], arguments: &[&str]) -> Target {
        let path = self.path();
        let words = starter.iter().map(OsStr::new).chain([path.as_os_str()]);
        let words: Vec<&OsStr> = words.chain(arguments.iter().map(OsStr::new)).collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        let mut target = Target {
            child,
            input,
            output,
            addresses: Vec::new(),
        };
        target.ready();
        target
    }
}

/// A running program. Killed with its end.
pub(crate) struct Target {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    addresses: Vec<u64>,
}

impl Target {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for its "ready", and the addresses that it prints.
    pub(crate) fn ready(&mut self) {
        let line = self.line();
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("ready"), "{line}");
        self.addresses = words
            .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap())
            .collect();
    }

    /// The address that it printed as `counts`, `handled` or `seen`.
    pub(crate) fn address(&self, index: usize) -> u64 {
        self.addresses[index]
    }

    /// Sends it a line.
    pub(crate) fn send(&mut self, line: &str) {
        // At once: it may end with the first bytes that it reads.
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// Ends its calls. Returns how many there were, and how many returned something wrong.
    pub(crate) fn stop(&mut self) -> (u64, u64) {
        self.send("stop");
        self.counts()
    }

    /// Has it make its calls, none of which may return something wrong. Returns how many there were.
    pub(crate) fn go(&mut self) -> u64 {
        self.send("go");
        let (calls, wrong) = self.counts();
        assert_eq!(wrong, 0);
        calls
    }

    fn counts(&mut self) -> (u64, u64) {
        let line = self.line();
        let (calls, wrong) = line
            .split_once(' ')
            .unwrap_or_else(|| panic!("it died: {line:?}"));
        (calls.parse().unwrap(), wrong.parse().unwrap())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
    }
}
