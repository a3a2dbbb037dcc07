//! What programs cost in an interval, for a terminal.

use crate::{
    report::{
        block::{Block, Cell, Head, Note},
        number::{self, HOLD, fixed, percent, plain_decimals, plural},
        style::{Style, Tone},
        text,
    },
    top::{Running, View},
};

/// Processes and pins that a line names.
const NAMED: usize = 2;

/// What is not in the numbers.
const NOT_IN_IT: &str = "What it takes the kernel to come to a program is in no column: the trap of a kprobe or uprobe, \
                         the call of a tracepoint, the list of a hook. bpfcost run attach measures those.";

/// The interval as a table of at most so many programs.
pub(crate) fn render(view: &View, most: usize, style: Style) -> String {
    let mut block = Block {
        title: title(view),
        ..Block::default()
    };
    if !view.programs.is_empty() {
        block.head = vec![
            Head::number("% of a CPU"),
            Head::number("share"),
            Head::number("runs/s"),
            Head::number("ns/run"),
            Head::number("id"),
            Head::words("type"),
            Head::words("name"),
            Head::words("held by"),
        ];
        block.rows = view.programs.iter().take(most).map(row).collect();
        block.notes.push(Note {
            text: total(view, most),
            tone: Tone::Plain,
        });
        if let Some(text) = missed(view) {
            let tone = Tone::Open;
            block.notes.push(Note { text, tone });
        }
        block.captions.push(format!(
            "ns/run: by the kernel's own account (bpf_stats), less the {} ns that it shows for a program that does \
             nothing. {NOT_IN_IT}",
            fixed(view.tax.inside_ns, 0)
        ));
        block.captions.push(account(view));
    }
    let mut out = String::new();
    block.terminal(&mut out, style);
    number::plain_spaces(out.trim_end()) + "\n"
}

/// What cost how much, in a sentence.
fn title(view: &View) -> String {
    let loaded = view.programs.len() + view.did_not_run;
    let seconds = fixed(view.seconds, plain_decimals(view.seconds).min(1));
    if loaded == 0 {
        return "No BPF program is loaded on this machine.".to_owned();
    }
    if view.programs.is_empty() {
        return format!(
            "No BPF program ran in {seconds}{HOLD}s: {} loaded, and cost{} no CPU time.",
            match loaded {
                1 => "1 is".to_owned(),
                many => format!("{many} are"),
            },
            if loaded == 1 { "s" } else { "" }
        );
    }
    format!(
        "{} ran in {seconds}{HOLD}s and took {} of a CPU, {} of this machine's {}.",
        plural(view.programs.len(), "BPF program"),
        percent(view.total.of_cpu),
        percent(view.total.of_machine),
        view.cpus
    )
}

fn row(one: &Running) -> Vec<Cell> {
    let number = |value: f64, decimals| Cell::number(fixed(value, decimals), value);
    let cpu = one.of_cpu * 100.0;
    vec![
        number(cpu, if cpu < 0.0995 { 3 } else { 2 }),
        Cell::number(percent(one.share), one.share),
        number(one.runs_per_s, if one.runs_per_s < 10.0 { 1 } else { 0 }),
        number(one.ns_per_run, if one.ns_per_run < 10.0 { 1 } else { 0 }),
        Cell::number(one.id.to_string(), f64::from(one.id)),
        Cell::words(text::line(&one.kind)),
        Cell::words(match one.name.as_str() {
            "" => "(no name)".to_owned(),
            name => text::line(name),
        }),
        Cell::words(held_by(one)),
    ]
}

/// Who holds it, in a few words.
fn held_by(one: &Running) -> String {
    let processes = one.held_by.processes.iter();
    let mut all: Vec<String> = processes
        .map(|holder| format!("{} ({})", text::line(&holder.name), holder.pid))
        .chain(
            one.held_by
                .pins
                .iter()
                .map(|pin| text::line(&pin.display().to_string())),
        )
        .collect();
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    match all.is_empty() {
        // To a control group, an interface, a socket.
        true => "the kernel".to_owned(),
        false => all.join(", "),
    }
}

/// What the table leaves out.
fn total(view: &View, most: usize) -> String {
    let mut words = format!("together {} runs a second", fixed(view.total.runs_per_s, 0));
    let cheaper = view.programs.len().saturating_sub(most);
    if cheaper > 0 {
        words += &format!(", and {} that cost less", plural(cheaper, "program"));
    }
    if view.did_not_run > 0 {
        words += &format!(
            ", and {} that did not run",
            plural(view.did_not_run, "program")
        );
    }
    words
}

/// Runs that did not happen.
fn missed(view: &View) -> Option<String> {
    let missed: u64 = view.programs.iter().map(|one| one.missed).sum();
    (missed > 0).then(|| {
        format!(
            "{} did not happen, for the program ran already on that CPU: what it watches is seen in part",
            plural(missed as usize, "run")
        )
    })
}

/// What looking costs.
fn account(view: &View) -> String {
    match (view.tax.whole_ns, view.total.account_of_cpu) {
        (Some(ns), Some(share)) => format!(
            "Keeping that account costs besides, as long as this runs: {} ns a run, {} of a CPU.",
            fixed(ns, 0),
            percent(share)
        ),
        _ => "That account was kept before this began (kernel.bpf_stats_enabled, or another program like this one), \
              and costs besides: two clock reads a run. Here it can't be told how much."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(programs: serde_json::Value, whole_ns: Option<f64>, did_not_run: usize) -> View {
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
        let view = view(programs(), Some(45.0), 12);
        insta::assert_snapshot!(render(&view, usize::MAX, Style::default()));
    }

    #[test]
    fn a_terminal_that_is_too_low_and_an_account_that_was_on() {
        let view = view(programs(), None, 0);
        insta::assert_snapshot!(render(
            &view,
            1,
            Style {
                colour: false,
                width: 60
            }
        ));
    }

    #[test]
    fn nothing_to_show_is_said() {
        let none = |did_not_run| {
            let view = view(json!([]), Some(45.0), did_not_run);
            render(&view, 9, Style::default())
        };
        assert_eq!(none(0), "No BPF program is loaded on this machine.\n");
        assert_eq!(
            none(1),
            "No BPF program ran in 1.0 s: 1 is loaded, and costs no CPU time.\n"
        );
        assert_eq!(
            none(2),
            "No BPF program ran in 1.0 s: 2 are loaded, and cost no CPU time.\n"
        );
    }
}
