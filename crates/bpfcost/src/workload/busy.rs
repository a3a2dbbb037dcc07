//! Busy time of the machine's CPUs: wall time − idle − steal. `/proc/stat` samples most of that by ticks
//! (include/linux/kernel_stat.h, CONFIG_TICK_CPU_ACCOUNTING) and charges an interrupt to the task that it hit. But
//! the tick code itself measures idle time in nanoseconds, up to each interrupt (kernel/time/tick-sched.c,
//! tick_nohz_stop_idle), and `/proc/timer_list` shows it.
//!
//! The kernel adds up idle time when a CPU leaves idle. So a thread visits each CPU first; the error is then the
//! time from the visit to the reading, some microseconds.

use std::fs;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Nanoseconds of the ticks that `/proc/stat` counts in: USER_HZ is 100 wherever BPF runs.
const TICK_NS: f64 = 1e7;

/// Busy time of all CPUs so far, in nanoseconds; only differences mean something.
pub(super) fn busy_ns() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    visit().context("cannot run on each CPU")?;
    match precise() {
        Some(awake_ns) => Ok(awake_ns - stolen_ns(&stat)),
        None => Ok(by_ticks(&stat)),
    }
}

/// Where that comes from on this machine.
pub(super) fn source() -> &'static str {
    match precise() {
        Some(_) => "wall time less idle time of /proc/timer_list less steal",
        None => "ticks of 10 ms (/proc/timer_list cannot be read, or shows no idle time)",
    }
}

fn precise() -> Option<f64> {
    awake_ns(&fs::read_to_string("/proc/timer_list").ok()?)
}

/// Runs on each CPU for a moment.
fn visit() -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one)?;
    }
    sched_setaffinity(None, &allowed)
}

/// Wall time less idle time, over all CPUs; `None` where the kernel does not measure idling, for it never
/// stops the tick.
fn awake_ns(list: &str) -> Option<f64> {
    let number = |text: &str| {
        let value = text.trim_start_matches([' ', ':']);
        value.trim_end_matches(" nsecs").parse::<f64>().ok()
    };
    let (mut now, mut cpus, mut idle) = (None, 0.0, 0.0);
    for line in list.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("now at ") {
            now = number(rest);
        } else if let Some(rest) = line.strip_prefix(".nohz") {
            // `.nohz_mode` before Linux 6.9, which is 0 as well where there is none.
            if number(rest.trim_start_matches("_mode"))? == 0.0 {
                return None;
            }
            cpus += 1.0;
        } else if let Some(rest) = line.strip_prefix(".idle_sleeptime") {
            idle += number(rest)?;
        } else if let Some(rest) = line.strip_prefix(".iowait_sleeptime") {
            idle += number(rest)?;
        }
    }
    (cpus > 0.0).then_some(now? * cpus - idle)
}

/// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, in ticks.
fn columns(stat: &str) -> Vec<f64> {
    let line = stat.lines().next().unwrap_or_default();
    let fields = line.split_whitespace().skip(1).take(8);
    fields.filter_map(|field| field.parse().ok()).collect()
}

fn stolen_ns(stat: &str) -> f64 {
    columns(stat).get(7).unwrap_or(&0.0) * TICK_NS
}

fn by_ticks(stat: &str) -> f64 {
    let columns = columns(stat);
    let busy = columns.iter().take(3).chain(columns.iter().skip(5).take(2));
    busy.sum::<f64>() * TICK_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
Timer List Version: v0.10
now at 1000 nsecs

cpu: 0
  .nohz           : 1
  .idle_sleeptime : 600 nsecs
  .iowait_sleeptime: 50 nsecs
cpu: 1
  .nohz           : 1
  .idle_sleeptime : 100 nsecs
  .iowait_sleeptime: 0 nsecs
";

    #[test]
    fn what_did_not_idle_was_busy() {
        assert_eq!(awake_ns(LIST), Some(1250.0));
        let older = LIST.replace(".nohz           : 1", ".nohz_mode      : 2");
        assert_eq!(awake_ns(&older), Some(1250.0));
        let none = LIST.replace(".nohz           : 1", ".nohz           : 0");
        assert_eq!(awake_ns(&none), None);
        assert_eq!(awake_ns(""), None);
    }

    #[test]
    fn ticks_are_the_way_out() {
        let stat = "cpu  10 1 20 1000 50 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(by_ticks(stat), 36.0 * TICK_NS);
        assert_eq!(stolen_ns(stat), 4.0 * TICK_NS);
    }
}
