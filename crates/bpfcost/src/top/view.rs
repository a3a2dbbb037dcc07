//! The programs that ran in an interval, and their cost: the output of `bpfcost top --json`.

use std::{ops::Add as _, time::Duration};

use bpfcost_bpf::{LoadedProgram, stats::RunStats};
use serde::{Deserialize, Serialize};

use super::{holders::Holders, tax::StatsOverhead};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopView {
    /// Length, in seconds.
    pub(crate) seconds: f64,
    /// CPUs of the machine.
    pub(crate) cpus: usize,
    /// Cost of the kernel's account, and the part of it that is in its numbers.
    pub(crate) tax: StatsOverhead,
    /// The programs that ran, what costs most first.
    pub(crate) programs: Vec<TopProgram>,
    /// All of them together.
    pub(crate) total: Total,
    /// Programs that are loaded and did not run.
    pub(crate) did_not_run: usize,
    /// Programs that were unloaded since the look before, and their accounts with them.
    #[serde(default)]
    pub(crate) vanished: usize,
}

/// A program that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopProgram {
    /// The kernel's number of it.
    pub(crate) id: u32,
    /// Program type, in the words of bpftool: `kprobe`, `sched_cls`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Name, at most 15 characters; empty where it has none.
    pub(crate) name: String,
    /// Who holds it.
    pub(crate) held_by: Holders,
    /// Runs.
    pub(crate) runs: u64,
    /// Runs a second.
    pub(crate) runs_per_s: f64,
    /// Nanoseconds a run by the kernel's account: wall time, from the program's entry to its return.
    pub(crate) kernel_ns_per_run: f64,
    /// The same without what the account says of a program that does nothing.
    pub(crate) ns_per_run: f64,
    /// The share of one CPU's time that it takes, by `ns_per_run`.
    pub(crate) of_cpu: f64,
    /// Share of what all of them take.
    pub(crate) share: f64,
    /// Runs that did not happen, for it ran already on that CPU.
    pub(crate) missed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Total {
    /// Runs a second.
    pub(crate) runs_per_s: f64,
    /// The share of one CPU's time.
    pub(crate) of_cpu: f64,
    /// The share of all CPUs' time.
    pub(crate) of_machine: f64,
    /// The share of one CPU's time that keeping the account adds; absent where unknown.
    pub(crate) account_of_cpu: Option<f64>,
}

impl TopView {
    /// Makes it from programs and what was added to their accounts.
    pub(super) fn new(
        time: Duration,
        cpus: usize,
        tax: StatsOverhead,
        programs: impl Iterator<Item = (LoadedProgram, RunStats, Holders)>,
        vanished: usize,
    ) -> Self {
        let seconds = time.as_secs_f64();
        let (mut ran, mut did_not_run) = (Vec::new(), 0);
        for (program, stats, held_by) in programs {
            match stats.run_cnt {
                0 => did_not_run += 1,
                _ => ran.push(TopProgram::new(program, stats, held_by, seconds, tax)),
            }
        }
        ran.sort_by(|one, other| {
            let cost = other.of_cpu.total_cmp(&one.of_cpu);
            cost.then(other.runs.cmp(&one.runs))
                .then(one.id.cmp(&other.id))
        });
        // From zero: the sum of nothing is a negative zero otherwise.
        let sum = |field: fn(&TopProgram) -> f64| ran.iter().map(field).fold(0.0, f64::add);
        let runs_per_s = sum(|one| one.runs_per_s);
        let of_cpu = sum(|one| one.of_cpu);
        for one in &mut ran {
            one.share = if of_cpu > 0.0 {
                one.of_cpu / of_cpu
            } else {
                0.0
            };
        }
        TopView {
            seconds,
            cpus,
            tax,
            programs: ran,
            total: Total {
                runs_per_s,
                of_cpu,
                of_machine: of_cpu / cpus as f64,
                account_of_cpu: tax.whole_ns.map(|ns| runs_per_s * ns / 1e9),
            },
            did_not_run,
            vanished,
        }
    }
}

impl TopProgram {
    fn new(
        program: LoadedProgram,
        stats: RunStats,
        held_by: Holders,
        seconds: f64,
        tax: StatsOverhead,
    ) -> Self {
        let kernel_ns_per_run = stats.run_time_ns as f64 / stats.run_cnt as f64;
        let ns_per_run = (kernel_ns_per_run - tax.inside_ns).max(0.0);
        let runs_per_s = stats.run_cnt as f64 / seconds;
        TopProgram {
            id: program.id,
            kind: snake(&program.kind),
            name: program.name,
            held_by,
            runs: stats.run_cnt,
            runs_per_s,
            kernel_ns_per_run,
            ns_per_run,
            of_cpu: runs_per_s * ns_per_run / 1e9,
            share: 0.0,
            missed: stats.recursion_misses,
        }
    }
}

/// `SchedCls` as `sched_cls`.
fn snake(camel: &str) -> String {
    let mut words = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAX: StatsOverhead = StatsOverhead {
        inside_ns: 20.0,
        whole_ns: Some(50.0),
    };

    fn program(id: u32, run_cnt: u64, run_time_ns: u64) -> (LoadedProgram, RunStats, Holders) {
        let program = LoadedProgram {
            id,
            kind: "RawTracepoint".to_owned(),
            name: format!("p{id}"),
        };
        let stats = RunStats {
            run_time_ns,
            run_cnt,
            recursion_misses: 0,
        };
        (program, stats, Holders::default())
    }

    #[test]
    fn costs_are_rates_times_nanoseconds_without_the_accounts_own() {
        let programs = [
            program(1, 1000, 120_000),
            program(2, 0, 0),
            program(3, 3000, 1_260_000),
            program(4, 10, 50),
        ];
        let view = TopView::new(Duration::from_secs(2), 4, TAX, programs.into_iter(), 2);
        let ids: Vec<u32> = view.programs.iter().map(|one| one.id).collect();
        assert_eq!((ids, view.did_not_run), (vec![3, 1, 4], 1));
        assert_eq!(view.vanished, 2);
        let dearest = &view.programs[0];
        assert_eq!(dearest.kind, "raw_tracepoint");
        assert_eq!((dearest.runs_per_s, dearest.ns_per_run), (1500.0, 400.0));
        assert_eq!(dearest.kernel_ns_per_run, 420.0);
        // 1500 times 400 ns a second.
        assert!((dearest.of_cpu - 0.0006).abs() < 1e-12);
        // Less than nothing is nothing.
        assert_eq!(view.programs[2].ns_per_run, 0.0);
        assert!((view.total.of_cpu - 0.00065).abs() < 1e-12);
        assert!((view.total.of_machine - 0.00065 / 4.0).abs() < 1e-12);
        assert!((view.programs.iter().map(|one| one.share).sum::<f64>() - 1.0).abs() < 1e-12);
        // 2005 runs a second, 50 ns each.
        let account = view.total.account_of_cpu.expect("it is known");
        assert!((account - 2005.0 * 50e-9).abs() < 1e-12);
    }

    #[test]
    fn nothing_that_runs_costs_nothing() {
        let view = TopView::new(
            Duration::from_secs(1),
            2,
            TAX,
            [program(1, 0, 0)].into_iter(),
            0,
        );
        assert_eq!((view.programs.len(), view.did_not_run), (0, 1));
        let total = serde_json::to_string(&view.total).expect("JSON");
        assert!(!total.contains('-'), "{total}");
    }
}
