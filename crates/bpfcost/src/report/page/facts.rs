//! Names with what stands beside them: the figures that a reader weighs everything else by, and the
//! machine.

use serde::Serialize;

use crate::{
    measure::Stop,
    record::{Record, Status},
    report::{number, style::Tone, summary, text, words},
};

/// What other processes used.
const OTHERS: &str = "Other processes";
/// Moves of this program's threads.
const MIGRATIONS: &str = "Migrations";

/// A name and what stands beside it.
#[derive(Serialize)]
pub(super) struct Fact {
    name: String,
    value: String,
    tone: Option<Tone>,
}

fn fact(name: &str, value: impl Into<String>) -> Fact {
    Fact {
        name: name.to_owned(),
        value: value.into(),
        tone: None,
    }
}

/// The figures that a reader weighs everything else by.
pub(super) fn facts(record: &Record) -> Vec<Fact> {
    let trials: usize = record
        .cases
        .iter()
        .flat_map(|case| &case.samples)
        .map(Vec::len)
        .sum();
    let epochs = record
        .cases
        .iter()
        .map(|case| case.samples.len())
        .max()
        .unwrap_or(0);
    let count = |status| {
        record
            .cases
            .iter()
            .filter(|case| case.status == status)
            .count()
    };
    let invalid = count(Status::Invalid);
    let mut facts = vec![
        fact("valid cases", number::count(count(Status::Ok) as u64)),
        Fact {
            tone: (invalid > 0).then_some(Tone::Alarm),
            ..fact("invalid cases", number::count(invalid as u64))
        },
        match record.unit.is_counted() {
            true => fact(
                "cases that count the same in every load",
                number::count(summary::same_in_every_load(record) as u64),
            ),
            false => fact("typical half-width of the 95\u{A0}% interval", {
                let width = summary::typical_half_width(record);
                width.map_or(number::MISSING.to_owned(), |width| {
                    format!("±{}", number::percent(width))
                })
            }),
        },
        fact(
            match record.layout.workload() {
                Some(_) => "epochs, the server started anew",
                None => "epochs, everything loaded afresh",
            },
            number::count(epochs as u64),
        ),
        fact(
            match record.layout.workload() {
                Some(_) => "windows",
                None => "trials",
            },
            number::count(trials as u64),
        ),
    ];
    let why = match record.stop {
        Stop::Interrupted => "until it was interrupted".to_owned(),
        stop => format!("of measuring, until {}", words::stop(stop)),
    };
    facts.push(fact(&why, number::duration(record.seconds)));
    facts
}

/// The machine, and what disturbed it.
pub(super) fn machine(record: &Record) -> Vec<Fact> {
    let machine = &record.machine;
    let or_none =
        |text: &Option<String>, none: &str| text.as_deref().map_or(none.to_owned(), text::line);
    let list = |texts: &[String], none: &str| match texts {
        [] => none.to_owned(),
        texts => texts
            .iter()
            .map(|text| text::line(text))
            .collect::<Vec<_>>()
            .join("; "),
    };
    let on = |on| if on { "on" } else { "off" };
    let mut facts = vec![
        fact(
            "Kernel",
            text::line(&format!("{} {}", machine.kernel, machine.kernel_build)),
        ),
        fact(
            "CPU",
            format!("{} × {}", machine.cpus, text::line(&machine.cpu)),
        ),
        fact("Virtualised", or_none(&machine.virtualised, "no")),
        fact("Emulator", or_none(&machine.emulator, "none")),
        fact("Clock", text::line(&machine.clocksource)),
        fact("Governor", or_none(&machine.governor, "none")),
        fact("Sibling threads", machine.smt.map_or("unknown", on)),
        fact("Mitigations", list(&machine.mitigations, "none")),
        fact("BPF JIT", on(machine.jit)),
        fact("bpf_stats", on(machine.bpf_stats)),
        fact("Measured on CPU", {
            let cpus: Vec<String> = record.asked.cpus.iter().map(u32::to_string).collect();
            list(&cpus, number::MISSING)
        }),
        fact("Stolen time", number::duration(machine.steal_ms / 1e3)),
        fact(
            OTHERS,
            format!(
                "{} of CPU time",
                number::duration(machine.other_cpu_ms / 1e3)
            ),
        ),
        fact(MIGRATIONS, number::count(machine.migrations)),
        fact(
            match record.layout.workload() {
                Some(_) => "CPU time of",
                None => "Timed programs",
            },
            or_none(&machine.programs, number::MISSING),
        ),
        fact("Other BPF programs", list(&machine.other_tracers, "none")),
    ];
    // Those did the work, and this program's threads none of it.
    if record.layout.workload().is_some() {
        facts.retain(|fact| fact.name != OTHERS && fact.name != MIGRATIONS);
    }
    if let Some([low, high]) = machine.mhz {
        let text = format!(
            "{} to {} MHz",
            number::fixed(low, 0),
            number::fixed(high, 0)
        );
        facts.push(fact("Frequency", text));
    }
    if let Some(bytes) = machine.kernel_bytes {
        facts.push(fact("Kernel memory", number::bytes(bytes)));
    }
    if let Some(bytes) = machine.user_bytes {
        facts.push(fact("User memory", number::bytes(bytes)));
    }
    facts
}
