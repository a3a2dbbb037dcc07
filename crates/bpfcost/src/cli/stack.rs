//! `bpfcost stack`: kernel stacks of events of the running system.

use std::{
    fs,
    io::{IsTerminal as _, stderr},
    path::PathBuf,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    attach::AttachMethod,
    stack_counter::{DEEPEST, StackCounter, StackEvent, StackFilter, StackMode},
    stats::StatsOn,
    unwind::{KernelSymbols, RuleTable},
};
use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};

use super::{
    exit::{Exit, lacking, usage},
    interrupt,
    output::{heard, note},
    parse,
};
use crate::{
    did_you_mean::suggest,
    experiment::missing,
    stack::{self, Profile, ProfileInput, SymbolHistory},
};

/// How long a look for reports takes.
const LOOK: Duration = Duration::from_millis(20);
/// How often modules are looked for, and progress is shown.
const TURN: Duration = Duration::from_millis(200);

/// Show which kernel stacks lead to a function or tracepoint, and how often
///
/// Stacks are taken by hand: a BPF program walks them by the kernel's own unwind tables (ORC, or frame pointers), at a
/// tenth of the cost of the kernel's helper, and counts them in the kernel. Every event is accounted for: what is lost,
/// cut or incomplete is counted and shown, and so is what it costs. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bpfcost stack tcp:tcp_probe --duration 5s            the most frequent stacks of a tracepoint
  bpfcost stack ip_rcv --comm redis-server             of a function, where this command runs
  bpfcost stack sched:sched_switch --svg switch.svg    a flame graph
  bpfcost stack block:block_rq_issue --live            each event as it comes")]
pub(super) struct Args {
    /// Functions of the kernel, or tracepoints (category:name)
    #[arg(required = true, value_name = "SYMBOL|TRACEPOINT")]
    events: Vec<String>,
    /// Take stacks by hand (the default)
    #[arg(long, conflicts_with = "helper")]
    manual: bool,
    /// Take stacks by the kernel's helper, bpf_get_stackid()
    #[arg(long)]
    helper: bool,
    /// How to attach; default: what the machine has
    #[arg(long, value_enum, value_name = "TYPE")]
    attach: Option<AttachChoice>,
    /// Show the most frequent stacks (the default)
    #[arg(long, group = "shape")]
    count: bool,
    /// Show each event as it comes, with its process and CPU
    #[arg(long, group = "shape", conflicts_with = "helper")]
    live: bool,
    /// Print a line for each stack, as flame graphs are made of
    #[arg(long, group = "shape")]
    folded: bool,
    /// Write a flame graph
    #[arg(long, group = "shape", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long, group = "shape")]
    json: bool,
    /// How many stacks to show
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// The most addresses of a stack
    #[arg(long, default_value_t = DEEPEST, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(DEEPEST)))]
    depth: u32,
    /// Events of this process alone
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Events of commands of this name alone, at most 15 bytes
    #[arg(long, value_name = "NAME", value_parser = command)]
    comm: Option<String>,
    /// End after this time; default: at Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = parse::time)]
    duration: Option<Duration>,
}

/// How to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AttachChoice {
    /// A kprobe on a function
    Kprobe,
    /// A trampoline at the entry of one function
    Fentry,
    /// A tracepoint itself
    #[value(name = "raw_tp")]
    RawTp,
    /// A tracepoint through perf
    Tracepoint,
}

impl AttachChoice {
    fn method(self) -> AttachMethod {
        match self {
            AttachChoice::Kprobe => AttachMethod::Kprobe,
            AttachChoice::Fentry => AttachMethod::Fentry,
            AttachChoice::RawTp => AttachMethod::RawTp,
            AttachChoice::Tracepoint => AttachMethod::Tracepoint,
        }
    }
}

/// Bytes of a command's name, as the kernel keeps it.
const COMM: usize = 15;

