//! `bpfcost init-ci`: a gate for a repository's BPF programs, as a workflow of GitHub Actions.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use minijinja::{Environment, context};

use super::{
    exit::{Exit, usage},
    output::say,
};
use bpfcost_target::Target;

/// The workflow, with what differs left open.
const TEMPLATE: &str = include_str!("init_ci.yml");
/// The rise of a host's costs that fails the gate. On exact targets every instruction does.
const HOST_BUDGET: &str = "2%";

/// Write a CI workflow that fails a pull request if a BPF program gets dearer
///
/// The workflow is one of GitHub Actions. It builds the object of the pull request's base and that of the pull request,
/// and measures both in one run. On an exact target it counts instructions, so any machine does, and one instruction
/// more is found. On a host it measures nanoseconds, and needs a runner of your own with root.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bpfcost init-ci lb.bpf.o --build 'make lb.bpf.o' --source https://example.org/bpfcost.git"
)]
pub(super) struct Args {
    /// The compiled object, by its path in the repository
    #[arg(value_name = "FILE.bpf.o")]
    object: String,
    /// Where CI gets bpfcost from: a git repository
    #[arg(long, value_name = "URL")]
    source: String,
    /// What makes the object [default: make FILE.bpf.o]
    #[arg(long, value_name = "CMD")]
    build: Option<String>,
    /// Where to measure: host or exact:SUITE, which can be repeated
    ///
    /// SUITE is a Debian suite, whose kernel CI fetches: bookworm has 6.1, trixie 6.12, sid a newer one. Programs at hooks of
    /// the kernel, such as kprobes, need exact targets.
    #[arg(long, value_name = "TARGET", default_value = "exact:trixie")]
    on: Vec<String>,
    /// Write the workflow to this file
    #[arg(
        long,
        short,
        value_name = "FILE",
        default_value = ".github/workflows/bpfcost.yml"
    )]
    output: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let file = &args.output;
    if !Path::new(".git").exists() {
        return Err(usage(
            "this is not the top folder of a git repository\n  Go there: cd \"$(git rev-parse --show-toplevel)\"",
        ));
    }
    if file.exists() {
        return Err(usage(format!(
            "{0} exists already\n  Remove it, or write to another file: --output {0}.new",
            file.display()
        )));
    }
    let text = workflow(args)?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(file, text))
        .with_context(|| {
            format!(
                "cannot write {}\n  Choose another file with --output",
                file.display()
            )
        })?;
    say!(
        "wrote {0}\nNext: git add {0}, commit, and open a pull request",
        file.display()
    )?;
    Ok(Exit::Done)
}

fn workflow(args: &Args) -> Result<String> {
    let object = word("FILE.bpf.o", &args.object)?;
    if Path::new(&args.object).is_absolute() || args.object.split('/').any(|part| part == "..") {
        return Err(usage(format!(
            "{object} is not a path in the repository\n  Give it from the top folder on, e.g. src/lb.bpf.o"
        )));
    }
    let build = match &args.build {
        Some(command) => line("--build", command)?.to_owned(),
        None => format!("make {object}"),
    };
    let suites: Vec<Option<String>> = args.on.iter().map(|on| suite(on)).collect::<Result<_>>()?;
    let is_host = suites.contains(&None);
    if is_host && suites.len() > 1 {
        return Err(usage(
            "--on host is a machine of your own, and others are guests\n  Write two workflows: --output names the second",
        ));
    }
    let filled = Environment::new().render_str(
        TEMPLATE,
        context! {
            version => env!("CARGO_PKG_VERSION"),
            source => word("--source", &args.source)?,
            targets => &args.on,
            budget => if is_host { HOST_BUDGET } else { "0%" },
            suites => suites.into_iter().flatten().collect::<Vec<String>>(),
            object, build,
        },
    );
    let text = filled.context("the template of the workflow is wrong")?;
    Ok(text + "\n")
}

/// The suite of a target, whose kernel CI fetches; `None` of the host.
fn suite(target: &str) -> Result<Option<String>> {
    match target.parse().map_err(|error| usage(format!("{error}")))? {
        Target::Host => Ok(None),
        Target::Exact(kernel) if kernel.chars().all(|one| one.is_ascii_lowercase()) => {
            Ok(Some(kernel))
        }
        target => Err(usage(format!(
            "--on {target} is not possible here\n  Name exact:SUITE, e.g. exact:trixie, or host"
        ))),
    }
}

/// One line, so that it stays within its step.
fn line<'a>(what: &str, text: &'a str) -> Result<&'a str> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err(usage(format!(
            "{what} has to be one line of text\n  Put several commands into a script"
        )));
    }
    Ok(text)
}

/// One word of a shell.
fn word(what: &str, text: &str) -> Result<String> {
    let word = shlex::try_quote(line(what, text)?).expect("a line has no NUL");
    Ok(word.into_owned())
}
