//! Predicts the rates of pools on machines with up to 192 CPUs, as CSV: on published machines, beside what was measured
//! there; and on a machine of your own, of which bpfcost's experiment `pool` measures the four arguments, in nanoseconds:
//! the smallest trials of `line/own`, `line/near` and `line/far` (2.5 times near, where a machine has one socket), and
//! `none/1`.
//!
//! `cargo run --release -p bpfcost-pool --features model --example predict -- 4.5 57 140 2.0`

mod published;
#[cfg(test)]
mod tests;

use std::{env, error::Error, io};

use bpfcost_pool::model::ModelMachine;

use published::{LineCosts, POOLS, rate, tables};

/// Thread counts of your own machine's curves, each thread on its own CPU.
const THREADS: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192];
/// CPUs per socket of the larger machines that the curves extend to.
const SOCKET: u32 = 96;

/// Times that a real machine may need. With others, a simulation might never end.
const PLAUSIBLE_NS: std::ops::Range<f64> = 0.1..1e5;

const USAGE: &str =
    "four times in nanoseconds, from 0.1 to 100,000, or no argument: own near far loop";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Result<Vec<f64>, _> = env::args().skip(1).map(|ns| ns.parse()).collect();
    let yours = match arguments.map_err(|_| USAGE)?[..] {
        [] => Vec::new(),
        [own_ns, near_ns, far_ns, work_ns] => {
            if ![own_ns, near_ns, far_ns, work_ns]
                .iter()
                .all(|ns| PLAUSIBLE_NS.contains(ns))
            {
                return Err(USAGE.into());
            }
            let lines = LineCosts {
                own_ns,
                near_ns,
                far_ns,
            };
            curves(&lines, work_ns)?
        }
        _ => return Err(USAGE.into()),
    };
    let mut csv = csv::Writer::from_writer(io::stdout().lock());
    csv.write_record([
        "machine",
        "pool",
        "threads",
        "unit",
        "published",
        "predicted",
        "note",
    ])?;
    for (series, threads, rate) in yours {
        let (threads, rate) = (threads.to_string(), format!("{rate:.0}"));
        csv.write_record(["yours", series, &threads, "pairs/s", "", &rate, ""])?;
    }
    for table in tables()? {
        let machine = format!("{} ({})", table.title, table.source);
        for point in table.points()? {
            csv.write_record([
                machine.as_str(),
                point.series,
                &point.threads.to_string(),
                &table.unit,
                &format!("{:.0}", point.published),
                &format!("{:.0}", point.predicted),
                match point.note {
                    None if point.fitted => "fitted",
                    note => note.unwrap_or_default(),
                },
            ])?;
        }
    }
    csv.flush()?;
    Ok(())
}

/// Pairs per second of each pool with so many threads, on a machine with those costs and a CPU for each thread.
fn curves(
    lines: &LineCosts,
    work_ns: f64,
) -> Result<Vec<(&'static str, u32, f64)>, bpfcost_pool::Error> {
    let mut points = Vec::new();
    for (series, kind) in POOLS {
        for threads in THREADS {
            let sockets = threads.div_ceil(SOCKET);
            let cores = threads.div_ceil(sockets);
            let machine =
                ModelMachine::new(sockets, cores, lines.own_ns, lines.near_ns, lines.far_ns);
            points.push((series, threads, rate(kind, &machine, threads, work_ns)?));
        }
    }
    Ok(points)
}
