//! The costs of loaded programs in an interval, for a terminal.

use crate::top::{TopProgram, TopView};
use bpfcost_report::{
    style::{Style, Tone},
    table::{Cell, Head, Note, Table},
};
use bpfcost_text::{
    self,
    number::{self, HOLD, fixed, percent, plain_decimals, plural},
};

/// Processes and pins that a line names.
const NAMED: usize = 2;

/// Note on what is not in the numbers.
const NOT_IN_IT: &str = "Not in any column: the kernel's way to a program (the trap of a kprobe or uprobe, the \
    call of a tracepoint, the list of a hook). bpfcost run attach measures it.";

/// Note on what is in the numbers and is not the program's work.
const WALL_TIME: &str =
    "It is wall time: preemption, interrupts and, in sleepable programs, waiting are in it.";

/// The interval as a table of at most so many programs.
pub(crate) fn render(view: &TopView, most: usize, style: Style) -> String {
    let number = |value: f64, small: usize, below: f64, large: usize| {
        let decimals = if value < below { small } else { large };
        Cell::number(fixed(value, decimals), value)
    };
    let columns = vec![
        Head::number("% CPU").cells(|one: &TopProgram| number(one.of_cpu * 100.0, 3, 0.0995, 2)),
        Head::number("share").cells(|one: &TopProgram| Cell::number(percent(one.share), one.share)),
        Head::number("runs/s").cells(|one: &TopProgram| number(one.runs_per_s, 1, 10.0, 0)),
        Head::number("ns/run").cells(|one: &TopProgram| number(one.ns_per_run, 1, 10.0, 0)),
        Head::number("id")
            .cells(|one: &TopProgram| Cell::number(one.id.to_string(), f64::from(one.id))),
        Head::words("type").cells(|one: &TopProgram| Cell::words(bpfcost_text::line(&one.kind))),
        Head::words("name").cells(|one: &TopProgram| {
            Cell::words(match one.name.as_str() {
                "" => "(no name)".to_owned(),
                name => bpfcost_text::line(name),
            })
        }),
        Head::words("held by").cells(|one: &TopProgram| Cell::words(held_by(one))),
    ];
    let mut table = Table {
        title: title(view),
        ..Table::new(columns, view.programs.iter().take(most))
    };
    if !view.programs.is_empty() {
        table.notes.push(Note::new(Tone::Plain, total(view, most)));
        let open = [missed(view), vanished(view)].into_iter().flatten();
        table
            .notes
            .extend(open.map(|text| Note::new(Tone::Open, text)));
        table.captions = vec![
            format!(
                "ns/run: from the kernel's bpf_stats, minus the {} ns that it shows for an empty program in \
                 a loop. {WALL_TIME} {NOT_IN_IT}",
                fixed(view.tax.inside_ns, 0)
            ),
            account(view),
        ];
    }
    let mut out = String::new();
    table.terminal(&mut out, style);
    number::plain_spaces(out.trim_end()) + "\n"
}

/// The costs, in a sentence.
fn title(view: &TopView) -> String {
    let loaded = view.programs.len() + view.did_not_run;
    let seconds = fixed(view.seconds, plain_decimals(view.seconds).min(1));
    let gone = vanished(view).map_or_else(String::new, |text| format!(" But {text}."));
    if loaded == 0 {
        return format!("No BPF program is loaded on this machine.{gone}");
    }
    if view.programs.is_empty() {
        let loaded = plural(loaded, "program");
        return format!("No BPF program ran in {seconds}{HOLD}s: {loaded} loaded.{gone}");
    }
    format!(
        "{} ran in {seconds}{HOLD}s and took {} of a CPU, {} of this machine's {}.",
        plural(view.programs.len(), "BPF program"),
        percent(view.total.of_cpu),
        percent(view.total.of_machine),
        view.cpus
    )
}

/// Who holds it, in a few words.
fn held_by(one: &TopProgram) -> String {
    let processes = one.held_by.processes.iter();
    let processes = processes.map(|holder| format!("{} ({})", holder.name, holder.pid));
    let pins = one.held_by.pins.iter().map(|pin| pin.display().to_string());
    let mut all: Vec<String> = processes
        .chain(pins)
        .map(|name| bpfcost_text::line(&name))
        .collect();
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    all.extend((more > 0).then(|| format!("{more} more")));
    if all.is_empty() {
        // To a control group, an interface, a socket.
        "the kernel".to_owned()
    } else {
        all.join(", ")
    }
}

