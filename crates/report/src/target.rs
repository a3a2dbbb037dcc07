//! Target of a record: its name, and the meaning of its numbers.

use bpfcost_record::Record;
use bpfcost_text::{line, number};

/// Shown beside the name of a target whose times are an emulator's.
pub const EMULATED: &str = "emulated";

/// Caption of contended throughput on an emulated machine.
pub const NO_SPEED: &str = "emulated: shows misses and correctness, not speed; an emulator has no cache-line \
    contention.";

/// Returns true if a record has times of an emulator. Counts of an emulator are exact.
pub fn is_emulated(record: &Record) -> bool {
    record.machine.emulates_time() && !record.unit.is_counted()
}

/// The target, with a mark where its times are not those of hardware.
pub fn label(record: &Record) -> String {
    let target = line(&record.target);
    if is_emulated(record) {
        format!("{target} ({EMULATED})")
    } else {
        target
    }
}

/// `Linux 6.12.107`, or nothing if unknown.
pub fn kernel(record: &Record) -> String {
    match record.machine.kernel.as_str() {
        "" => String::new(),
        kernel => format!("Linux{}{}", number::HOLD, line(kernel)),
    }
}

/// Limits of counts and of emulated times; `None` for times of hardware.
pub fn unit_caption(record: &Record) -> Option<String> {
    if record.unit.is_counted() {
        return Some(
            "insn are not ns: every instruction counts the same, however long it takes. Caches, branches and TLBs \
             are not modelled."
                .to_owned(),
        );
    }
    is_emulated(record).then(|| {
        if record.contends {
            NO_SPEED.to_owned()
        } else {
            "emulated: times of an emulator, not of hardware. They show neither the cost on hardware nor which of \
             two cases costs more there."
                .to_owned()
        }
    })
}

/// The emulator, kernel and programs that counts hold for; `None` for times.
pub fn identity(record: &Record) -> Option<String> {
    if !record.unit.is_counted() {
        return None;
    }
    let machine = &record.machine;
    let name_or_unknown = |text: &Option<String>, what: &str| match text.as_deref() {
        Some(name) => line(name),
        None => format!("an unknown {what}"),
    };
    let programs = name_or_unknown(&machine.programs, "build");
    let parts = [
        name_or_unknown(&machine.emulator, "emulator"),
        format!("{} {}", kernel(record), line(&machine.kernel_build)),
        format!("programs {}", programs.trim_start_matches("programs ")),
        number::plural(machine.mitigations.len(), "mitigation"),
    ];
    let parts = parts.iter().map(|part| part.trim());
    let parts = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>();
    Some(format!("Counts hold for {}.", parts.join("; ")))
}
