//! Stacks as text.

use std::fmt::Write as _;

use bpfcost_bpf::stack_counter::{StackEnd, StackReport};

use super::{Profile, SymbolHistory};
use bpfcost_text::{self, number};

/// The line above an event's stack: when, where and in which process.
pub fn event(report: &StackReport, begun_ns: u64) -> String {
    let seconds = report.ns.saturating_sub(begun_ns) as f64 / 1e9;
    format!(
        "{seconds:11.6}  CPU {:<3} {} {}/{}\n",
        report.cpu,
        bpfcost_text::line(&report.command),
        report.process,
        report.thread
    )
}

/// An event's stack as lines.
pub fn frames(report: &StackReport, symbols: &SymbolHistory) -> String {
    let frame = |address: &u64| symbols.frame(*address, report.generation);
    let frames = report.addresses.iter().map(frame);
    frames.map(|frame| format!("    {frame}\n")).collect()
}

/// The line below an event's stack, where it may go on or be wrong.
pub fn end(report: &StackReport) -> &'static str {
    match report.end {
        _ if report.generation.is_stale => "    … (modules came or went just then)\n",
        StackEnd::Whole => "",
        StackEnd::Deep => "    … (--depth)\n",
        StackEnd::Lost => "    … (no unwind rule leads on)\n",
    }
}

/// The most frequent stacks, and what became of all events.
pub fn table(profile: &Profile, most: usize) -> String {
    let mut text = heading(profile);
    let all: u64 = profile.stacks.iter().map(|stack| stack.count).sum();
    for stack in profile.stacks.iter().take(most) {
        let share = 100.0 * stack.count as f64 / all.max(1) as f64;
        let _ = writeln!(text, "\n{:>12}  {share:.1} %", number::count(stack.count));
        for frame in profile.frames(stack) {
            let _ = writeln!(text, "    {frame}");
        }
    }
    let others = profile.stacks.get(most..).unwrap_or_default();
    if !others.is_empty() {
        let rest: u64 = others.iter().map(|stack| stack.count).sum();
        let _ = writeln!(
            text,
            "\n{:>12}  in {} more {} (--top {} shows all)",
            number::count(rest),
            number::count(others.len() as u64),
            if others.len() == 1 { "stack" } else { "stacks" },
            profile.stacks.len(),
        );
    }
    text.push('\n');
    text + &accounts(profile)
}

/// Summary of what became of all events, without the stacks.
pub fn summary(profile: &Profile) -> String {
    heading(profile) + &accounts(profile)
}

fn heading(profile: &Profile) -> String {
    let input = &profile.input;
    format!(
        "{}: {} in {:.1} s, {}, taken {}\n",
        input.events.join(", "),
        plural(input.totals.events, "event"),
        input.seconds,
        plural(profile.stacks.len() as u64, "distinct stack"),
        input.taken,
    )
}

fn plural(count: u64, thing: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", number::count(count))
}

/// Account of all events, and of the cost.
fn accounts(profile: &Profile) -> String {
    let (input, totals) = (&profile.input, &profile.input.totals);
    let mut text = format!(
        "accounts: {} = {} counted in the kernel + {} reported one by one + {} lost\n",
        plural(totals.events, "event"),
        number::count(totals.counted),
        number::count(totals.reported),
        number::count(totals.lost),
    );
    let mut line = |count: u64, what: &str| {
        if count > 0 {
            let _ = writeln!(text, "  {} {what}", number::count(count));
        }
    };
    line(totals.lost, "lost: no room was left for their stacks");
    line(
        totals.missed.unwrap_or(0),
        "missed, and in no other number: the kernel did not run the program",
    );
    line(
        profile.cut(),
        "have as many addresses as --depth allows, and may go on",
    );
    line(
        profile.incomplete(),
        "are incomplete: a tracer hides callers behind its own address",
    );
    line(
        totals.losses.lost,
        "end early, at code without unwind rules",
    );
    line(
        totals.losses.stale,
        "were taken while modules came or went, perhaps by the rules of other code",
    );
    if totals.runs > 0 {
        let each = totals.run_ns as f64 / totals.runs as f64;
        let _ = writeln!(
            text,
            "cost: {each:.0} ns per run of the program, {:.2} % of the machine's CPU time; {:.2} s of CPU for bpfcost; \
             {:.0} MB of kernel memory",
            100.0 * profile.of_machine(),
            input.own_cpu_s,
            input.kernel_bytes as f64 / 1e6
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::profile::tests::profile;

    #[test]
    fn what_became_of_events_is_said() {
        let mut profile = profile();
        let totals = &mut profile.input.totals;
        (totals.events, totals.reported, totals.lost) = (1_234, 5, 1_214);
        (totals.missed, totals.losses.stale) = (Some(1), 2);
        (totals.runs, totals.run_ns) = (2_000, 200_000);
        assert_eq!(
            table(&profile, 1),
            "\
inner: 1,234 events in 1.0 s, 4 distinct stacks, taken by hand (ORC)

           7  46.7 %
    inner
    middle+0x10
    entry+0x10

           8  in 3 more stacks (--top 4 shows all)

accounts: 1,234 events = 15 counted in the kernel + 5 reported one by one + 1,214 lost
  1,214 lost: no room was left for their stacks
  1 missed, and in no other number: the kernel did not run the program
  7 have as many addresses as --depth allows, and may go on
  3 are incomplete: a tracer hides callers behind its own address
  2 were taken while modules came or went, perhaps by the rules of other code
cost: 100 ns per run of the program, 0.01 % of the machine's CPU time; 0.00 s of CPU for bpfcost; 0 MB of kernel memory
"
        );
    }
}
