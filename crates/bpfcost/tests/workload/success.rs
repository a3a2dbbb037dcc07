//! A run that ends well: off against off.

use serde_json::Value;

use crate::definition::{REDIS, able, with};

#[test]
fn off_against_off_is_measured_and_told() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let tool = with(REDIS, "window-ms = 150\n", "window-ms = 100\nrounds = 3\n");
    let said = tool.says("run x.toml --quick --format json --out x.json");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err
            .contains("short on host: 2 cases, at least 10 epochs"),
        "{said:?}"
    );
    assert!(said.err.contains("in all (10 epochs of about"), "{said:?}");
    let record: Value = serde_json::from_str(&said.out).expect("a record");
    assert_eq!(record["stop"], "rounds");
    let cases = record["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 2);
    for case in cases {
        assert_eq!(case["status"], "ok", "{case}");
        let values = |name: &str| -> Vec<f64> {
            let epochs = case["secondary"][name].as_array();
            let epochs = epochs.unwrap_or_else(|| panic!("no {name} in {case}"));
            epochs
                .iter()
                .flat_map(|trials| trials.as_array().expect("trials"))
                .map(|value| value.as_f64().expect("a number"))
                .collect()
        };
        let epochs = case["samples"].as_array().expect("epochs");
        assert!(epochs.len() >= 10, "{epochs:?}");
        for windows in epochs {
            assert_eq!(windows.as_array().map(Vec::len), Some(3), "{epochs:?}");
        }
        let (server, machine) = (values("server_ns"), values("machine_ns"));
        assert!(server.len() >= 20, "{server:?}");
        for (server, machine) in server.iter().zip(&machine) {
            // What the server spends, the machine spends too; 5 % for what steal is rounded to.
            assert!(
                *server > 0.0 && *machine > 0.95 * server,
                "{server} {machine}"
            );
        }
        for name in ["client_ns", "ops_per_s", "latency_p99_us"] {
            assert!(values(name).iter().all(|value| *value > 0.0), "{name}");
        }
        assert!(values("drops").iter().all(|value| *value >= 0.0));
    }
    let noise = record["spread"]["noise"].as_array().expect("noise");
    assert_eq!(noise.len(), 2);
    let comparison = &record["comparisons"][0];
    assert_eq!(
        (&comparison["case"], &comparison["baseline"]),
        (&"nothing".into(), &"off".into())
    );
    assert!(comparison["relative"].as_f64().expect("a number").abs() < 0.5);
    assert_eq!(tool.names(), ["x.json", "x.toml"]);
}
