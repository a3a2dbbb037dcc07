//! Time that attaching takes, and for which it stops a process of 1 to 64 threads.
//!
//! ```sh
//! cargo run --release -p bpfcost-uprobe --example attach_time
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use bpfcost_uprobe::process::{Image, Probe, Runtime};
use common::{Binary, program};
use std::time::Instant;

/// Number of times attaching is timed.
const ROUNDS: usize = 21;

fn main() {
    println!("threads   ready   attach   stopped   detach, ms (median of {ROUNDS})");
    for threads in [1, 8, 16, 64] {
        let binary = Binary::compile("busy.c", &[]);
        let process = binary.start(&[&threads.to_string()]);
        let function = Image::of_program(process.pid())
            .unwrap()
            .function("work")
            .unwrap();
        let mut opened: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let process = binary.start(&[&threads.to_string()]);
                let start = Instant::now();
                let _runtime = Runtime::open(process.pid()).unwrap();
                start.elapsed()
            })
            .collect();
        opened.sort();
        let ready = opened[ROUNDS / 2];
        let mut runtime = Runtime::open(process.pid()).unwrap();
        let empty = program::empty(&mut runtime);
        let mut rounds: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                let probe = Probe {
                    function: &function,
                    entry: Some(empty),
                    returns: Some(empty),
                    inside: &[],
                };
                let attachment = runtime.attach(&[probe]).unwrap();
                let (attach, stopped) = (start.elapsed(), attachment.stopped);
                let start = Instant::now();
                runtime.detach(attachment).unwrap();
                (attach, stopped, start.elapsed())
            })
            .collect();
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
        rounds.sort();
        let (attach, stopped, detach) = rounds[ROUNDS / 2];
        println!(
            "{threads:7} {:7.2} {:8.2} {:9.2} {:8.2}",
            ms(ready),
            ms(attach),
            ms(stopped),
            ms(detach)
        );
    }
}
