//! The tables of `attaching`: what switching on and off takes in time and memory, and how long it stops others.

use super::Extras;
use bpfcost_record::{CaseRecord, CostEstimate, Record};
use bpfcost_report::{
    section::{Detail, Section, table_sections},
    table::{Cell, Column, Head, Table},
};
use bpfcost_text::{self, number};

/// Nanoseconds of loading and detaching, per site.
pub const LOAD_NS: &str = "load_ns";
/// See [`LOAD_NS`].
pub const DETACH_NS: &str = "detach_ns";
/// Bytes of the kernel's memory, per site.
pub const KERNEL_BYTES: &str = "kernel_bytes";
/// Microseconds by which another CPU is interrupted for longer than in an idle time.
pub const EXTRA_INTERRUPTION_US: &str = "extra_interruption_us";

pub(super) const EXTRAS: Extras = Extras {
    sections,
    ..Extras::NOTHING
};

const COSTS: &str = "Time per site of loading, attaching and detaching all sites of a case. Memory: the kernel's, of the \
    whole machine, while the programs are attached minus before they were loaded; ≤: known to be no more.";
const STOPS: &str = "A thread reads the clock on another CPU. Interrupted: its longest stop in which no other thread ran \
    there. Extra interruption: the longer one of attaching and detaching, minus that of an idle time of the same length. \
    Any stop: also while other threads ran there, which is mostly the load of the machine.";

fn sections(record: &Record, _: Detail) -> Vec<Section> {
    let cases: Vec<&CaseRecord> = record
        .cases
        .iter()
        .filter(|case| case.secondary_value(DETACH_NS).is_some())
        .collect();
    table_sections(costs(&cases).into_iter().chain(stops(&cases)))
}

type Case<'a> = &'a CaseRecord;

fn costs(cases: &[Case<'_>]) -> Option<Table> {
    let attach = |case: &Case<'_>| {
        let raw = case.raw.as_ref();
        raw.map(|raw| CostEstimate {
            value: raw.value,
            ci95: raw.ci95,
        })
    };
    let memory = |case: &Case<'_>| {
        let part = case.secondary_part(KERNEL_BYTES);
        match part {
            Some(CostEstimate {
                value,
                ci95: Some([low, high]),
            }) if low <= 0.0 || high > 2.0 * value => Cell::words(format!(
                "≤{}{}",
                number::HOLD,
                number::fixed(high.max(0.0), 0)
            )),
            part => cell(part),
        }
    };
    let us = |part: Option<CostEstimate>| cell(part.map(in_us));
    let columns = vec![
        name(),
        Head::number("load,\nµs/site")
            .cells(move |case: &Case<'_>| us(case.secondary_part(LOAD_NS))),
        Head::number("attach,\nµs/site").cells(move |case: &Case<'_>| us(attach(case))),
        Head::number("detach,\nµs/site")
            .cells(move |case: &Case<'_>| us(case.secondary_part(DETACH_NS))),
        Head::number("memory,\nB/site").cells(memory),
    ];
    Some(Table {
        title: "Switching on and off".to_owned(),
        captions: vec![COSTS.to_owned()],
        ..Table::new(columns, cases).filled()?
    })
}

fn stops(cases: &[Case<'_>]) -> Option<Table> {
    let watched = cases.iter().copied();
    let watched = watched.filter(|case| case.secondary_value(EXTRA_INTERRUPTION_US).is_some());
    let watched: Vec<Case<'_>> = watched.collect();
    let of = |name: &'static str| move |case: &Case<'_>| cell(case.secondary_part(name));
    let columns = vec![
        name(),
        Head::number("interrupted,\nattach, µs").cells(of("attach_interrupt_us")),
        Head::number("detach,\nµs").cells(of("detach_interrupt_us")),
        Head::number("idle,\nµs").cells(of("idle_interrupt_us")),
        Head::number("extra\ninterruption, µs").cells(of(EXTRA_INTERRUPTION_US)),
        Head::number("any stop,\nattach, µs").cells(of("attach_stop_us")),
        Head::number("detach,\nµs").cells(of("detach_stop_us")),
        Head::number("idle,\nµs").cells(of("idle_stop_us")),
    ];
    Some(Table {
        title: "Longest stop of another thread".to_owned(),
        captions: vec![STOPS.to_owned()],
        ..Table::new(columns, &watched).filled()?
    })
}

fn name<'a>() -> Column<'a, Case<'a>> {
    Head::words("case").cells(|case: &Case<'_>| Cell::words(bpfcost_text::line(&case.name)))
}

/// A value and its reach.
fn cell(part: Option<CostEstimate>) -> Cell {
    part.map_or_else(Cell::default, |part| {
        Cell::number(number::with_reach(part.value, part.ci95), part.value)
    })
}

/// Converts nanoseconds to microseconds.
fn in_us(part: CostEstimate) -> CostEstimate {
    CostEstimate {
        value: part.value / 1e3,
        ci95: part.ci95.map(|ends| ends.map(|end| end / 1e3)),
    }
}