fn command(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("write a command's name, e.g. redis-server".to_owned()),
        1..=COMM => Ok(text.to_owned()),
        _ => Err(format!(
            "the kernel keeps {COMM} bytes of a command's name; write {}",
            text.get(..COMM).unwrap_or("its first ones")
        )),
    }
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    if let Some(pid) = args.pid
        && !fs::exists(format!("/proc/{pid}")).unwrap_or(true)
    {
        return Err(usage(format!(
            "there is no process {pid}\n  See which there are: ps -e"
        )));
    }
    let symbols = KernelSymbols::read()?;
    let events: Vec<StackEvent> = (args.events.iter())
        .map(|event| event_of(event, args.attach, &symbols))
        .collect::<Result<_>>()?;
    let by_fentry = |(method, _): &StackEvent| *method == AttachMethod::Fentry;
    if events.len() > 1 && events.iter().any(by_fentry) {
        return Err(usage(
            "a trampoline (fentry) takes one function\n  Name one, or attach by kprobes: --attach kprobe",
        ));
    }
    let rules = (!args.helper)
        .then(|| RuleTable::read(&symbols))
        .transpose()?;
    let taken = match &rules {
        None => "by the kernel's helper",
        Some(rules) if rules.is_orc() => "by hand (ORC)",
        Some(_) => "by hand (frame pointers)",
    };
    let mode = match (args.live, args.helper) {
        (_, true) => StackMode::Helper,
        (true, false) => StackMode::Events,
        (false, false) => StackMode::Count,
    };
    let filter = StackFilter {
        depth: args.depth,
        process: args.pid,
        command: args.comm.clone(),
    };
    let ended = interrupt::on_signal()?;
    let _stats = StatsOn::start()?;
    let mut counter = StackCounter::start(&events, mode, &filter, rules.as_ref())?;
    let mut history = SymbolHistory::new(symbols);
    if mode != StackMode::Helper {
        // BPF programs, its own among them, have names since they were loaded.
        history = SymbolHistory::new(KernelSymbols::read()?);
    }
    let begun = Instant::now();
    let begun_ns = monotonic_ns();
    let mut turn = Instant::now();
    let shows_progress = stderr().is_terminal() && !args.live;
    let mut reader_left = false;
    while !ended.load(Ordering::Relaxed) && !reader_left {
        let left = args
            .duration
            .map(|time| time.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        for report in counter.poll(left.unwrap_or(LOOK).min(LOOK))? {
            reader_left |= !heard(format_args!(
                "{}",
                stack::event(&report, &history, begun_ns)
            ))?;
        }
        if turn.elapsed() >= TURN {
            turn = Instant::now();
            if let Some(symbols) = counter.refresh()? {
                history.push(symbols);
            }
            if shows_progress {
                let events = counter.totals()?.events;
                eprint!(
                    "\r{events} events in {:.0} s",
                    begun.elapsed().as_secs_f64()
                );
            }
        }
    }
    let mut totals = counter.totals()?;
    let seconds = begun.elapsed().as_secs_f64();
    let missed = totals.missed;
    counter.detach();
    for report in counter.poll(Duration::ZERO)? {
        heard(format_args!(
            "{}",
            stack::event(&report, &history, begun_ns)
        ))?;
    }
    totals = bpfcost_bpf::stack_counter::StackTotals {
        missed,
        runs: totals.runs,
        run_ns: totals.run_ns,
        ..counter.totals()?
    };
    if shows_progress {
        eprint!("\r\u{1b}[K");
    }
    let input = ProfileInput {
        events: args.events.clone(),
        taken: taken.to_owned(),
        seconds,
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        depth: args.depth,
        kernel_bytes: counter.kernel_bytes(),
        totals,
    };
    let profile = Profile::new(input, counter.stacks()?, &history);
    show(args, &profile)?;
    Ok(
        if args.duration.is_some() && ended.load(Ordering::Relaxed) {
            Exit::Interrupted
        } else {
            Exit::Done
        },
    )
}

/// Shows the profile in the shape that was asked for.
fn show(args: &Args, profile: &Profile) -> Result<()> {
    let summary = |most| stack::summary(profile, most);
    if args.json {
        heard(format_args!("{}\n", profile.json()))?;
    } else if args.folded {
        for line in profile.folded() {
            if !heard(format_args!("{line}\n"))? {
                break;
            }
        }
        note!("{}", summary(0).trim_end());
    } else if let Some(path) = &args.svg {
        if profile.stacks.is_empty() {
            note!("{}", summary(0).trim_end());
            return Err(usage("no event came, so there is nothing to draw"));
        }
        let svg = profile.svg()?;
        fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        note!("{}", summary(0).trim_end());
        note!("flame graph: {}", path.display());
    } else if args.live {
        note!("{}", summary(0).trim_end());
    } else {
        heard(format_args!("{}", summary(args.top)))?;
    }
    Ok(())
}

/// How to attach to what was named.
fn event_of(
    name: &str,
    choice: Option<AttachChoice>,
    symbols: &KernelSymbols,
) -> Result<StackEvent> {
    let is_tracepoint = name.contains(':');
    let chosen = choice.map(AttachChoice::method);
    if let Some(method) = chosen
        && method.takes_tracepoints() != is_tracepoint
    {
        return Err(usage(if is_tracepoint {
            format!(
                "{name} is a tracepoint\n  Attach with raw_tp or tracepoint, or name a function"
            )
        } else {
            format!(
                "{name} is a function\n  Attach with kprobe or fentry, or name a tracepoint: category:name"
            )
        }));
    }
    if !is_tracepoint {
        check_function(name, symbols)?;
    }
    let candidates = match (chosen, is_tracepoint) {
        (Some(method), _) => vec![method],
        (None, true) => vec![AttachMethod::RawTp, AttachMethod::Tracepoint],
        (None, false) => vec![AttachMethod::Kprobe, AttachMethod::Fentry],
    };
    let mut lacks = Vec::new();
    for method in candidates {
        match missing(&StackCounter::needs(method))? {
            None => {
                if is_tracepoint
                    && let Some(why) = bpfcost_bpf::attach::Counter::absent(method, name)?
                {
                    return Err(usage(format!("{name}: {why}")));
                }
                return Ok((method, name.to_owned()));
            }
            Some(lack) => lacks.push(lack),
        }
    }
    Err(lacking(format!(
        "cannot attach to {name}: {}",
        lacks.join("; ")
    )))
}

/// A function must be one of the kernel's, and one alone.
fn check_function(name: &str, symbols: &KernelSymbols) -> Result<()> {
    let named: Vec<_> = symbols.functions_named(name).collect();
    match named.len() {
        0 => {
            let near = suggest(name, symbols.function_names());
            Err(usage(format!(
                "the kernel has no function {name}{near}\n  It may be inlined, or part of a module that is not loaded. \
                 List them: grep -i NAME /proc/kallsyms"
            )))
        }
        1 => Ok(()),
        many => {
            let modules: Vec<&str> = named
                .iter()
                .map(|one| one.module.unwrap_or("vmlinux"))
                .collect();
            Err(usage(format!(
                "{name} is ambiguous: {many} functions have this name ({})\n  Name one of their callers, or a tracepoint",
                modules.join(", ")
            )))
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
