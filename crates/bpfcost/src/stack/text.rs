//! Stacks as text.

use std::fmt::Write as _;

use bpfcost_bpf::stack_counter::StackReport;

use super::{Profile, SymbolHistory};
use crate::report::number;

/// One event as lines: who and where, and the stack.
pub fn event(report: &StackReport, symbols: &SymbolHistory, begun_ns: u64) -> String {
    let seconds = report.ns.saturating_sub(begun_ns) as f64 / 1e9;
    let mut text = format!(
        "{seconds:11.6}  CPU {:<3} {} {}/{}\n",
        report.cpu, report.command, report.process, report.thread
    );
    for address in &report.addresses {
        let frame = symbols.frame(*address, report.generation);
        let _ = writeln!(text, "    {frame}");
    }
    text
}

/// The most frequent stacks, and what became of all events.
pub fn summary(profile: &Profile, most: usize) -> String {
    let mut text = String::new();
    let totals = &profile.input.totals;
    let all: u64 = profile.stacks.iter().map(|stack| stack.count).sum();
    let _ = writeln!(
        text,
        "{}: {} events in {:.1} s, {} distinct stacks, taken {}",
        profile.input.events.join(", "),
        number::count(totals.events),
        profile.input.seconds,
        number::count(profile.stacks.len() as u64),
        profile.input.taken,
    );
    for stack in profile.stacks.iter().take(most) {
        let share = 100.0 * stack.count as f64 / all.max(1) as f64;
        let _ = writeln!(text, "\n{:>12}  {share:.1} %", number::count(stack.count));
        for frame in &stack.frames {
            let _ = writeln!(text, "    {frame}");
        }
    }
    if profile.stacks.len() > most {
        let rest: u64 = profile.stacks[most..].iter().map(|stack| stack.count).sum();
        let _ = writeln!(
            text,
            "\n{:>12}  in {} more stacks (--top shows more)",
            number::count(rest),
            profile.stacks.len() - most
        );
    }
    text.push('\n');
    text + &accounts(profile)
}

/// What became of events, and what it cost.
fn accounts(profile: &Profile) -> String {
    let (input, totals) = (&profile.input, &profile.input.totals);
    let mut lines = Vec::new();
    let mut line = |count: u64, what: &str| {
        if count > 0 {
            lines.push(format!("{} {what}", number::count(count)));
        }
    };
    line(totals.lost, "lost: no room was left for their stacks");
    line(
        totals.missed.unwrap_or(0),
        "missed: the kernel did not run the program",
    );
    line(
        profile.cut(),
        "as long as was asked for (--depth); some may have gone on",
    );
    line(
        profile.incomplete(),
        "incomplete: a tracer has put its own address in the place of callers'",
    );
    line(
        totals.losses.lost,
        "ended early: at code whose unwind rules are unknown",
    );
    line(
        totals.losses.stale,
        "walked while modules came or went, perhaps by rules of other code",
    );
    let mut text = String::new();
    if lines.is_empty() {
        let _ = writeln!(text, "Every event has its whole stack.");
    } else {
        let _ = writeln!(text, "Of these events: {}.", lines.join("; "));
    }
    if totals.runs > 0 {
        let each = totals.run_ns as f64 / totals.runs as f64;
        let share = 100.0 * totals.run_ns as f64 / (input.seconds * 1e9 * input.cpus as f64);
        let _ = writeln!(
            text,
            "The program took {each:.0} ns an event, {share:.2} % of the machine's CPU time, and {:.0} MB of memory.",
            input.kernel_bytes as f64 / 1e6
        );
    }
    text
}
