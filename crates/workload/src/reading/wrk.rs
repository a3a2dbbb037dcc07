//! `wrk` with a script whose `done` prints a line of JSON, as in `experiments/nginx-ssl.toml`; above it stands
//! what wrk prints for people. The latencies are those of a closed loop: a connection that waits asks nothing
//! meanwhile.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Reading;

/// What the script prints.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrkOutput {
    /// Requests whose answer has come.
    requests: u64,
    /// Bytes that came.
    bytes: u64,
    duration_us: f64,
    /// By what failed: `connect`, `read`, `write`, `status`, `timeout`.
    errors: BTreeMap<String, u64>,
    latency_us: BTreeMap<String, f64>,
}

pub(super) fn read(printed: &str) -> Result<Reading> {
    let line = printed
        .lines()
        .rfind(|line| line.starts_with('{'))
        .context("it printed no line of JSON; does its script print one at the end?")?;
    let done: WrkOutput =
        serde_json::from_str(line).with_context(|| format!("unexpected output: {line}"))?;
    let failed: Vec<String> = done
        .errors
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| format!("{count} by {kind}"))
        .collect();
    if !failed.is_empty() {
        bail!("requests failed: {}", failed.join(", "));
    }
    Ok(Reading {
        ops: done.requests,
        seconds: Some(done.duration_us / 1e6),
        latency_us: done.latency_us,
        counts: BTreeMap::from([("bytes".to_owned(), done.bytes as f64)]),
        ..Reading::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"Running 1s test @ https://127.0.0.1:18443/1
38470 requests in 1.02s, 46.89MB read
{"requests":38470,"bytes":49164660,"duration_us":1020545,"errors":{"connect":0,"status":0},"latency_us":{"p50":225,"p999":39131,"max":56325}}
"#;

    #[test]
    fn the_line_of_json_is_read() {
        let reading = read(PRINTED).expect("a line");
        assert_eq!(reading.ops, 38_470);
        assert_eq!(reading.seconds, Some(1.020_545));
        assert_eq!(reading.latency_us["p999"], 39_131.0);
        assert_eq!(reading.counts["bytes"], 49_164_660.0);
    }

    #[test]
    fn failed_requests_and_nonsense_are_no_reading() {
        for (printed, why) in [
            ("38470 requests in 1.02s\n", "no line of JSON"),
            ("{\"requests\":1}\n", "unexpected output"),
            (
                &PRINTED.replace("\"status\":0", "\"status\":7"),
                "requests failed: 7 by status",
            ),
        ] {
            let error = format!("{:#}", read(printed).expect_err("nothing to read"));
            assert!(error.contains(why), "{error}");
        }
    }
}
