//! `bpfcost stack`: kernel stacks of events of the running system.

use std::{
    collections::HashMap,
    fs,
    io::{self, BufWriter, ErrorKind, IsTerminal as _, Stdout, Write as _, stderr, stdout},
    path::{Path, PathBuf},
    rc::Rc,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    attach::{AttachMethod, Counter},
    stack_counter::{
        self, DEEPEST, StackCounter, StackEvent, StackFilter, StackMode, StackReport, StackTotals,
    },
    stats::StatsOn,
    unwind::{Generation, KernelSymbols, RuleTable},
};
use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};

use super::{
    exit::{Exit, lacking, usage, with_advice},
    interrupt,
    output::{heard, note},
    parse,
};
use crate::{
    did_you_mean::suggest,
    record::{self, FileError},
    report::number,
    stack::{self, Profile, ProfileInput, SymbolHistory},
    target::Host,
};

/// How long a look for reports takes.
const LOOK: Duration = Duration::from_millis(20);
/// How often modules are looked for, and progress is shown.
const TURN: Duration = Duration::from_millis(200);

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
    /// Functions of the kernel, or tracepoints (category:name)
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
    // Before anything is asked of the kernel: a signal from then on shows what there is, and is not lost.
    let ended = interrupt::on_signal()?;
    check(args)?;
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
    drop(symbols);
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
    let history = SymbolHistory::read()?;
    let _stats = StatsOn::start()?;
    let mut counter = StackCounter::start(&events, mode, &filter, rules.as_ref())?;
    drop(rules);
    let begun = Instant::now();
    let begun_cpu_s = own_cpu_s();
    let mut watch = Watch {
        begun_ns: monotonic_ns(),
        symbols: history,
        texts: HashMap::new(),
        reader_left: false,
    };
    let mut turn = Instant::now();
    let mut rules_are_kept = true;
    let shows_progress = stderr().is_terminal() && !args.live;
    while !ended.load(Ordering::Relaxed) && !watch.reader_left {
        let left = args
            .duration
            .map(|time| time.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        watch.show(&counter.poll(left.unwrap_or(LOOK).min(LOOK))?)?;
        if turn.elapsed() < TURN {
            continue;
        }
        turn = Instant::now();
        if rules_are_kept {
            match counter.refresh() {
                Ok(true) => watch.symbols.push()?,
                Ok(false) => {}
                // Stacks from now on are counted as stale.
                Err(error) => {
                    rules_are_kept = false;
                    note!("note: {error}");
                }
            }
        }
        if shows_progress {
            let totals = counter.totals()?;
            progress(&totals, begun.elapsed(), args.duration);
        }
    }
    // Its own trampolines have names until then.
    watch.symbols.push()?;
    counter.detach()?;
    if counter.modules_changed()? {
        watch.symbols.push()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    // What is left of the last events.
    while !watch.reader_left {
        let reports = counter.poll(Duration::ZERO)?;
        watch.show(&reports)?;
        if reports.is_empty() {
            break;
        }
    }
    if shows_progress {
        eprint!("\r\u{1b}[K");
    }
    let own_cpu_s = own_cpu_s() - begun_cpu_s;
    let input = ProfileInput {
        events: args.events.clone(),
        taken: taken.to_owned(),
        seconds,
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        depth: args.depth,
        kernel_bytes: counter.kernel_bytes(),
        own_cpu_s,
        totals: counter.totals()?,
    };
    let profile = Profile::new(input, counter.stacks()?, &watch.symbols);
    drop(counter);
    show(args, &profile)?;
    Ok(
        if args.duration.is_some() && ended.load(Ordering::Relaxed) {
            Exit::Interrupted
        } else {
            Exit::Done
        },
    )
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
        check_svg(path)?;
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

/// Whether a file can be written, before anything is measured.
fn check_svg(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(usage(format!(
            "{} is a folder\n  Name a file in it: --svg {}",
            path.display(),
            path.join("stacks.svg").display()
        )));
    }
    if is_special(path) {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(usage(format!(
            "there is no folder {0}\n  Make it: mkdir -p {0}",
            folder.display()
        )));
    }
    let tried = tempfile::tempfile_in(folder).map(drop);
    tried.map_err(|error| not_written(path, error))
}

fn not_written(path: &Path, error: io::Error) -> anyhow::Error {
    let error = anyhow::Error::from(error).context(format!("cannot write {}", path.display()));
    with_advice(&error, "Choose another file: --svg FILE")
}

/// Whether a path is there, and no file.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file())
}

/// Stacks that are kept as text at most.
const TEXTS_KEPT: usize = 1 << 12;

/// Shows events as they happen.
struct Watch {
    begun_ns: u64,
    symbols: SymbolHistory,
    /// Stacks as text, so that a frequent one is written once.
    texts: HashMap<(Rc<[u64]>, Generation), String>,
    /// Nobody reads the answer any more (`| head -1`).
    reader_left: bool,
}

