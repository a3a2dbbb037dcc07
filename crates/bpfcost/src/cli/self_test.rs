//! `bpfcost self-test`: known costs, A/A runs, the clock, and `compare` between sessions in which nothing changed.

mod batches;
mod checks;
mod clock;
mod ladder;
#[cfg(test)]
mod planted;
mod twins;

use std::{sync::atomic::AtomicBool, time::Instant};

use anyhow::{Context, Result};

use self::{
    batches::{BatchReading, SliceReading},
    checks::Outcome,
    clock::ClockReading,
    ladder::LadderReading,
    twins::EXPERIMENT,
};
use super::{
    exit::Exit,
    interrupt,
    output::{note, say},
    place, select, session,
};
use bpfcost_record::Record;
use bpfcost_target::Host;
use bpfcost_text::number::duration;

/// A/A runs: as many as it takes to find each planted fault at least 19 times in 20 (`planted.rs`).
const RUNS: u32 = 20;
/// The same with `--thorough`.
const THOROUGH_RUNS: u32 = 60;

/// Check that bpfcost is right on this machine: known costs, A/A runs, spread between runs
///
/// It needs root, and takes two to three minutes. An A/A run measures the same case twice, loaded apart, and must not
/// find a difference. About 1 run in 20 finds a false difference by chance; the self-test fails (exit code 1) if more
/// do than chance explains. It also checks the clock, the intervals, and what `compare` says of runs between which
/// nothing changed. The runs are kept: `compare` learns from them how far runs differ on this machine.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of A/A runs [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: Option<u32>,
    /// Make three times as many runs, which finds smaller faults
    #[arg(long, conflicts_with = "runs")]
    thorough: bool,
    /// Draw every order from this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// All that a self-test saw.
#[derive(Debug)]
struct Observed {
    ladder: Vec<LadderReading>,
    clock: Vec<ClockReading>,
    batches: Vec<BatchReading>,
    slices: Vec<SliceReading>,
    /// The records of A/A runs.
    sessions: Vec<Record>,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let host = Host::default();
    place::able(&host, &*select::experiment(EXPERIMENT)?)?;
    let interrupted = interrupt::on_signal()?;
    let Some(observed) = observe(args, &host, &interrupted)? else {
        return Ok(Exit::Interrupted);
    };
    for reading in &observed.ladder {
        say!("{reading}")?;
    }
    let checks = checks::all(&observed)?;
    for check in &checks {
        say!("{check}")?;
    }
    let with = |outcome| checks.iter().filter(move |check| check.outcome == outcome);
    let failed = with(Outcome::Failed).count();
    if failed > 0 {
        say!("\nself-test FAILED: {failed} of {} checks", checks.len())?;
        return Ok(Exit::Gate);
    }
    let noisy = with(Outcome::Noisy).next().is_some();
    say!(
        "\nself-test passed{}",
        if noisy { ", on a noisy machine" } else { "" }
    )?;
    Ok(Exit::Done)
}

/// Measures; `None` if it was interrupted.
fn observe(args: &Args, host: &Host, interrupted: &AtomicBool) -> Result<Option<Observed>> {
    let allowed = bpfcost_bpf::allowed_cpus();
    let cpu = *allowed
        .last()
        .context("the kernel does not report on which CPUs this process may run")?;
    let runs = args.runs.unwrap_or(match args.thorough {
        true => THOROUGH_RUNS,
        false => RUNS,
    });
    let seed = args.seed.unwrap_or_else(session::draw_seed);
    let ladder = ladder::read(cpu)?;
    let (batches, slices) = (batches::read(cpu)?, batches::read_slices(cpu)?);
    let history = crate::cli::store::sessions();
    if history.is_none() {
        note!("this user has no home folder, so the runs are not kept for later comparisons");
    }
    let mut clock = vec![clock::read(cpu)?];
    let mut sessions = Vec::new();
    let begun = Instant::now();
    for number in 0..runs {
        let per_run = begun.elapsed().as_secs_f64() / f64::from(number.max(1));
        let left = match number {
            0 => String::new(),
            _ => format!(
                ", about {} left",
                duration(per_run * f64::from(runs - number))
            ),
        };
        note!("A/A run {} of {runs}{left}", number + 1);
        let seed = seed.wrapping_add(u64::from(number));
        let Some(record) = twins::measure(host, cpu, seed, interrupted)? else {
            return Ok(None);
        };
        if let Some(history) = &history {
            // What can't be kept is no reason to end: `compare` then says what it assumes.
            if let Err(error) = history.keep(&record) {
                note!("the run is not kept for later comparisons: {error}");
            }
        }
        sessions.push(record);
        clock.push(clock::read(cpu)?);
    }
    Ok(Some(Observed {
        ladder,
        clock,
        batches,
        slices,
        sessions,
    }))
}
