//! `bpfcost load`, this program's own generator: the JSON that it prints.

use anyhow::{Context, Result, bail};

use super::Reading;
use crate::generator::Report;

pub(super) fn read(printed: &str) -> Result<Reading> {
    let report: Report =
        serde_json::from_str(printed).context("it is not the output of bpfcost load")?;
    if let Some(error) = &report.error {
        bail!(
            "the server refused {} of {} requests, the first with: {error}",
            report.errors,
            report.ops
        );
    }
    let counts = [
        ("bytes", report.bytes as f64),
        ("connections", report.connections as f64),
        ("late", report.late),
        ("unsent", report.unsent as f64),
    ];
    Ok(Reading {
        ops: report.ops,
        seconds: Some(report.seconds),
        latency_us: report.latency_us,
        counts: counts
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
        ..Reading::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{"ops":20000,"seconds":1.25,"rate":20000.0,"late":0.25,"unsent":0,"errors":0,
        "bytes":100000,"connections":50,"latency_us":{"max":9428.991,"p50":48.895,"p99":6443.007}}"#;

    #[test]
    fn a_report_is_a_reading() {
        let reading = read(PRINTED).expect("a report");
        assert_eq!((reading.ops, reading.seconds), (20_000, Some(1.25)));
        assert_eq!(reading.latency_us["p99"], 6443.007);
        assert_eq!(reading.counts["bytes"], 100_000.0);
        assert_eq!(reading.counts["late"], 0.25);
    }

    #[test]
    fn refusals_are_no_load() {
        let refused = PRINTED.replace("\"errors\":0", r#""errors":3,"error":"HTTP 404 Not Found""#);
        let error = read(&refused).expect_err("a load").to_string();
        assert!(error.contains("refused 3 of 20000"), "{error}");
        assert!(error.contains("HTTP 404 Not Found"), "{error}");
        assert!(read("20000 requests").is_err());
    }
}
