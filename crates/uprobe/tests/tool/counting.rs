//! The tool of the tests, as it is, or with its programs in user space.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use bpfcost_uprobe::{
    process::Image,
    tool::{Tool, ToolCounts, ToolEvent},
};

use crate::{
    common::{Binary, Target, require},
    compile,
};

/// Folder of the loader in Go, and seconds in which its modules have to be there.
const LOADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tool/loader");
const DOWNLOAD_SECONDS: &str = "60";

/// The tool's files.
pub(crate) struct Counting {
    folder: tempfile::TempDir,
}

impl Counting {
    /// The one in C, with libbpf.
    pub(crate) fn compile() -> Self {
        let counting = Counting::object();
        let headers = Path::new(env!("BPFCOST_LIBBPF_HEADERS"));
        let library = headers.parent().unwrap().join("libbpf.a");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tool/counting.c");
        let output = Command::new("gcc")
            .args(["-O1", "-g0", "-o"])
            .arg(counting.path("counting"))
            .arg("-I")
            .arg(headers)
            .args([&source, &library])
            .args(["-lelf", "-lz"])
            .output()
            .expect("gcc runs");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        counting
    }

    /// The one in Go, static and without libbpf. `None` where the test is skipped.
    pub(crate) fn in_go() -> Option<Self> {
        if Command::new("go").arg("version").output().is_err() {
            require::skip("go is not installed");
            return None;
        }
        let counting = Counting::object();
        let go = |arguments: &[&str]| {
            let mut command = Command::new("timeout");
            command.args([DOWNLOAD_SECONDS, "go"]).args(arguments);
            command.current_dir(LOADER);
            command.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local");
            let output = command.output().expect("timeout runs");
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                Ok(())
            } else {
                Err(words)
            }
        };
        if let Err(words) = go(&["mod", "download"]) {
            let reason = format!("the modules of {LOADER} can't be fetched: {words}");
            require::skip_as("modules", reason);
            return None;
        }
        let program = counting.path("counting");
        let built = go(&["build", "-o", program.to_str().unwrap(), "."]);
        match built {
            Err(words) if words.contains("module requires Go") => {
                require::skip_as("modules", format!("this Go is too old: {words}"));
                None
            }
            built => {
                built.unwrap();
                Some(counting)
            }
        }
    }

    fn object() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let object = compile::bpf("tests/tool/counting.bpf.c");
        fs::write(folder.path().join("counting.bpf.o"), object).unwrap();
        Counting { folder }
    }

    /// The command for the function `work` of a process, which may be all of them.
    pub(crate) fn command(&self, target: &Target, pid: i32, extra: Option<&str>) -> Command {
        let (path, offset) = work(target);
        let mut command = Command::new(self.path("counting"));
        command
            .arg(self.path("counting.bpf.o"))
            .arg(pid.to_string())
            .arg(path)
            .arg(offset.to_string())
            .args(extra)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A process whose function `work` is called.
pub(crate) fn called() -> (Binary, Target) {
    let binary = Binary::compile("called.c", &["-fno-omit-frame-pointer"]);
    let target = binary.start(&[]);
    (binary, target)
}

/// The file of the function `work`, and its offset there.
pub(crate) fn work(target: &Target) -> (PathBuf, u64) {
    let image = Image::of_program(target.pid()).unwrap();
    let work = image.function("work").unwrap();
    let mapping = image.mapping(work.address).unwrap();
    let offset = work.address - mapping.start + mapping.offset;
    (image.path().to_owned(), offset)
}

/// Has the process call so often.
pub(crate) fn call(target: &mut Target, times: u64) {
    target.send(&times.to_string());
    assert_eq!(target.line(), "done 0");
}

/// The tool, which waits for lines.
pub(crate) struct Running {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    end: End,
}

enum End {
    InKernel(Child),
    InUserSpace(JoinHandle<Supervised>),
}

/// Words and counts of a supervised tool.
#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) code: Option<i32>,
    pub(crate) counts: ToolCounts,
    /// A line for each event.
    pub(crate) events: Vec<String>,
}

impl Running {
    pub(crate) fn in_kernel(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        Running {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            end: End::InKernel(child),
        }
    }

    /// One that has attached its two programs. `only`: the process that is meant by all processes.
    pub(crate) fn attached(command: Command, only: Option<i32>) -> Self {
        let mut running = Running::in_user_space(command, only);
        assert_eq!(running.line(), "attached 0 0");
        running
    }

    pub(crate) fn in_user_space(command: Command, only: Option<i32>) -> Self {
        let (send, pipes) = mpsc::channel();
        let supervisor = thread::spawn(move || {
            let mut events = Vec::new();
            let mut tool = Tool::start(command, only).unwrap();
            send.send(tool.take_pipes()).unwrap();
            let mut report = |event: ToolEvent<'_>| events.push(words(&event));
            let status = loop {
                if let Some(status) = tool.run(Duration::from_secs(1), &mut report).unwrap() {
                    break status;
                }
            };
            let (counts, restored) = tool.finish();
            restored.unwrap();
            Supervised {
                code: status.code(),
                counts,
                events,
            }
        });
        let (input, output) = pipes.recv().expect("the tool started");
        Running {
            input,
            output: BufReader::new(output.unwrap()),
            end: End::InUserSpace(supervisor),
        }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it was not ended");
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The lines that it prints, up to one.
    pub(crate) fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "it ended after {lines:?}");
            if line == last {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Ends it. `None` of one whose programs ran in the kernel.
    pub(crate) fn end(mut self) -> Option<Supervised> {
        drop(self.input.take());
        match self.end {
            End::InKernel(mut child) => {
                assert!(child.wait().unwrap().success());
                None
            }
            End::InUserSpace(supervisor) => Some(supervisor.join().unwrap()),
        }
    }
}

fn words(event: &ToolEvent<'_>) -> String {
    match event {
        ToolEvent::Attached {
            program, function, ..
        } => format!("{program} at {function}"),
        ToolEvent::LeftOut { pid, reason } => format!("{pid} left out: {reason}"),
        ToolEvent::CallRefused { call, reason } => format!("{call} refused: {reason}"),
        ToolEvent::Refused { program, reason } => format!("{program} refused: {reason}"),
    }
}
