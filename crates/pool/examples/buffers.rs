//! Eight buffers for any number of threads: nothing is allocated, and no thread waits.

use std::{io::Write, thread};

use bpfcost_pool::{Error, Objects, cpu};

const MESSAGES: usize = 100_000;

fn main() -> Result<(), Error> {
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let buffers = Objects::per_cpu(vec![[0u8; 256]; 8], cpus)?;
    let missed: usize = thread::scope(|scope| {
        let work = |name: usize| {
            let buffers = &buffers;
            let mut missed = 0;
            for message in 0..MESSAGES {
                // Here for one message only; the next may find this thread on another CPU.
                match buffers.take(cpu::current()) {
                    Some(mut buffer) => {
                        write!(&mut buffer[..], "{name}: {message}").expect("it is long enough")
                    }
                    None => missed += 1,
                }
            }
            missed
        };
        let threads: Vec<_> = (0..2 * cpus)
            .map(|name| scope.spawn(move || work(name)))
            .collect();
        threads
            .into_iter()
            .map(|one| one.join().expect("it does not panic"))
            .sum()
    });
    println!(
        "{missed} of {} messages met no free buffer",
        2 * cpus * MESSAGES
    );
    Ok(())
}
