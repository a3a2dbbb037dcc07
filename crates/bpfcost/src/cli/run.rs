//! `bpfcost run`: measure experiments, and show what came of it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};

use super::{
    exit::{Exit, usage},
    interrupt,
    output::{answer, note, say},
    parse, place, select,
    session::{self, Ended, Session},
    store,
};
use crate::{
    experiment::{Experiment, Unit},
    measure::{COUNTING_GOAL_NS, Plan, forecast},
    record::{self, Journal, Record, Status},
    report::{
        self,
        matrix::{self, Part},
        number::duration,
        rate::{self, Load},
        style::Style,
    },
    target::{Host, Target, TargetError, parse_cpus},
};

/// A batch's length: long enough for a timer tick every 4 ms to be part of each, short enough for
/// hundreds of them a minute.
const BATCH_NS: f64 = 10e6;
/// A batch's length with `--quick`.
const QUICK_BATCH_NS: f64 = 2e6;
/// Rounds per epoch with `--quick`.
const QUICK_ROUNDS: u32 = 2;
/// How long a run takes that is asked for neither a time nor a precision.
const DEFAULT_TIME: Duration = Duration::from_secs(60);
/// The precision at which such a run stops before.
const DEFAULT_PRECISION: f64 = 0.01;

/// The seed of a run that counts instructions, where none is given: the same packets every time, so that
/// runs of different days agree.
const EXACT_SEED: u64 = 1;

/// What the epochs of a case typically scatter by (relative standard deviation), for `--dry-run`
/// alone: seen on a shared virtual machine.
const TYPICAL_SPREAD: f64 = 0.01;

/// Measure experiments: every case with a 95 % interval, every comparison with a verdict.
///
/// A run loads everything afresh epoch after epoch, runs all cases in random order in each, and
/// checks every trial while it is timed. It stops at a precision, after a time, or on Ctrl-C, never
/// on a verdict. Trials are written down as they happen: a run that was killed goes on with --resume.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bpfcost run xdp-lb                           one minute, a table
  bpfcost run xdp-lb --precision 0.5%          until every cost is known to 0.5 %
  bpfcost run xdp-lb --case 'udp-*' --quick    a first impression of some cases
  bpfcost run xdp-lb --case tcp-v4-ch --verbose    one case in detail
  bpfcost run xdp-lb --on exact:6.12           costs as counts of instructions, in a guest
  bpfcost run xdp-lb --on vm:6.1 --on vm:6.12  two kernels side by side
  bpfcost run attach --rate 200k --budget 1%   attach types, and what 200,000 events a second cost
  bpfcost run xdp-lb --dry-run                 what would run, and what it could show")]
