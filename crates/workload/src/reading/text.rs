//! Any output: what the definition's `metrics` find in it, regular expressions with one group. `ops` and
//! `seconds` are the window's own; `latency_p99_us` and its kind are latencies; all others are counts.

use anyhow::{Context, Result, bail};
use regex::Regex;

use super::Reading;
use crate::Client;

pub(super) fn read(client: &Client, printed: &str) -> Result<Reading> {
    let mut reading = Reading::default();
    let mut found_ops = client.ops.is_some();
    for (name, pattern) in &client.metrics {
        let value = find(name, pattern, printed)?;
        let percentile = name
            .strip_prefix("latency_")
            .and_then(|rest| rest.strip_suffix("_us"));
        match (name.as_str(), percentile) {
            ("ops", _) if value >= 0.0 => {
                reading.ops = value as u64;
                found_ops = true;
            }
            ("ops", _) => bail!("{value} is not a number of operations"),
            ("seconds", _) => reading.seconds = Some(value),
            (_, Some(percentile)) => {
                reading.latency_us.insert(percentile.to_owned(), value);
            }
            _ => {
                reading.counts.insert(name.clone(), value);
            }
        }
    }
    // A command without a count is one operation: its own run.
    if !found_ops {
        reading.ops = 1;
    }
    Ok(reading)
}

/// The number that the pattern's group finds.
pub fn find(name: &str, pattern: &str, printed: &str) -> Result<f64> {
    let regex = Regex::new(pattern)
        .with_context(|| format!("the metric {name} is not a regular expression: {pattern}"))?;
    let captures = regex.captures(printed).with_context(|| {
        format!(
            "the metric {name} matches nothing: {pattern}\n  It must match in the output, shown \
             below"
        )
    })?;
    let number = captures
        .get(1)
        .or(captures.get(0))
        .map_or("", |text| text.as_str());
    let plain = number.replace([',', '_'], "");
    match plain.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => bail!("the metric {name} finds {number:?}, which is not a number"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Output;

    fn client(metrics: &[(&str, &str)]) -> Client {
        Client {
            name: "closed".to_owned(),
            about: String::new(),
            command: Vec::new(),
            warm_up: Vec::new(),
            output: Output::Text,
            metrics: metrics
                .iter()
                .map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned()))
                .collect(),
            ops: None,
            repeat: false,
            within_s: None,
            quick: false,
            only: BTreeMap::new(),
        }
    }

    #[test]
    fn metrics_go_by_their_names() {
        let client = client(&[
            ("ops", r"did ([\d,]+) things"),
            ("seconds", r"in ([\d.]+) s"),
            ("latency_p99_us", r"p99=(\d+)"),
            ("errors", r"errors: (\d+)"),
        ]);
        let reading = read(&client, "did 12,345 things in 0.5 s\np99=71 errors: 2").expect("all");
        assert_eq!((reading.ops, reading.seconds), (12_345, Some(0.5)));
        assert_eq!(reading.latency_us["p99"], 71.0);
        assert_eq!(reading.counts["errors"], 2.0);
    }

    #[test]
    fn what_finds_nothing_is_named() {
        let refused = |pattern: &str| {
            let read = read(&client(&[("ops", pattern)]), "5 things, x=abc");
            format!("{:#}", read.expect_err("no number"))
        };
        assert!(refused("requests: (.*)").contains("the metric ops matches nothing"));
        assert!(refused("x=(.*)").contains("finds \"abc\", which is not a number"));
        assert!(refused("(").contains("is not a regular expression"));
    }

    #[test]
    fn a_command_without_a_count_is_one_operation() {
        assert_eq!(read(&client(&[]), "").expect("nothing asked").ops, 1);
    }
}
