//! `bpfcost overhead`: what a probe costs a server, a command or a service. The command line becomes the definition of
//! a workload, and is measured like every workload.

mod command;
mod load_generator;
mod variants;
mod watched;
mod workload;

use std::time::Duration;

use anyhow::Result;
use bpfcost_stats::looks::first_look;

use self::variants::variants;
use super::{
    exit::{Exit, lacking, usage},
    measurement::{self, Options},
    parse, place,
};
use crate::builtin::workload::Workload;

use bpfcost_measure::Plan;
use bpfcost_model::{Case, Experiment, Sizing};
use bpfcost_process::program::find;
use bpfcost_report::rate::EventLoad;
use bpfcost_target::Host;
use bpfcost_workload::{Definition, Variant};

/// Milliseconds of a window: several ticks of every clock that is read, and some hundred switches.
const WINDOW_MS: u64 = 700;
/// The same with `--quick`.
const QUICK_WINDOW_MS: u64 = 200;

/// Measure what a probe costs a command, a server, a workload or a running service
///
/// The probe is switched on and off while the same load runs, in random order. The result is the CPU time that it adds
/// to each operation, with a 95 % interval and a verdict. Several probes are compared with no probe and with each
/// other. The server is restarted every few seconds; a service given by --watch is not.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = USAGE,
    mut_arg("on", |on| on.help("Where: host or vm:KERNEL [repeatable]").long_help(ON)),
    mut_arg("cases", |cases| cases.hide_short_help(true).help("Measure only matching cases [repeatable]")),
    mut_arg("cpus", |cpus| cpus.hide(true)),
    mut_arg("seed", |seed| seed.help("Draw every order from this seed").long_help(None)),
    mut_arg("set", |set| set.hide_short_help(true).help("Give a factor of the workload other values").long_help(SET)),
    mut_arg("time", |time| time.help("Stop after this time [default: 60s, or longer for 10 epochs]").long_help(TIME)),
    mut_arg("precision", |precision| precision.long_help(PRECISION)),
    after_help = "\
Examples:
  bpfcost overhead count.bpf.o --budget 5% -- make
  bpfcost overhead agent.service --watch nginx.service --abort-above 20%
