//! `bpfcost list`: experiments, and the cases of one.

use anyhow::Result;
use comfy_table::Table;
use serde_json::json;

use super::{exit::Exit, output::say, select};
use crate::builtin;
use bpfcost_console::list::{self, ExperimentEntry, ListFormat, table};
use bpfcost_model::{Description, Experiment, Role, Sizing, Unit};
use bpfcost_report::style::Style;

/// Kinds of targets that can run an experiment.
fn targets(described: &Description) -> Vec<String> {
    let kinds = ["host", "vm:KERNEL", "exact:KERNEL"].map(str::to_owned);
    kinds[..2 + usize::from(described.counts)].to_vec()
}

/// List all experiments, or the cases and factors of one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  bpfcost list\n  bpfcost list xdp-lb\n  bpfcost list redis")]
pub(super) struct Args {
    /// The experiment to describe
    experiment: Option<String>,
    /// List what can make events for programs at hooks (program --stimulus)
    #[arg(long, conflicts_with = "experiment")]
    stimuli: bool,
    /// Print the result in this format
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    match &args.experiment {
        None if args.stimuli => stimuli(args.format)?,
        None => experiments(args.format)?,
        Some(name) => cases(name, args.format)?,
    }
    Ok(Exit::Done)
}

fn experiments(format: ListFormat) -> Result<()> {
    let all = builtin::all();
    let entries: Vec<ExperimentEntry> = all.iter().map(|one| entry(one.as_ref())).collect();
    list::show(&entries, format)?;
    if let ListFormat::Table = format {
        say!("\nCases of one: bpfcost list EXPERIMENT · measure it: bpfcost run EXPERIMENT")?;
    }
    Ok(())
}

fn stimuli(format: ListFormat) -> Result<()> {
    let all = builtin::hook::menu::all();
    if let ListFormat::Json = format {
        let entry =
            |one: &bpfcost_stimulus::Stimulus| json!({ "name": one.name, "about": one.about });
        return Ok(say!(
            "{}",
            serde_json::to_string_pretty(&all.map(entry).collect::<Vec<_>>())?
        )?);
    }
    let mut table = table(["stimulus", "system calls of one operation"]);
    for one in all {
        table.add_row([one.name, one.about]);
    }
    say!(
        "{}\n\nMake events by one: bpfcost program FILE.bpf.o --on exact:6.12 --stimulus NAME",
        table.trim_fmt()
    )?;
    Ok(())
}

fn entry(experiment: &dyn Experiment) -> ExperimentEntry {
    let described = experiment.description();
    let cases = experiment.cases();
    let measured = cases.iter().filter(|case| case.role == Role::Case);
    ExperimentEntry {
        targets: targets(&described),
        name: described.name,
        about: described.about,
        unit: Unit::default(),
        cases: Some(measured.count()),
    }
}

fn cases(name: &str, format: ListFormat) -> Result<()> {
    let experiment = select::experiment(name)?;
    let cases = experiment.cases();
    if let ListFormat::Json = format {
        say!("{}", serde_json::to_string_pretty(&cases)?)?;
        return Ok(());
    }
    let described = experiment.description();
    say!(
        "{}: {} ({})\n",
        described.name,
        described.about,
        Unit::default()
    )?;
    let mut group = "";
    let mut part: Option<Table> = None;
    for case in &cases {
        if case.group != group {
            finish(part.take())?;
            group = &case.group;
            part = Some(table([group, ""]));
        }
        let fixed = match case.sizing {
            Sizing::Fixed(ops) => format!(" ({ops} operations a trial)"),
            Sizing::Window(ms) => format!(" ({ms} ms a window)"),
            Sizing::Calibrated { .. } => String::new(),
        };
        if let Some(part) = &mut part {
            part.add_row([format!("  {}", case.name), format!("{}{fixed}", case.about)]);
        }
    }
    finish(part)?;
    say!("Comparisons:")?;
    for pair in experiment.pairs() {
        say!("  {} against {}: {}", pair.case, pair.baseline, pair.about)?;
    }
    say!("\nFactors:")?;
    for (factor, meaning) in &described.factors {
        say!("  {factor}: {meaning}")?;
    }
    let prose = described.layout.workload();
    let width = Style::for_stdout().width;
    for paragraph in prose
        .iter()
        .flat_map(|workload| workload.prose.split("\n\n"))
    {
        say!("\n{}", bpfcost_text::wrap(paragraph, width, ""))?;
    }
    say!(
        "\nTargets: {}\nMeasure some: bpfcost run {name} --case 'GLOB'",
        targets(&described).join(", ")
    )?;
    Ok(())
}

fn finish(table: Option<Table>) -> Result<()> {
    match table {
        Some(table) => say!("{}\n", table.trim_fmt()),
        None => Ok(()),
    }
}
