//! Architectures of guests, and what differs between them on QEMU's and the kernel's command lines.

use std::env::consts;

use serde::{Deserialize, Serialize};

/// An architecture that a guest can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// arm64.
    Aarch64,
}

/// Words of both command lines that follow from the architecture.
pub(crate) struct ArchWords {
    /// QEMU's machine.
    pub(crate) machine: &'static str,
    /// QEMU's CPU model.
    pub(crate) cpu: &'static str,
    /// The serial line that is the kernel's console, as its command line has it.
    pub(crate) console: &'static str,
    /// More words of the kernel's command line for a guest that counts instructions: one of them is one nanosecond there.
    pub(crate) exact: &'static [&'static str],
    /// … for one that is emulated and does not count.
    pub(crate) emulated: &'static [&'static str],
}

impl Arch {
    /// This machine's; `None` where guests of it can't be composed.
    pub fn here() -> Option<Arch> {
        match consts::ARCH {
            "x86_64" => Some(Arch::X86_64),
            "aarch64" => Some(Arch::Aarch64),
            _ => None,
        }
    }

    pub(crate) fn words(self) -> ArchWords {
        match self {
            Arch::X86_64 => ArchWords {
                machine: "q35",
                cpu: "max",
                console: "console=ttyS0 earlyprintk=serial,ttyS0,115200",
                // The kernel's own measurement of the clock is off by up to 63 kHz, differently at each boot, and moves
                // when the clock ticks.
                exact: &["tsc_early_khz=1000000"],
                // On a busy host ticks come too late for the kernel's test of its timer, and it panics: "IO-APIC + timer
                // doesn't work!". Under KVM the kernel skips that test.
                emulated: &["no_timer_check"],
            },
            Arch::Aarch64 => ArchWords {
                machine: "virt,gic-version=3",
                // Without the frequency the counter has steps of 16 ns. The model is fixed: a kernel patches itself for
                // what the CPU has, and counts differ.
                cpu: "cortex-a57,cntfrq=1000000000",
                console: "console=ttyAMA0",
                exact: &[],
                emulated: &[],
            },
        }
    }
}
