//! A new workload is one file, and a new agent is one file: both are made up here, and nothing else knows of them.
//! This test's program is bpfcost with one agent more; it starts itself.

#[path = "../../bpf/tests/require/mod.rs"]
mod require;

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, ExitCode, Output},
    thread::{self, sleep},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use bpfcost::cli;
use bpfcost_probe::{Arguments, BuiltIn, WindowCounts, agent::Agent};
use bpfcost_process::RunContext;
use serde_json::Value;

/// Set where this program is bpfcost.
const AS_BPFCOST: &str = "BPFCOST_MADE_UP";

const WORKLOAD: &str = r#"name = "made-up"
about = "what does a made-up agent cost?"
operation = "thing"
headline = "machine"
window-ms = 100

[[client]]
command = ["sh", "-c", "sleep 0.1; echo did 1000 things"]
output = "text"
metrics = { ops = "did (\\d+) things" }

[[variant]]
name = "agent"
about = "it says that it saw so many"
probe = "builtin:made-up:1000"
quick = true
check = [{ probe = "hits", equals = "ops" }]
"#;

/// A client that runs several times in a window. A run answers 10 requests with 30 bytes; the slowest took 1 ms, and
/// 400 ms in the run that finds the agent's file.
const STALLED: &str = r#"name = "stalled"
about = "what does an agent do that stalls the server once?"
operation = "request"
headline = "machine"
window-ms = 150

[[client]]
command = ["sh", "-c", """
sleep 0.06
echo >> {dir}/runs
if rm {dir}/stalled 2>/dev/null; then echo slowest 400000; else echo slowest 1000; fi
echo got 30 bytes
"""]
output = "text"
ops = 10
repeat = true
metrics = { latency_max_us = "slowest (\\d+)", bytes = "got (\\d+) bytes" }

[[variant]]
name = "agent"
about = "it stalls the server when it is attached, and counts what the server sent"
probe = "builtin:stalling"
quick = true
check = [{ probe = "hits", equals = "bytes" }]
"#;

const STALLING: BuiltIn = BuiltIn::agent(
    "stalling",
    |_| Ok(Vec::new()),
    |_| Ok(Box::new(Stalling::default())),
);

/// Stalls the server of `STALLED`, and counts its bytes.
#[derive(Default)]
struct Stalling {
    runs: PathBuf,
    before: usize,
}

impl Stalling {
    /// Runs of the client so far.
    fn so_far(&self) -> usize {
        fs::read(&self.runs).unwrap_or_default().len()
    }
}

impl Agent for Stalling {
    fn attach(&mut self, context: &RunContext) -> Result<()> {
        self.runs = context.dir.join("runs");
        self.before = self.so_far();
        fs::write(context.dir.join("stalled"), "")?;
        Ok(())
    }

    fn consume(&mut self, timeout: Duration) -> Result<()> {
        sleep(timeout);
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        Ok(WindowCounts {
            hits: Some(30 * (self.so_far() - self.before) as u64),
            ..WindowCounts::default()
        })
    }
}

const AGENT: BuiltIn = BuiltIn::agent(
    "made-up:HITS",
    |arguments| hits(arguments).map(|_| Vec::new()),
    |arguments| {
        Ok(Box::new(MadeUp {
            hits: hits(arguments)?,
            windows: 0,
        }))
    },
);

/// Says that it saw so many.
struct MadeUp {
    hits: u64,
    windows: u64,
}

fn hits(arguments: &Arguments) -> Result<u64> {
    let [hits] = arguments else {
        bail!("builtin:made-up wants a number of hits");
    };
    hits.parse()
        .with_context(|| format!("builtin:made-up: {hits} is no number"))
}

impl Agent for MadeUp {
    fn attach(&mut self, context: &RunContext) -> Result<()> {
        assert_eq!(context.factors["variant"], "agent");
        self.windows += 1;
        Ok(())
    }