How to write a PROBE, and all options: bpfcost overhead --help",
    after_long_help = "\
Examples:
  bpfcost overhead count.bpf.o -- make -j2               a BPF object, on a command
  bpfcost overhead a.bpf.o b.bpf.o --workload redis      two objects, on a built-in workload
  bpfcost overhead \"bpftrace -e 'tracepoint:raw_syscalls:sys_enter { @ = count(); }'\" \\
      --server 'redis-server --port {port} --bind 127.0.0.1' \\
      --client 'redis-benchmark -p {port} -q -t set'
  bpfcost overhead agent.service --watch nginx.service --abort-above 20%
  bpfcost overhead builtin:nothing -- make               no probe: what this machine can resolve"
)]
pub(super) struct Args {
    /// FILE.bpf.o, user:FILE.bpf.o, NAME.service, builtin:NAME, process:COMMAND, user-tool:COMMAND, or a command like bpftrace
    ///
    /// FILE.bpf.o[:PROGRAM] is a BPF object, or one program of it. A helper process reads and discards what it writes to
    /// ring and perf buffers; the helper's CPU time counts as the probe's. user:FILE.bpf.o runs its uprobes in the
    /// processes of the server or command, without the kernel's trap. NAME.service is a systemd unit. builtin:NAME is a
    /// probe that bpfcost brings. process:COMMAND is a tool without BPF. Anything else is a command that loads BPF programs;
    /// with user-tool: before it, as 'user-tool:memleak -p {pid}', its uprobe programs run in the server's process ({pid}).
    /// 'A + B' joins probes into one; NAME=PROBE names a probe.
    #[arg(value_name = "PROBE", required = true)]
    probes: Vec<String>,
    /// Measure on this command and its arguments: one run is one operation
    ///
    /// bpfcost reads the number of operations from the output of redis-benchmark, wrk, ab, hey and iperf3.
    #[arg(last = true, value_name = "COMMAND", help_heading = SUBJECT)]
    command: Vec<String>,
    /// Measure on this server, started on a free {port}
    #[arg(long, value_name = "CMD", help_heading = SUBJECT)]
    server: Option<String>,
    /// The load for the server; it must end by itself
    ///
    /// bpfcost reads the number of requests from the output of redis-benchmark, wrk, ab, hey and iperf3. Any other load
    /// is one operation per run. It is not run by a shell: for loops and pipes write "sh -c '…'".
    #[arg(long, value_name = "CMD", help_heading = SUBJECT)]
    client: Option<String>,
    /// Measure on a built-in workload (`bpfcost list`), or on your FILE.toml
    #[arg(long, value_name = "NAME|FILE", help_heading = SUBJECT)]
    workload: Option<String>,
    /// Measure on a service or process that is running; it is not restarted
    #[arg(long, value_name = "SERVICE|PID", help_heading = SUBJECT)]
    watch: Option<String>,
    /// With --watch: a command that prints the service's operation count
    ///
    /// Without it, the service's CPU time per second is compared.
    #[arg(long, value_name = "CMD", help_heading = SUBJECT)]
    ops: Option<String>,
    /// Also compare the number that it finds in the output [repeatable]
    ///
    /// A regular expression with one capture group. With --ops, it picks the operation count.
    #[arg(long, value_name = "REGEX", help_heading = SUBJECT)]
    metric: Vec<String>,
    /// With --watch: detach when operations cost this much more
    ///
    /// Without --ops, CPU time per second counts. bpfcost first watches the service without a probe, and refuses a
    /// limit that the service's own noise exceeds. The probe is also detached if its own processes use this share of one CPU.
    #[arg(long, value_name = "PERCENT", value_parser = parse::rise, allow_hyphen_values = true)]
    #[arg(help_heading = SUBJECT)]
    abort_above: Option<f64>,
    /// Show whether each probe stays within this relative cost
    ///
    /// The exit code is 1 if one costs more than that, beyond noise.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    budget: Option<f64>,
    /// Make each window hold what the probe does once in this time
    ///
    /// A tool that does something every 10 s may not do it in any window of a second. With --period 10s each window lasts
    /// 20 s from the start of the tool: a whole number of periods, two or more (one, if the period is above 30s). The run
    /// has at least 20 windows; it says how long that takes.
    #[arg(long, value_name = "TIME", value_parser = parse::period, allow_hyphen_values = true)]
    period: Option<Duration>,
    #[command(flatten)]
    options: Options,
}

/// The heading of the options that say what the probe is measured on.
const SUBJECT: &str =
    "What the probe is measured on: one of COMMAND, --server, --workload, --watch";

const ON: &str = "Where: host or vm:KERNEL [repeatable]\n\nvm:KERNEL is a guest with that kernel; see `bpfcost kernel list`.";
const SET: &str = "Give a factor of the workload other values, e.g. size=1k [repeatable]\n\n\
    `bpfcost list WORKLOAD` shows the factors.";
const TIME: &str = "Stop after this time; it must allow 10 epochs\n\n\
    An epoch is one start of the server. Without --time and --precision, a run stops after 60s, or \
    when every interval is within ±1%, but not before 10 epochs.";
const PRECISION: &str = "Stop when every interval is within ± this share of its value";

/// The four forms.
const USAGE: &str = "\
bpfcost overhead [OPTIONS] PROBE... -- COMMAND...
       bpfcost overhead [OPTIONS] PROBE... --server CMD --client CMD
       bpfcost overhead [OPTIONS] PROBE... --workload NAME|FILE.toml
       bpfcost overhead [OPTIONS] PROBE... --watch SERVICE|PID";

