//! `builtin:syscount:FILTER`: how many system calls of each kind the server makes, and how long they take.
//! Source: study 004, whose tool was libbpf-tools' `syscount`.
//!
//! FILTER says who leaves out the calls of other processes: the program in the `kernel`, this process in `user`
//! space, none (`all`). Where the factor `target` is `bystander`, a process is asked about that sleeps: then
//! all that the server pays, it pays for another process.
//!
//! What proves it is the kernel's own account of the server's reads and writes (`/proc/PID/io`): it counts what
//! `read` and `write` and their kin do, and must agree with what was counted here.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::{
    Feature,
    syscount::{Filter, MAX_PROCESSES, SyscallCounts, SyscallSum, Syscount},
};
use procfs::process::Process;
use syscalls::Sysno;

use super::{
    Agent,
    watched::{in_first_namespace, monotonic_ns},
};
use crate::{BuiltIn, WindowCounts};
use bpfcost_model::Problem;
use bpfcost_process::{RunContext, threads};

/// The entry of `builtin:syscount`.
pub(crate) const AGENT: BuiltIn = BuiltIn::agent("syscount:FILTER", needs, open);

/// The factor that names the observed process, and its value for a process other than the server.
const TARGET: &str = "target";
const BYSTANDER: &str = "bystander";
/// Kinds of calls that are reported.
const TOP: usize = 10;

/// Calls that the kernel counts as a read, and as a write; the last two are both (fs/read_write.c).
const READS: [Sysno; 7] = [
    Sysno::read,
    Sysno::pread64,
    Sysno::readv,
    Sysno::preadv,
    Sysno::preadv2,
    Sysno::sendfile,
    Sysno::copy_file_range,
];
const WRITES: [Sysno; 7] = [
    Sysno::write,
    Sysno::pwrite64,
    Sysno::writev,
    Sysno::pwritev,
    Sysno::pwritev2,
    Sysno::sendfile,
    Sysno::copy_file_range,
];

struct SyscountAgent {
    counter: Syscount,
    filter: Filter,
    /// A sleeping process, where one is needed.
    sleeper: Option<Sleeper>,
    window: Window,
}

/// Who is watched in a window.
#[derive(Default)]
struct Window {
    server: Vec<u32>,
    /// Who is asked about.
    asked: Vec<u32>,
    /// The server's account just before it was attached, and just after.
    before: [TaskIo; 2],
    /// The server's threads: each can be in a call when it is attached, and in another when it is detached.
    threads: u64,
    /// When it was about to be attached.
    since_ns: u64,
}

/// Reads and writes by the kernel's own account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TaskIo {
    reads: u64,
    writes: u64,
}

/// Who leaves out the calls of others.
fn filter(arguments: &[String]) -> Result<Filter> {
    Ok(match arguments {
        [one] if one == "kernel" => Filter::Kernel,
        [one] if one == "user" => Filter::User,
        [] => Filter::Kernel,
        [one] if one == "all" => Filter::All,
        _ => bail!(
            "builtin:syscount has no filter {}\n  Its filters: kernel, user, all",
            arguments.join(":")
        ),
    })
}

/// Kernel features that it needs.
fn needs(arguments: &[String]) -> Result<Vec<Feature>> {
    filter(arguments).map(|_| Syscount::needs())
}

fn open(arguments: &[String]) -> Result<Box<dyn Agent>> {
    let filter = filter(arguments)?;
    if filter != Filter::All && !in_first_namespace()? {
        bail!(
            "builtin:syscount needs the initial PID namespace, and this process is in another \
             one\n  Run it outside the container, or use builtin:syscount:all"
        );
    }
    Ok(Box::new(SyscountAgent {
        counter: Syscount::load(filter)?,
        filter,
        sleeper: None,
        window: Window::default(),
    }))
}