    fn consume(&mut self, timeout: Duration) -> Result<()> {
        sleep(timeout);
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        Ok(WindowCounts {
            hits: Some(self.hits),
            lost: 0,
            counts: [("windows".to_owned(), self.windows)].into(),
        })
    }
}

/// Runs the workload as bpfcost would, with `to` in the place of the agent's argument.
fn run(to: &str) -> Output {
    run_workload(&WORKLOAD.replace("made-up:1000", to))
}

fn run_workload(text: &str) -> Output {
    let folder = tempfile::TempDir::new().expect("a folder");
    fs::write(folder.path().join("x.toml"), text).expect("a file");
    Command::new(env::current_exe().expect("this program"))
        .args("run x.toml --quick --format json --out x.json".split(' '))
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("XDG_STATE_HOME", folder.path())
        .env(AS_BPFCOST, "1")
        .output()
        .expect("it runs")
}

fn main() -> ExitCode {
    bpfcost_probe::add(AGENT);
    bpfcost_probe::add(STALLING);
    if env::var_os(AS_BPFCOST).is_some() {
        return cli::main();
    }
    let refused = run("made-up:many");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    for words in ["x.toml:15: ", "`probe`", "many is no number"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    if !require::host() {
        return ExitCode::SUCCESS;
    }
    // They mostly sleep.
    thread::scope(|scope| {
        for test in [
            each_window_is_another,
            what_an_agent_says_is_compared_with_what_the_client_did,
            a_stall_is_told_whole,
        ] {
            scope.spawn(test);
        }
    });
    println!("made_up: ok");
    ExitCode::SUCCESS
}

/// Each epoch has its own agent, and each window is another one of it.
fn each_window_is_another() {
    let output = run("made-up:1000");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let record: Value = serde_json::from_slice(&output.stdout).expect("a record");
    let cases = record["cases"].as_array().expect("cases");
    let agent = cases.iter().find(|case| case["name"] == "agent");
    let agent = agent.expect("the agent's case");
    assert_eq!(agent["status"], "ok", "{agent}");
    let epochs = agent["secondary"]["windows"].as_array().expect("epochs");
    assert!(epochs.len() >= 2, "{epochs:?}");
    for windows in epochs {
        let windows = windows.as_array().expect("windows");
        let numbers: Vec<f64> = windows.iter().filter_map(Value::as_f64).collect();
        assert!(numbers.len() >= 2, "{numbers:?}");
        assert!(
            numbers.windows(2).all(|two| two[1] == two[0] + 1.0),
            "{numbers:?}"
        );
    }
}

fn what_an_agent_says_is_compared_with_what_the_client_did() {
    let wrong = run("made-up:999");
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
}

/// However often the client ran meanwhile, and what its runs counted is the sum over them.
fn a_stall_is_told_whole() {
    let output = run_workload(STALLED);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let record: Value = serde_json::from_slice(&output.stdout).expect("a record");
    let cases = record["cases"].as_array().expect("cases");
    let agent = cases.iter().find(|case| case["name"] == "agent");
    let agent = agent.expect("the agent's case");
    let values = |name: &str| -> Vec<f64> {
        let epochs = agent["secondary"][name].as_array().expect("epochs");
        let trials = epochs.iter().filter_map(Value::as_array).flatten();
        trials.filter_map(Value::as_f64).collect()
    };
    let hiccups = values("hiccup_ms");
    assert!(
        hiccups.len() >= 2 && hiccups.iter().all(|ms| *ms == 399.0),
        "{hiccups:?}"
    );
    assert!(values("latency_max_us").iter().all(|us| *us == 400_000.0));
    let (bytes, ops) = (values("bytes"), values("ops"));
    assert!(
        bytes
            .iter()
            .zip(&ops)
            .all(|(bytes, ops)| *bytes == 3.0 * ops),
        "{bytes:?} {ops:?}"
    );
    assert!(ops.iter().any(|ops| *ops > 10.0), "no client ran again");
}
