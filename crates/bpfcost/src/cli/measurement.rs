//! What `run` and `overhead` have in common: their options, and the way from plans to what is shown.

mod announce;
mod baseline;
mod dry_run;
mod plan;
mod side_by_side;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::Result;

use self::baseline::BaselineArgs;
pub(super) use self::{
    baseline::Baseline,
    plan::{once, plans},
};
use super::{
    exit::Exit,
    interrupt,
    output::{answer, note},
    parse, place,
    session::{Ended, Session},
    store,
};

use bpfcost_console::summary::SummaryArgs;
use bpfcost_measure::Plan;
use bpfcost_model::Experiment;
use bpfcost_record::{Journal, Record};
use bpfcost_report::{
    matrix::{self, Matrix, ReportPart},
    rate::{self, EventLoad},
    section::Detail,
    style::Style,
};
use bpfcost_target::Host;

/// How to measure, where, and how to show it.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Where: host, vm:KERNEL or exact:KERNEL [repeatable]
    ///
    /// vm:KERNEL is a guest with that kernel; exact:KERNEL is a guest that counts instructions instead of time. See
    /// `bpfcost kernel list`. Several targets are shown side by side.
    #[arg(long, value_name = "TARGET", default_value = "host")]
    pub(super) on: Vec<String>,
    /// Measure only matching cases, and the loop around them [repeatable]
    #[arg(long = "case", value_name = "GLOB")]
    pub(super) cases: Vec<String>,
    /// Take a rough measurement: short batches, few epochs
    #[arg(long)]
    pub(super) quick: bool,
    /// Stop after this time [default: 60s, or until there is a result]
    ///
    /// With neither --time nor --precision, a run stops after 60s, or when every interval is within ±1%. Exact targets
    /// ignore both: they repeat until their counts are known.
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    pub(super) time: Option<Duration>,
    /// Stop when every interval is within ± this share of its value
    ///
    /// Intervals below ±0.1 ns count as narrow enough.
    #[arg(long, value_name = "PERCENT", value_parser = parse::precision, allow_hyphen_values = true)]
    pub(super) precision: Option<f64>,
    /// Give a factor other values, e.g. threads=1,3,16 [repeatable]
    ///
    /// `bpfcost list EXPERIMENT` shows the factors.
    #[arg(long, value_name = "FACTOR=VALUES", value_parser = parse::setting)]
    pub(super) set: Vec<(String, String)>,
    /// Run each case on all of these CPUs at once, e.g. 0-3,8
    ///
    /// Default: one CPU; all CPUs for kretprobe and pool. In a guest these are the guest's CPUs.
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub(super) cpus: Option<String>,
    /// Draw every random order and packet from this seed; the same seed repeats them
    ///
    /// Default: a new seed for each run; 1 on exact targets.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(super) seed: Option<u64>,
    /// Only show the cases, and the time that they take on a machine at rest
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Show all columns and all warnings; of a single case, its details
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Save the record to this file or folder
    ///
    /// Default: $XDG_STATE_HOME/bpfcost/records, or ~/.local/state/bpfcost/records.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Print the result in this format
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: RecordFormat,
    #[command(flatten)]
    pub(super) baseline: BaselineArgs,
    #[command(flatten)]
    pub(super) summary: SummaryArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RecordFormat {
    /// For people.
    #[default]
    Table,
    /// The record itself; an array if there are several.
    Json,
    /// For a pull request.
    Markdown,
    /// One line per case, for spreadsheets.
    Csv,
    /// Text of Go benchmarks, one line per epoch, for benchstat.
    GoBench,
    /// Bencher's JSON.
    Bencher,
    /// JSON of github-action-benchmark, for its tool customSmallerIsBetter.
    GithubBenchmark,
}

/// What else is done with the records of a run.
pub(super) type AfterRun<'a> = &'a dyn Fn(&[Record]) -> Result<()>;

