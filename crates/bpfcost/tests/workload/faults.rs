//! Faults of servers and clients: each gets a sentence, an exit code, and nothing is left.

use std::{fs, net::TcpListener};

use serde_json::Value;

use crate::definition::{CLIENT, REDIS, able, with};

const RUN: &str = "run x.toml --quick --out x.json";

/// The run of a definition in which `from` became `to` ends with `code` and says `words`; only the definition and,
/// where trials were kept, the journal are left.
#[track_caller]
fn refuses(definition: &str, (from, to): (&str, &str), code: i32, words: &[&str]) {
    let tool = with(definition, from, to);
    let said = tool.says(RUN);
    assert_eq!(said.code, Some(code), "{said:?}");
    said.complains(words);
    assert!(!tool.path("x.json").exists());
}

const COMMAND: &str = r#"["sh", "-c", "sleep 0.1; echo did 1000 things"]"#;

#[test]
fn a_client_that_is_of_no_use() {
    if !able(&[]) {
        return;
    }
    for (command, code, words) in [
        (
            r#"["sh", "-c", "echo broken pipe of my own >&2; exit 7"]"#,
            5,
            [
                "the client sh",
                "ended with exit code 7",
                "broken pipe of my own",
            ]
            .as_slice(),
        ),
        (
            r#"["sh", "-c", "sleep 0.1; echo nonsense"]"#,
            2,
            &[
                "the metric ops matches nothing",
                "did (\\d+) things",
                "nonsense",
            ],
        ),
        (
            r#"["sh", "-c", "sleep 0.1; echo did 0 things"]"#,
            5,
            &["0 operations", "did 0 things"],
        ),
        (
            r#"["no-such-client"]"#,
            4,
            &["no-such-client is not installed"],
        ),
    ] {
        refuses(CLIENT, (COMMAND, command), code, words);
    }
    // What says itself that it took no time.
    refuses(
        CLIENT,
        ("ops =", r#"seconds = "did 1(0)00 things", ops ="#),
        2,
        &["took 0.0 ms", "below 50 ms", "Make it do more"],
    );
    refuses(
        CLIENT,
        (r#"output = "text""#, r#"output = "redis-benchmark""#),
        2,
        &["cannot read the output of the client", "did 1000 things"],
    );
}

#[test]
fn a_server_that_does_not_start() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    refuses(
        REDIS,
        (r#""--save", """#, r#""--no-such-setting""#),
        5,
        &[
            "the server redis-server",
            "ended with exit code 1",
            "no-such-setting",
        ],
    );
    refuses(
        REDIS,
        (
            r#"ready = { tcp = "{port}" }"#,
            r#"ready = { output = "I am (here|there)", within-s = 0.3 }"#,
        ),
        5,
        &[
            "is not ready after 0.3 s",
            "its output does not match ready.output",
        ],
    );
}

#[test]
fn a_port_that_is_taken() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port();
    let tool = with(REDIS, "", "");
    tool.write("x.toml", REDIS.replace("{port}", &port.to_string()));
    let said = tool.says(RUN);
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&[
        &format!("port {port} is taken by"),
        "{port} for a free port",
    ]);
}

/// The server says so and ends, before it can be seen from outside who listens.
#[test]
fn a_server_that_finds_its_port_taken() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    refuses(
        REDIS,
        (
            r#"command = ["redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "{dir}"]"#,
            r#"command = ["sh", "-c", "echo bind to {port}: Address already in use, alas; exit 1"]"#,
        ),
        4,
        &[
            "is taken by another process",
            "the server sh",
            "{port} for a free port",
            "Address already in use, alas",
        ],
    );
}

/// The server ends in the thirtieth load, which has a few trials before it: they stay.
#[test]
fn a_server_that_dies_in_a_window() {
    if !able(&["redis-server", "redis-benchmark", "redis-cli"]) {
        return;
    }
    let client = r#"command = ["redis-benchmark", "-p", "{port}", "-t", "set", "-c", "10", "-d", "3", "-n", "10000", "--csv"]"#;
    let deadly = r#"command = ["sh", "-c", """
redis-benchmark -p {port} -t set -c 10 -d 3 -n 10000 --csv
echo x >> {dir}/windows
[ $(wc -l < {dir}/windows) -lt 30 ] || redis-cli -p {port} shutdown nosave
true
"""]"#;
    let tool = with(REDIS, client, deadly);
    let said = tool.says(RUN);
    assert_eq!(said.code, Some(5), "{said:?}");
    said.complains(&[
        "the server redis-server",
        "ended with exit code 0",
        "--resume x.json.journal",
    ]);
    let journal = std::fs::read_to_string(tool.path("x.json.journal")).expect("it is kept");
    assert!(journal.contains("\n{\"trial\""), "{journal}");
}

#[test]
fn a_client_that_got_nothing_done_in_time_runs_again() {
    if !able(&[]) {
        return;
    }
    // Each second run is too late, as on a machine that is busy with other things.
    let command = r#"["sh", "-c", "sleep 0.05; if rm late; then echo did 1000 things; else touch late; echo did 0 things; fi"]"#;
    let tool = with(CLIENT, COMMAND, command);
    let said = tool.says(RUN);
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = fs::read_to_string(tool.path("x.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("a record");
    let ops = &record["cases"][0]["secondary"]["ops"][0][0];
    assert_eq!(ops.as_f64(), Some(1000.0), "{record}");
}