pub(super) fn run(args: &Args) -> Result<Exit> {
    let options = &args.options;
    let host = Host::default();
    let definition = definition(args)?;
    let experiment =
        || -> Result<Box<dyn Experiment>> { Ok(Box::new(Workload::new(definition.clone()))) };
    let plans = measurement::plans(options, experiment, args.budget, &host)?;
    for (_, plan) in &plans {
        long_enough(args, plan)?;
    }
    if !options.dry_run {
        for (experiment, plan) in plans.iter().filter(|(_, plan)| plan.target == "host") {
            place::able(&host, &**experiment)?;
            supported(&**experiment, plan)?;
        }
    }
    measurement::run(options, EventLoad::default(), plans, &host, &|_| Ok(()))
}

/// Refuses a time into which the windows of a period do not fit.
fn long_enough(args: &Args, plan: &Plan) -> Result<()> {
    let (Some(period), Some(time)) = (args.period, args.options.time) else {
        return Ok(());
    };
    let window = |case: &Case| match case.sizing {
        Sizing::Window(ms) => Duration::from_millis(ms),
        _ => Duration::ZERO,
    };
    let epoch: Duration = plan.cases.iter().map(window).sum();
    let epochs = first_look(plan.comparisons());
    let least = epoch * u32::try_from(epochs).unwrap_or(u32::MAX);
    if time >= least {
        return Ok(());
    }
    let named = |time: Duration| format!("{:.0}s", time.as_secs_f64().ceil());
    Err(usage(format!(
        "--time {} is too short for --period {}: {epochs} epochs of {} windows take {} and more\n  Leave out --time, \
         name a shorter period, or fewer probes",
        named(time),
        humantime::format_duration(period),
        plan.cases.len(),
        named(least),
    )))
}

/// Refuses a probe that this kernel cannot have.
fn supported(experiment: &dyn Experiment, plan: &Plan) -> Result<()> {
    for case in &plan.cases {
        if let Some(reason) = experiment.unsupported(case)? {
            return Err(lacking(format!(
                "{}: {reason}\n  Run it on a kernel that supports it: --on vm:KERNEL (see bpfcost \
                 kernel list)",
                case.name
            )));
        }
    }
    Ok(())
}

/// The workload that the command line describes.
fn definition(args: &Args) -> Result<Definition> {
    workload::none_among(&args.probes)?;
    let variants = variants(&args.probes)?;
    let subjects = [
        args.workload.is_some(),
        !args.command.is_empty() || args.client.is_some() || args.server.is_some(),
        args.watch.is_some(),
    ];
    match subjects.iter().filter(|given| **given).count() {
        1 => {}
        0 => {
            return Err(usage(format!(
                "{} needs something to be measured on\n  \
                 Add one of: -- COMMAND, --server CMD --client CMD, --workload NAME, --watch SERVICE|PID",
                args.probes.join(", ")
            )));
        }
        _ => {
            return Err(usage(
                "a probe is measured on one thing at a time, and several are given\n  \
                 Keep one of: -- COMMAND, --server CMD --client CMD, --workload NAME, --watch SERVICE|PID",
            ));
        }
    }
    matching(args)?;
    let definition = if let Some(watched) = &args.watch {
        watched::definition(args, watched)?
    } else if let Some(name) = &args.workload {
        workload::definition(name)?
    } else {
        let definition = command::definition(args)?;
        for program in definition.programs() {
            find(program)?;
        }
        definition
    };
    let mut probes = variants.iter().filter_map(|one| one.probe.as_ref());
    if definition.server.is_none()
        && let Some(spec) = probes.find(|spec| bpfcost_probe::is_of_server(spec))
    {
        return Err(usage(format!(
            "{spec} watches the processes of a server, and a command after -- has no server\n  \
             Start one with --server CMD --client CMD, or name one that is running with --watch SERVICE|PID",
        )));
    }
    let mut probes = variants.iter().filter_map(|one| one.probe.as_ref());
    if let Some(spec) = probes.find(|spec| bpfcost_probe::is_in_user_space_twice(spec)) {
        return Err(usage(format!(
            "{spec} joins two objects in user space, which would disturb each other where processes start\n  \
             Link them into one object (bpftool gen object), or leave `user:` out of one of them",
        )));
    }
    // In a shorter window, the noise of a service hides more than most limits allow.
    let shortened = args.workload.is_none() && args.abort_above.is_none();
    let window_ms = if args.options.quick && shortened {
        QUICK_WINDOW_MS
    } else {
        definition.window_ms
    };
    let (window_ms, rounds) = suited(window_ms, definition.rounds, &variants);
    Ok(Definition {
        // Part of the record's file name.
        name: definition.name.replace(
            |letter: char| !(letter.is_alphanumeric() || "._-".contains(letter)),
            "-",
        ),
        against_each_other: true,
        variants,
        window_ms,
        rounds,
        period_ms: args
            .period
            .map(|period| period.as_millis() as u64)
            .or(definition.period_ms),
        ..definition
    })
}

