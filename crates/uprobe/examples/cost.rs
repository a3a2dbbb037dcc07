//! What a probe with an empty program adds to a call: in user space, at the entry and at entry and return, and the
//! kernel's uprobe at the same function. Also how long attaching takes, and how long it stops 1 to 64 threads.
//!
//! ```sh
//! cargo run --release -p bpfcost-uprobe --example cost
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use bpfcost_uprobe::process::{Image, Probe, Runtime};
use common::{Binary, Target, program};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Instant,
};

/// How often attaching is timed.
const ROUNDS: usize = 21;

/// The fewest nanoseconds a call of three answers.
fn time(process: &mut Target) -> f64 {
    let mut answer = || {
        process.send("time");
        process.line().parse().expect("it answers with a number")
    };
    f64::min(answer(), f64::min(answer(), answer()))
}

/// bpftrace with an empty probe, up to where it is attached.
fn bpftrace(binary: &Binary, kinds: &[&str]) -> Option<Child> {
    let path = binary.path();
    let probes: Vec<String> = kinds
        .iter()
        .map(|kind| format!("{kind}:{}:work {{ }}", path.display()))
        .collect();
    let script = format!("BEGIN {{ printf(\"attached\\n\"); }} {}", probes.join(" "));
    let mut child = Command::new("bpftrace")
        .args(["-e", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = BufReader::new(child.stdout.take()?);
    if output
        .lines()
        .map_while(Result::ok)
        .any(|line| line == "attached")
    {
        // BEGIN runs before the others are attached.
        std::thread::sleep(std::time::Duration::from_secs(2));
        return Some(child);
    }
    let _ = child.wait();
    None
}

fn main() {
    println!("ns of a call of an empty program      added   kernel's");
    let frame = "-fno-omit-frame-pointer";
    let plain = "-fcf-protection=none";
    // The kernel emulates a push and a nop; endbr64 it executes elsewhere, by a single step.
    let cases: [(&str, &[&str]); 3] = [
        ("push", &[frame, plain]),
        ("nop5", &[frame, plain, "-fpatchable-function-entry=5"]),
        ("endbr64", &[frame, "-fcf-protection=full"]),
    ];
    for (name, flags) in cases {
        let binary = Binary::compile("timed.c", flags);
        let mut process = binary.start(&[]);
        let function = Image::of_program(process.pid())
            .unwrap()
            .function("work")
            .unwrap();
        let bare = time(&mut process);
        let mut runtime = Runtime::open(process.pid()).unwrap();
        let empty = program::empty(&mut runtime);
        for (when, entry, returns) in [("entry", true, false), ("entry and return", true, true)] {
            let probe = Probe {
                function: &function,
                entry: entry.then_some(empty),
                returns: returns.then_some(empty),
                inside: &[],
            };
            let attachment = match runtime.attach(&[probe]) {
                Ok(attachment) => attachment,
                Err(error) => {
                    println!("{name}, {when}: {error}");
                    continue;
                }
            };
            let probed = time(&mut process);
            let hits = runtime.detach(attachment).unwrap()[0];
            assert_eq!(hits.entry.hits, 3 * 20 * 20_000);
            let kinds: &[&str] = if returns {
                &["uprobe", "uretprobe"]
            } else {
                &["uprobe"]
            };
            let kernel = bpftrace(&binary, kinds).map(|mut child| {
                let kernel = time(&mut process);
                let _ = child.kill();
                let _ = child.wait();
                // Its last probe goes with a delay.
                std::thread::sleep(std::time::Duration::from_secs(1));
                kernel
            });
            let kernel = kernel.map_or("-".into(), |kernel| {
                format!(
                    "{:.0} ({:.0} times as much)",
                    kernel - bare,
                    (kernel - bare) / (probed - bare)
                )
            });
            println!(
                "{name:12} {when:18} {bare:5.2} {:8.2}   {kernel}",
                probed - bare
            );
        }
    }

    println!("\nthreads   ready   attach   stopped   detach, ms (median of {ROUNDS})");
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
