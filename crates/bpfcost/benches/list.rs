//! Time that `bpfcost list` takes to answer: `cargo bench -p bpfcost --bench list`.
//!
//! The answer must come in under 50 ms; the peer is `true`, which does nothing.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

/// Repeats, of which the median counts.
const TIMES: usize = 51;

fn main() {
    let nothing = time(Command::new("true"));
    let mut list = Command::new(env!("CARGO_BIN_EXE_bpfcost"));
    list.arg("list");
    let list = time(list);
    println!(
        "true          {nothing:8.2} ms\nbpfcost list  {list:8.2} ms   × {:.1}",
        list / nothing
    );
}

/// The median time of a command, in milliseconds.
fn time(mut command: Command) -> f64 {
    command.stdout(Stdio::null());
    let mut times: Vec<f64> = (0..TIMES)
        .map(|_| {
            let start = Instant::now();
            let status = command.status().expect("it starts");
            assert!(status.success(), "{command:?}: {status}");
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[TIMES / 2]
}
