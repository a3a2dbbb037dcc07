//! `builtin:sslsniff` as its own process: it says what is wrong with what it is to watch, and stays.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use bpfcost_process::RunContext;

use crate::require;

#[test]
fn a_server_without_openssl_is_an_error_that_says_so() {
    if !require::host() {
        return;
    }
    let mut server = Command::new("sleep").arg("60").spawn().expect("sleep");
    let mut agent = Command::new(env!("CARGO_BIN_EXE_bpfcost"))
        .args(["agent", "sslsniff"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("agent");
    let mut asks = agent.stdin.take().expect("input");
    let mut answers = BufReader::new(agent.stdout.take().expect("output")).lines();
    let mut answer = || answers.next().expect("an answer").expect("a line");
    assert!(answer().starts_with("{\"loaded\""));
    let context = RunContext {
        pids: vec![server.id()],
        ..RunContext::default()
    };
    let ask = serde_json::json!({ "attach": context });
    for _ in 0..2 {
        writeln!(asks, "{ask}").expect("asked");
        let said = answer();
        assert!(said.contains("failed"), "{said}");
        assert!(said.contains("no OpenSSL found in the server"), "{said}");
        assert!(said.contains(&format!("sleep {}", server.id())), "{said}");
    }
    drop(asks);
    assert!(agent.wait().expect("end").success());
    server.kill().expect("killed");
    server.wait().expect("end");
}
