//! Datagrams inside a guest, and from outside into it: probes on the kernel's receive call, which the host may not
//! have, see each of them.

use bpfcost_record::CaseRecord;

use crate::{kept::valid_record, require, tool::Tool, visit::says_of_epochs};

/// Returns true if iperf3 is there; a guest has the programs of its host.
fn able() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join("iperf3").exists());
    if !there {
        require::skip_as("vm", "iperf3 is not installed");
    }
    there
}

/// A value of each window of a case.
fn each(case: &CaseRecord, name: &str) -> Vec<f64> {
    let values = case.secondary.get(name);
    values.unwrap_or_else(|| panic!("no {name}")).concat()
}

#[test]
fn probes_in_a_guest_see_each_datagram() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    if !able() {
        return;
    }
    let tool = Tool::new();
    let cases = [
        "off/loopback",
        "tracepoint/null/loopback",
        "kprobe.multi/map/loopback",
        "fentry/map/loopback",
        "off/forwarded",
        "fentry/map/forwarded",
    ];
    let line = format!(
        "run iperf3 --on vm:{kernel} --quick --case {}",
        cases.join(" --case ")
    );
    let said = says_of_epochs(&tool, &line, 1);
    let record = valid_record(&tool);
    assert_eq!(record.cases.len(), cases.len(), "{said:?}");
    for case in &record.cases {
        let name = &case.name;
        let (received, counted) = (each(case, "received"), each(case, "udp_received"));
        assert!(received.iter().all(|count| *count > 0.0), "{name}");
        if case.factors["path"] == "forwarded" {
            let (sent, dropped) = (each(case, "sent"), each(case, "host_dropped"));
            for (window, arrived) in each(case, "arrived").into_iter().enumerate() {
                let [sent, dropped, received] =
                    [&sent, &dropped, &received].map(|values| values[window]);
                // What came to the program came by the card, and beside it the words of client and server.
                assert!(received < arrived, "{name}: {received} {arrived}");
                assert!(
                    received + dropped <= sent,
                    "{name}: {received} {dropped} {sent}"
                );
            }
            // The client's is another machine's.
            assert!(!case.secondary.contains_key("client_ns"), "{name}");
        }
        if case.factors["variant"] == "off" {
            continue;
        }
        let hits = each(case, "hits");
        for ((hits, received), counted) in hits.iter().zip(&received).zip(&counted) {
            let hits = (hits * received).round();
            // The server calls once before there is anything; the tracepoint is passed by all sockets.
            let more = if case.factors["variant"].starts_with("tracepoint") {
                f64::INFINITY
            } else {
                1.0
            };
            assert!(
                (*counted..=counted + more).contains(&hits),
                "{name}: {hits} {counted}"
            );
        }
    }
}
