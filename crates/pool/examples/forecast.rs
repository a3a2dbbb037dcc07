//! Forecasts the pools on machines with more CPUs, as CSV. The arguments are the cost of an atomic change of a
//! cache line, in nanoseconds: one that the CPU owns, that another CPU of the socket had, that another socket had.
//!
//! `cargo run --release -p bpfcost-pool --features model --example forecast -- 4.5 57 140`

use std::error::Error;

use bpfcost_pool::{
    Stride,
    model::{ModelMachine, ModelPool, predict},
};

fn main() -> Result<(), Box<dyn Error>> {
    let costs: Result<Vec<f64>, _> = std::env::args().skip(1).map(|ns| ns.parse()).collect();
    let [own, near, far] = costs?[..] else {
        return Err("three times in nanoseconds, please: own near far".into());
    };
    println!("pool,threads,pairs_per_second");
    for (name, kind) in [
        ("freelist", ModelPool::Freelist),
        ("array", ModelPool::Array(Stride::Compact)),
        ("array-padded", ModelPool::Array(Stride::Padded)),
        ("percpu", ModelPool::PerCpu),
    ] {
        for threads in [1, 2, 4, 8, 16, 32, 64, 128] {
            let sockets = threads.min(2);
            let machine = ModelMachine::new(sockets, threads / sockets, own, near, far);
            let rate = predict(kind, &machine, threads, 2 * threads as usize, 2.0)?;
            println!("{name},{threads},{rate:.0}");
        }
    }
    Ok(())
}