/// Totals, and the programs that the table leaves out.
fn total(view: &TopView, most: usize) -> String {
    let runs = Some(format!(
        "together {} runs a second",
        fixed(view.total.runs_per_s, 0)
    ));
    let left = |count: usize, what: &str| {
        (count > 0).then(|| format!("and {} that {what}", plural(count, "program")))
    };
    let cheaper = left(view.programs.len().saturating_sub(most), "cost less");
    let idle = left(view.did_not_run, "did not run");
    let parts = [runs, cheaper, idle].into_iter().flatten();
    parts.collect::<Vec<_>>().join(", ")
}

/// Runs that did not happen.
fn missed(view: &TopView) -> Option<String> {
    let missed: u64 = view.programs.iter().map(|one| one.missed).sum();
    let runs = plural(missed as usize, "run");
    (missed > 0)
        .then(|| format!("{runs} did not happen: the program was already running on that CPU"))
}

/// Programs whose accounts went with them.
fn vanished(view: &TopView) -> Option<String> {
    let programs = plural(view.vanished, "program");
    let were = if view.vanished == 1 { "was" } else { "were" };
    (view.vanished > 0)
        .then(|| format!("{programs} {were} unloaded meanwhile: what they cost is not known"))
}

fn account(view: &TopView) -> String {
    match (view.tax.whole_ns, view.total.account_of_cpu) {
        (Some(ns), Some(share)) => format!(
            "bpf_stats itself costs {} ns a run in a loop, {} of a CPU, while bpfcost top runs.",
            fixed(ns, 0),
            percent(share)
        ),
        _ => "bpf_stats was already on (kernel.bpf_stats_enabled, or another tool). It costs two clock reads a \
            run; bpfcost can't measure that while it is on."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(programs: serde_json::Value, whole_ns: Option<f64>, did_not_run: usize) -> TopView {
        let account_of_cpu = whole_ns.map(|ns| 64_010.5 * ns / 1e9);
        let view = json!({
            "seconds": 1.0004, "cpus": 2,
            "tax": { "inside_ns": 21.7, "whole_ns": whole_ns },
            "programs": programs,
            "total": {
                "runs_per_s": 64_010.5, "of_cpu": 0.0312, "of_machine": 0.0156,
                "account_of_cpu": account_of_cpu,
            },
            "did_not_run": did_not_run,
        });
        serde_json::from_value(view).expect("a view")
    }

    fn programs() -> serde_json::Value {
        let of = |id: u32, kind: &str, name: &str, held_by: serde_json::Value| {
            json!({
                "id": id, "type": kind, "name": name, "held_by": held_by, "runs": 64_000, "runs_per_s": 64_000.0,
                "kernel_ns_per_run": 505.7, "ns_per_run": 484.0, "of_cpu": 0.030_976, "share": 0.993, "missed": 0,
            })
        };
        let mut all = vec![
            of(
                17,
                "tracepoint",
                "sys_enter",
                json!({ "processes": [
                    { "pid": 4711, "name": "bpftrace" }, { "pid": 4712, "name": "bpf\u{1b}[31mtrace" },
                    { "pid": 4713, "name": "agent" },
                ], "pins": [] }),
            ),
            of(18, "cgroup_skb", "", json!({ "processes": [], "pins": [] })),
            of(
                19,
                "sched_cls",
                "egress",
                json!({ "processes": [], "pins": ["/sys/fs/bpf/egress"] }),
            ),
        ];
        all[1]["of_cpu"] = json!(0.000_22);
        all[1]["runs_per_s"] = json!(10.5);
        all[1]["ns_per_run"] = json!(4.25);
        all[1]["share"] = json!(0.007);
        all[2]["missed"] = json!(3);
        json!(all)
    }

    #[test]
    fn programs_that_ran() {
        let mut view = view(programs(), Some(45.0), 12);
        view.vanished = 2;
        insta::assert_snapshot!(render(&view, usize::MAX, Style::default()));
    }

    #[test]
    fn a_terminal_that_is_too_low_and_an_account_that_was_on() {
        let view = view(programs(), None, 0);
        insta::assert_snapshot!(render(&view, 1, Style::for_width(false, 60)));
    }

    #[test]
    fn nothing_to_show_is_said() {
        let none = |did_not_run| {
            let view = view(json!([]), Some(45.0), did_not_run);
            render(&view, 9, Style::default())
        };
        let mut gone = view(json!([]), Some(45.0), 0);
        gone.vanished = 1;
        let said = render(&gone, 9, Style::default());
        assert!(
            said.contains("But 1 program was unloaded meanwhile"),
            "{said}"
        );
        assert_eq!(none(0), "No BPF program is loaded on this machine.\n");
        assert_eq!(none(1), "No BPF program ran in 1.0 s: 1 program loaded.\n");
        assert_eq!(none(2), "No BPF program ran in 1.0 s: 2 programs loaded.\n");
    }
}
