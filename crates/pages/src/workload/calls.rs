//! Tables of the calls that probes counted: the most frequent kinds, their number per operation, and how long they
//! took. Probes report them as `calls_NAME` and `calls_NAME_ns`, and all calls together as `syscalls`.

use bpfcost_record::{CaseRecord, CostEstimate, Status};
use bpfcost_report::{
    section::{Detail, Section, table_sections},
    table::{Cell, Head, Table},
    workload::{Scale, WorkloadReport, with_unit},
};
use bpfcost_text::{
    self,
    number::{self, MISSING},
};

/// Number of kinds of calls that are shown.
const TOP: usize = 10;
/// Shares and calls an operation below this are shown as "less than".
const LEAST: f64 = 0.001;
/// Note in brief reports on where to find the tables of several probes.
const EVERY_CALL: &str = "The most frequent calls, by probe: --verbose, or `bpfcost report`.";
/// Caption that explains how to read the table.
const CAPTION: &str = "Times are from entry to return and include waiting; they are not CPU times. Only the ten \
    most frequent calls of each window are recorded.";

/// Calls of a kind.
#[derive(Clone, Copy)]
struct CallStats<'a> {
    name: &'a str,
    /// Over all windows.
    calls: f64,
    /// Nanoseconds of one.
    took: Option<CostEstimate>,
}

/// A table for each probe that counted any; of several not where there is little room.
pub(super) fn sections(overhead: &WorkloadReport<'_>, detail: Detail) -> Vec<Section> {
    let mut tables = Vec::new();
    for state in &overhead.states.all {
        for probed in &state.probes {
            let seen = format!("Calls seen by {}", bpfcost_text::line(probed.variant));
            let kinds = kinds(probed.case);
            let table = || table(overhead, overhead.title(&seen, state), probed.case, &kinds);
            tables.extend((!kinds.is_empty()).then(table));
        }
    }
    if tables.len() > 1 && detail == Detail::Brief {
        tables = vec![Table {
            captions: vec![EVERY_CALL.to_owned()],
            ..Table::default()
        }];
    }
    table_sections(tables)
}

/// The kinds of calls that a case has, most frequent first. What has no time beside it is something else.
fn kinds<'a>(case: &'a CaseRecord) -> Vec<CallStats<'a>> {
    if case.status != Status::Ok {
        return Vec::new();
    }
    let timed = |(name, values): (&'a String, &'a Vec<Vec<f64>>)| {
        let took = format!("{name}_ns");
        case.secondary.get(&took)?;
        Some(CallStats {
            name: name.strip_prefix("calls_")?,
            calls: values.iter().flatten().sum(),
            took: case.secondary_part(&took),
        })
    };
    let mut kinds: Vec<CallStats<'_>> = case.secondary.iter().filter_map(timed).collect();
    kinds.sort_by(|a, b| b.calls.total_cmp(&a.calls));
    kinds
}

fn table(
    overhead: &WorkloadReport<'_>,
    title: String,
    case: &CaseRecord,
    kinds: &[CallStats<'_>],
) -> Table {
    let sum = |name: &str| Some(case.secondary.get(name)?.iter().flatten().sum::<f64>());
    let (ops, all) = (sum("ops"), sum("syscalls"));
    let mut top: Vec<CallStats<'_>> = kinds.iter().take(TOP).copied().collect();
    let others = all.unwrap_or(0.0) - top.iter().map(|kind| kind.calls).sum::<f64>();
    top.extend((others > 0.0).then_some(CallStats {
        name: "others",
        calls: others,
        took: None,
    }));
    let ratio = |kind: &CallStats<'_>, total: Option<f64>, words: fn(f64) -> String| {
        let ratio = total
            .map(|total| kind.calls / total)
            .filter(|ratio| ratio.is_finite());
        match ratio {
            Some(ratio) if ratio < LEAST => Cell::number(format!("< {}", words(LEAST)), ratio),
            Some(ratio) => Cell::number(words(ratio), ratio),
            None => Cell::words(MISSING),
        }
    };
    let plain = |ratio| number::fixed(ratio, number::plain_decimals(ratio));
    let took = |kind: &CallStats<'_>| {
        kind.took.map_or_else(Cell::default, |took| {
            let scale = Scale::for_nanos(took.value);
            Cell::number(with_unit(&scale.text(took), &scale.unit), took.value)
        })
    };
    let operation = bpfcost_text::line(&overhead.states.workload.operation);
    let columns = vec![
        Head::words("call")
            .cells(|kind: &CallStats<'_>| Cell::words(bpfcost_text::line(kind.name))),
        Head::number(format!("per {operation}"))
            .cells(|kind: &CallStats<'_>| ratio(kind, ops, plain)),
        Head::number("share").cells(|kind: &CallStats<'_>| ratio(kind, all, number::percent)),
        Head::number("one takes").cells(took),
    ];
    Table {
        title,
        captions: vec![CAPTION.to_owned()],
        ..Table::new(columns, &top)
    }
}
