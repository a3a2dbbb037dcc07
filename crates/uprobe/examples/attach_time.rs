//! Time that attaching takes, and for which it stops a process of 1 to 64 threads, the first time and later.
//!
//! ```sh
//! cargo run --release -p bpfcost-uprobe --example attach_time
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use bpfcost_uprobe::process::{Function, Image, Probe, Runtime};
use common::{Binary, program};
use std::time::Instant;

/// Number of times attaching is timed.
const ROUNDS: usize = 21;

fn function(pid: i32) -> Function {
    Image::of_program(pid).unwrap().function("work").unwrap()
}

fn main() {
    println!(
        "threads   first: all, longest stop, stops, calls in one   attach   stopped   detach, ms (median of {ROUNDS})"
    );
    for threads in [1, 8, 16, 64] {
        let binary = Binary::compile("busy.c", &[]);
        let process = binary.start(&[&threads.to_string()]);
        let work = function(process.pid());
        let mut opened: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let process = binary.start(&[&threads.to_string()]);
                let start = Instant::now();
                let mut runtime = Runtime::open(process.pid()).unwrap();
                let probe = Probe {
                    function: &function(process.pid()),
                    entry: Some(program::empty(&mut runtime)),
                    returns: None,
                    inside: &[],
                };
                let attachment = runtime.attach(&[probe]).unwrap();
                let first = (runtime.stops(), start.elapsed());
                runtime.detach(attachment).unwrap();
                first
            })
            .collect();
        opened.sort_by_key(|(stops, _)| stops.longest);
        let stops = opened[ROUNDS / 2].0;
        opened.sort_by_key(|&(_, all)| all);
        let first = opened[ROUNDS / 2].1;
        let mut runtime = Runtime::open(process.pid()).unwrap();
        let empty = program::empty(&mut runtime);
        let mut rounds: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                let probe = Probe {
                    function: &work,
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
            "{threads:7} {:12.2} {:13.2} {:6} {:13} {:8.2} {:9.2} {:8.2}",
            ms(first),
            ms(stops.longest),
            stops.number,
            stops.most_calls,
            ms(attach),
            ms(stopped),
            ms(detach)
        );
    }
}
