//! Where datagrams went, and whether what a probe costs can show in throughput: both from what was measured in the
//! windows without a probe.

use crate::{
    record::{CaseRecord, State, Status},
    report::{
        number::{self, HOLD},
        section::{Prose, Section},
        text,
        workload::Overhead,
    },
};

/// From this share of its time on, a server has none to spare.
const BUSY: f64 = 0.9;

/// A sentence or two for each state whose client tells what it sent.
pub(super) fn sections(overhead: &Overhead<'_>) -> Option<Section> {
    let all = overhead.states.all.iter();
    let paragraphs: Vec<String> = all.filter_map(|state| caption(overhead, state)).collect();
    (!paragraphs.is_empty()).then(|| {
        Section::Prose(Prose {
            paragraphs,
            ..Prose::default()
        })
    })
}

fn caption(overhead: &Overhead<'_>, state: &State<'_>) -> Option<String> {
    let off = state.off.filter(|off| off.status == Status::Ok)?;
    let operation = text::line(&overhead.states.workload.operation);
    let sent = off.secondary_value("sent").filter(|sent| *sent > 0.0)?;
    let received = off.secondary_value("received")?;
    let mut fates: Vec<String> = lost(off, sent)
        .into_iter()
        .map(|(count, place)| format!("{} {place}", number::percent(count / sent)))
        .collect();
    fates.push(format!(
        "{} reached the server's program",
        number::percent(received / sent)
    ));
    let place = match overhead.state_name(state).as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    let went = format!(
        "Of {} {operation}s sent in a window{place}, {}.",
        number::fixed(sent, 0),
        fates.join(", ")
    );
    Some(match time(off, &operation) {
        Some(time) => format!("{went} {time}"),
        None => went,
    })
}

/// How many were lost where. Inside QEMU is what the host did not drop, and the guest's card did not receive.
fn lost(off: &CaseRecord, sent: f64) -> Vec<(f64, &'static str)> {
    let Some(on_host) = off.secondary_value("host_dropped") else {
        let lost = off.secondary_value("datagrams_lost").unwrap_or(0.0);
        return vec![(lost, "were lost")];
    };
    let value = |name: &str| off.secondary_value(name).unwrap_or(0.0);
    // Packets, of which a few are no datagrams.
    let in_qemu = (sent - on_host - value("arrived")).max(0.0);
    let in_socket = value("drops");
    let late = (sent - on_host - in_qemu - in_socket - value("received")).max(0.0);
    vec![
        (on_host, "were dropped on the host before QEMU read them"),
        (in_qemu, "inside QEMU"),
        (in_socket, "in the guest's socket"),
        (late, "came when the test was over"),
    ]
}

/// What of its time the server needed, and what a probe would have to cost to be seen in throughput.
fn time(off: &CaseRecord, operation: &str) -> Option<String> {
    let worked_ns = off.secondary_value("server_ns")?;
    let between_ns = 1e9 / off.secondary_value("ops_per_s")?;
    let busy = worked_ns / between_ns;
    let idle = number::percent(off.secondary_value("idle")?);
    let shown = |ns: f64| match ns {
        ns if ns < 1e3 => format!("{}{HOLD}ns", number::fixed(ns, 0)),
        ns => {
            let us = ns / 1e3;
            format!("{}{HOLD}µs", number::fixed(us, number::plain_decimals(us)))
        }
    };
    let idled = format!("The CPUs idled for {idle} of the time, and the server worked for");
    let of = format!(
        "of the {} from one {operation} to the next",
        shown(between_ns)
    );
    let forwarded = off.secondary_value("host_dropped").is_some();
    // Where the client shares CPUs with the server, what a probe costs is taken from both.
    if busy < BUSY && !forwarded {
        return Some(format!("{idled} {} {of}.", shown(worked_ns)));
    }
    Some(if busy < BUSY {
        format!(
            "{idled} {} {of}: throughput shows nothing of a probe on its calls that costs less than {} a \
             {operation}.",
            shown(worked_ns),
            shown(between_ns - worked_ns)
        )
    } else if forwarded {
        // By the clock of a guest, which does not know when it was not run.
        format!(
            "{idled} all {of}, in which the guest counts what its host did for others: whether throughput shows \
             what a probe costs, a run on an idle host tells."
        )
    } else {
        format!(
            "{idled} all {of}: it has no time to spare, so that throughput shows what a probe costs it."
        )
    })
}
