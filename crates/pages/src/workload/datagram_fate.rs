//! Tables of where datagrams were lost, and of the share of its time that a server needed: from windows without a
//! probe.

use bpfcost_record::{CaseRecord, State, Status};
use bpfcost_report::{
    section::{Section, table_sections},
    table::{Cell, Head, Table},
    workload::{Scale, WorkloadReport, with_unit},
};
use bpfcost_text::{self, number};

/// A table for each state whose client reports what it sent.
pub(super) fn sections(overhead: &WorkloadReport<'_>) -> Vec<Section> {
    let states = overhead.states.all.iter();
    table_sections(states.filter_map(|state| table(overhead, state)))
}

fn table(overhead: &WorkloadReport<'_>, state: &State<'_>) -> Option<Table> {
    let off = state.off.filter(|off| off.status == Status::Ok)?;
    let operation = bpfcost_text::line(&overhead.states.workload.operation);
    let sent = off.secondary_value("sent").filter(|sent| *sent > 0.0)?;
    let received = off.secondary_value("received")?;
    let share = |(place, count): (&'static str, f64)| {
        (
            place.to_owned(),
            number::percent(count / sent),
            count / sent,
        )
    };
    let mut rows: Vec<(String, String, f64)> =
        lost(off, sent, received).into_iter().map(share).collect();
    rows.extend(time(off, &operation).into_iter().flatten());
    let columns = vec![
        Head::words("").cells(|row: &(String, String, f64)| Cell::words(&row.0)),
        Head::number("off").cells(|row: &(String, String, f64)| Cell::number(&row.1, row.2)),
    ];
    let title = format!(
        "Of {} {operation}s sent in a window",
        number::fixed(sent, 0)
    );
    Some(Table {
        title: overhead.title(&title, state),
        captions: vec![
            "A server that worked all of that time has none to spare; then throughput shows the cost of a probe."
                .to_owned(),
        ],
        ..Table::new(columns, &rows)
    })
}

/// Returns how many datagrams were lost at each stage, and how many reached the server. Lost inside QEMU are those that
/// the host did not drop and that the guest's network card did not receive.
fn lost(off: &CaseRecord, sent: f64, received: f64) -> Vec<(&'static str, f64)> {
    let value = |name: &str| off.secondary_value(name).unwrap_or(0.0);
    let reached = ("reached the server's program", received);
    let Some(on_host) = off.secondary_value("host_dropped") else {
        return vec![("lost", value("datagrams_lost")), reached];
    };
    // Packets, of which a few are no datagrams.
    let in_qemu = (sent - on_host - value("arrived")).max(0.0);
    let in_socket = value("drops");
    let late = (sent - on_host - in_qemu - in_socket - received).max(0.0);
    vec![
        ("dropped on the host before QEMU", on_host),
        ("lost inside QEMU", in_qemu),
        ("lost in the guest's socket", in_socket),
        ("arrived after the test", late),
        reached,
    ]
}

/// Returns the idle share of the CPUs, the time from one operation to the next, and the server's part of that time.
fn time(off: &CaseRecord, operation: &str) -> Option<[(String, String, f64); 3]> {
    let worked_ns = off.secondary_value("server_ns")?;
    let between_ns = 1e9 / off.secondary_value("ops_per_s")?;
    let idle = off.secondary_value("idle")?;
    let shown = |ns: f64| {
        let scale = Scale::for_nanos(ns);
        let value = ns / scale.size;
        with_unit(
            &number::fixed(value, number::plain_decimals(value)),
            &scale.unit,
        )
    };
    Some([
        (
            "idle time of the CPUs".to_owned(),
            number::percent(idle),
            idle,
        ),
        (
            format!("from one {operation} to the next"),
            shown(between_ns),
            between_ns,
        ),
        (
            "of which the server worked".to_owned(),
            shown(worked_ns),
            worked_ns,
        ),
    ])
}
