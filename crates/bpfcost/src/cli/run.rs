//! `bpfcost run`: measure experiments, and show what came of it.

mod announce;
mod dry_run;
mod plan;
mod with;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;

use super::{
    exit::{Exit, lacking, usage},
    interrupt,
    output::{answer, note},
    parse, place,
    session::{Ended, Session},
    store,
};
use crate::{
    builtin::{example_of_a_grid, view},
    experiment::Experiment,
    measure::{Plan, Stop},
    probe,
    record::{self, Journal, Record, Status},
    report::{
        self,
        matrix::{self, Matrix, Part},
        rate::{self, Load},
        section::Detail,
        style::Style,
    },
    target::Host,
};

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
  bpfcost run pool --set threads=1,3,16        pools of objects, with so many threads
  bpfcost run xdp-lb --dry-run                 what would run, and what it could show

What may a probe cost? Switched on and off beside the same load, in four forms:
  bpfcost run --with count.bpf.o redis                   beside a workload that this program brings
  bpfcost run --with agent.service --budget 5% -- make   beside a command
  bpfcost run --with \"bpftrace -e 'tracepoint:raw_syscalls:sys_enter { @ = count(); }'\" \\
      --server 'redis-server --port {port}' --client 'redis-benchmark -p {port} -q -t set'
  bpfcost run --with a.bpf.o --with b.bpf.o --watch nginx.service --abort-above 20%")]
