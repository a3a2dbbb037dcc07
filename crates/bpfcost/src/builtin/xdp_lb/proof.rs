//! What a batch of `xdp-lb` must show to count, whatever its scenario.

use std::net::IpAddr;

use anyhow::Result;
use bpfcost_bpf::{lb::LoadBalancer, timing::Seen};

use super::{check, model, packet, scenario::Scenario, sequence::Sequence};
use crate::experiment::{Fault, Problem};

/// Nothing, or the problem as the fault that it is.
pub(super) fn prove(problem: Option<Problem>) -> Result<(), Fault> {
    problem.map_or(Ok(()), |problem| Err(Fault::Invalid(problem)))
}

/// No check can fail on a CPU of which nothing was seen.
pub(super) fn all_ran(cpus: &[u32], seen: &[Seen]) -> Result<()> {
    anyhow::ensure!(
        seen.len() == cpus.len(),
        "{} of {} CPUs told what they saw",
        seen.len(),
        cpus.len()
    );
    Ok(())
}

/// An emulated clock that counts instructions leaps where its CPU is idle.
pub(super) fn never_idle(seen: &[Seen]) -> Option<Problem> {
    seen.iter().find_map(|seen| check::waits(seen.waits))
}

/// What every batch must show, whatever its body: that it ran whole, and what it left.
pub(super) fn batch_problem(
    scenario: &Scenario,
    seen: &Seen,
    ops: u64,
    outcome: &[u8],
) -> Option<Problem> {
    check::together(seen.cpu, seen.together)
        .or_else(|| check::operations(ops, seen.ops))
        .or_else(|| check::clock(seen.start_ns, seen.end_ns))
        .or_else(|| check::action("the last operation", scenario.action as u32, seen.code))
        .or_else(|| check::packet("the last operation", outcome, &seen.output))
}

/// What the table must hold of the flow that was used last.
pub(super) fn table_problem(
    instance: &LoadBalancer,
    scenario: &Scenario,
    source: IpAddr,
    cpu: u32,
    begun_ns: u64,
) -> Result<Option<Problem>> {
    let Some(route) = model::route(scenario) else {
        return Ok(None);
    };
    let expected = route.left_in_table(scenario, source, cpu);
    let got = instance.lookup(cpu, &model::flow(scenario, source))?;
    Ok(check::entry(
        expected,
        scenario.udp().then_some(begun_ns),
        got,
    ))
}

/// The packet of the first operation.
pub(super) fn first_packet(scenario: &Scenario, input: &[u8], sequence: &Sequence) -> Vec<u8> {
    if scenario.mask == 0 {
        return input.to_vec();
    }
    packet::with_source(input, sequence.address(sequence.last_word(1)))
}

/// What an operation must leave of `input` when it comes from `source`.
pub(super) fn expected_packet(scenario: &Scenario, input: &[u8], source: IpAddr) -> Vec<u8> {
    match model::route(scenario) {
        None => input.to_vec(),
        Some(route) => packet::encapsulated(
            &packet::with_source(input, source),
            source,
            scenario.source_port,
            route.tunnel_end,
        ),
    }
}
