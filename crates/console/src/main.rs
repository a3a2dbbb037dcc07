//! bpfcost-read: reports and comparisons of records, where nothing is measured.

use std::process::ExitCode;

use bpfcost_console::{
    compare,
    exit::{Exit, sentence},
    list, note, output, report,
};
use clap::{Parser, Subcommand};

/// Read records of bpfcost: pages, and comparisons
///
/// The commands of bpfcost that measure nothing, for machines where it cannot measure. `compare` takes sessions
/// to differ as much as it assumes of machines of which nothing is kept.
#[derive(Debug, Parser)]
#[command(name = "bpfcost-read", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Report(report::Args),
    Compare(compare::Args),
    List(list::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::say_of_words(&error).into(),
    };
    let outcome = match cli.command {
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args, None),
        Command::List(args) => list::run(&args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            note!("error: {}", sentence(&error));
            Exit::from_error(&error, |_| None).into()
        }
    }
}
