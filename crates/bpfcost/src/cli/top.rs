//! `bpfcost top`: the cost of the BPF programs that are loaded now.

use std::{
    io::{IsTerminal as _, stdout},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    exit::{Exit, lacking, with_advice},
    interrupt,
    output::{heard, redrawn},
    parse,
};
use crate::top::{TopView, Watcher, text};
use bpfcost_process::wait_until;
use bpfcost_report::style::Style;
use bpfcost_target::Host;

/// How often a signal is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Show the cost of all BPF programs loaded on this machine: run rate, time, owner
///
/// It switches on the kernel's run time statistics (bpf_stats) while it runs, and shows what they cost. Needs root or
/// CAP_SYS_ADMIN.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bpfcost top                   every second, until Ctrl-C
  bpfcost top --once            one second
  bpfcost top --once --every 10s --json | jq '.programs[] | {name, of_cpu}'")]
pub(super) struct Args {
    /// Show one interval, then exit
    #[arg(long, conflicts_with = "time")]
    once: bool,
    /// The length of an interval
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse::time)]
    every: Duration,
    /// Exit after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse::time)]
    time: Option<Duration>,
    /// Print JSON: one object per interval, each on one line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    if !Host::default().sees_other_programs() {
        return Err(lacking(
            "this process lacks CAP_SYS_ADMIN, which the kernel requires to list the BPF programs \
             of others\n  Run it as root: sudo bpfcost top",
        ));
    }
    let ended = interrupt::on_signal()?;
    let mut watcher = Watcher::start().map_err(|error| {
        let advice = "In a container or user namespace: run it on the machine itself, as root";
        with_advice(&error.into(), advice)
    })?;
    let mut screen = Screen::new();
    let begun = Instant::now();
    loop {
        let left = args.time.map(|time| time.saturating_sub(begun.elapsed()));
        let left = left.unwrap_or(args.every).min(args.every);
        let interrupted = wait_until(left, POLL_INTERVAL, || ended.load(Ordering::Relaxed));
        // A watch without an end is ended like that; what was seen of its last interval is no full one.
        if interrupted {
            return Ok(if args.once || args.time.is_some() {
                Exit::Interrupted
            } else {
                Exit::Done
            });
        }
        let view = watcher.look();
        let goes_on = if args.json {
            heard(format_args!("{}\n", serde_json::to_string(&view)?))?
        } else {
            screen.show(&view)?
        };
        if !goes_on || args.once || args.time.is_some_and(|time| begun.elapsed() >= time) {
            return Ok(Exit::Done);
        }
    }
}

/// Where intervals are shown: in the place of the one before on a terminal, else below it.
struct Screen {
    terminal: bool,
    lines: usize,
}

impl Screen {
    fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Screen {
            terminal: stdout().is_terminal() && !dumb,
            lines: 0,
        }
    }

    /// Shows an interval; returns whether the reader is still there.
    fn show(&mut self, view: &TopView) -> Result<bool> {
        let style = Style::for_stdout();
        let height = terminal_size::terminal_size()
            .filter(|_| self.terminal)
            .map_or(usize::MAX, |(_, height)| usize::from(height.0));
        let mut most = view.programs.len();
        let mut text = text::render(view, most, style);
        // What is written beyond the screen can't be written over.
        while text.lines().count() >= height && most > 1 {
            most -= 1;
            text = text::render(view, most, style);
        }
        let (before, gap) = match (self.terminal, self.lines) {
            (true, lines) => (lines, ""),
            (false, 0) => (0, ""),
            (false, _) => (0, "\n"),
        };
        self.lines = text.lines().count();
        redrawn(before, &format!("{gap}{text}"))
    }
}
