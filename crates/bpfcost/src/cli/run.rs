//! `bpfcost run`: measures experiments.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    exit::{Exit, usage},
    interrupt,
    measurement::{self, Options},
    parse, select,
    session::Session,
};
use bpfcost_measure::Plan;
use bpfcost_model::Experiment;
use bpfcost_pages::attach;
use bpfcost_report::rate::EventLoad;
use bpfcost_target::Host;

/// Measure experiments: every case with a 95 % interval, every comparison with a verdict
///
/// A run reloads everything epoch after epoch, measures all cases in random order within each, and
/// checks every trial while it is timed. It stops at a precision, after a time, or on Ctrl-C; never
/// because of a verdict. It saves each trial when it ends: --resume continues a run that was killed.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "bpfcost run [OPTIONS] EXPERIMENT...\n       bpfcost run --resume FILE",
    after_help = "\
Examples:
  bpfcost run xdp-lb                       one minute, a table
  bpfcost run map --quick --on exact:6.12  instructions instead of nanoseconds, in a guest
  bpfcost run attach --rate 200k           the share of a core at 200,000 events/s
To measure a probe on a server or a command: bpfcost overhead. All options: bpfcost run --help",
    after_long_help = "\
Examples:
  bpfcost run xdp-lb                           one minute, a table
  bpfcost run xdp-lb --precision 0.5%          until every cost is known to ±0.5 %
  bpfcost run xdp-lb --case 'udp-*' --quick    a rough answer for some cases
  bpfcost run xdp-lb --case tcp-v4-ch -v       one case in detail
  bpfcost run xdp-lb --on exact:6.12           instructions instead of nanoseconds, in a guest
  bpfcost run xdp-lb --on vm:6.1 --on vm:6.12  two kernels side by side
  bpfcost run attach --rate 200k               the share of a core at 200,000 events/s
  bpfcost run attach --core-share 1%           the highest rates that take 1 % of a core
  bpfcost run pool --set threads=1,3,16        other thread counts
  bpfcost run xdp-lb --baseline main.json      then compare, as `bpfcost compare` does
  bpfcost run xdp-lb --dry-run                 the plan, and what it could show

To measure what a probe costs a server or a command: bpfcost overhead"
)]
pub(super) struct Args {
    /// What to measure; see `bpfcost list`
    #[arg(required_unless_present = "resume")]
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// Show the share of a core that this rate takes, e.g. 200k/s (attach, map)
    #[arg(long, value_name = "RATE", value_parser = parse::rate, allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Show the highest rate that this share of a core allows (attach, map)
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    core_share: Option<f64>,
    /// Show which comparisons stay within this relative cost
    ///
    /// The exit code is 1 if a comparison is over it, beyond noise.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    budget: Option<f64>,
    /// Continue a run that ended early, `bpfcost overhead` included
    ///
    /// FILE is the record's name or its journal. The run continues on the same machine and kernel.
    #[arg(long, value_name = "FILE", conflicts_with_all = DECIDED)]
    resume: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// What a journal has already decided.
const DECIDED: [&str; 10] = [
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
];

pub(super) fn run(args: &Args) -> Result<Exit> {
    let load = EventLoad {
        rate: args.rate,
        core_share: args.core_share,
    };
    let options = &args.options;
    if let Some(journal) = &args.resume {
        let interrupted = interrupt::on_signal()?;
        let session = Session::resume(journal, options.time, options.precision, &interrupted)?;
        let baseline = options.baseline.load([session.plan()])?;
        let ended = vec![session.run(&interrupted)?];
        return measurement::finish(options, load, ended, baseline.as_ref(), &|_| Ok(()), None);
    }
    measurement::once(&args.experiments)?;
    let host = Host::default();
    let mut plans = Vec::new();
    for name in &args.experiments {
        let experiment = || select::experiment(name);
        plans.extend(measurement::plans(options, experiment, args.budget, &host)?);
    }
    answerable(args, &plans)?;
    measurement::run(options, load, plans, &host, &|_| Ok(()))
}

/// Refuses a question about rates that the record could not answer afterwards.
fn answerable(args: &Args, plans: &[(Box<dyn Experiment>, Plan)]) -> Result<()> {
    let gridded = plans.iter().map(|(_, plan)| plan);
    let mut gridded = gridded.filter(|plan| plan.layout.compares_nets());
    let judged = plans.iter().any(|(_, plan)| plan.budget.is_some());
    if args.budget.is_some() && !judged {
        return Err(usage(match gridded.next() {
            None => {
                "--budget judges how cases compare, and these cases are not compared with any other\n  Name a case together \
                 with its baseline; `bpfcost list EXPERIMENT` shows the cases"
            }
            Some(_) => {
                "--budget judges how cases compare, and these costs are net, of events that differ\n  For the highest rate \
                 that a share of a core allows: --core-share 1%"
            }
        }));
    }
    let asked = match (args.rate, args.core_share) {
        (Some(_), _) => "--rate",
        (None, Some(_)) => "--core-share",
        (None, None) => return Ok(()),
    };
    match gridded.clone().count() {
        0 => Err(usage(format!(
            "{asked} needs an experiment with a table of single operations\n  \
             Try: bpfcost run {} {asked}",
            attach::NAME
        ))),
        _ if gridded.all(Plan::counts) => Err(usage(format!(
            "{asked} needs nanoseconds, and exact targets count instructions\n  \
             Run it where there is a clock: bpfcost run {} --on host",
            attach::NAME
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::{Args, DECIDED};

    /// What a run that continues may still choose: how long, how precisely, how to show it, and what to compare it with.
    const OPEN: [&str; 11] = [
        "precision",
        "time",
        "rate",
        "core_share",
        "verbose",
        "resume",
        "format",
        "baseline",
        "threshold",
        "must_see",
        "summary",
    ];

    #[test]
    fn each_option_goes_with_a_resumed_run_or_is_refused() {
        let command = Args::augment_args(Command::new("run"));
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let (open, refused) = (OPEN.contains(&id), DECIDED.contains(&id));
            assert!(open != refused, "{id}: open {open}, refused {refused}");
        }
    }
}
