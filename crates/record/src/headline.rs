//! The CPU time that leads where a kernel accounts interrupts by themselves. There, the time of the server's processes
//! lacks that of interrupts (soft interrupts receive packets, and run the probes on that path), so the time of the
//! machine leads, whatever was asked.

use crate::Machine;
use bpfcost_measure::{Measurements, Plan, Warning};

/// The secondary value that leads instead: the CPU time of the machine.
const MACHINE_NS: &str = "machine_ns";
/// [`Warning::code`] where the machine's time leads for that reason.
const IRQ_TIME: &str = "irq-time";

/// The plan and what was measured with the machine's time in the place of the server's; `None` where nothing is to
/// change.
pub(super) fn with_machine_headline(
    plan: &Plan,
    measured: &Measurements,
    machine: &Machine,
) -> Option<(Plan, Measurements)> {
    if machine.irq_time != Some(true) {
        return None;
    }
    let layout = plan.layout.led_by_machine()?;
    let (mut plan, mut measured) = (plan.clone(), measured.clone());
    plan.layout = layout;
    // What leads is compared once.
    plan.metrics.retain(|metric| metric.name != MACHINE_NS);
    for case in &mut measured.cases {
        if let Some(machine_ns) = case.secondary.get(MACHINE_NS) {
            case.samples = machine_ns.clone();
        }
    }
    measured.warnings.push(Warning::new(
        IRQ_TIME,
        "this kernel accounts interrupts by themselves (CONFIG_IRQ_TIME_ACCOUNTING), so the CPU time of the server \
         lacks those that ran on its back; the CPU time of the machine is shown instead",
    ));
    Some((plan, measured))
}
