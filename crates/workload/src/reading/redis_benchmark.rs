//! `redis-benchmark --csv`: a header, and a line a test: `"test","rps","avg_latency_ms","min_latency_ms",
//! "p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"`. It does not print the number of
//! operations: the definition gives it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::Reading;

pub(super) fn read(printed: &str) -> Result<Reading> {
    let mut rows = csv::Reader::from_reader(printed.as_bytes());
    let rows: Vec<BTreeMap<String, String>> = rows.deserialize().collect::<Result<_, _>>()?;
    let [row] = rows.as_slice() else {
        bail!("one row of CSV was expected, there are {}", rows.len());
    };
    let latency = |name: &str| -> Result<(String, f64)> {
        let column = format!("{name}_latency_ms");
        let value = row
            .get(&column)
            .with_context(|| format!("there is no column {column}"))?;
        let ms: f64 = value
            .parse()
            .with_context(|| format!("{column} is {value}"))?;
        Ok((name.to_owned(), 1e3 * ms))
    };
    Ok(Reading {
        latency_us: ["p50", "p95", "p99", "max"]
            .into_iter()
            .map(latency)
            .collect::<Result<_>>()?,
        ..Reading::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#""test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SET","91407.68","0.291","0.104","0.263","0.447","0.695","1.967"
"#;

    #[test]
    fn latencies_are_in_microseconds() {
        let reading = read(PRINTED).expect("a row");
        let told: Vec<(&str, i64)> = reading
            .latency_us
            .iter()
            .map(|(name, us)| (name.as_str(), us.round() as i64))
            .collect();
        assert_eq!(
            told,
            [("max", 1967), ("p50", 263), ("p95", 447), ("p99", 695)]
        );
    }

    #[test]
    fn what_is_no_row_is_refused() {
        for (printed, why) in [
            ("", "there are 0"),
            ("Could not connect to Redis\n", "there are 0"),
            (
                "\"test\",\"rps\"\n\"SET\",\"7\"\n",
                "no column p50_latency_ms",
            ),
            (&PRINTED.replace("0.263", "-nan?"), "is -nan?"),
        ] {
            let error = format!("{:#}", read(printed).expect_err("no row"));
            assert!(error.contains(why), "{error}");
        }
    }
}
