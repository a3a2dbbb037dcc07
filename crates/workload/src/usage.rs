//! CPU time of processes and of the machine (docs/experiments/overhead.md, "Accounts of CPU time"). Kernels sample
//! user and system time by ticks, and charge interrupts to bystanders. So the time of processes is their scheduler
//! runtime, in nanoseconds, which includes the interrupts that hit them (see [`crate::target`] for kernels that take
//! them out). The time of the machine is the time that its CPUs were not idle.
//!
//! The scheduler adds runtime to a process and to its control group in the same step (kernel/sched/fair.c,
//! update_curr), when the process leaves its CPU and at ticks. So the group is as exact as the CPU clocks of its
//! processes, and it alone has those that came and went. What runs just now is behind by a tick at most: a thread
//! that visits each CPU before the reading takes it off there, and brings both up to date.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::Result;
use procfs::{CurrentSI as _, KernelStats};

use super::{Server, busy};
use bpfcost_process::{cgroup, group_of, process_tree, threads};

/// Reads CPU times.
#[derive(Clone, Debug, Default)]
pub struct UsageReader<'a> {
    server: Option<&'a Server>,
    /// The control group of a service that was not started here.
    group: Option<PathBuf>,
}

/// What was spent up to a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageSnapshot {
    server: Party,
    tool: Party,
    machine_ns: f64,
    cpus: f64,
    switches: f64,
    drops: f64,
}

/// What was spent between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time of the server's processes, in nanoseconds.
    pub server_ns: f64,
    /// The same of the probe's own programs in user space.
    pub tool_ns: f64,
    /// The same of all CPUs: what they did not idle.
    pub machine_ns: f64,
    /// How many CPUs these are: all that are online.
    pub cpus: f64,
    /// Context switches of the server; of the machine where there is none.
    pub switches: f64,
    /// Datagrams and connections that the kernel dropped, for there was no room.
    pub drops: f64,
}

/// Processes that are counted together.
#[derive(Clone, Debug, Default, PartialEq)]
struct Party {
    /// CPU time by process, in nanoseconds.
    clocks: BTreeMap<u32, f64>,
    /// CPU time of all that ever were in their control group.
    group_ns: Option<f64>,
}

/// Where the times come from on this machine, for the record.
pub fn sources() -> String {
    format!(
        "server and tool: their control groups, or CPU clocks of their processes where they have none of their \
         own; client: its control group; machine: {}",
        busy::source()
    )
}

impl<'a> UsageReader<'a> {
    /// Those of a server that was started here.
    pub fn new(server: Option<&'a Server>) -> Self {
        UsageReader {
            server,
            group: None,
        }
    }

    /// Those of processes that run already, in this control group; where it is not known, in the one that holds
    /// them and no others, if there is one.
    pub fn watching(pids: &[u32], group: Option<PathBuf>) -> Self {
        UsageReader {
            server: None,
            group: group.or_else(|| group_of(pids)),
        }
    }

    /// The CPU time of all that ever ran in the server's control group.
    fn group_ns(&self) -> Option<f64> {
        match self.server {
            Some(server) => server.cpu_ns(),
            None => cgroup::cpu_ns(self.group.as_ref()?),
        }
    }

    /// What was spent so far by the server (where none was started here, by these processes), by the processes of
    /// a tool, and by the machine. `tool_ns` is what all processes ever spent that the tool had, where known.
    pub fn spent(
        &self,
        server: &[u32],
        tool: &[u32],
        tool_ns: Option<f64>,
    ) -> Result<UsageSnapshot> {
        // First: it brings the accounts of what runs just now up to date.
        let busy = busy::read()?;
        let group_ns = self.group_ns();
        let pids = match self.server {
            Some(server) => server.pids(),
            None => server.iter().flat_map(|pid| process_tree(*pid)).collect(),
        };
        let tool: Vec<u32> = tool.iter().flat_map(|pid| process_tree(*pid)).collect();
        let switches = if pids.is_empty() {
            switches_of_all()
        } else {
            pids.iter().map(|pid| switches(*pid)).sum()
        };
        Ok(UsageSnapshot {
            server: Party {
                clocks: clocks(&pids),
                group_ns,
            },
            tool: Party {
                clocks: clocks(&tool),
                group_ns: tool_ns,
            },
            machine_ns: busy.ns,
            cpus: busy.cpus,
            switches,
            drops: drops(pids.first().copied()),
        })
    }
}

