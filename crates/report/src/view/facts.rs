//! Lists of names and values: the key figures of a run, and the machine.

use crate::{
    section::{Fact, Facts, Prose, Section},
    style::Tone,
    summary, target, trials, words,
};
use bpfcost_measure::Stop;
use bpfcost_record::{Record, Status};
use bpfcost_text::{self, number};

/// What stands above everything else.
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

/// What stands below everything else.
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
    let count = |status| {
        let cases = record.cases.iter();
        cases.filter(|case| case.status == status).count() as u64
    };
    let invalid = count(Status::Invalid);
    let why = match record.stop {
        Stop::Interrupted => "until it was interrupted".to_owned(),
        stop => format!("of measuring, until {}", words::stop(stop)),
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
        Fact::new("valid cases", number::count(count(Status::Ok))),
        Fact {
            tone: if invalid > 0 {
                Tone::Alarm
            } else {
                Tone::Plain
            },
            ..Fact::new("invalid cases", number::count(invalid))
        },
        precision,
        Fact::new(trials::words(record).epochs, number::count(epochs as u64)),
        Fact::new(trials::words(record).noun, number::count(trials as u64)),
        Fact::new(why, number::duration(record.seconds)),
    ]
}

/// The machine, and what disturbed it.
fn machine(record: &Record) -> Vec<Fact> {
    let machine = &record.machine;
    let text_or = |text: &Option<String>, none: &str| {
        Some(bpfcost_text::line(text.as_deref().unwrap_or(none)))
    };
    let list = |texts: &[String], none: &str| match texts {
        [] => Some(none.to_owned()),
        texts => Some(bpfcost_text::line(&texts.join("; "))),
    };
    let reason = |waived: &Option<String>| waived.as_deref().map(bpfcost_text::line);
    let on = |on: bool| Some(if on { "on" } else { "off" }.to_owned());
    let cpus: Vec<String> = record.asked.cpus.iter().map(u32::to_string).collect();
    // Of a workload others did the work, and this program's threads none of it.
    let measures_itself = !super::is_workload(record);
    let other = number::duration(machine.other_cpu_ms / 1e3);
    let mhz = machine
        .mhz
        .map(|ends| ends.map(|end| number::fixed(end, 0)));
    let kernel = format!("{} {}", machine.kernel, machine.kernel_build);
    let smt = machine.smt.map_or_else(|| Some("unknown".to_owned()), on);
    let facts = [
        ("Kernel", Some(bpfcost_text::line(&kernel))),
        (
            "CPU",
            Some(format!(
                "{} × {}",
                machine.cpus,
                bpfcost_text::line(&machine.cpu)
            )),
        ),
        ("Virtualised", text_or(&machine.virtualised, "no")),
        ("Emulator", text_or(&machine.emulator, "none")),
        ("Clock", Some(bpfcost_text::line(&machine.clocksource))),
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
