//! `list`: the experiments that there are.

use anyhow::Result;
use bpfcost_model::Unit;
use comfy_table::{ColumnConstraint, Table, presets::NOTHING};
use serde::{Deserialize, Serialize};

use crate::{exit::Exit, say};

/// The output of `bpfcost list --format json` but for numbers of cases, which depend on the machine, for the program that
/// has no experiments. A test of `bpfcost` compares them.
const EXPERIMENTS: &str = include_str!("../experiments.json");

/// Output formats of commands that list something.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub enum ListFormat {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// List the experiments that bpfcost has; bpfcost itself lists the cases of one
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the result in this format
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

/// An experiment in a list.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExperimentEntry {
    /// The name on the command line.
    pub name: String,
    /// The question that it answers.
    pub about: String,
    /// The unit of its results where time is measured.
    pub unit: Unit,
    /// Kinds of targets that can run it.
    pub targets: Vec<String>,
    /// Number of its cases on this machine, without floors and anchors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cases: Option<usize>,
}

/// Lists the experiments of this version.
pub fn run(args: &Args) -> Result<Exit> {
    show(&serde_json::from_str::<Vec<_>>(EXPERIMENTS)?, args.format)?;
    Ok(Exit::Done)
}

/// Prints a list.
pub fn show(experiments: &[ExperimentEntry], format: ListFormat) -> Result<()> {
    if let ListFormat::Json = format {
        return say!("{}", serde_json::to_string_pretty(experiments)?);
    }
    let mut table = table(["experiment", "cases", "unit", "targets", "question"]);
    for one in experiments {
        table.add_row([
            &one.name,
            &one.cases
                .map_or_else(String::new, |cases| cases.to_string()),
            &one.unit.to_string(),
            &one.targets.join(", "),
            &one.about,
        ]);
    }
    if experiments.iter().all(|one| one.cases.is_none())
        && let Some(cases) = table.column_mut(1)
    {
        cases.set_constraint(ColumnConstraint::Hidden);
    }
    say!("{}", table.trim_fmt())
}

/// A table without lines.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    table
}
