//! What is known of the output of load generators, so that what they did can be counted.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::{cli::exit::usage, probe};

/// What is known of the output of a load generator, so that what it did can be counted.
pub(super) struct Known {
    pub(super) operation: &'static str,
    pub(super) ops: Option<u64>,
    pub(super) metrics: BTreeMap<String, String>,
}

impl Known {
    pub(super) fn of(words: &[String]) -> Result<Self> {
        let told = |operation, pattern: &str| Known {
            operation,
            ops: None,
            metrics: [("ops".to_owned(), pattern.to_owned())].into(),
        };
        let has = |option: &str| words.iter().any(|word| word == option);
        Ok(
            match probe::program(words.first().map_or("", String::as_str)) {
                "redis-benchmark" => match redis_commands(words) {
                    Some(ops) => Known {
                        operation: "command",
                        ops: Some(ops),
                        metrics: BTreeMap::new(),
                    },
                    None => Known::nothing(),
                },
                "wrk" => told("request", r"(\d+) requests in"),
                "ab" => told("request", r"Complete requests:\s+(\d+)"),
                "hey" => told("request", r"\[200\]\s+(\d+) responses"),
                "iperf3" if !has("-J") && !has("--json") => {
                    return Err(usage(
                        "iperf3 runs for a time, not for a number of operations, and tells these exactly only with \
                     --json\n  Add --json to it",
                    ));
                }
                "iperf3" if has("-u") || has("--udp") => {
                    told("datagram", r#""sum":\s*\{[^}]*"packets":\s*(\d+)"#)
                }
                "iperf3" => told("byte", r#""sum_received":\s*\{[^}]*"bytes":\s*(\d+)"#),
                _ => Known::nothing(),
            },
        )
    }

    /// One run of the command is one operation.
    fn nothing() -> Self {
        Known {
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
    fn load_generators_tell_their_operations() {
        let ops = |line: &str| Known::of(&words(line)).map(|known| (known.operation, known.ops));
        let redis = |line: &str| ops(line).expect("known");
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
