//! `bpfcost stack`: kernel stacks of events of the running system.

mod answer;
mod event;
mod watch;

use std::{
    fs,
    io::{IsTerminal as _, stderr},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::Result;
use bpfcost_bpf::{
    attach::AttachMethod,
    stack_counter::{self, DEEPEST, StackCounter, StackEvent, StackFilter, StackMode, StackTotals},
    stats::StatsOn,
    unwind::{KernelSymbols, RuleTable},
};
use rustix::time::{ClockId, clock_gettime};

use self::{
    answer::show,
    event::{AttachChoice, event_of},
    watch::Watch,
};
use super::{
    exit::{Exit, lacking, usage},
    flame, interrupt,
    output::{Bar, note},
    parse,
};
use crate::stack::{Profile, ProfileInput, SymbolHistory};
use bpfcost_target::Host;
use bpfcost_text::number;

/// How long a look for reports takes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often progress is drawn, in Hz.
const DRAWN_HZ: u8 = 5;
/// How often modules are looked for, and progress is shown.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// Show which kernel stacks lead to a function or tracepoint, and how often
///
/// A BPF program walks the stack by hand, with the kernel's own unwind tables (ORC, or frame pointers), at a tenth of the
/// cost of the kernel's helper, and counts distinct stacks in the kernel. Every event is accounted for: stacks that are
/// lost, cut or incomplete are counted and shown, and so is the cost. Events of bpfcost itself are left out. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bpfcost stack tcp:tcp_probe --duration 5s            the most frequent stacks at a tracepoint
  bpfcost stack ip_rcv --comm redis-server             at a function, in processes of this name
  bpfcost stack sched:sched_switch --svg switch.svg    a flame graph
  bpfcost stack block:block_rq_issue --live            each event as it happens")]
pub(super) struct Args {
    /// Functions of the kernel, or tracepoints (category:name); bpftrace's spellings work, too
    #[arg(required = true, value_name = "SYMBOL|TRACEPOINT")]
    events: Vec<String>,
    /// Take stacks by hand (the default)
    #[arg(long, conflicts_with = "helper")]
    manual: bool,
    /// Take stacks by the kernel's helper, bpf_get_stackid()
    #[arg(long)]
    helper: bool,
    /// How to attach; default: the first that this machine supports
    #[arg(long, value_enum, value_name = "TYPE")]
    attach: Option<AttachChoice>,
    /// Show the most frequent stacks (the default)
    #[arg(long, group = "shape")]
    count: bool,
    /// Show each event as it happens, with its process and CPU
    #[arg(long, group = "shape", conflicts_with = "helper")]
    live: bool,
    /// Print one line per distinct stack, the input of flame graph tools
    #[arg(long, group = "shape")]
    folded: bool,
    /// Write a flame graph
    #[arg(long, group = "shape", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long, group = "shape")]
    json: bool,
    /// How many stacks to print
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Addresses per stack, at most
    #[arg(long, default_value_t = DEEPEST, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(DEEPEST)))]
    depth: u32,
    /// Only events of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Only events of processes with this command name (at most 15 bytes)
    #[arg(long, value_name = "NAME", value_parser = command)]
    comm: Option<String>,
    /// End after this time; default: at Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = parse::time)]
    duration: Option<Duration>,
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
    // Before anything is asked of the kernel: a signal from then on shows what there is, and is not lost.
    let ended = interrupt::on_signal()?;
    check(args)?;
    let bar = Bar::new(0, DRAWN_HZ, "{msg}");
    let mut recording = Recording::start(args, &bar)?;
    recording.run(&ended)?;
    let profile = recording.finish()?;
    bar.clear();
    show(args, &profile)?;
    Ok(
        if args.duration.is_some() && ended.load(Ordering::Relaxed) {
            Exit::Interrupted
        } else {
            Exit::Done
        },
    )
}

/// Stacks that are being taken.
struct Recording<'a> {
    args: &'a Args,
    bar: &'a Bar,
    counter: StackCounter,
    watch: Watch,
    /// The way in which stacks are taken, for people.
    way: &'static str,
    begun: Instant,
    begun_cpu_s: f64,
    _stats: StatsOn,
}

