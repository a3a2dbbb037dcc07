//! The checks that every batch of `xdp-lb` must pass, in any scenario.

use std::net::IpAddr;

use anyhow::Result;
use bpfcost_bpf::{
    lb::{self, Flood, LoadBalancer},
    timing::Observation,
};

use super::{
    check,
    model::{self, Expected},
    packet,
    scenario::Scenario,
    sequence::Sequence,
};
use crate::builtin::packet_diff;
use bpfcost_model::Problem;

/// Checks the last operation of a batch, whatever its body: its return code and the packet that it left.
pub(super) fn outcome_problem(
    scenario: &Scenario,
    seen: &Observation,
    outcome: &[u8],
) -> Option<Problem> {
    check::action("the last operation", scenario.action as u32, seen.code)
        .or_else(|| packet_diff::problem("the last operation", outcome, &seen.output))
}

/// State of the datapath's count of new connections before a batch: a second that is over, in which it counted some.
pub(super) fn before_flood(begun_ns: u64) -> Flood {
    Flood {
        second_start_ns: begun_ns.saturating_sub(2 * check::SECOND_NS),
        connections: 7,
    }
}

/// Checks that a CPU counted each miss as a new connection of a second that began in the batch.
pub(super) fn flood_problem(
    instance: &LoadBalancer,
    expected: &Expected,
    cpu: u32,
    begun_ns: u64,
) -> Result<Option<Problem>> {
    let ended_ns = lb::now_ns();
    let (before, got) = (before_flood(begun_ns), instance.flood(cpu)?);
    let during_ns = begun_ns..=ended_ns;
    Ok(check::flood(expected.misses, before, got, during_ns))
}

/// Checks the table's entry of the flow that was used last.
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

/// Returns the packet that an operation must leave of `input` if it comes from `source`.
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
