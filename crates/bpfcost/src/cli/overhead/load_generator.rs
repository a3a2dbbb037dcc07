//! How load generators report the number of their operations.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::cli::exit::usage;

/// How a load generator reports the number of its operations.
pub(super) struct LoadGenerator {
    pub(super) operation: &'static str,
    pub(super) ops: Option<u64>,
    pub(super) metrics: BTreeMap<String, String>,
}

impl LoadGenerator {
    pub(super) fn parse(words: &[String]) -> Result<Self> {
        let counted = |operation, pattern: &str| LoadGenerator {
            operation,
            ops: None,
            metrics: [("ops".to_owned(), pattern.to_owned())].into(),
        };
        let has = |option: &str| words.iter().any(|word| word == option);
        Ok(
            match bpfcost_probe::program(words.first().map_or("", String::as_str)) {
                "redis-benchmark" => match redis_commands(words) {
                    Some(ops) => LoadGenerator {
                        operation: "command",
                        ops: Some(ops),
                        metrics: BTreeMap::new(),
                    },
                    None => LoadGenerator::nothing(),
                },
                "wrk" => counted("request", r"(\d+) requests in"),
                "ab" => counted("request", r"Complete requests:\s+(\d+)"),
                "hey" => counted("request", r"\[200\]\s+(\d+) responses"),
                "iperf3" if !has("-J") && !has("--json") => {
                    return Err(usage(
                        "iperf3 reports its exact number of operations only with --json\n  Add --json to it",
                    ));
                }
                "iperf3" if has("-u") || has("--udp") => {
                    counted("datagram", r#""sum":\s*\{[^}]*"packets":\s*(\d+)"#)
                }
                "iperf3" => counted("byte", r#""sum_received":\s*\{[^}]*"bytes":\s*(\d+)"#),
                _ => LoadGenerator::nothing(),
            },
        )
    }

    /// One run of the command is one operation.
    fn nothing() -> Self {
        LoadGenerator {
            operation: "run",
            ops: None,
            metrics: BTreeMap::new(),
        }
    }
}

/// How many commands redis-benchmark sends, where it runs one test: its `-n`, or 100,000.
fn redis_commands(words: &[String]) -> Option<u64> {
    let value = |option: &str| {
        let at = words.iter().position(|word| word == option)?;
        words.get(at + 1)
    };
    // Without -t it runs all its tests, unless a command of the user's own stands at the end.
    let test = value("-t")?;
    let one = !test.contains(',') && !test.starts_with("lrange") && test != "mset";
    match value("-n") {
        Some(count) => count.parse().ok().filter(|_| one),
        None => one.then_some(100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        shlex::split(line).expect("words")
    }

    #[test]
    fn load_generators_report_their_operations() {
        let ops =
            |line: &str| LoadGenerator::parse(&words(line)).map(|one| (one.operation, one.ops));
        let redis = |line: &str| ops(line).expect("a generator");
        assert_eq!(
            redis("redis-benchmark -q -t set -n 5000"),
            ("command", Some(5000))
        );
        assert_eq!(
            redis("/usr/bin/redis-benchmark -t get"),
            ("command", Some(100_000))
        );
        for several in [
            "redis-benchmark",
            "redis-benchmark -t set,get -n 5",
            "redis-benchmark -t lrange",
        ] {
            assert_eq!(redis(several), ("run", None));
        }
        assert_eq!(redis("wrk -d 1 http://localhost/").0, "request");
        assert_eq!(redis("make -j2"), ("run", None));
        assert!(ops("iperf3 -c 127.0.0.1").is_err());
        assert_eq!(redis("iperf3 -c 127.0.0.1 -u -J").0, "datagram");
    }
}