impl Agent for SyscountAgent {
    fn attach(&mut self, context: &RunContext) -> Result<()> {
        let server = context.pids.clone();
        let asked = if context
            .factors
            .get(TARGET)
            .is_some_and(|one| one == BYSTANDER)
        {
            let sleeper = match self.sleeper.take() {
                Some(sleeper) => sleeper,
                None => Sleeper::start()?,
            };
            vec![self.sleeper.insert(sleeper).0.id()]
        } else {
            server.clone()
        };
        if asked.len() > MAX_PROCESSES && self.filter != Filter::All {
            bail!(
                "builtin:syscount watches at most {MAX_PROCESSES} processes, and the server has {}\n  \
                 Use builtin:syscount:all",
                asked.len()
            );
        }
        let since_ns = monotonic_ns();
        let before = TaskIo::read(&server);
        self.counter.attach(&asked)?;
        self.window = Window {
            before: [before, TaskIo::read(&server)],
            threads: server.iter().map(|pid| threads(*pid).count() as u64).sum(),
            server,
            asked,
            since_ns,
        };
        Ok(())
    }

    fn consume(&mut self, timeout: Duration) -> Result<()> {
        match self.filter {
            Filter::User => self.counter.poll(timeout)?,
            // All is in the kernel.
            Filter::Kernel | Filter::All => sleep(timeout),
        }
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        let before = TaskIo::read(&self.window.server);
        let calls = self.counter.detach()?;
        let after = TaskIo::read(&self.window.server);
        let elapsed_ns = monotonic_ns() - self.window.since_ns;
        let problem = self.window.problem(self.filter, &calls, [before, after]);
        if let Some(problem) = problem.or_else(|| time_problem(&calls, elapsed_ns)) {
            return Err(problem.into());
        }
        Ok(WindowCounts {
            hits: Some(calls.entered + calls.left),
            lost: calls.lost,
            counts: self.window.counts(self.filter, &calls),
        })
    }
}

impl Window {
    /// Contradictions between the kernel's own account and what was counted.
    fn problem(
        &self,
        filter: Filter,
        calls: &SyscallCounts,
        after: [TaskIo; 2],
    ) -> Option<Problem> {
        let [outer, inner] = self.before;
        let [soon, late] = after;
        // The account may have a call that was begun before, or was not over then, and is not counted for it.
        let least = soon.since(inner).less(2 * self.threads);
        let most = late.since(outer);
        let lost = match calls.lost {
            0 => String::new(),
            lost => format!("; {lost} calls were lost"),
        };
        let came_by = least.reads + least.writes;
        if calls.entered < came_by || calls.left < came_by {
            return Some(Problem {
                check: "runs of the programs".to_owned(),
                expected: format!("at least {came_by}, the server's reads and writes"),
                got: format!("{} at entry, {} at exit", calls.entered, calls.left),
                detail: "the programs missed system calls of the server".to_owned(),
            });
        }
        // Of others than the server, nothing is known.
        if filter != Filter::All && self.asked != self.server {
            return None;
        }
        let counted = TaskIo {
            reads: self.calls_of(calls, &READS),
            writes: self.calls_of(calls, &WRITES),
        };
        [
            ("reads", counted.reads, least.reads, most.reads),
            ("writes", counted.writes, least.writes, most.writes),
        ]
        .into_iter()
        .find(|(_, counted, least, most)| !(least..=most).contains(&counted))
        .map(|(what, counted, least, most)| Problem {
            check: format!("{what} of the server"),
            expected: if least == most {
                format!("{least}, by /proc/PID/io")
            } else {
                format!("{least} to {most}, by /proc/PID/io")
            },
            got: counted.to_string(),
            detail: format!("the count of system calls differs from the kernel's{lost}"),
        })
    }

    /// The server's calls of these kinds.
    fn calls_of(&self, calls: &SyscallCounts, kinds: &[Sysno]) -> u64 {
        let matching = calls.sums.iter().filter(|(kind, _)| {
            self.server.contains(&kind.process)
                && kinds.iter().any(|one| one.id() == kind.number as i32)
        });
        matching.map(|(_, sum)| sum.calls).sum()
    }