impl UsageSnapshot {
    /// What was spent since then.
    pub fn since(&self, before: &UsageSnapshot) -> Usage {
        Usage {
            server_ns: self.server.since(&before.server),
            tool_ns: self.tool.since(&before.tool),
            machine_ns: self.machine_ns - before.machine_ns,
            cpus: self.cpus,
            switches: self.switches - before.switches,
            drops: self.drops - before.drops,
        }
    }
}

impl Party {
    /// What a control group had more than before. Without one, a process that came meanwhile counts whole; of those
    /// that went, nothing is known.
    fn since(&self, before: &Party) -> f64 {
        let spent = |(pid, now): (&u32, &f64)| now - before.clocks.get(pid).unwrap_or(&0.0);
        match self.group_ns.zip(before.group_ns) {
            Some((now, then)) => now - then,
            // The sum of nothing is −0.
            None => self.clocks.iter().map(spent).sum::<f64>() + 0.0,
        }
    }
}

/// CPU time of processes by their own clocks, threads that have ended included.
fn clocks(pids: &[u32]) -> BTreeMap<u32, f64> {
    let clock = |pid: &u32| {
        let number = nix::unistd::Pid::from_raw(i32::try_from(*pid).ok()?);
        let time = nix::time::clock_getcpuclockid(number).ok()?.now().ok()?;
        Some((*pid, time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64))
    };
    pids.iter().filter_map(clock).collect()
}

/// Context switches of a process's threads, wanted or not.
fn switches(pid: u32) -> f64 {
    let counts = threads(pid).filter_map(|thread| {
        let status = thread.status().ok()?;
        Some(status.voluntary_ctxt_switches? + status.nonvoluntary_ctxt_switches?)
    });
    counts.sum::<u64>() as f64
}

/// Context switches of the machine.
fn switches_of_all() -> f64 {
    KernelStats::current().map_or(0.0, |stat| stat.ctxt as f64)
}

/// Datagrams that found no room in a socket, and connections that found none in a queue, in the network of this
/// process.
fn drops(pid: Option<u32>) -> f64 {
    let net = pid.map_or("/proc/net".to_owned(), |pid| format!("/proc/{pid}/net"));
    let read = |file: &str| fs::read_to_string(format!("{net}/{file}")).unwrap_or_default();
    counter(&read("snmp"), "Udp:", "RcvbufErrors")
        + counter(&read("netstat"), "TcpExt:", "ListenDrops")
        + read("snmp6")
            .lines()
            .find_map(|line| line.strip_prefix("Udp6RcvbufErrors"))
            .and_then(|count| count.trim().parse::<f64>().ok())
            .unwrap_or(0.0)
}

/// A counter of proc_net(5): a line of names, then a line of values.
fn counter(table: &str, part: &str, name: &str) -> f64 {
    let mut lines = table.lines().filter(|line| line.starts_with(part));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0.0;
    };
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(counter, _)| *counter == name)
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(clocks: &[(u32, f64)], group_ns: Option<f64>) -> Party {
        Party {
            clocks: clocks.iter().copied().collect(),
            group_ns,
        }
    }

    #[test]
    fn a_group_knows_also_what_came_and_went() {
        let before = party(&[(1, 10.0), (2, 20.0)], Some(100.0));
        for (clocks, group_ns, spent) in [
            (&[(1, 15.0), (2, 50.0)][..], 135.0, 35.0),
            (&[(1, 15.0), (3, 4.0)], 160.0, 60.0),
            // One that came and went leaves the same processes: however little it took, and on however many CPUs.
            (&[(1, 15.0), (2, 25.0)], 111.0, 11.0),
        ] {
            assert_eq!(party(clocks, Some(group_ns)).since(&before), spent);
        }
    }

    #[test]
    fn without_a_group_those_count_that_are_there() {
        let before = party(&[(1, 10.0), (2, 20.0)], None);
        assert_eq!(party(&[(1, 15.0), (3, 4.0)], None).since(&before), 9.0);
        assert_eq!(party(&[(1, 15.0)], Some(99.0)).since(&before), 5.0);
        assert_eq!(party(&[], None).since(&before), 0.0);
    }

    #[test]
    fn counters_are_found_by_name() {
        let table = "Udp: InDatagrams NoPorts InErrors RcvbufErrors\nUdp: 7 1 3 2\n";
        assert_eq!(counter(table, "Udp:", "RcvbufErrors"), 2.0);
        assert_eq!(counter(table, "Udp:", "SndbufErrors"), 0.0);
        assert_eq!(counter(table, "TcpExt:", "ListenDrops"), 0.0);
    }

    #[test]
    fn this_process_has_switched_context() {
        assert!(switches(std::process::id()) > 0.0);
        assert!(switches_of_all() > 0.0);
    }
}