pub(super) struct Args {
    /// What to measure; see `bpfcost list`.
    #[arg(required_unless_present = "resume", value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// Where: `host`; `vm:KERNEL`, a guest with that kernel; `exact:KERNEL`, a guest that counts
    /// instructions. May be given several times.
    #[arg(long, value_name = "TARGET", default_value = "host")]
    on: Vec<String>,
    /// Only cases that match, with what they need; may be given several times.
    #[arg(long = "case", value_name = "GLOB")]
    cases: Vec<String>,
    /// Stop when every interval's half-width is at most this share of its value (or 0.1 ns).
    /// Without --time too: 1%.
    #[arg(long, value_name = "PERCENT", value_parser = parse::precision, allow_hyphen_values = true)]
    precision: Option<f64>,
    /// Stop after this time. Without --precision too: 60s. Counts of exact targets take the loads that they
    /// need, whatever this and --precision say.
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    time: Option<Duration>,
    /// The number that decides every order and every packet; drawn where not given, but 1 on exact targets.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run each case on all of these CPUs at once, e.g. 0-3,8. Without it, on one. In a guest, its own.
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Short batches, and stop at the first look.
    #[arg(long)]
    quick: bool,
    /// Say of each comparison whether it is within this relative cost. Of attach types it is a share of one
    /// core: how many events a second it pays for.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    budget: Option<f64>,
    /// Say what attach types cost of one core at so many events a second, e.g. 200k/s.
    #[arg(long, value_name = "RATE", value_parser = parse::rate, allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Only tell the cases, the expected time and the smallest effect that it can show.
    #[arg(long)]
    dry_run: bool,
    /// More columns; with one case, that case in detail.
    #[arg(long, short)]
    verbose: bool,
    /// Where the record goes: a file, or a folder. Without it, the user's state folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Continue a run that was ended early, from its record's name or its journal.
    #[arg(long, value_name = "FILE", conflicts_with_all = RESUMED)]
    resume: Option<PathBuf>,
    /// How to answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What the journal of a run has decided already.
const RESUMED: [&str; 9] = [
    "experiments",
    "on",
    "cases",
    "seed",
    "cpus",
    "quick",
    "budget",
    "dry_run",
    "out",
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Table,
    /// The record itself; an array where there are several.
    Json,
    /// For a pull request.
    Markdown,
    /// One line per case, for spreadsheets.
    Csv,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let host = Host::default();
    if let Some(journal) = &args.resume {
        let interrupted = interrupt::on_signal()?;
        let session = Session::resume(journal, args.time, args.precision, &interrupted)?;
        return finish(args, vec![session.run(&interrupted)?], None);
    }
    let plans = plans(args, &host)?;
    answerable(args, &plans)?;
    if args.dry_run {
        for (experiment, plan) in &plans {
            dry_run(&**experiment, plan, &host)?;
        }
        return Ok(Exit::Done);
    }
    if plans.iter().any(|(_, plan)| plan.target == "host") {
        place::able(&host)?;
    }
    let several = plans.len() > 1;
    let mut jobs = Vec::new();
    for (experiment, plan) in plans {
        let out = store::record_path(
            args.out.as_deref(),
            experiment.name(),
            &plan.target,
            several,
        )?;
        // Better now than after the runs before it.
        record::writable(&out)?;
        Journal::vacant(&out)?;
        jobs.push((experiment, plan, out));
    }
    let interrupted = interrupt::on_signal()?;
    let mut ended: Vec<Ended> = Vec::new();
    for (experiment, plan, out) in jobs {
        let session = Session::start(experiment, plan, &out, &interrupted);
        match session.and_then(|session| session.run(&interrupted)) {
            Ok(one) => ended.push(one),
            // What was measured before it is shown all the same.
            Err(error) => return finish(args, ended, Some(error)),
        }
        if ended.last().is_some_and(Ended::early) {
            break;
        }
    }
    finish(args, ended, None)
}

/// Shows what came of the runs, and tells how they ended. `error` is why the last one has no record.
fn finish(args: &Args, ended: Vec<Ended>, error: Option<anyhow::Error>) -> Result<Exit> {
    let mut exit = Exit::Done;
    if ended.iter().any(Ended::interrupted) {
        exit = Exit::Interrupted;
    }
    let (records, troubles): (Vec<Record>, Vec<_>) = ended
        .into_iter()
        .map(|one| (one.record, one.trouble))
        .unzip();
    if !records.is_empty() {
        show(args, &records)?;
    }
    if let Some(trouble) = troubles.into_iter().flatten().next().or(error) {
        return Err(trouble);
    }
    let invalid = |record: &Record| {
        record
            .cases
            .iter()
            .any(|case| case.status == Status::Invalid)
    };
    if records.iter().any(invalid) {
        exit = exit.max(Exit::Invalid);
    }
    Ok(exit)
}

/// One plan per experiment and target, whole before anything is measured.
fn plans(args: &Args, host: &Host) -> Result<Vec<(Box<dyn Experiment>, Plan)>> {
    let mut plans = Vec::new();
    once(&args.experiments)?;
    once(&args.on)?;
    for name in &args.experiments {
        for target in &args.on {
            let named: Target = target
                .parse()
                .map_err(|error: TargetError| usage(error.to_string()))?;
            // One that is not there is told before anything is measured.
            place::kernel(&named)?;
            let mut experiment = select::experiment(name)?;
            if experiment.every_cpu() && named.is_exact() {
                return Err(usage(format!(
                    "{name} asks how CPUs get on with each other, and {target} has one\n  \
                     Run it on host or in a vm:KERNEL"
                )));
            }
            let cpus = cpus(args.cpus.as_deref(), &named, host, experiment.every_cpu())?;
            experiment.on_cpus(&cpus);
            if let Some(most) = experiment.most_cpus()
                && cpus.len() > most
            {
                return Err(usage(format!(
                    "{name} runs on {most} CPU at a time, and --cpus names {}\n  Name one, or leave it out",
                    cpus.len()
                )));
            }
            let (cases, pairs) = select::cases(&*experiment, &args.cases)?;
            let default = args.time.is_none() && args.precision.is_none() && !args.quick;
            let margin = experiment.margin();
            let timed = Plan {
                experiment: experiment.name().into(),
                target: target.clone(),
                unit: experiment.unit(),
                seed: args.seed.unwrap_or_else(session::draw_seed),
                cases,
                grid: experiment.grid(),
                scaling: experiment.scaling(),
                contends: experiment.contends(),
                pairs,
                cpus,
                precision: args.precision.or(default.then_some(DEFAULT_PRECISION)),
                seconds: args
                    .time
                    .or(default.then_some(DEFAULT_TIME))
                    .map(|time| time.as_secs_f64()),
                patient: args.time.is_none(),
                quick: args.quick,
                rounds: args.quick.then_some(QUICK_ROUNDS),
                goal_ns: if args.quick { QUICK_BATCH_NS } else { BATCH_NS },
                margin,
                // Of attach types it asks for a rate, which is a matter of the report.
                budget: args.budget.filter(|_| experiment.grid().is_none()),
            };
            let plan = match named.is_exact() {
                true => counted(timed, args.seed),
                false => timed,
            };
            plans.push((experiment, plan));
        }
    }
    Ok(plans)
}

/// Refuses to measure for a rate that could not be told afterwards.
fn answerable(args: &Args, plans: &[(Box<dyn Experiment>, Plan)]) -> Result<()> {
    let timed = |plan: &Plan| !plan.counts();
    let mut gridded = plans
        .iter()
        .filter(|(_, plan)| plan.grid.is_some())
        .peekable();
    if gridded.peek().is_none() {
        return match args.rate {
            Some(_) => Err(usage(
                "--rate asks what attach types cost at so many events a second, and no such experiment is \
                 named\n  It goes with: bpfcost run attach --rate 200k/s",
            )),
            None => Ok(()),
        };
    }
    let alone = plans.iter().all(|(_, plan)| plan.grid.is_some());
    let asked = match (args.rate, args.budget) {
        (Some(_), _) => "--rate",
        (None, Some(_)) if alone => "--budget",
        _ => return Ok(()),
    };
    match gridded.any(|(_, plan)| timed(plan)) {
        true => Ok(()),
        false => Err(usage(format!(
            "{asked} needs nanoseconds, and exact targets count instructions, which are none\n  \
             Run it where there is a clock: bpfcost run attach --on host"
        ))),
    }
}

/// A plan for a guest that counts instructions: its clock is not one of seconds, and nothing is left to
/// chance, not even the seed.
fn counted(plan: Plan, seed: Option<u64>) -> Plan {
    Plan {
        unit: Unit::InstructionsPerOp,
        seed: seed.unwrap_or(EXACT_SEED),
        precision: None,
        seconds: None,
        rounds: None,
        goal_ns: COUNTING_GOAL_NS,
        margin: 0.0,
        ..plan
    }
}

/// Refuses a name that is given twice: its second record would take the first one's place.
fn once(names: &[String]) -> Result<()> {
    let twice = |(index, name): (usize, &String)| names[..index].contains(name);
    match names.iter().enumerate().find(|one| twice(*one)) {
        Some((_, name)) => Err(usage(format!(
            "{name} is named twice, and a run measures each experiment once on each target\n  \
             For two sessions of the same, run it twice with two names for --out"
        ))),
        None => Ok(()),
    }
}

/// The CPUs to run on: those asked for; or every one allowed; or the last one, where interrupts are
/// rarest. For a guest, they are the guest's own.
fn cpus(list: Option<&str>, target: &Target, host: &Host, every: bool) -> Result<Vec<u32>> {
    let asked = list
        .map(parse_cpus)
        .transpose()
        .map_err(|error| usage(error.to_string()))?;
    if target != &Target::Host {
        let last = place::guest_cpus(target, &[]) - 1;
        let cpus = asked.unwrap_or_else(|| match every {
            true => (0..=last).collect(),
            false => vec![last],
        });
        return place::guest_has(target, &cpus).map(|()| cpus);
    }
    let cpus = match asked {
        Some(cpus) => cpus,
        None => {
            let allowed = bpfcost_bpf::allowed_cpus();
            let last = *allowed
                .last()
                .context("the kernel does not tell on which CPUs this may run")?;
            match every {
                true => allowed,
                false => vec![last],
            }
        }
    };
    host.usable_cpus(&cpus)
        .map_err(|error| usage(error.to_string()))?;
    Ok(cpus)
}

fn dry_run(experiment: &dyn Experiment, plan: &Plan, host: &Host) -> Result<()> {
    let forecast = forecast(experiment, plan, TYPICAL_SPREAD);
    say!(
        "{} on {}: {} cases",
        plan.experiment,
        plan.target,
        forecast.cases
    )?;
    if let Ok(target) = plan.target.parse()
        && let Some(kernel) = place::kernel(&target)?
    {
        say!(
            "in a guest with Linux {} ({})",
            kernel.release,
            kernel.image.display()
        )?;
    }
    for case in &plan.cases {
        say!("  {:22} {}", case.name, case.about)?;
    }
    say!("{} comparisons", plan.pairs.len())?;
    for pair in &plan.pairs {
        say!("  {} against {}", pair.case, pair.baseline)?;
    }
    if plan.counts() {
        say!(
            "\nexpected: {}, {} loads of {}, and the guest's boot\n\
             a difference of one instruction would be seen wherever loads agree",
            duration(forecast.seconds),
            forecast.epochs,
            duration(forecast.epoch_s)
        )?;
        return Ok(());
    }
    say!(
        "\nexpected: {}, {} epochs of {} (the first look comes after {} epochs, {})",
        duration(forecast.seconds),
        forecast.epochs,
        duration(forecast.epoch_s),
        forecast.first_look,
        duration(forecast.first_look_s)
    )?;
    if let Some(detectable) = forecast.detectable {
        say!(
            "a difference of {} would be seen about three times in four, if epochs scatter by {}",
            report::number::round_percent(detectable),
            report::number::round_percent(TYPICAL_SPREAD)
        )?;
    }
    if let Some(seconds) = plan.seconds
        && !plan.patient
        && seconds < forecast.first_look_s
    {
        say!(
            "{} would probably be refused as too short: give --time {:.0}s, or fewer cases",
            duration(seconds),
            forecast.first_look_s.ceil()
        )?;
    }
    let missing = host.missing_capabilities();
    if plan.target == "host" && !missing.is_empty() {
        say!(
            "measuring needs {}, which this user lacks: run it with sudo",
            missing.join(", ")
        )?;
    }
    Ok(())
}

fn show(args: &Args, records: &[Record]) -> Result<()> {
    let load = Load {
        rate: args.rate,
        budget: args.budget,
    };
    let rates = |records: &[&Record]| each(records, |record| rate::markdown(record, load));
    let text = match args.format {
        Format::Json => {
            if args.rate.is_some() {
                note!("JSON is the record itself, which holds costs and no rates");
            }
            report::json::render(records)?
        }
        Format::Csv => report::csv::render_at(records, load)?,
        Format::Markdown => matrix::parts(records)
            .iter()
            .map(|part| match part {
                Part::Matrix(matrix, records) => {
                    matrix::markdown(matrix)
                        + &each(records, report::markdown::render)
                        + &rates(records)
                }
                Part::Alone(records) => each(records, report::markdown::render) + &rates(records),
            })
            .collect(),
        Format::Table => {
            let style = Style::for_stdout();
            let tables = |records: &[&Record]| each(records, |record| table(args, record, style));
            let rates =
                |records: &[&Record]| each(records, |record| rate::terminal(record, load, style));
            matrix::parts(records)
                .iter()
                .map(|part| match part {
                    // A table a target only repeats what the matrix says, and is long.
                    Part::Matrix(matrix, records) if !args.verbose => {
                        matrix::table(matrix, style, false) + &rates(records)
                    }
                    Part::Matrix(matrix, records) => {
                        matrix::table(matrix, style, true)
                            + "\n"
                            + &tables(records)
                            + &rates(records)
                    }
                    Part::Alone(records) => tables(records) + &rates(records),
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

fn table(args: &Args, record: &Record, style: Style) -> String {
    if !args.verbose {
        return report::table::render(record, style);
    }
    let mut measured = record
        .cases
        .iter()
        .filter(|case| case.role == crate::experiment::Role::Case);
    match (measured.next(), measured.next()) {
        (Some(only), None) => report::scenario::render(record, &only.name, style),
        _ => None,
    }
    .unwrap_or_else(|| report::verbose::render(record, style))
}
