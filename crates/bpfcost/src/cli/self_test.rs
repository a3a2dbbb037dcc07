//! `bpfcost self-test`: known costs, A/A runs, and the spread between sessions, which `compare` uses.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use bpfcost_bpf::{
    ladder::{Ladder, RUNGS},
    timing::Loop,
};
use bpfcost_stats::{sample::median, sessions::session_spread};
use jiff::Timestamp;

use super::{
    exit::Exit,
    interrupt,
    output::{note, say},
    place, select, session,
};
use crate::{
    builtin::aa::AaTest,
    experiment::Experiment,
    measure::{self, Measurements, Monotonic, Plan, Stop},
    record::{
        self, Change, ChangeOutcome, Record, SessionFile, SessionSpread, Status, VerdictRecord,
    },
    target::Host,
};

/// The experiment that is run against itself, and its cases: short and long paths, one that is all
/// cache misses.
const EXPERIMENT: &str = "xdp-lb";
const CASES: [&str; 4] = [
    "tcp-v4-lru-hit",
    "tcp-v4-ch-diverse",
    "tcp-v4-lru-miss",
    "pass-v4-no-vip",
];

/// Batches of an A/A run, in nanoseconds: shorter than a run's, so that there can be many.
const BATCH_NS: f64 = 5e6;
const ROUNDS: u32 = 2;

/// How often a run may raise a false alarm over its family of comparisons.
const ALARM_RATE: f64 = 0.05;
/// How improbable a number of alarms must be for the tool to be wrong: 4 in 20 runs are let pass.
const TOO_IMPROBABLE: f64 = 0.003;

/// The change that `compare` is asked to find between sessions: its default.
const THRESHOLD: f64 = 0.02;

/// How far the ladder's cost per instruction may differ between its rungs.
const LADDER_TOLERANCE: f64 = 0.15;
/// Loads of the ladder; each rung counts with the median over them.
const LADDER_LOADS: usize = 7;
/// What a rung's batch should take, in nanoseconds.
const RUNG_NS: f64 = 2e6;
/// A guess of a rung's cost: the loop, and three or four cycles a multiplication.
const LOOP_NS: f64 = 2.0;
const INSTRUCTION_NS: f64 = 1.2;

/// Check that bpfcost is right on this machine: known costs, A/A runs, spread between runs
///
/// It needs root, and takes a few minutes. An A/A run measures the same case twice, and must not find a difference. About 1 run in 20 finds a false
/// difference by chance; the self-test fails (exit code 1) if more do than chance explains. `compare` uses the spread between sessions that it measures.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of A/A runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// Draw every order from this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let host = Host::default();
    place::able(&host, &*select::experiment(EXPERIMENT)?)?;
    let interrupted = interrupt::on_signal()?;
    let allowed = bpfcost_bpf::allowed_cpus();
    let cpu = *allowed
        .last()
        .context("the kernel does not report on which CPUs this process may run")?;

    let ladder = ladder(cpu)?;
    let sessions = sessions(args, cpu, &interrupted)?;
    let Some(sessions) = sessions else {
        return Ok(Exit::Interrupted);
    };
    let alarms = alarms(&sessions)?;
    let changes = no_changes(&sessions)?;
    let kept = keep_spread(&host, &sessions);

    let right = ladder && alarms && changes;
    say!(
        "\n{}",
        if right {
            "self-test passed"
        } else {
            "self-test FAILED"
        }
    )?;
    kept?;
    Ok(if right { Exit::Done } else { Exit::Gate })
}

/// Reads the ladder back: each added instruction must cost the same on every part of it.
fn ladder(cpu: u32) -> Result<bool> {
    let mut costs = vec![Vec::new(); RUNGS.len()];
    for _ in 0..LADDER_LOADS {
        let mut ladder = Ladder::load(&RUNGS, Loop::probe()?)?;
        for (rung, costs) in RUNGS.into_iter().zip(&mut costs) {
            let expected_ns = LOOP_NS + f64::from(rung) * INSTRUCTION_NS;
            let ops = (RUNG_NS / expected_ns) as u64;
            let seen = ladder
                .batch(rung, ops, cpu, false)?
                .context("the rung is not loaded")?;
            anyhow::ensure!(
                seen.ops == ops,
                "the ladder ran {} of {ops} operations",
                seen.ops
            );
            anyhow::ensure!(
                seen.end_ns > seen.start_ns,
                "the clock does not move: {seen:?}"
            );
            costs.push(seen.ns_per_op());
        }
    }
    let costs: Vec<f64> = costs
        .iter()
        .map(|costs| median(costs).context("no cost"))
        .collect::<Result<_>>()?;
    say!(
        "floor: {:.2} ns/op for the loop and the call of an empty body",
        costs[0]
    )?;
    say!("ladder: added instructions, each a multiplication of the previous result")?;
    for (rung, cost) in RUNGS.iter().zip(&costs) {
        say!("  {rung:5}  {cost:9.2} ns/op")?;
    }
    // The upper rungs, where the floor plays no part, give the cost of an instruction.
    let slope =
        |low: usize, high: usize| (costs[high] - costs[low]) / f64::from(RUNGS[high] - RUNGS[low]);
    let (middle, upper) = (slope(2, 3), slope(3, 4));
    let rising = costs[0] < costs[2] && costs[2] < costs[3] && costs[3] < costs[4];
    let right = rising && (middle / upper - 1.0).abs() <= LADDER_TOLERANCE;
    say!(
        "  {upper:.3} ns per instruction from 100 to 1000, {middle:.3} from 10 to 100: {}",
        if right { "read back" } else { "NOT read back" }
    )?;
    Ok(right)
}

