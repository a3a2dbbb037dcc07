//! `bpfcost probe`: the programs of an object inside processes, with all that they count and write.

mod answer;
mod output;
mod subject;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::Result;
use bpfcost_bpf::{
    attach::{ObjectCounts, ProcessObject},
    typed::DataType,
};

use self::{
    answer::Answer,
    output::{Output, OutputFormat},
    subject::Subject,
};
use super::{
    exit::{Exit, lacking, usage},
    interrupt,
    output::note,
    parse,
};
use bpfcost_process::allow_files;
use bpfcost_target::Host;
use bpfcost_text::suggest;

/// Interval at which records are read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which processes are looked at: a group's, and those that left children behind.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Run uprobe programs inside processes, without the kernel's trap
///
/// The programs of a compiled object run where their sections say (uprobe/FILE:FUNCTION, uretprobe/…, usdt/…), inside the
/// processes: a hit takes nanoseconds. Records of ring buffers and lines of bpf_printk are shown as they come; at the
/// end, the hits and missed calls of each program, and the maps. The processes are restored when bpfcost ends, also if it
/// is killed. Nothing is measured. Needs root.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = USAGE,
    group = clap::ArgGroup::new("subject").required(true).args(["pid", "path", "cgroup", "command"]),
    after_help = "\
Examples:
  bpfcost probe count.bpf.o --pid 4711 --duration 10s        a process that runs
  bpfcost probe count.bpf.o --cgroup system.slice/nginx.service --follow
  bpfcost probe count.bpf.o --path /usr/bin/app              each process that starts this file
  bpfcost probe count.bpf.o --follow -- make                 a command, and what it starts
  bpfcost probe count.bpf.o --pid 4711 --format json | jq 'select(.type == \"record\")'"
)]
pub(super) struct Args {
    /// The object, or one program of it
    #[arg(value_name = "FILE.bpf.o[:PROGRAM]")]
    object: String,
    /// Probe this process [repeatable]
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Probe each process that starts this file from now on
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// Probe the processes of this control group, and of those in it
    ///
    /// A path, or one below the mounted hierarchy, such as system.slice/nginx.service. With --follow, also processes that
    /// join it later.
    #[arg(long, value_name = "GROUP")]
    cgroup: Option<PathBuf>,
    /// Start this command, and probe it; its output goes to stderr
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Also probe what the processes start
    ///
    /// Forked children are probed anyway, until they execute another program: they have their parent's code.
    #[arg(long)]
    follow: bool,
    /// End after this time; default: at Ctrl-C, or when the processes have ended
    #[arg(long, value_name = "TIME", value_parser = parse::time)]
    duration: Option<Duration>,
    /// Show this map alone, and all of its entries [repeatable]
    #[arg(long, value_name = "NAME")]
    map: Vec<String>,
    /// Show records as this struct of the object
    ///
    /// The object's BTF has to have it: a compiler leaves out a struct that no map and no global variable names.
    #[arg(long, value_name = "STRUCT")]
    record: Option<String>,
    /// Print the result in this format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The four forms.
const USAGE: &str = "\
bpfcost probe [OPTIONS] FILE.bpf.o[:PROGRAM] --pid PID
       bpfcost probe [OPTIONS] FILE.bpf.o[:PROGRAM] --path FILE
       bpfcost probe [OPTIONS] FILE.bpf.o[:PROGRAM] --cgroup GROUP
       bpfcost probe [OPTIONS] FILE.bpf.o[:PROGRAM] -- COMMAND...";

pub(super) fn run(args: &Args) -> Result<Exit> {
    // Before anything is attached: a signal from then on shows what there is, and is not lost.
    let ended = interrupt::on_signal()?;
    let mut subject = Subject::new(args)?;
    check_privilege()?;
    // There are some for each probed process.
    allow_files()?;
    let mut object = load(args)?;
    let mut output = Output::new(args.format, record_type(args, &object)?);
    subject.attach(&mut object, &mut output)?;
    let begun = Instant::now();
    note!("{}", subject.words());
    let watched = watch(args, &ended, &mut subject, &mut object, &mut output);
    let elapsed = begun.elapsed();
    let interrupted = args.duration.is_some() && ended.load(Ordering::Relaxed);
    // Also where something failed meanwhile: what there is until then is shown.
    let (counts, detached) = object.detach_counted();
    let command = subject.end()?;
    let buffers = object.read(&mut |event| output.show(event));
    finish(
        args,
        &object,
        counts,
        elapsed,
        &mut output,
        buffers.as_ref().map_or(0, |all| all.lost),
    )?;
    watched?;
    detached?;
    buffers?;
    if let Some(exit) = output.failed_throughout() {
        note!("error: no process could be probed\n  The lines above say why");
        return Ok(exit);
    }
    if let Some(words) = command.filter(|_| !ended.load(Ordering::Relaxed)) {
        note!("error: {words}");
        return Ok(Exit::Failed);
    }
    Ok(if interrupted {
        Exit::Interrupted
    } else {
        Exit::Done
    })
}

/// Shows what comes, until the time is over, the run is ended, or there is nothing left to probe.
fn watch(
    args: &Args,
    ended: &AtomicBool,
    subject: &mut Subject,
    object: &mut ProcessObject,
    output: &mut Output,
) -> Result<()> {
    let begun = Instant::now();
    let mut looked = begun;
    while !ended.load(Ordering::Relaxed) && !output.reader_left() {
        let left = (args.duration).map(|time| time.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        if looked.elapsed() >= LOOK_INTERVAL {
            subject.look(object, output)?;
            object.detach_ended(&mut |event| output.show(event))?;
            looked = Instant::now();
        }
        let is_over = subject.is_over(object)?;
        let wait = left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL);
        let wait = if is_over { Duration::ZERO } else { wait };
        object.wait_for(wait, &mut |event| output.show(event))?;
        object.read(&mut |event| output.show(event))?;
        output.flush()?;
        if is_over {
            break;
        }
    }
    Ok(())
}

/// Shows what the programs did, and the maps.
fn finish(
    args: &Args,
    object: &ProcessObject,
    counts: ObjectCounts,
    elapsed: Duration,
    output: &mut Output,
    lost: u64,
) -> Result<()> {
    let names: Vec<String> = if args.map.is_empty() {
        object.maps().map(str::to_owned).collect()
    } else {
        args.map.clone()
    };
    let maps = names.iter().map(|name| object.contents(name));
    let answer = Answer {
        seconds: elapsed.as_secs_f64(),
        counts,
        lost,
        forgotten: object.forgotten(),
        maps: maps.collect::<Result<_, _>>()?,
        is_whole: !args.map.is_empty(),
    };
    output.finish(&answer)
}

fn load(args: &Args) -> Result<ProcessObject> {
    let (path, program) = match args.object.rsplit_once(':') {
        Some((path, program)) if !Path::new(&args.object).exists() => (path, Some(program)),
        _ => (args.object.as_str(), None),
    };
    let mut object = ProcessObject::load(Path::new(path), program)?;
    if !args.follow {
        object.ignore_starts();
    }
    for name in &args.map {
        if !object.maps().any(|map| map == name) {
            let names: Vec<&str> = object.maps().collect();
            return Err(no_such("map with entries", name, &names));
        }
    }
    Ok(object)
}

/// The type of records.
fn record_type(args: &Args, object: &ProcessObject) -> Result<Option<DataType>> {
    let Some(name) = &args.record else {
        return Ok(None);
    };
    if let Some(found) = object.types().structure(name) {
        return Ok(Some(found.clone()));
    }
    let names: Vec<&str> = object.types().structures().collect();
    Err(no_such("struct", name, &names))
}

/// An error about a name that the object does not have, with those that it has.
fn no_such(what: &str, name: &str, names: &[&str]) -> anyhow::Error {
    let advice = if names.is_empty() {
        "It has none".to_owned()
    } else {
        format!("It has: {}", names.join(", "))
    };
    let near = suggest(name, names.iter().copied());
    usage(format!("the object has no {what} {name}{near}\n  {advice}"))
}

/// Privilege that loading an object takes. What probing a process takes depends on that process.
fn check_privilege() -> Result<()> {
    let mut missing = Host::default().missing_capabilities();
    missing.retain(|name| ["CAP_BPF", "CAP_PERFMON"].contains(name));
    if missing.is_empty() {
        return Ok(());
    }
    Err(lacking(format!(
        "this process lacks {}, which the kernel requires to load BPF programs\n  Run it as root: sudo bpfcost probe",
        missing.join(" and ")
    )))
}
