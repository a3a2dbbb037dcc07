//! `load`: everything that is due is sent, answered and counted, by redis, HTTP and HTTPS; and an open loop
//! shows what a closed one hides.

mod faults;
mod latencies;
mod served;
mod server;

use serde_json::Value;

use crate::tool::Tool;

/// The result of a load.
fn load(line: &str) -> Value {
    let answer = Tool::new().answers(&format!("load {line}"));
    serde_json::from_str(&answer).expect("JSON")
}

fn number(report: &Value, pointer: &str) -> f64 {
    report
        .pointer(pointer)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no {pointer} in {report}"))
}