/// How long a window is, in milliseconds, and how many windows a server has. A probe that takes long to attach needs long
/// windows; then a server has the fewest windows that are allowed, of the same total time.
fn suited(window_ms: u64, rounds: u32, variants: &[Variant]) -> (u64, u32) {
    let mut probes = variants.iter().filter_map(|one| one.probe.as_ref());
    if probes.any(|spec| spec.start_s() > 0.0) {
        (window_ms * u64::from(rounds) / 3, 3)
    } else {
        (window_ms, rounds)
    }
}

/// Refuses options that mean nothing for this form.
fn matching(args: &Args) -> Result<()> {
    let workload = args.workload.is_some();
    let watch = args.watch.is_some();
    let guest = args.options.on.iter().any(|target| target != "host");
    /// An option a line: when it is wrong, and why.
    macro_rules! list {
        ($($option:literal: $wrong:expr => $why:literal;)+) => { [$(($option, $wrong, $why)),+] };
    }
    let options = list! {
        "--ops": args.ops.is_some() && !watch => "needs --watch: other loads report their own operations";
        "--abort-above": args.abort_above.is_some() && !watch => "needs --watch: a server that is started for the measurement has no users to protect";
        "--metric": !args.metric.is_empty() && workload => "reads the output of your command; a workload has its own numbers";
        "--metric": !args.metric.is_empty() && watch && args.ops.is_none() => "reads the output of --ops, which is missing";
        "--server": args.server.is_some() && args.client.is_none() && args.command.is_empty() => "needs a load: --client CMD, or a command after --";
        "--client": args.client.is_some() && !args.command.is_empty() => "and a command after -- are two loads: keep one";
        "--client": args.client.is_some() && args.server.is_none() => "needs --server; without a server, write the command after --";
        "--on": watch && guest => "names a guest, where no service of this machine runs";
    };
    match options.into_iter().find(|(_, wrong, _)| *wrong) {
        None => Ok(()),
        Some((option, _, why)) => Err(usage(format!(
            "{option} {why}\n  See: bpfcost overhead --help"
        ))),
    }
}

/// A definition of nothing.
fn empty() -> Definition {
    Definition {
        operation: "run".to_owned(),
        window_ms: WINDOW_MS,
        rounds: 3,
        network: "here".to_owned(),
        ..Definition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_to_switch_has_few_long_windows() {
        let variants = |probe: &str| {
            let line = format!("name = 'x'\nabout = ''\nprobe = '{probe}'");
            [toml::from_str::<Variant>(&line).expect("a variant")]
        };
        for (probe, expected) in [
            ("builtin:nothing", (200, 6)),
            ("bpftrace -e x", (400, 3)),
            ("builtin:nothing + x.bpf.o", (400, 3)),
        ] {
            assert_eq!(suited(200, 6, &variants(probe)), expected, "{probe}");
        }
    }
}
