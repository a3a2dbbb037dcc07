//! `bpfcost compare`: old records against new ones, as a gate for CI.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{
    exit::{Exit, usage},
    output, parse,
    summary::SummaryArgs,
};
use bpfcost_record::{Changes, GateOptions, Record, SessionHistory};
use bpfcost_report::style::Style;

/// Compare old records with new ones: a gate for CI
///
/// Each side is a record, or a folder of records of the same thing. Two runs differ by more than their intervals show,
/// so bpfcost widens the intervals by the spread between the sessions that this machine has kept. Several records a
/// side, measured in turn (A B A B), need no widening. For workloads, it compares what each probe adds. The gate fails
/// (exit code 1) if a case costs more beyond noise, and by more than the threshold, or if it could not judge a case.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  bpfcost compare before.json after.json\n  \
    bpfcost compare main/ branch/ --threshold 2% --format junit")]
pub struct Args {
    /// A record, or a folder of records
    old: PathBuf,
    /// A record, or a folder of records
    new: PathBuf,
    /// Let costs rise by up to this much [default: 2%; workloads 3%; counts 0%]
    ///
    /// Instruction counts do not vary, so that one instruction more is a rise.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    threshold: Option<f64>,
    /// Also fail if a rise of this size could have gone unnoticed
    ///
    /// Without it, a gate passes whatever it could see, and says what that was. "Seen" means that the rise would have
    /// failed the gate in about three of four runs.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    must_see: Option<f64>,
    /// Print the result in this format
    #[arg(long, value_enum, default_value_t)]
    format: GateFormat,
    #[command(flatten)]
    summary: SummaryArgs,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum GateFormat {
    /// For people.
    #[default]
    Table,
    /// For a pull request.
    Markdown,
    /// For CI systems.
    Junit,
    /// For programs.
    Json,
}

/// Compares; `history` is of the sessions that this machine has kept.
pub fn run(args: &Args, history: Option<&SessionHistory>) -> Result<Exit> {
    let asked = GateOptions {
        threshold: args.threshold,
        must_see: args.must_see,
    };
    let changes = changes(&load(&args.old)?, &load(&args.new)?, asked, history)?;
    output::answer(format_args!(
        "{}",
        match args.format {
            GateFormat::Table => terminal(&changes),
            GateFormat::Markdown => markdown(&changes),
            GateFormat::Junit => bpfcost_report::compare::junit(&changes)?,
            GateFormat::Json => bpfcost_report::compare::json(&changes)?,
        }
    ))?;
    args.summary.append(|| markdown(&changes))?;
    Ok(changes.gate.into())
}

/// Compares the records of two sides, with what this machine's kept sessions show.
pub fn changes(
    old: &[Record],
    new: &[Record],
    asked: GateOptions,
    history: Option<&SessionHistory>,
) -> Result<Changes> {
    // What can't be read is as good as never measured; `compare` then says what it assumes.
    let kept = |record: &Record, reading| {
        let levels = history.map(|history| history.levels(record, reading));
        levels.and_then(Result::ok).unwrap_or_default()
    };
    Ok(bpfcost_record::compare(old, new, asked, kept)?)
}

/// The changes for people.
pub fn terminal(changes: &Changes) -> String {
    bpfcost_report::terminal::render(&bpfcost_report::compare::view(changes), Style::for_stdout())
}

/// The changes for a pull request.
pub fn markdown(changes: &Changes) -> String {
    bpfcost_report::markdown::render(&bpfcost_report::compare::view(changes))
}

/// The records of a side.
pub fn load(path: &Path) -> Result<Vec<Record>> {
    let records = bpfcost_record::load(path)?;
    if records.is_empty() {
        return Err(usage(format!(
            "the folder {} holds no record (*.json)\n  Make one with: bpfcost run xdp-lb --out \
             FILE",
            path.display()
        )));
    }
    Ok(records)
}
