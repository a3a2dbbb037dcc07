//! Sections that only workloads show.

mod calls;
mod datagram_fate;

use super::Extras;
use bpfcost_record::Record;
use bpfcost_report::{
    section::{Detail, Section},
    workload::WorkloadReport,
};

pub(super) const EXTRAS: Extras = Extras {
    sections,
    ..Extras::NOTHING
};

/// Sections on where datagrams were lost and which calls probes counted; none for records of other experiments.
fn sections(record: &Record, detail: Detail) -> Vec<Section> {
    let Some(overhead) = WorkloadReport::new(record) else {
        return Vec::new();
    };
    let calls = calls::sections(&overhead, detail);
    datagram_fate::sections(&overhead)
        .into_iter()
        .chain(calls)
        .collect()
}