/// The records of the A/A runs; `None` if they were interrupted.
fn sessions(args: &Args, cpu: u32, interrupted: &AtomicBool) -> Result<Option<Vec<Record>>> {
    let seed = args.seed.unwrap_or_else(session::draw_seed);
    let host = Host::default();
    let mut records = Vec::new();
    for number in 0..args.runs {
        note!("A/A run {} of {}", number + 1, args.runs);
        let experiment = AaTest::of(select::experiment(EXPERIMENT)?, &CASES);
        let plan = Plan {
            target: "host".into(),
            seed: seed.wrapping_add(u64::from(number)),
            cases: experiment.cases(),
            pairs: experiment.pairs(),
            cpus: vec![cpu],
            quick: true,
            rounds: Some(ROUNDS),
            goal_ns: BATCH_NS,
            ..Plan::of(experiment.description())
        };
        let empty = Measurements::new(&plan);
        let measured = measure::measure(
            &experiment,
            &plan,
            &Monotonic::start(),
            interrupted,
            empty,
            &mut |_| Ok(()),
        )?;
        if measured.stop == Some(Stop::Interrupted) {
            return Ok(None);
        }
        let started = Timestamp::now().to_string();
        let record = Record::build(&plan, &measured, &started, host.machine(), None);
        if let Some(case) = record
            .cases
            .iter()
            .find(|case| case.status == Status::Invalid)
        {
            anyhow::bail!("{} is invalid: {}", case.name, case.problems[0]);
        }
        records.push(record);
    }
    Ok(Some(records))
}

/// Whether false alarms are as rare as promised.
fn alarms(sessions: &[Record]) -> Result<bool> {
    say!("\nA/A: {} runs, each case against itself", sessions.len())?;
    let false_alarm = |verdict| matches!(verdict, VerdictRecord::Slower | VerdictRecord::Faster);
    let mut alarmed = 0;
    for (number, record) in sessions.iter().enumerate() {
        let alarms: Vec<_> = record
            .comparisons
            .iter()
            .filter(|one| false_alarm(one.verdict))
            .collect();
        alarmed += usize::from(!alarms.is_empty());
        for alarm in alarms {
            say!(
                "  run {}: {} differs from itself by {:+.2} %",
                number + 1,
                alarm.baseline,
                100.0 * alarm.relative
            )?;
        }
    }
    let allowed = allowed_alarms(sessions.len());
    say!(
        "  false alarms in {alarmed} of {} runs; chance allows {allowed}",
        sessions.len()
    )?;
    Ok(alarmed <= allowed)
}

/// The most alarmed runs that are no evidence against a rate of [`ALARM_RATE`].
fn allowed_alarms(runs: usize) -> usize {
    let mut exactly = (1.0 - ALARM_RATE).powi(runs as i32);
    let mut at_most = exactly;
    for alarms in 0..runs {
        if 1.0 - at_most <= TOO_IMPROBABLE {
            return alarms;
        }
        let (left, next) = ((runs - alarms) as f64, (alarms + 1) as f64);
        exactly *= left / next * ALARM_RATE / (1.0 - ALARM_RATE);
        at_most += exactly;
    }
    runs
}

/// Whether `compare`, told how far sessions differ, finds no change between neighbours more often than
/// chance lets it: nothing was changed.
fn no_changes(sessions: &[Record]) -> Result<bool> {
    let spread = session_spread(&levels(sessions));
    let mut reported = 0;
    for neighbours in sessions.windows(2) {
        let changes = record::compare(&neighbours[..1], &neighbours[1..], Some(THRESHOLD), |_| {
            spread
        })?;
        let changed = |change: &Change| {
            matches!(
                change.outcome,
                ChangeOutcome::Regressed | ChangeOutcome::Improved
            )
        };
        reported += usize::from(changes.cases.iter().any(changed));
    }
    let pairs = sessions.len() - 1;
    let allowed = allowed_alarms(pairs);
    say!(
        "\ncompare: changes reported between {reported} of {pairs} pairs of consecutive sessions, \
         although nothing changed; chance allows {allowed}"
    )?;
    Ok(reported <= allowed)
}

/// The level of each case, once as it is entered first, in each session.
fn levels(sessions: &[Record]) -> Vec<Vec<f64>> {
    let of_case = |name: &&str| {
        let value = |record: &Record| Some(record.case(name)?.raw.as_ref()?.value);
        sessions.iter().filter_map(value).collect()
    };
    CASES.iter().map(of_case).collect()
}

/// How far the sessions' levels lie apart, shown and kept.
fn keep_spread(host: &Host, sessions: &[Record]) -> Result<()> {
    let Some(spread) = session_spread(&levels(sessions)) else {
        say!("\nsessions: too few values to estimate their spread")?;
        return Ok(());
    };
    say!(
        "\nsessions: levels of a case differ by {:.2} % (relative standard deviation)",
        100.0 * spread
    )?;
    let Some(file) = SessionFile::of_user() else {
        note!("this user has no home folder, so the spread is not saved for later runs");
        return Ok(());
    };
    let spread = SessionSpread {
        percent: 100.0 * spread,
        sessions: sessions.len(),
        measured: Timestamp::now().to_string(),
    };
    file.save(&host.machine(), &spread)?;
    say!("  saved for compare in {}", file.path().display())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_allows_four_alarms_in_twenty_runs() {
        assert_eq!(allowed_alarms(20), 4);
        assert_eq!(allowed_alarms(5), 2);
        assert_eq!(allowed_alarms(1), 1);
    }
}
