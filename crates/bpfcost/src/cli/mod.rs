//! The command line: one file per subcommand, with its arguments and a `run`.

mod agent;
mod check;
mod command;
mod estimate;
mod exit;
mod flame;
mod guest;
mod init_ci;
mod interrupt;
mod kernel;
mod list;
mod load;
mod measurement;
mod output;
mod outside;
mod overhead;
mod parse;
mod place;
mod probe;
mod program;
mod progress;
mod reaper;
mod run;
mod select;
mod self_test;
mod session;
mod stack;
mod store;
mod top;
mod user;
mod version;

use std::process::ExitCode;

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ErrorKind},
};

use self::exit::{Exit, exit_of};
use bpfcost_console::{compare, report};
use bpfcost_process::restore;

/// What does eBPF cost? bpfcost measures it, with intervals and verdicts
///
/// It times BPF programs in the kernel, and probes on running servers. It checks every trial while it is timed, and
/// reports a number, a 95 % interval and a verdict that also hold on a noisy machine.
#[derive(Debug, Parser)]
#[command(name = "bpfcost", version, long_version = version::long())]
#[command(max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Start with:
  bpfcost check                          what this machine can measure
  bpfcost overhead PROBE -- COMMAND      what a probe costs a command
  bpfcost program FILE.bpf.o             what your own program costs per packet
  bpfcost run xdp-lb                     25 paths of an XDP program, with intervals
  bpfcost report RECORD -o report.html   the result as a page

Exit codes:
  0 done   1 a gate or the self-test failed   2 wrong usage or input   3 a case was invalid
  4 the machine lacks something that is needed   5 something that you named failed
  6 --abort-above ended the run   130 interrupted";

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Args),
    List(list::Args),
    Run(run::Args),
    Overhead(overhead::Args),
    Program(program::Args),
    Probe(probe::Args),
    User(user::Args),
    Stack(stack::Args),
    Top(top::Args),
    Compare(compare::Args),
    Report(report::Args),
    Kernel(kernel::Args),
    InitCi(init_ci::Args),
    SelfTest(self_test::Args),
    /// The guest's side of a run, and the launcher of QEMU.
    #[command(hide = true)]
    Guest(guest::Args),
    /// The process of a built-in probe.
    #[command(hide = true)]
    Agent(agent::Args),
    /// The load generator.
    #[command(hide = true)]
    Load(load::Args),
    /// Cleans up when the process that started it ends.
    #[command(hide = true)]
    Reaper(reaper::Args),
}

/// The command line's definition, from which manual pages and completions are made.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if unquoted(&error) {
                output::note!(
                    "error: an option of the probe is not an option of bpfcost\n  {QUOTE}"
                );
                return Exit::Usage.into();
            }
            let exit = output::say_of_words(&error);
            let unknown = error.kind() == ErrorKind::UnknownArgument;
            if unknown && words().first().is_some_and(|word| word == "run") {
                output::note!("A probe on a server or a command: `bpfcost overhead`");
            }
            return exit.into();
        }
    };
    // Not in the processes that bpfcost starts itself.
    let helper = matches!(
        cli.command,
        Command::Guest(_) | Command::Agent(_) | Command::Load(_) | Command::Reaper(_)
    );
    if !helper {
        restore::after_the_dead()
            .iter()
            .for_each(|line| output::note!("{line}"));
    }
    run(cli.command).unwrap_or_else(|error| {
        output::note!("error: {}", exit::sentence(&error));
        exit_of(&error).into()
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let exit = match command {
        // Its exit code is its tool's.
        Command::User(args) => return user::run(&args),
        Command::Check(args) => check::run(&args),
        Command::List(args) => list::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Overhead(args) => overhead::run(&args),
        Command::Program(args) => program::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Stack(args) => stack::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Compare(args) => compare::run(&args, store::sessions().as_ref()),
        Command::Report(args) => report::run(&args),
        Command::Kernel(args) => kernel::run(&args),
        Command::InitCi(args) => init_ci::run(&args),
        Command::SelfTest(args) => self_test::run(&args),
        Command::Guest(args) => guest::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Reaper(args) => reaper::run(&args),
    };
    exit.map(ExitCode::from)
}

/// The command line as text; words that are not Unicode as near as they can be shown.
fn words() -> Vec<String> {
    let words = std::env::args_os().skip(1);
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// What to do where the words of a probe stand alone.
const QUOTE: &str =
    "Write a probe that is a command as one word: bpfcost overhead \"bpftrace -e '…'\" …";

/// Whether an unknown option follows the name of a tool, as in `overhead bpftrace -e …`.
fn unquoted(error: &clap::Error) -> bool {
    let mut words = words().into_iter();
    let overhead = words.next().as_deref() == Some("overhead");
    let option = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let before: Vec<String> = words
        .take_while(|word| {
            option
                .as_ref()
                .is_none_or(|option| !word.starts_with(option.as_str()))
        })
        .collect();
    let tool = before
        .last()
        .is_some_and(|word| !word.starts_with('-') && !word.contains([' ', ':', '=']));
    overhead && tool && error.kind() == ErrorKind::UnknownArgument && before.len() < 3
}
