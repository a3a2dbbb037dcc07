//! Names with what stands beside them: the figures that a reader weighs everything else by, the machine; and
//! the method.

use crate::{
    measure::Stop,
    record::{Record, Status},
    report::{
        number,
        section::{Fact, Facts, Prose, Section},
        style::Tone,
        summary, target, text, trials, words,
    },
};

/// What stands above everything else.
pub(super) fn above(record: &Record) -> Vec<Section> {
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
pub(super) fn below(record: &Record) -> Vec<Section> {
    let machine = Facts {
        title: "The machine".to_owned(),
        facts: machine(record),
    };
    let method = Prose {
        title: "The method".to_owned(),
        paragraphs: trials::method(record),
        ..Prose::default()
    };
    vec![Section::Facts(machine), Section::Prose(method)]
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
    let tone = if invalid > 0 {
        Tone::Alarm
    } else {
        Tone::Plain
    };
    let why = match record.stop {
        Stop::Interrupted => "until it was interrupted".to_owned(),
        stop => format!("of measuring, until {}", words::stop(stop)),
    };
    let known = match record.unit.is_counted() {
        true => Fact::new(
            "cases that count the same in every load",
            number::count(summary::same_in_every_load(record) as u64),
        ),
        false => {
            let width = summary::typical_half_width(record);
            let width = width.map(|width| format!("±{}", number::percent(width)));
            Fact::new(
                "typical half-width of the 95\u{A0}% interval",
                width.unwrap_or(number::MISSING.to_owned()),
            )
        }
    };
    vec![
        Fact::new("valid cases", number::count(count(Status::Ok))),
        Fact {
            tone,
            ..Fact::new("invalid cases", number::count(invalid))
        },
        known,
        Fact::new(trials::epochs(record), number::count(epochs as u64)),
        Fact::new(trials::noun(record), number::count(trials as u64)),
        Fact::new(why, number::duration(record.seconds)),
    ]
}

/// The machine, and what disturbed it.
fn machine(record: &Record) -> Vec<Fact> {
    let machine = &record.machine;
    let or_none =
        |text: &Option<String>, none: &str| text.as_deref().map_or(none.to_owned(), text::line);
    let list = |texts: &[String], none: &str| match texts {
        [] => none.to_owned(),
        texts => text::line(&texts.join("; ")),
    };
    let on = |on| if on { "on" } else { "off" };
    let cpus: Vec<String> = record.asked.cpus.iter().map(u32::to_string).collect();
    let mut facts = vec![
        Fact::new(
            "Kernel",
            text::line(&format!("{} {}", machine.kernel, machine.kernel_build)),
        ),
        Fact::new(
            "CPU",
            format!("{} × {}", machine.cpus, text::line(&machine.cpu)),
        ),
        Fact::new("Virtualised", or_none(&machine.virtualised, "no")),
        Fact::new("Emulator", or_none(&machine.emulator, "none")),
        Fact::new("Clock", text::line(&machine.clocksource)),
        Fact::new("Governor", or_none(&machine.governor, "none")),
        Fact::new("Sibling threads", machine.smt.map_or("unknown", on)),
        Fact::new("Mitigations", list(&machine.mitigations, "none")),
        Fact::new("BPF JIT", on(machine.jit)),
        Fact::new("bpf_stats", on(machine.bpf_stats)),
        Fact::new("Measured on CPU", list(&cpus, number::MISSING)),
        Fact::new("Stolen time", number::duration(machine.steal_ms / 1e3)),
    ];
    // Of a workload others did the work, and this program's threads none of it.
    if !super::is_workload(record) {
        let other = number::duration(machine.other_cpu_ms / 1e3);
        facts.push(Fact::new("Other processes", format!("{other} of CPU time")));
        facts.push(Fact::new("Migrations", number::count(machine.migrations)));
    }
    facts.push(Fact::new(
        trials::programs(record),
        or_none(&machine.programs, number::MISSING),
    ));
    facts.push(Fact::new(
        "Other BPF programs",
        list(&machine.other_tracers, "none"),
    ));
    let mhz = machine.mhz.map(|ends| {
        let [low, high] = ends.map(|end| number::fixed(end, 0));
        Fact::new("Frequency", format!("{low} to {high} MHz"))
    });
    let bytes = [
        ("Kernel memory", machine.kernel_bytes),
        ("User memory", machine.user_bytes),
    ];
    let bytes = bytes.map(|(name, bytes)| Some(Fact::new(name, number::bytes(bytes?))));
    facts.extend(mhz.into_iter().chain(bytes.into_iter().flatten()));
    facts
}
