//! `bpfcost user`: a tracing tool as it is, with its uprobe programs in user space.

use std::{
    ffi::OsString,
    fmt::Write as _,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, ExitCode, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Result;
use bpfcost_process::allow_files;
use bpfcost_text::number::{count, plural};
use bpfcost_uprobe::{
    probes::At,
    tool::{self, Tool, ToolCounts, ToolEvent},
};

use super::{
    exit::{lacking, usage},
    interrupt,
    output::{is_in_foreground, note},
};

/// Interval at which a signal is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The exit code of a process that a signal ended, without the signal's number, as shells have it.
const SIGNALLED: i32 = 128;

/// Run a tracing tool with its uprobe programs in user space
///
/// The tool runs as it is: one of libbpf-tools, bpftrace, or your own. Its programs at uprobes, uretprobes and USDT
/// sites run inside the process that it probes, without the kernel's trap; its programs elsewhere run in the kernel. The tool
/// prints what it always does. What can't run in user space fails, with the reason: never silently in the kernel. The exit
/// code is the tool's. Nothing is measured. Needs root, and Linux 5.19.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "bpfcost user [OPTIONS] -- TOOL [ARGUMENT]...",
    after_help = "\
Examples:
  bpfcost user -- memleak -p 4711                        leaks of a process
  bpfcost user -- gethostlatency -p 4711
  bpfcost user --only 4711 -- bpftrace calls.bt          a script of uprobes"
)]
pub(super) struct Args {
    /// Probe this process alone where the tool asks for all processes, as bpftrace does
    ///
    /// Without it, all that execute the file are probed, also those that start it later.
    #[arg(long, value_name = "PID")]
    only: Option<u32>,
    /// Show each place at which a program runs, and each that is refused, as it comes
    #[arg(short, long)]
    verbose: bool,
    /// The tool, and its arguments
    #[arg(last = true, required = true, value_name = "TOOL")]
    command: Vec<OsString>,
}

/// Runs the tool. Returns its exit code.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let ended = interrupt::on_signal()?;
    let only = args.only.map(existing).transpose()?;
    allow_files()?;
    let (name, arguments) = args.command.split_first().expect("clap requires a command");
    let mut command = Command::new(name);
    command.args(arguments);
    let mut tool = Tool::start(command, only).map_err(explained)?;
    let status = watch(args, &mut tool, &ended)?;
    let (counts, restored) = tool.finish();
    note!("{}", words(counts));
    restored?;
    Ok(code(status))
}

fn watch(args: &Args, tool: &mut Tool, ended: &AtomicBool) -> Result<ExitStatus> {
    let mut report = |event: ToolEvent<'_>| show(args.verbose, &event);
    let mut asked = false;
    loop {
        if let Some(status) = tool.run(POLL_INTERVAL, &mut report)? {
            return Ok(status);
        }
        // A terminal sends Ctrl-C to both.
        if ended.load(Ordering::Relaxed) && !asked {
            asked = true;
            if !is_in_foreground() {
                tool.interrupt();
            }
        }
    }
}

fn show(verbose: bool, event: &ToolEvent<'_>) {
    match *event {
        ToolEvent::Attached {
            program,
            function,
            at,
            pid,
        } if verbose => {
            let function = bpfcost_text::line(function);
            let at = match at {
                At::Entry => "the entry of ".to_owned(),
                At::Return => "the returns of ".to_owned(),
                At::Inside { offset, .. } => format!("+{offset:#x} in "),
            };
            note!(
                "{}: at {at}{function} of process {pid}",
                bpfcost_text::line(program)
            );
        }
        ToolEvent::Attached { .. } => {}
        ToolEvent::LeftOut { pid, reason } => {
            note!("note: process {pid} is not probed: {}", cleaned(reason));
        }
        ToolEvent::CallRefused { call, reason } => {
            note!("{call} is refused: {}", cleaned(reason));
        }
        ToolEvent::Refused { program, reason } => {
            let program = if program.is_empty() {
                "a program without a name"
            } else {
                program
            };
            note!(
                "{} is not attached: {}",
                bpfcost_text::line(program),
                cleaned(reason)
            );
        }
    }
}

/// Lines of others, as they may go to a terminal.
fn cleaned(lines: &str) -> String {
    let lines: Vec<_> = lines.lines().map(bpfcost_text::line).collect();
    lines.join("\n")
}

/// A sentence on what was done in user space.
fn words(counts: ToolCounts) -> String {
    let mut words = format!(
        "In user space: {}, {}, {} missed",
        plural(number(counts.places), "place"),
        plural(number(counts.hits), "hit"),
        count(counts.missed)
    );
    for (some, what) in [
        (counts.records, "records handed to the tool"),
        (counts.lost, "records lost before"),
        (
            counts.overflowed,
            "records that the tool's buffers did not take",
        ),
    ] {
        if some > 0 {
            let _ = write!(words, ", {} {what}", count(some));
        }
    }
    for (some, what) in [(counts.refused, "program"), (counts.calls_refused, "call")] {
        if some > 0 {
            let _ = write!(words, ", {} refused", plural(number(some), what));
        }
    }
    words
}

fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The number of a process that is there.
fn existing(pid: u32) -> Result<i32> {
    let number = i32::try_from(pid).ok();
    let there = number.filter(|pid| Path::new(&format!("/proc/{pid}")).exists());
    there.ok_or_else(|| {
        usage(format!(
            "--only {pid}: there is no such process\n  Look for it: pgrep -a NAME"
        ))
    })
}

/// The error of a start with its exit code.
fn explained(error: tool::Error) -> anyhow::Error {
    match error {
        tool::Error::Start { .. } => usage(error.to_string()),
        _ => lacking(error.to_string()),
    }
}

/// The exit code of the tool, as a shell would have it.
fn code(status: ExitStatus) -> ExitCode {
    let signalled = status.signal().map(|signal| SIGNALLED + signal);
    let code = status.code().or(signalled).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
