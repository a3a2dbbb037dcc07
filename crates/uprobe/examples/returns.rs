//! Cost of a probe at a function's return: where it ends by a RET, and where it leaves by a jump to another function.
//! Nanoseconds a call, the least of several rounds.
//!
//! ```sh
//! cargo run --release -p bpfcost-uprobe --example returns
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use bpfcost_uprobe::process::{Image, Probe, Runtime};
use common::{Binary, Target, program};

const CALLS: u64 = 1_000_000;

/// Nanoseconds of a call that ends by a RET, and of one that ends by a jump.
fn time(process: &mut Target) -> [f64; 2] {
    process.send(&format!("time {CALLS}"));
    let line = process.line();
    let (ret, jump) = line.split_once(' ').expect("two numbers");
    [ret, jump].map(|number| number.parse().expect("a number"))
}

fn main() {
    let mut process = Binary::compile("tails.c", &[]).start(&[]);
    let image = Image::of_program(process.pid()).expect("a program");
    let function = image.function("leaves").expect("a function");
    let mut runtime = Runtime::open(process.pid()).expect("a process");
    let bare = time(&mut process);
    let probe = Probe {
        function: &function,
        entry: None,
        returns: Some(program::empty(&mut runtime)),
        inside: &[],
    };
    let attachment = runtime.attach(&[probe]).expect("it attaches");
    let probed = time(&mut process);
    let hits = runtime.detach(attachment).expect("it detaches")[0].returns;
    assert_eq!((hits.hits, hits.missed), (2 * 20 * CALLS, 0));
    println!("{:6} {:>8} {:>8} {:>8}", "end", "bare", "probed", "added");
    for (name, (bare, probed)) in ["RET", "jump"].iter().zip(bare.into_iter().zip(probed)) {
        println!("{name:6} {bare:8.2} {probed:8.2} {:8.2}", probed - bare);
    }
}