    /// The calls that were asked about, and the kinds that there are most of: `calls_NAME`, and how long one
    /// took on average, `calls_NAME_ns`.
    fn counts(&self, filter: Filter, calls: &SyscallCounts) -> BTreeMap<String, u64> {
        let mut by_number: BTreeMap<u32, SyscallSum> = BTreeMap::new();
        let asked = |process| filter == Filter::All || self.asked.contains(&process);
        for (kind, one) in calls.sums.iter().filter(|(kind, _)| asked(kind.process)) {
            let sum = by_number.entry(kind.number).or_default();
            sum.calls += one.calls;
            sum.ns += one.ns;
        }
        let syscalls = by_number.values().map(|sum| sum.calls).sum();
        let mut top: Vec<(u32, SyscallSum)> = by_number.into_iter().collect();
        top.sort_by_key(|(number, sum)| (std::cmp::Reverse(sum.calls), *number));
        let mut counts = BTreeMap::from([("syscalls".to_owned(), syscalls)]);
        for (number, sum) in top.into_iter().take(TOP) {
            let name = Sysno::new(number as usize)
                .map_or_else(|| format!("number_{number}"), |one| one.name().to_owned());
            counts.insert(format!("calls_{name}_ns"), sum.ns / sum.calls.max(1));
            counts.insert(format!("calls_{name}"), sum.calls);
        }
        counts
    }
}

/// Contradictions in the time of calls, in a window of this length.
fn time_problem(calls: &SyscallCounts, elapsed_ns: u64) -> Option<Problem> {
    let wrong = |expected: String, got: String| Problem {
        check: "time in system calls".to_owned(),
        expected,
        got,
        detail: "the time of a call that began and ended in the window is wrong".to_owned(),
    };
    let too_long = calls
        .sums
        .iter()
        .find(|(_, sum)| sum.ns > sum.calls.saturating_mul(elapsed_ns));
    let too_long = too_long.map(|(kind, sum)| {
        wrong(
            format!("at most {elapsed_ns} ns a call, which the window took"),
            format!("{} ns in {} calls of {}", sum.ns, sum.calls, kind.number),
        )
    });
    let (count, ns) = calls.sums.values().fold((0, 0), |(count, ns), sum| {
        (count + sum.calls, u64::saturating_add(ns, sum.ns))
    });
    let none = count > 0 && ns == 0;
    too_long.or_else(|| {
        none.then(|| {
            wrong(
                "more than 0 ns".to_owned(),
                format!("0 ns in {count} calls"),
            )
        })
    })
}

impl TaskIo {
    /// Reads the sum over all these processes; one that is gone counts nothing.
    fn read(processes: &[u32]) -> Self {
        let mut all = TaskIo::default();
        for &process in processes {
            if let Ok(io) = Process::new(process.cast_signed()).and_then(|process| process.io()) {
                all.reads += io.syscr;
                all.writes += io.syscw;
            }
        }
        all
    }

    fn since(self, before: Self) -> Self {
        TaskIo {
            reads: self.reads.saturating_sub(before.reads),
            writes: self.writes.saturating_sub(before.writes),
        }
    }

    fn less(self, calls: u64) -> Self {
        TaskIo {
            reads: self.reads.saturating_sub(calls),
            writes: self.writes.saturating_sub(calls),
        }
    }
}

/// A process that sleeps, until this one ends.
struct Sleeper(Child);

impl Sleeper {
    /// `cat`, which is given a byte and then nothing more: its input ends with this process, however that ends.
    fn start() -> Result<Self> {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start cat, which builtin:syscount watches instead of the server")?;
        let mut sleeper = Sleeper(child);
        let echoed = sleeper.echo();
        echoed.context("cat, which builtin:syscount watches, does not answer")?;
        Ok(sleeper)
    }

