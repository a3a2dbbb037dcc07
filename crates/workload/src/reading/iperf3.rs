//! `iperf3 --udp --json`, as the client has it: what both ends counted. An operation is a datagram that the
//! server's program received.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Reading;

pub(super) fn read(printed: &str) -> Result<Reading> {
    // Some of its keys come more than once; those that count don't.
    let output: Value = serde_json::from_str(printed).context("this is not the JSON of iperf3")?;
    // It ends with 0 also where it fails.
    if let Some(error) = output["error"].as_str() {
        bail!("iperf3 failed: {error}");
    }
    let test = output.pointer("/start/test_start");
    let test = test.context("iperf3 reports no test")?;
    let (protocol, bytes) = (&test["protocol"], test["blksize"].as_u64().unwrap_or(0));
    if protocol != "UDP" || bytes == 0 {
        bail!(
            "bpfcost counts datagrams, and this test was {} with blocks of {bytes} bytes: give \
             the client --udp and --length",
            protocol.as_str().unwrap_or("nothing known")
        );
    }
    let number = |sum: &str, name: &str| {
        let number = output.pointer(&format!("/end/{sum}/{name}"));
        number.and_then(Value::as_f64)
    };
    // Its own count of packets is the highest number that came, whether or not those before it did.
    let datagrams = |sum| number(sum, "bytes").map(|all| all as u64 / bytes);
    let sent = datagrams("sum_sent").context("iperf3 does not report what was sent")?;
    let received = datagrams("sum_received").context("iperf3 does not report what was received")?;
    let counts = [
        ("sent", Some(sent as f64)),
        ("received", Some(received as f64)),
        ("datagrams_lost", Some(sent.saturating_sub(received) as f64)),
        ("jitter_ms", number("sum_received", "jitter_ms")),
    ];
    Ok(Reading {
        ops: received,
        seconds: number("sum_sent", "seconds"),
        counts: counts
            .into_iter()
            .filter_map(|(name, count)| Some((name.to_owned(), count?)))
            .collect(),
        ..Reading::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// iperf3 3.12 of Debian, without the lines of each stream and interval, and what is not read.
    const PRINTED: &str = r#"{
  "start": {
    "version": "iperf 3.12", "sock_bufsize": 0, "sndbuf_actual": 212992, "sock_bufsize": 0, "sndbuf_actual": 212992,
    "test_start": { "protocol": "UDP", "num_streams": 8, "blksize": 64, "duration": 1, "bytes": 0, "blocks": 0 }
  },
  "intervals": [],
  "end": {
    "streams": [],
    "sum": { "start": 0, "end": 1.000169, "seconds": 1.000169, "bytes": 52776960, "jitter_ms": 0.00634864556556414,
      "lost_packets": 6892, "packets": 824640, "lost_percent": 0.83575863407062478, "sender": true },
    "sum_sent": { "start": 0, "end": 1.000084, "seconds": 1.000084, "bytes": 52776960, "jitter_ms": 0,
      "lost_packets": 0, "packets": 824640, "lost_percent": 0, "sender": true },
    "sum_received": { "start": 0, "end": 1.000169, "seconds": 1.000169, "bytes": 52332928,
      "jitter_ms": 0.00634864556556414, "lost_packets": 6892, "packets": 824594, "sender": false },
    "cpu_utilization_percent": { "host_total": 98.5550365485468, "remote_total": 96.269941570049951 }
  }
}
"#;

    /// What it prints with `--json` without a server; it ends with 0.
    const REFUSED: &str = r#"{
  "start": { "connected": [], "version": "iperf 3.12" },
  "intervals": [],
  "end": {},
  "error": "unable to connect to server: Connection refused"
}"#;

    #[test]
    fn datagrams_are_those_that_came() {
        let reading = read(PRINTED).expect("a test");
        // The kernel's InDatagrams showed the same in that window, plus 16 of the greeting.
        assert_eq!(reading.ops, 817_702);
        assert_eq!(reading.seconds, Some(1.000_084));
        assert_eq!(reading.counts["sent"], 824_640.0);
        assert_eq!(reading.counts["received"], 817_702.0);
        // 6,892 in the socket's buffer; 46 came after the end.
        assert_eq!(reading.counts["datagrams_lost"], 6_938.0);
        assert!((reading.counts["jitter_ms"] - 0.006_348).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_test_of_datagrams_is_refused() {
        for (printed, why) in [
            (REFUSED, "Connection refused"),
            (
                "iperf3: error - unable to connect",
                "not the JSON of iperf3",
            ),
            ("{}", "no test"),
            (&PRINTED.replace("UDP", "TCP"), "this test was TCP"),
            (
                &PRINTED.replace("sum_received", "other"),
                "what was received",
            ),
        ] {
            let error = format!("{:#}", read(printed).expect_err("no test"));
            assert!(error.contains(why), "{error}");
        }
    }
}
