//! The agent that takes stacks of received packets: of datagrams that a test sends to itself, and of redis.

use std::net::UdpSocket;

use bpfcost_process::RunContext;
use serde_json::Value;

use crate::{
    agent::Agent,
    definition::{REDIS, able, with},
    running::Running,
    tool::{Said, Tool},
};

const PACKETS: u64 = 500;

const HOW: [(&str, &str); 5] = [
    ("helper", "drop"),
    ("helper", "print"),
    ("manual", "drop"),
    ("manual", "print"),
    ("manual", "count"),
];

/// Sends so many datagrams to itself, and receives each.
fn packets() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = socket.local_addr().expect("its address");
    for _ in 0..PACKETS {
        socket.send_to(b"x", to).expect("it sends");
        socket.recv(&mut [0]).expect("it receives");
    }
}

#[test]
fn every_packet_is_accounted_for() {
    if !able(&[]) {
        return;
    }
    for (walker, delivery) in HOW {
        let arguments = ["raw_tp", "net", "netif_receive_skb", walker, delivery];
        let mut agent = Agent::start("stack", &arguments);
        let loaded = agent.hear();
        // Only what is printed keeps it busy.
        assert_eq!(
            loaded["loaded"]["idle"],
            delivery != "print",
            "{arguments:?}: {loaded}"
        );
        for _window in 0..2 {
            assert_eq!(agent.attach(&RunContext::default()), "attached");
            packets();
            let answer = agent.detach();
            let context = format!("{arguments:?}: {answer}");
            let window = &answer["detached"];
            let count = |value: &Value| value.as_u64();
            let hits = count(&window["hits"]).expect(&context);
            let delivered = count(&window["counts"]["delivered"]).expect(&context);
            assert!(hits >= PACKETS, "{context}");
            assert_eq!(count(&window["lost"]), Some(hits - delivered), "{context}");
            assert!(
                count(&window["counts"]["frames_per_stack"]) >= Some(5),
                "{context}"
            );
            let printed = (delivery == "print").then_some(delivered);
            assert_eq!(count(&window["counts"]["printed"]), printed, "{context}");
        }
        assert!(agent.end().success());
    }
}

/// A variant for each way, whose hits must agree with the commands in this way.
fn variants(check: &str) -> String {
    let variants = HOW.map(|(walker, delivery)| {
        format!(
            "[[variant]]\nname = \"{walker}-{delivery}\"\nabout = \"stacks\"\nquick = true\nprobe = \
             \"builtin:stack:raw_tp:net:netif_receive_skb:{walker}:{delivery}\"\ncheck = [{{ probe = \"hits\", \
             {check} = \"ops\" }}]\n"
        )
    });
    variants.concat()
}

/// Redis with these variants, in short windows.
fn redis(variants: &str) -> Tool {
    let from = REDIS.find("[[variant]]").expect("a variant");
    let short = REDIS[..from].replace("window-ms = 150", "window-ms = 100\nrounds = 3");
    with(REDIS, REDIS, &format!("{short}{variants}"))
}

/// The cases of a run's record, but for `off`.
fn probed(said: &Said, code: i32) -> Vec<Value> {
    assert_eq!(said.code, Some(code), "{said:?}");
    let record: Value = serde_json::from_str(&said.out).expect("a record");
    let cases = record["cases"].as_array().expect("cases");
    let probed = cases.iter().filter(|case| case["name"] != "off");
    probed.cloned().collect()
}

const RUN: &str = "run x.toml --quick --format json";

#[test]
fn stacks_of_redis_are_taken() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    // All cases are in the first epoch, and the other eleven would add none.
    let tool = redis(&variants("at-least"));
    let mut run = Running::start(&tool, RUN);
    run.until(|journal| journal.contains("\n{\"epoch-finished\""));
    run.signal("INT");
    let cases = probed(&run.end(), 130);
    assert_eq!(cases.len(), HOW.len());
    for case in cases {
        assert_eq!(case["status"], "ok", "{case}");
        let values = |name: &str| -> Vec<f64> {
            let epochs = case["secondary"][name].as_array();
            let epochs = epochs.unwrap_or_else(|| panic!("no {name} in {case}"));
            let values = epochs.iter().filter_map(Value::as_array).flatten();
            values.filter_map(Value::as_f64).collect()
        };
        assert!(
            values("frames_per_stack")
                .iter()
                .all(|frames| *frames >= 5.0)
        );
        // Its reader, and nothing else, works while it is on.
        let tool: f64 = values("tool_ns").iter().sum();
        let name = case["name"].as_str().unwrap_or_default();
        if name.ends_with("print") {
            assert!(tool > 0.0, "{case}");
            assert_eq!(values("printed"), values("delivered"), "{case}");
        }
    }
}

/// A command is two packets or more, its request and its answer.
#[test]
fn a_wrong_account_makes_windows_invalid() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let tool = redis(&variants("equals"));
    for case in probed(&tool.says(&format!("{RUN} --out x.json")), 3) {
        assert_eq!(case["status"], "invalid", "{case}");
        assert_eq!(case["problems"][0]["check"], "hits of the probe", "{case}");
        assert!(case["raw"].is_null(), "{case}");
    }
}