    /// When it has answered, the calls by which it started are over.
    fn echo(&mut self) -> io::Result<()> {
        let (Some(to), Some(from)) = (&mut self.0.stdin, &mut self.0.stdout) else {
            return Ok(());
        };
        to.write_all(b"x")?;
        from.read_exact(&mut [0])
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use bpfcost_bpf::syscount::SyscallKey;

    use super::*;

    fn calls(sums: &[(u32, Sysno, u64)], runs: u64) -> SyscallCounts {
        let sum = |(process, number, calls): &(u32, Sysno, u64)| {
            let kind = SyscallKey {
                process: *process,
                number: number.id() as u32,
            };
            (
                kind,
                SyscallSum {
                    calls: *calls,
                    ns: calls * 300,
                },
            )
        };
        SyscallCounts {
            sums: sums.iter().map(sum).collect(),
            entered: runs,
            left: runs,
            lost: 0,
        }
    }

    fn account(reads: u64, writes: u64) -> TaskIo {
        TaskIo { reads, writes }
    }

    /// A window of a server with process 7, that was asked about.
    fn window() -> Window {
        Window {
            server: vec![7],
            asked: vec![7],
            before: [account(10, 20), account(11, 20)],
            threads: 1,
            since_ns: 0,
        }
    }

    fn told(calls: &SyscallCounts) -> Option<String> {
        let after = [account(111, 70), account(112, 70)];
        let problem = window().problem(Filter::Kernel, calls, after);
        problem.map(|problem| problem.to_string())
    }

    #[test]
    fn what_agrees_with_the_account_is_right() {
        for reads in 98..=102 {
            let seen = calls(
                &[
                    (7, Sysno::read, reads - 1),
                    (7, Sysno::readv, 1),
                    (7, Sysno::write, 50),
                ],
                200,
            );
            assert_eq!(told(&seen), None);
        }
    }

    #[test]
    fn calls_take_some_time_and_no_more_than_the_window() {
        let told = |seen: &SyscallCounts| time_problem(seen, 300).map(|problem| problem.got);
        let mut seen = calls(&[(7, Sysno::read, 10), (8, Sysno::write, 2)], 24);
        assert_eq!(told(&seen), None);
        assert_eq!(told(&calls(&[], 0)), None);
        for sum in seen.sums.values_mut() {
            sum.ns = 0;
        }
        assert_eq!(told(&seen).as_deref(), Some("0 ns in 12 calls"));
        for sum in seen.sums.values_mut() {
            sum.ns = 601;
        }
        assert_eq!(told(&seen).as_deref(), Some("601 ns in 2 calls of 1"));
    }

    #[test]
    fn what_copies_from_file_to_file_is_a_read_and_a_write() {
        let seen = calls(
            &[
                (7, Sysno::read, 50),
                (7, Sysno::sendfile, 49),
                (7, Sysno::copy_file_range, 1),
            ],
            200,
        );
        assert_eq!(told(&seen), None);
    }

    #[test]
    fn what_does_not_agree_is_told() {
        let too_few = calls(&[(7, Sysno::read, 97), (7, Sysno::write, 50)], 200);
        assert!(
            told(&too_few)
                .unwrap()
                .contains("reads of the server: expected 98 to 102")
        );
        let of_another = calls(&[(7, Sysno::read, 100), (8, Sysno::write, 50)], 200);
        assert!(
            told(&of_another)
                .unwrap()
                .contains("writes of the server: expected 48 to 50, ")
        );
        let not_there = calls(&[(7, Sysno::read, 100), (7, Sysno::write, 50)], 145);
        assert!(told(&not_there).unwrap().contains("at least 146"));
    }

    #[test]
    fn most_frequent_calls_are_told_with_what_one_took() {
        let mut sums: Vec<_> = (1..=20)
            .map(|number| (7, Sysno::new(number).unwrap(), 1))
            .collect();
        sums.push((7, Sysno::epoll_wait, 30));
        sums.push((8, Sysno::read, 500));
        let counts = window().counts(Filter::User, &calls(&sums, 1000));
        assert_eq!(counts["syscalls"], 50);
        assert_eq!(counts["calls_epoll_wait"], 30);
        assert_eq!(counts["calls_epoll_wait_ns"], 300);
        assert_eq!(counts.len(), 1 + 2 * TOP);
        let counts = window().counts(Filter::All, &calls(&sums, 1000));
        assert_eq!(counts["calls_read"], 500);
    }
}
