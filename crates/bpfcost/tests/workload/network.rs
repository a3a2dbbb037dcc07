//! Datagrams on networks of the tool's own: iperf3, on each of its paths.

use serde_json::Value;

use crate::{definition::able, running::Running, tool::Tool};

#[test]
fn each_datagram_is_counted_by_client_kernel_and_probe() {
    if !able(&["iperf3"]) {
        return;
    }
    let tool = Tool::new();
    let line = "run iperf3 --case off/* --case tracepoint/map/loopback --case tracepoint/map/veth";
    let mut run = Running::start(&tool, line);
    run.until(|journal| journal.contains("\n{\"epoch-finished\""));
    run.signal("INT");
    let said = run.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    let text = std::fs::read_to_string(tool.path("x.json")).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("a record");
    let cases = record["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 5);
    for case in cases {
        if case["factors"]["path"] == "forwarded" {
            assert_eq!(case["status"], "unsupported", "{case}");
            let reason = case["reason"].as_str().expect("a reason");
            assert!(reason.contains("--on vm:"), "{reason}");
            continue;
        }
        assert_eq!(case["status"], "ok", "{case}");
        let first = |name: &str| -> f64 {
            let value = case["secondary"][name][0][0].as_f64();
            value.unwrap_or_else(|| panic!("no {name} in {case}"))
        };
        let received = first("received");
        assert!(received > 0.0);
        assert_eq!(first("sent"), received + first("datagrams_lost"));
        // Each flow is greeted, and greets back.
        assert!(first("udp_received") >= received + 16.0, "{case}");
        assert!((0.0..=1.0).contains(&first("idle")), "{case}");
        if case["factors"]["variant"] == "tracepoint/map" {
            let hits = first("hits") * received;
            assert!(hits.round() >= first("udp_received"), "{case}");
        }
    }
}