impl Watch {
    fn show(&mut self, reports: &[StackReport]) -> Result<()> {
        if reports.is_empty() || self.reader_left {
            return Ok(());
        }
        let mut lines = String::new();
        for report in reports {
            lines.push_str(&stack::event(report, self.begun_ns));
            if self.texts.len() > TEXTS_KEPT {
                self.texts.clear();
            }
            let key = (Rc::clone(&report.addresses), report.generation);
            let text = self.texts.entry(key);
            lines.push_str(text.or_insert_with(|| stack::frames(report, &self.symbols)));
            lines.push_str(stack::end(report));
        }
        self.reader_left = !heard(format_args!("{lines}"))?;
        Ok(())
    }
}

/// A line on the terminal, written over the last one.
fn progress(totals: &StackTotals, elapsed: Duration, duration: Option<Duration>) {
    let of = duration.map_or(String::new(), |time| {
        format!(" of {:.0}", time.as_secs_f64().ceil())
    });
    eprint!(
        "\r{} events, {} lost, in {:.0}{of} s; Ctrl-C ends it and shows the result\u{1b}[K",
        number::count(totals.events),
        number::count(totals.lost),
        elapsed.as_secs_f64(),
    );
}

/// Shows the profile in the shape that was asked for.
fn show(args: &Args, profile: &Profile) -> Result<()> {
    let summary = || stack::summary(profile);
    if args.json {
        written(|out| profile.write_json(out))?;
    } else if args.folded {
        let lines = profile.folded();
        written(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
        note!("{}", summary().trim_end());
    } else if let Some(path) = &args.svg {
        note!("{}", summary().trim_end());
        if profile.stacks.is_empty() {
            return Err(lacking(
                "there are no stacks, so no flame graph was written\n  Measure longer (--duration), or choose another \
                 event, process or command",
            ));
        }
        let svg = profile.svg()?;
        if is_special(path) {
            fs::write(path, svg).map_err(|error| not_written(path, error))?;
        } else {
            record::replace(path, |file| file.write_all(&svg)).map_err(|error| match error {
                FileError::Write(_, error) => not_written(path, error),
                other => other.into(),
            })?;
        }
        note!("flame graph: {}", path.display());
    } else if args.live {
        note!("{}", summary().trim_end());
    } else {
        heard(format_args!("{}", stack::table(profile, args.top)))?;
        if profile.input.totals.events == 0 && (args.pid.is_some() || args.comm.is_some()) {
            note!("The event may have come in other processes: leave out --pid and --comm.");
        }
    }
    Ok(())
}

/// Writes an answer that may be large. A reader that has gone away has read enough.
fn written(write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(stdout());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            // It would try once more.
            let _ = out.into_parts();
            Ok(())
        }
        answer => answer.context("cannot write to standard output"),
    }
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
        let missing = StackCounter::needs(method)
            .into_iter()
            .find_map(|feature| feature.missing().transpose());
        match missing.transpose()? {
            None => {
                if is_tracepoint {
                    check_tracepoint(method, name)?;
                }
                return Ok((method, name.to_owned()));
            }
            Some(lack) => lacks.push(lack.to_string()),
        }
    }
    let instead = if is_tracepoint {
        ""
    } else {
        "\n  Name a tracepoint instead; list them: grep NAME /sys/kernel/tracing/available_events"
    };
    Err(lacking(format!(
        "cannot attach to {name}\n  {}{instead}",
        lacks.join("\n  ")
    )))
}

/// A tracepoint must be one of the kernel's.
fn check_tracepoint(method: AttachMethod, name: &str) -> Result<()> {
    let is_name = |part: &str| !part.is_empty() && !part.contains(['/', '*', '?', ':']);
    if !(name.split_once(':')).is_some_and(|(category, event)| is_name(category) && is_name(event))
    {
        return Err(usage(format!(
            "{name} is not a tracepoint\n  Write category:name, e.g. sched:sched_switch"
        )));
    }
    let Some(why) = Counter::absent(method, name)? else {
        return Ok(());
    };
    let known = stack_counter::tracepoints();
    let near = suggest(name, known.iter().map(String::as_str));
    Err(usage(format!(
        "{name}: {why}{near}\n  List them: grep NAME /sys/kernel/tracing/available_events"
    )))
}

/// A function must be one of the kernel's, and one alone.
fn check_function(name: &str, symbols: &KernelSymbols) -> Result<()> {
    let named: Vec<_> = symbols.functions_named(name).collect();
    match named.len() {
        0 => {
            // A tracepoint without its category?
            let tracepoints = stack_counter::tracepoints();
            let named = tracepoints
                .iter()
                .find(|one| one.split(':').nth(1) == Some(name));
            if let Some(tracepoint) = named {
                return Err(usage(format!(
                    "the kernel has no function {name}, but a tracepoint\n  Write {tracepoint}"
                )));
            }
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

/// CPU time of this process, in seconds.
fn own_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
