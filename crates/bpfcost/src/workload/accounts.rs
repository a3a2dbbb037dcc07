//! CPU time, precisely. Kernels without exact interrupt accounting sample what a process spends by ticks and
//! charge interrupts to bystanders; so a process is taken from its scheduler runtime, by its CPU clock, and the
//! machine from what its CPUs did not idle, by the idle time that the tick code keeps in nanoseconds.

use std::fs;

use anyhow::{Context, Result};

/// CPU time so far, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Of the server's processes.
    pub server_ns: f64,
    /// Of the probe's own programs in user space.
    pub tool_ns: f64,
    /// Of all CPUs: what they did not idle.
    pub machine_ns: f64,
    /// Context switches of the machine.
    pub switches: f64,
}

/// Reads CPU times.
#[derive(Debug, Default)]
pub struct Accounts;

/// Where the times come from on this machine, for the record.
pub fn sources() -> String {
    "server: CPU clocks of its processes; machine: idle time by ticks of 10 ms".to_owned()
}

impl Accounts {
    /// CPU time so far of these processes, and of the machine.
    pub fn spent(&self, server: &[u32], tool: &[u32]) -> Result<Spent> {
        let stat = fs::read_to_string("/proc/stat").context("can't read /proc/stat")?;
        let cpu: Vec<f64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        let all: f64 = cpu.iter().take(8).sum();
        let idle: f64 = cpu.iter().skip(3).take(2).sum::<f64>() + cpu.get(7).unwrap_or(&0.0);
        let switches = stat
            .lines()
            .find_map(|line| line.strip_prefix("ctxt "))
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0.0);
        Ok(Spent {
            server_ns: clocks(server),
            tool_ns: clocks(tool),
            machine_ns: (all - idle) * 1e7,
            switches,
        })
    }
}

impl Spent {
    /// What was spent since then.
    pub fn since(self, before: Self) -> Self {
        Spent {
            server_ns: self.server_ns - before.server_ns,
            tool_ns: self.tool_ns - before.tool_ns,
            machine_ns: self.machine_ns - before.machine_ns,
            switches: self.switches - before.switches,
        }
    }
}

/// CPU time of processes by their own clocks; one that is gone counts nothing.
fn clocks(pids: &[u32]) -> f64 {
    pids.iter()
        .filter_map(|pid| {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(*pid).ok()?);
            let time = nix::time::clock_getcpuclockid(pid).ok()?.now().ok()?;
            Some(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
        })
        .sum()
}