pub(super) struct Args {
    /// What to measure; see `bpfcost list`.
    #[arg(required_unless_present_any = ["resume", "with", "watch", "server", "client", "command"])]
    #[arg(value_name = "EXPERIMENT")]
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
    /// Run each case on all of these CPUs at once, e.g. 0-3,8. Without it, on one; kretprobe and pool on
    /// all. In a guest, its own.
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Give a factor of an experiment other values, e.g. threads=1,3,16; `bpfcost list EXPERIMENT` names
    /// the factors. May be given several times.
    #[arg(long, value_name = "FACTOR=VALUES", value_parser = parse::setting)]
    set: Vec<(String, String)>,
    /// Short batches, and stop at the first look.
    #[arg(long)]
    quick: bool,
    /// Say of each comparison whether it is within this relative cost. Where cases span a grid it is a share of one
    /// core: which rate it pays for.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    budget: Option<f64>,
    /// Say what this rate of operations costs of one core, where cases span a grid, e.g. 200k/s.
    #[arg(long, value_name = "RATE", value_parser = parse::rate, allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Measure what this probe costs the workload that is named, the command behind --, the server, or the
    /// service. FILE.bpf.o[:PROGRAM] is a BPF object (what it writes to ring and perf buffers is read, and thrown
    /// away), NAME.service a systemd unit, builtin:NAME one that this program brings, process:COMMAND a tool
    /// without BPF; anything else is a command that loads BPF programs. Given several times: alternatives, compared with none and with each other. ' + ' joins several to one;
    /// NAME= before it names it.
    #[arg(long, value_name = "PROBE", help_heading = PROBES)]
    with: Vec<String>,
    /// Start this server for it, on a port that is free where {port} stands; its CPU time leads.
    #[arg(long, value_name = "CMD", help_heading = PROBES)]
    server: Option<String>,
    /// The load for that server; the same as a command behind --.
    #[arg(long, value_name = "CMD", help_heading = PROBES)]
    client: Option<String>,
    /// Switch the probe on and off beside a service that runs already, by its unit or the number of its process.
    /// It is neither stopped nor restarted.
    #[arg(long, value_name = "SERVICE|PID", help_heading = PROBES)]
    watch: Option<String>,
    /// What prints how many operations the watched service has done so far. Without it, the share of a CPU that it
    /// takes is what is compared.
    #[arg(long, value_name = "CMD", help_heading = PROBES)]
    ops: Option<String>,
    /// Pick a number of the output, by the one group of this regular expression: it is compared too, as more or
    /// less, whichever of them is better. With --ops, the number of operations.
    #[arg(long, value_name = "REGEX", help_heading = PROBES)]
    metric: Vec<String>,
    /// Let go of the watched service at once when its operations cost this much more than without the probe, or
    /// the machine spends this much of a CPU more.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    #[arg(help_heading = PROBES)]
    abort_above: Option<f64>,
    /// One run of it is one operation, unless its program is known to tell what it did (redis-benchmark, wrk,
    /// iperf3, ab, hey).
    #[arg(last = true, value_name = "COMMAND", help_heading = PROBES)]
    command: Vec<String>,
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

/// The heading of what is asked about probes.
const PROBES: &str = "Probes";

/// What the journal of a run has decided already.
const RESUMED: [&str; 18] = [
    "experiments",
    "on",
    "cases",
    "seed",
    "cpus",
    "set",
    "quick",
    "budget",
    "dry_run",
    "out",
    "with",
    "server",
    "client",
    "watch",
    "ops",
    "metric",
    "abort_above",
    "command",
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
    let plans = plan::plans(args, &host)?;
    answerable(args, &plans)?;
    if args.dry_run {
        for (experiment, plan) in &plans {
            dry_run::tell(&**experiment, plan, &host)?;
        }
        return Ok(Exit::Done);
    }
    for (experiment, plan) in plans.iter().filter(|(_, plan)| plan.target == "host") {
        place::able(&host, &**experiment)?;
        if !args.with.is_empty() {
            attachable(&**experiment, plan)?;
        }
    }
    let several = plans.len() > 1;
    let mut jobs = Vec::new();
    for (experiment, plan) in plans {
        let out = store::record_path(args.out.as_deref(), &plan.experiment, &plan.target, several)?;
        // Better now than after the runs before it.
        record::writable(&out)?;
        Journal::vacant(&out)?;
        jobs.push((experiment, plan, out));
    }
    let interrupted = interrupt::on_signal()?;
    let mut ended: Vec<Ended> = Vec::new();
    for (experiment, plan, out) in jobs {
        announce::announce(&*experiment, &plan);
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

/// Refuses a probe that was asked for and that this kernel can't have.
fn attachable(experiment: &dyn Experiment, plan: &Plan) -> Result<()> {
    for case in &plan.cases {
        if let Some(reason) = experiment.unsupported(case)? {
            return Err(lacking(format!(
                "{}: {reason}\n  Where another kernel has it, run it there: --on vm:KERNEL; see: bpfcost kernel list",
                case.name
            )));
        }
    }
    Ok(())
}

/// Shows what came of the runs, and tells how they ended. `error` is why the last one has no record.
fn finish(args: &Args, ended: Vec<Ended>, error: Option<anyhow::Error>) -> Result<Exit> {
    let mut exit = Exit::Done;
    if ended.iter().any(Ended::interrupted) {
        exit = Exit::Interrupted;
    }
    // Guests are gone with all that was in them.
    let probed =
        |one: &Ended| one.record.layout.workload().is_some() && one.record.target == "host";
    let probed = ended.iter().any(probed);
    let kept: Vec<String> = ended.iter().filter_map(Ended::told).collect();
    let (records, troubles): (Vec<Record>, Vec<_>) = ended
        .into_iter()
        .map(|one| (one.record, one.trouble))
        .unzip();
    let shown = if records.is_empty() {
        Ok(())
    } else {
        show(args, &records)
    };
    if probed {
        tell_left();
    }
    kept.iter().for_each(|line| note!("{line}"));
    shown?;
    if let Some(trouble) = troubles.into_iter().flatten().next().or(error) {
        return Err(trouble);
    }
    let invalid = |record: &Record| {
        record
            .cases
            .iter()
            .any(|case| case.status == Status::Invalid)
    };
    if records.iter().any(|record| record.stop == Stop::Aborted) {
        exit = exit.max(Exit::Gate);
    }
    if records.iter().any(invalid) {
        exit = exit.max(Exit::Invalid);
    }
    Ok(exit)
}

/// Reports whether anything is left of the probes.
fn tell_left() {
    let left = probe::leftovers();
    if left.is_empty() {
        note!("detached; nothing left")
    } else {
        note!(
            "left behind: {}\n  See them with bpftool prog list and ps; end what is not meant to stay",
            left.join(", ")
        )
    }
}

/// Refuses to measure for a rate that could not be told afterwards.
fn answerable(args: &Args, plans: &[(Box<dyn Experiment>, Plan)]) -> Result<()> {
    let gridded = plans.iter().map(|(_, plan)| plan);
    let mut gridded = gridded.filter(|plan| plan.layout.grid().is_some());
    let asked = match (args.rate, args.budget) {
        (Some(_), _) => "--rate",
        (None, Some(_)) if !plans.is_empty() && gridded.clone().count() == plans.len() => {
            "--budget"
        }
        _ => return Ok(()),
    };
    match gridded.clone().count() {
        0 => Err(usage(format!(
            "{asked} asks what single operations cost of a core, and no experiment with a table of them is named\n  It \
             goes with: bpfcost run {} {asked}",
            example_of_a_grid()
        ))),
        _ if gridded.all(Plan::counts) => Err(usage(format!(
            "{asked} needs nanoseconds, and exact targets count instructions, which are none\n  \
             Run it where there is a clock: bpfcost run {} --on host",
            example_of_a_grid()
        ))),
        _ => Ok(()),
    }
}

fn show(args: &Args, records: &[Record]) -> Result<()> {
    let load = Load {
        rate: args.rate,
        budget: args.budget,
    };
    let text = match args.format {
        Format::Json => {
            if args.rate.is_some() {
                note!("JSON is the record itself, which holds costs and no rates");
            }
            report::json::render(records)?
        }
        Format::Csv => view::csv(records, load)?,
        Format::Markdown => view::markdown(records, load),
        Format::Table => {
            let style = Style::for_stdout();
            let tables =
                |records: &[&Record]| each(records, |record| table(args, record, load, style));
            let across = |matrix: &Matrix<'_>, detail| {
                report::terminal::render(&matrix::view(matrix, detail), style)
            };
            matrix::parts(records)
                .iter()
                .map(|part| match part {
                    // A table a target only repeats what the matrix says, and is long.
                    Part::Matrix(matrix, records) if !args.verbose => {
                        let rates = each(records, |record| rate::terminal(record, load, style));
                        across(matrix, Detail::Brief) + &rates
                    }
                    Part::Matrix(matrix, records) => {
                        across(matrix, Detail::Full) + "\n" + &tables(records)
                    }
                    Part::Alone(records) => tables(records),
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

fn table(args: &Args, record: &Record, load: Load, style: Style) -> String {
    let detail = if args.verbose {
        Detail::Full
    } else {
        Detail::Brief
    };
    report::terminal::render(&view::of(record, detail, load), style)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::{Args, RESUMED};

    /// What a run that goes on may be asked: how long, how precisely, and how to answer.
    const OPEN: [&str; 6] = ["precision", "time", "rate", "verbose", "resume", "format"];

    #[test]
    fn each_option_goes_with_a_resumed_run_or_is_refused() {
        let command = Args::augment_args(Command::new("run"));
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let (open, refused) = (OPEN.contains(&id), RESUMED.contains(&id));
            assert!(open != refused, "{id}: open {open}, refused {refused}");
        }
    }
}