/// Runs all plans, shows their results, and does what else is done with them.
pub(super) fn run(
    options: &Options,
    load: EventLoad,
    plans: Vec<(Box<dyn Experiment>, Plan)>,
    host: &Host,
    after: AfterRun<'_>,
) -> Result<Exit> {
    let baseline = options.baseline.load(plans.iter().map(|(_, plan)| plan))?;
    if options.dry_run {
        for (experiment, plan) in &plans {
            dry_run::show(&**experiment, plan, host)?;
        }
        return Ok(Exit::Done);
    }
    for (experiment, _) in plans.iter().filter(|(_, plan)| plan.target == "host") {
        place::able(host, &**experiment)?;
    }
    options.summary.check()?;
    let several = plans.len() > 1;
    let mut jobs = Vec::new();
    for (experiment, plan) in plans {
        let out = store::record_path(
            options.out.as_deref(),
            &plan.experiment,
            &plan.target,
            several,
        )?;
        // Better now than after the runs before it.
        bpfcost_record::writable(&out)?;
        Journal::vacant(&out)?;
        jobs.push((experiment, plan, out));
    }
    let interrupted = interrupt::on_signal()?;
    let mut ended: Vec<Ended> = Vec::new();
    let mut jobs = jobs.into_iter().peekable();
    while let Some(job) = jobs.next() {
        let mut beside = vec![job];
        while side_by_side::may_be(&beside[0].1)
            && let Some(next) = jobs.next_if(|(_, plan, _)| side_by_side::may_be(plan))
        {
            beside.push(next);
        }
        let results = match beside.len() {
            1 => beside
                .into_iter()
                .map(|job| alone(job, &interrupted))
                .collect(),
            _ => side_by_side::run(beside, &interrupted),
        };
        let mut failed = None;
        for result in results {
            match result {
                Ok(one) => ended.push(one),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // What was measured before it is shown all the same.
        if failed.is_some() {
            return finish(options, load, ended, baseline.as_ref(), after, failed);
        }
        if ended.iter().any(Ended::early) {
            break;
        }
    }
    finish(options, load, ended, baseline.as_ref(), after, None)
}

/// An experiment, its plan, and the file of its record.
type MeasurementJob = (Box<dyn Experiment>, Plan, PathBuf);

fn alone((experiment, plan, out): MeasurementJob, interrupted: &Arc<AtomicBool>) -> Result<Ended> {
    announce::announce(&*experiment, &plan);
    Session::start(experiment, plan, &out, interrupted)?.run(interrupted)
}

/// Shows the results of the runs, compares them with the baseline if there is one, and returns how they ended. `error` is
/// why the last one has no record.
pub(super) fn finish(
    options: &Options,
    load: EventLoad,
    ended: Vec<Ended>,
    baseline: Option<&Baseline<'_>>,
    after: AfterRun<'_>,
    error: Option<anyhow::Error>,
) -> Result<Exit> {
    // Guests are gone with all that was in them.
    let probed = |one: &Ended| one.record.layout.times_windows() && one.record.target == "host";
    let probed = ended.iter().any(probed);
    let notes: Vec<String> = ended.iter().filter_map(Ended::note).collect();
    let (records, troubles): (Vec<Record>, Vec<_>) = ended
        .into_iter()
        .map(|one| (one.record, one.trouble))
        .unzip();
    let shown = if records.is_empty() {
        Ok(())
    } else {
        show(options, load, &records)
            .and_then(|()| {
                options
                    .summary
                    .append(|| bpfcost_pages::markdown(&records, load))
            })
            .and_then(|()| after(&records))
    };
    let compared = match baseline.filter(|_| shown.is_ok() && !records.is_empty()) {
        Some(baseline) => baseline.compare(&records, options),
        None => Ok(Exit::Done),
    };
    if probed {
        note_leftovers();
    }
    notes.iter().for_each(|line| note!("{line}"));
    shown?;
    if let Some(trouble) = troubles.into_iter().flatten().next().or(error) {
        return Err(trouble);
    }
    for case in records.iter().flat_map(Record::unjudged) {
        let reason = case.reason.as_deref().unwrap_or("it failed its checks");
        note!("{} is not judged by the budget: {reason}", case.name);
    }
    let exit = records.iter().map(Exit::of_record);
    let exit = exit.fold(Exit::Done, Exit::max);
    match compared {
        Ok(gate) => Ok(exit.max(gate)),
        Err(error) if exit == Exit::Done => Err(error),
        Err(error) => {
            note!("the result is not compared with the baseline: {error:#}");
            Ok(exit)
        }
    }
}

/// Reports whether anything is left of the probes.
fn note_leftovers() {
    let left = bpfcost_probe::leftovers();
    if left.is_empty() {
        note!("detached; nothing left behind")
    } else {
        note!(
            "left behind: {}\n  Check them with bpftool prog list and ps; stop those that should \
             not stay",
            left.join(", ")
        )
    }
}

fn show(options: &Options, load: EventLoad, records: &[Record]) -> Result<()> {
    let text = match options.format {
        RecordFormat::Json => {
            if load.rate.is_some() {
                note!("JSON is the record itself, which holds costs but no rates");
            }
            bpfcost_report::json::render(records)?
        }
        RecordFormat::Csv => bpfcost_pages::csv(records, load)?,
        RecordFormat::GoBench => bpfcost_report::benchmark::go(records),
        RecordFormat::Bencher => bpfcost_report::benchmark::bencher(records)?,
        RecordFormat::GithubBenchmark => bpfcost_report::benchmark::github(records)?,
        RecordFormat::Markdown => bpfcost_pages::markdown(records, load),
        RecordFormat::Table => {
            let style = Style::for_stdout();
            let tables =
                |records: &[&Record]| each(records, |record| table(options, record, load, style));
            let across = |matrix: &Matrix<'_>, records: &[&Record], detail| {
                bpfcost_report::terminal::render(
                    &bpfcost_pages::across(matrix, records, detail),
                    style,
                )
            };
            matrix::parts(records)
                .iter()
                .map(|part| match part {
                    // A table a target only repeats what the matrix says, and is long.
                    ReportPart::Matrix(matrix, records) if !options.verbose => {
                        let rates = each(records, |record| rate::terminal(record, load, style));
                        across(matrix, records, Detail::Brief) + &rates
                    }
                    ReportPart::Matrix(matrix, records) => {
                        across(matrix, records, Detail::Full) + "\n" + &tables(records)
                    }
                    ReportPart::Alone(records) => tables(records),
                })
                .collect()
        }
    };
    answer(format_args!("{text}"))
}

/// Records one after the other.
fn each(records: &[&Record], show: impl Fn(&Record) -> String) -> String {
    records.iter().map(|record| show(record)).collect()
}

fn table(options: &Options, record: &Record, load: EventLoad, style: Style) -> String {
    let detail = if options.verbose {
        Detail::Full
    } else {
        Detail::Brief
    };
    bpfcost_report::terminal::render(&bpfcost_pages::record_view(record, detail, load), style)
}
