//! Processes to probe, objects for them, and `bpfcost probe` at work.

use std::{
    fs,
    io::{BufRead, BufReader, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
};

use bpfcost_bpf::LIBBPF_HEADERS;
use serde_json::Value;

use crate::tool::{Said, Tool};

/// A tool with objects and a target program in its folder.
pub(crate) struct Lab {
    pub(crate) tool: Tool,
    pub(crate) target: PathBuf,
}

impl Lab {
    /// Compiles a target of `crates/uprobe`, and the objects for it: `calls.bpf.o` and `refused.bpf.o`.
    pub(crate) fn new(target: &str) -> Self {
        let tool = Tool::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../uprobe/tests/targets")
            .join(target);
        let target = tool.path("target");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-o"]).args([&target, &source]);
        assert!(compiler.status().expect("gcc runs").success());
        for name in ["calls", "refused"] {
            let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe");
            let define = format!("-DTARGET=\"{}\"", target.display());
            bpfcost_compile::compile(
                &sources.join(format!("{name}.bpf.c")),
                &tool.path(&format!("{name}.bpf.o")),
                Path::new(LIBBPF_HEADERS),
                &[&define],
            )
            .expect("it compiles");
        }
        Lab { tool, target }
    }
}

/// The target of `forked.c`: at "fork" it makes a child and a child of that, at "call" all three call `work`.
pub(crate) struct Family {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Family {
    pub(crate) fn start(lab: &Lab) -> Self {
        let mut child = Command::new(&lab.target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut family = Family {
            input: child.stdin.take(),
            child,
            output,
        };
        assert_eq!(family.answer(), "ready");
        family
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it prints");
        line.trim_end().to_owned()
    }

    /// Gives an order, and waits until it is done.
    fn order(&mut self, order: &str, answer: &str) {
        let input = self.input.as_mut().expect("it runs");
        writeln!(input, "{order}").expect("it reads");
        assert_eq!(self.answer(), answer);
    }

    pub(crate) fn fork(&mut self) {
        self.order("fork", "forked");
    }

    /// Has `work` called: once by the process, with 0, and once by each child, with `c`. Children are needed.
    pub(crate) fn call(&mut self) {
        self.order("call", "called");
    }

    /// Ends all three.
    pub(crate) fn end(mut self) {
        self.input.take();
        assert!(self.child.wait().expect("it ends").success());
    }

    /// The code of the program in its memory.
    pub(crate) fn code(&self) -> Vec<u8> {
        let pid = self.id();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("mappings");
        let code = maps
            .lines()
            .find(|line| line.contains(" r-xp ") && line.ends_with("/target"));
        let range = code.expect("code").split(' ').next().expect("a range");
        let (start, end) = range.split_once('-').expect("two addresses");
        let number = |hex| u64::from_str_radix(hex, 16).expect("an address");
        let (start, end) = (number(start), number(end));
        let mut bytes = vec![0; (end - start) as usize];
        let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("memory");
        memory.read_exact_at(&mut bytes, start).expect("code");
        bytes
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that calls nothing of the target. Ended when dropped.
pub(crate) struct Sleep(Child);

impl Sleep {
    pub(crate) fn start() -> Self {
        Sleep(Command::new("sleep").arg("600").spawn().expect("sleep"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A `bpfcost probe` that has attached, or waits for what starts.
pub(crate) struct Probing {
    child: Child,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Probing {
    /// Starts it, up to the line that says so.
    #[track_caller]
    pub(crate) fn start(tool: &Tool, line: &str) -> Self {
        let mut child = tool
            .command(&format!("probe {line}"))
            .spawn()
            .expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut first = String::new();
        errors.read_line(&mut first).expect("it says something");
        let begins = ["Probing ", "Waiting "];
        let has_begun = begins.iter().any(|word| first.starts_with(word));
        if !has_begun {
            errors.read_to_string(&mut first).expect("the rest");
            panic!("{line}: {first}");
        }
        Probing {
            child,
            output,
            errors,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it prints");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Sends a signal by its name, and waits for its end.
    pub(crate) fn signalled(self, name: &str) -> Said {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.id())])
            .status();
        assert!(sent.expect("sh runs").success());
        self.end()
    }

    /// Waits for its end. The output is what was not read yet.
    pub(crate) fn end(mut self) -> Said {
        let (mut out, mut err) = (String::new(), String::new());
        self.output.read_to_string(&mut out).expect("its output");
        self.errors.read_to_string(&mut err).expect("its errors");
        let status = self.child.wait().expect("a child");
        Said {
            code: status.code(),
            out,
            err,
        }
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The events of an output, and the result, which is the last.
#[track_caller]
pub(crate) fn events(said: &Said) -> (Vec<Value>, Value) {
    let lines = said.out.lines();
    let parsed = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    let mut events: Vec<Value> = parsed.collect();
    let result = events
        .pop()
        .unwrap_or_else(|| panic!("no result: {said:?}"));
    assert_eq!(result["type"], "result", "{said:?}");
    (events, result)
}

/// Hits of a program of a result, and the processes that it was in. None of its calls was left out.
#[track_caller]
pub(crate) fn hits(result: &Value, program: &str, calls: u64) -> (u64, u64) {
    let programs = result["programs"].as_array().expect("programs");
    let found = programs.iter().find(|one| one["program"] == program);
    let found = found.expect("the program");
    let number = |name: &str| found[name].as_u64().expect("a number");
    let (hits, missed) = (number("hits"), number("missed"));
    assert_eq!(hits + missed, calls, "{result}");
    assert_eq!(result["missed_elsewhere"], 0, "{result}");
    (hits, number("processes"))
}

/// The entries of a map of a result.
#[track_caller]
pub(crate) fn map<'a>(result: &'a Value, name: &str) -> &'a Value {
    let maps = result["maps"].as_array().expect("maps");
    let map = maps.iter().find(|map| map["name"] == name);
    &map.expect("the map")["entries"]
}
