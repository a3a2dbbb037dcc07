//! Costs of BPF programs in `cargo bench`. [`run`] calls the program bpfcost and gives what it prints, [`main`] prints it as
//! benchmarks do: nothing is measured or judged here.
//!
//! A bench target with `harness = false`:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     bpfcost_bench::main(&["program lb.bpf.o --on exact:6.12 --quick"])
//! }
//! ```
//!
//! bpfcost is looked for in `PATH`; the environment variable `BPFCOST` names another.
#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    io,
    process::{Command, ExitCode},
};

use serde::Deserialize;
use thiserror::Error;

/// A cost, with the ends of its 95 % interval; of a count, the smallest and largest of a load.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Cost {
    /// The cost, in its unit.
    pub value: f64,
    /// The lower end.
    #[serde(rename = "lower_value")]
    pub low: f64,
    /// The upper end.
    #[serde(rename = "upper_value")]
    pub high: f64,
}

/// The costs of a run, by case (`ladder/added-10 on host`) and then by unit (`ns-per-op`, `insn-per-op`).
pub type Costs = BTreeMap<String, BTreeMap<String, Cost>>;

/// Reasons for which there are no costs, or not all.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no bpfcost, or it can't be started.
    #[error("cannot start bpfcost: {0}\n  Install it, or set BPFCOST to its path")]
    NotStarted(#[from] io::Error),
    /// An exit code other than 0.
    #[error("bpfcost ended with exit code {code}{}:\n{message}", if *.code == 1 { ", as a gate failed" } else { "" })]
    Failed {
        /// 1: a gate failed. 2: wrong usage. 3: a case was invalid. 4: the machine lacks something.
        code: i32,
        /// The text that it printed on stderr.
        message: String,
        /// Those of the valid cases, if a gate failed or a case was invalid.
        costs: Costs,
    },
    /// Output that is no list of costs.
    #[error("bpfcost printed no costs: {0}")]
    NoCosts(#[from] serde_json::Error),
}

/// Calls bpfcost with the words of a command line that measures (`run`, `program`, `overhead`), separated by spaces.
pub fn run(line: &str) -> Result<Costs, Error> {
    let program = env::var_os("BPFCOST").unwrap_or_else(|| OsString::from("bpfcost"));
    run_by(program, line)
}

/// The same with the bpfcost at a path.
pub fn run_by(program: impl AsRef<OsStr>, line: &str) -> Result<Costs, Error> {
    let folder = tempfile::tempdir()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = Command::new(program);
    command.args(&words);
    // The record goes with the folder, unless the words say otherwise.
    let keeps = |word: &&str| *word == "--out" || word.starts_with("--out=");
    if !words.iter().any(keeps) {
        command.arg("--out").arg(folder.path().join("record.json"));
    }
    let done = command.args(["--format", "bencher"]).output()?;
    let costs = || serde_json::from_slice(&done.stdout);
    if done.status.success() {
        return Ok(costs()?);
    }
    Err(Error::Failed {
        code: done.status.code().unwrap_or(-1),
        message: String::from_utf8_lossy(&done.stderr).trim().to_owned(),
        costs: costs().unwrap_or_default(),
    })
}

/// Runs command lines as a bench target does: prints a line for each case, and fails if one of them does. A word that cargo
/// passes on (`cargo bench NAME`) chooses lines that contain it.
pub fn main(lines: &[&str]) -> ExitCode {
    let filter = env::args().skip(1).find(|word| !word.starts_with('-'));
    let chosen = |line: &&&str| filter.as_ref().is_none_or(|word| line.contains(word));
    let mut exit = ExitCode::SUCCESS;
    for line in lines.iter().filter(chosen) {
        let costs = match run(line) {
            Ok(costs) => costs,
            Err(error) => {
                eprintln!("bpfcost {line}: {error}");
                exit = ExitCode::FAILURE;
                match error {
                    Error::Failed { costs, .. } => costs,
                    Error::NotStarted(_) | Error::NoCosts(_) => continue,
                }
            }
        };
        for (case, units) in costs {
            for (unit, Cost { value, low, high }) in units {
                let unit = unit.replace("-per-", "/");
                println!("{case:<48} {unit}: [{low:.4} {value:.4} {high:.4}]");
            }
        }
    }
    exit
}
