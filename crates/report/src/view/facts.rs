//! Lists of names and values: the key figures of a run, and the machine.

use crate::{
    section::{Fact, Facts, Prose, Section},
    style::Tone,
    summary, target, trials,
};
use bpfcost_measure::Stop;
use bpfcost_record::{Record, Status};
use bpfcost_text::{line, number};

/// Sections above all others: a remark on the unit, and the key figures.
pub(crate) fn above(record: &Record) -> Vec<Section> {
    let note = target::unit_caption(record).map(|note| {
        Section::Prose(Prose {
            paragraphs: vec![note],
            tone: Tone::Open,
            ..Prose::default()
        })
    });
    let facts = Section::Facts(Facts {
        facts: facts(record),
        ..Facts::default()
    });
    note.into_iter().chain([facts]).collect()
}

/// Section below all others: the machine.
pub(crate) fn below(record: &Record) -> Section {
    Section::Facts(Facts {
        title: "The machine".to_owned(),
        facts: machine(record),
    })
}

fn facts(record: &Record) -> Vec<Fact> {
    let samples = || record.cases.iter().map(|case| &case.samples);
    let trials: usize = samples().flatten().map(Vec::len).sum();
    let epochs = samples().map(Vec::len).max().unwrap_or(0);
    let count = |status| number::count(summary::count(record, status) as u64);
    let invalid = summary::count(record, Status::Invalid) > 0;
    let why = match record.stop {
        Stop::Interrupted => "until it was interrupted".to_owned(),
        stop => format!("of measuring, until {}", stop_reason(stop)),
    };
    let width = summary::typical_half_width(record).map(number::percent);
    let precision = if record.unit.is_counted() {
        Fact::new(
            "cases with the same count in every load",
            number::count(summary::same_in_every_load(record) as u64),
        )
    } else {
        Fact::new(
            "typical half-width of the 95\u{A0}% interval",
            width.map_or_else(|| number::MISSING.to_owned(), |width| format!("±{width}")),
        )
    };
    vec![
        Fact::new("valid cases", count(Status::Ok)),
        Fact {
            tone: if invalid { Tone::Alarm } else { Tone::Plain },
            ..Fact::new("invalid cases", count(Status::Invalid))
        },
        precision,
        Fact::new(trials::words(record).epochs, number::count(epochs as u64)),
        Fact::new(trials::words(record).noun, number::count(trials as u64)),
        Fact::new(why, number::duration(record.seconds)),
    ]
}

fn machine(record: &Record) -> Vec<Fact> {
    let machine = &record.machine;
    let text_or = |text: &Option<String>, none: &str| Some(line(text.as_deref().unwrap_or(none)));
    let list = |texts: &[String], none: &str| match texts {
        [] => Some(none.to_owned()),
        texts => Some(line(&texts.join("; "))),
    };
    let reason = |waived: &Option<String>| waived.as_deref().map(bpfcost_text::line);
    let on = |on: bool| Some(if on { "on" } else { "off" }.to_owned());
    let cpus: Vec<String> = record.asked.cpus.iter().map(u32::to_string).collect();
    // Of a workload others did the work, and this program's threads none of it.
    let measures_itself = !record.layout.times_windows();
    let other = number::duration(machine.other_cpu_ms / 1e3);
    let mhz = machine
        .mhz
        .map(|ends| ends.map(|end| number::fixed(end, 0)));
    let kernel = format!("{} {}", machine.kernel, machine.kernel_build);
    let smt = machine.smt.map_or_else(|| Some("unknown".to_owned()), on);
    let facts = [
        ("Kernel", Some(line(&kernel))),
        (
            "CPU",
            Some(format!("{} × {}", machine.cpus, line(&machine.cpu))),
        ),
        ("Virtualised", text_or(&machine.virtualised, "no")),
        ("Emulator", text_or(&machine.emulator, "none")),
        ("Clock", Some(line(&machine.clocksource))),
        ("Governor", text_or(&machine.governor, "none")),
        ("Sibling threads", smt),
        ("Mitigations", list(&machine.mitigations, "none")),
        ("BPF JIT", on(machine.jit)),
        ("bpf_stats", on(machine.bpf_stats)),
        ("Measured on CPU", list(&cpus, number::MISSING)),
        (
            "Stolen time",
            Some(number::duration(machine.steal_ms / 1e3)),
        ),
        (
            "Other processes",
            measures_itself.then(|| format!("{other} of CPU time")),
        ),
        (
            "Migrations",
            measures_itself.then(|| number::count(machine.migrations)),
        ),
        (
            trials::words(record).programs,
            text_or(&machine.programs, number::MISSING),
        ),
        ("No provenance", reason(&record.waivers.programs)),
        ("No sentinel", reason(&record.waivers.sentinel)),
        ("Other BPF programs", list(&machine.other_tracers, "none")),
        (
            "Frequency",
            mhz.map(|[low, high]| format!("{low} to {high} MHz")),
        ),
        ("Kernel memory", machine.kernel_bytes.map(number::bytes)),
        ("User memory", machine.user_bytes.map(number::bytes)),
    ];
    let facts = facts.into_iter();
    facts
        .filter_map(|(name, value)| Some(Fact::new(name, value?)))
        .collect()
}

/// The reason that a run ended, behind `until`.
fn stop_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::Precision => "every interval was narrow enough",
        Stop::Time => "the time was up",
        Stop::Rounds => "the first look was reached",
        Stop::Aborted => "it was aborted",
        Stop::Interrupted => "it was interrupted",
    }
}