impl<'a> Recording<'a> {
    fn start(args: &'a Args, bar: &'a Bar) -> Result<Self> {
        bar.set_words("reading the kernel's symbols …");
        let symbols = KernelSymbols::read()?;
        let events = stack_events(args, &symbols)?;
        bar.set_words("reading the kernel's unwind rules …");
        let rules = (!args.helper)
            .then(|| RuleTable::read(&symbols))
            .transpose()?;
        let history = SymbolHistory::new(symbols);
        if let Some(rules) = &rules {
            bar.set_words("comparing a few stacks with those of the kernel's helper …");
            rules.self_test()?;
        }
        let way = match &rules {
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
        bar.set_words("waiting for the kernel to verify the program …");
        let stats = StatsOn::start()?;
        let counter = StackCounter::start(&events, mode, &filter, rules.as_ref())?;
        drop(rules);
        Ok(Recording {
            args,
            bar,
            counter,
            begun: Instant::now(),
            begun_cpu_s: own_cpu_s(),
            watch: Watch::new(history),
            way,
            _stats: stats,
        })
    }

    /// Whether progress is shown: not between events.
    fn shows_progress(&self) -> bool {
        stderr().is_terminal() && !self.args.live
    }

    /// Takes stacks until the time is over, or the run is ended.
    fn run(&mut self, ended: &AtomicBool) -> Result<()> {
        let mut refreshed = Instant::now();
        let mut rules_are_kept = true;
        if self.args.live {
            self.bar.clear();
        }
        while !ended.load(Ordering::Relaxed) && !self.watch.reader_left {
            let left = (self.args.duration).map(|time| time.saturating_sub(self.begun.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let wait = left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL);
            self.watch.show(&self.counter.poll(wait)?)?;
            if refreshed.elapsed() < REFRESH_INTERVAL {
                continue;
            }
            refreshed = Instant::now();
            if rules_are_kept {
                match self.counter.refresh() {
                    Ok(true) => self.watch.symbols.push()?,
                    Ok(false) => {}
                    // Stacks from now on are counted as stale.
                    Err(error) => {
                        rules_are_kept = false;
                        self.bar.suspend(|| note!("note: {error}"));
                    }
                }
            }
            if self.shows_progress() {
                let totals = self.counter.totals()?;
                self.bar
                    .set_words(&progress(&totals, self.begun.elapsed(), self.args.duration));
            }
        }
        Ok(())
    }

    /// Detaches, and names the stacks.
    fn finish(mut self) -> Result<Profile> {
        if self.shows_progress() {
            self.bar.set_words("detaching, and naming the stacks …");
        }
        // Its own trampolines have names until then.
        self.watch.symbols.push()?;
        self.counter.detach()?;
        if self.counter.modules_changed()? {
            self.watch.symbols.push()?;
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        // What is left of the last events.
        while !self.watch.reader_left {
            let reports = self.counter.poll(Duration::ZERO)?;
            self.watch.show(&reports)?;
            if reports.is_empty() {
                break;
            }
        }
        let input = ProfileInput {
            events: self.args.events.clone(),
            taken: self.way.to_owned(),
            seconds,
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            depth: self.args.depth,
            kernel_bytes: self.counter.kernel_bytes(),
            own_cpu_s: own_cpu_s() - self.begun_cpu_s,
            totals: self.counter.totals()?,
        };
        Ok(Profile::new(
            input,
            self.counter.stacks()?,
            &self.watch.symbols,
        ))
    }
}

/// The events that are named, and how each is attached to.
fn stack_events(args: &Args, symbols: &KernelSymbols) -> Result<Vec<StackEvent>> {
    let events: Vec<StackEvent> = (args.events.iter())
        .map(|event| event_of(event, args.attach, symbols))
        .collect::<Result<_>>()?;
    let by_fentry = |(method, _): &StackEvent| *method == AttachMethod::Fentry;
    if events.len() > 1 && events.iter().any(by_fentry) {
        return Err(usage(
            "a trampoline (fentry) takes one function\n  Name one, or attach by kprobes: --attach kprobe",
        ));
    }
    Ok(events)
}

/// What can be said before the kernel is asked for anything.
fn check(args: &Args) -> Result<()> {
    if let Some(pid) = args.pid
        && !fs::exists(format!("/proc/{pid}")).unwrap_or(true)
    {
        return Err(usage(format!(
            "there is no process {pid}\n  List them: ps -e"
        )));
    }
    if let Some(path) = &args.svg {
        flame::check(path)?;
    }
    if !Host::default().sees_other_programs() {
        return Err(lacking(
            "this process lacks CAP_SYS_ADMIN, which the kernel requires to read its stacks\n  Run it as root: sudo \
             bpfcost stack",
        ));
    }
    if stack_counter::is_locked_down() {
        return Err(lacking(
            "the kernel is in lockdown, which forbids reading its stacks\n  Boot without lockdown=confidentiality",
        ));
    }
    let restricted = fs::read_to_string("/proc/sys/kernel/kptr_restrict");
    if restricted.is_ok_and(|text| text.trim() == "2") {
        return Err(lacking(
            "the kernel hides the addresses of its functions, also from root (the sysctl kernel.kptr_restrict is 2)\n  \
             Show them to root: sysctl kernel.kptr_restrict=1",
        ));
    }
    Ok(())
}

/// Progress in a line.
fn progress(totals: &StackTotals, elapsed: Duration, duration: Option<Duration>) -> String {
    let of = duration.map_or(String::new(), |time| {
        format!(" of {:.0}", time.as_secs_f64().ceil())
    });
    format!(
        "{} events, {} lost, in {:.0}{of} s; Ctrl-C ends it and shows the result",
        number::count(totals.events),
        number::count(totals.lost),
        elapsed.as_secs_f64(),
    )
}

/// CPU time of this process, in seconds.
fn own_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
