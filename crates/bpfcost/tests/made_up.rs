//! A new workload is one file, and a new agent is one file: both are made up here, and nothing else knows of them.
//! This test's program is bpfcost with one agent more; it starts itself.

#[path = "../../bpf/tests/require/mod.rs"]
mod require;

use std::{
    env, fs,
    process::{Command, ExitCode, Output},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use bpfcost::{
    cli,
    probe::{self, Arguments, BuiltIn, WindowCounts, agent::Agent},
    process::RunContext,
};
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

    fn consume(&mut self, patience: Duration) -> Result<()> {
        sleep(patience);
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
    let folder = tempfile::TempDir::new().expect("a folder");
    let text = WORKLOAD.replace("made-up:1000", to);
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
    probe::add(AGENT);
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
    let output = run("made-up:1000");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let record: Value = serde_json::from_slice(&output.stdout).expect("a record");
    let cases = record["cases"].as_array().expect("cases");
    let agent = cases.iter().find(|case| case["name"] == "agent");
    let agent = agent.expect("the agent's case");
    assert_eq!(agent["status"], "ok", "{agent}");
    // Each epoch has its own agent, and each window is another one of it.
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
    // What it says is compared with what the client did.
    let wrong = run("made-up:999");
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    println!("made_up: ok");
    ExitCode::SUCCESS
}
