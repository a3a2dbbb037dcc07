//! Busy time of the machine's CPUs: wall time − idle − steal. `/proc/stat` samples most of that by ticks
//! (include/linux/kernel_stat.h, CONFIG_TICK_CPU_ACCOUNTING) and charges an interrupt to the task that it hit. But
//! the tick code itself measures idle time in nanoseconds, up to each interrupt (kernel/time/tick-sched.c,
//! tick_nohz_stop_idle), and `/proc/timer_list` shows it.
//!
//! The kernel adds up idle time when a CPU leaves idle. So a thread visits each CPU first; the error is then the
//! time from the visit to the reading, some microseconds. CPUs that this process may not use are not visited. Where
//! such a CPU has stopped its tick to idle, the list shows since when, and that is added; where it has not, it has
//! idled for less than a tick.

use std::fs;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Nanoseconds of the ticks that `/proc/stat` counts in: USER_HZ is 100 wherever BPF runs.
const TICK_NS: f64 = 1e7;

/// Busy time of the machine so far; only differences mean something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Busy {
    /// Of all CPUs that are online, in nanoseconds.
    pub(super) ns: f64,
    /// How many these are.
    pub(super) cpus: f64,
}

/// Visits each CPU, then reads its busy time.
pub(super) fn read() -> Result<Busy> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    visit().context("cannot run on each CPU")?;
    Ok(match precise() {
        Some(awake) => Busy {
            ns: awake.ns - stolen_ns(&stat),
            ..awake
        },
        None => by_ticks(&stat),
    })
}

/// Where that comes from on this machine.
pub(super) fn source() -> &'static str {
    match precise() {
        Some(_) => "wall time less idle time of /proc/timer_list less steal",
        None => "ticks of 10 ms (/proc/timer_list cannot be read, or shows no idle time)",
    }
}

fn precise() -> Option<Busy> {
    awake(&fs::read_to_string("/proc/timer_list").ok()?)
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

/// What the list shows of a CPU, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Idling {
    /// Idle time that was added up.
    total: f64,
    tick_stopped: bool,
    /// When it last began to idle.
    entry: f64,
    /// When it last was woken from that, by an interrupt or for good.
    woken: f64,
}

impl Idling {
    /// Its idle time up to `now`.
    fn until(self, now: f64) -> f64 {
        let idles = self.tick_stopped && self.entry > self.woken;
        self.total
            + if idles {
                (now - self.entry).max(0.0)
            } else {
                0.0
            }
    }
}

/// Wall time less idle time, over all CPUs; `None` where the kernel does not measure idling, for it never
/// stops the tick.
fn awake(list: &str) -> Option<Busy> {
    let number = |text: &str| {
        let value = text.trim_start_matches([' ', ':']);
        value.trim_end_matches(" nsecs").parse::<f64>().ok()
    };
    let (mut now, mut cpus) = (None, Vec::<Idling>::new());
    for line in list.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("now at ") {
            now = number(rest);
        } else if let Some(rest) = line.strip_prefix(".nohz") {
            // `.nohz_mode` before Linux 6.9, which is 0 as well where there is none.
            if number(rest.trim_start_matches("_mode"))? == 0.0 {
                return None;
            }
            cpus.push(Idling::default());
        }
        let Some(cpu) = cpus.last_mut() else {
            continue;
        };
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.trim() {
            ".idle_sleeptime" | ".iowait_sleeptime" => cpu.total += number(value)?,
            ".tick_stopped" => cpu.tick_stopped = number(value)? != 0.0,
            ".idle_entrytime" => cpu.entry = number(value)?,
            ".idle_waketime" | ".idle_exittime" => cpu.woken = cpu.woken.max(number(value)?),
            _ => {}
        }
    }
    let now = now?;
    (!cpus.is_empty()).then(|| Busy {
        ns: cpus.iter().map(|cpu| now - cpu.until(now)).sum(),
        cpus: cpus.len() as f64,
    })
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

fn by_ticks(stat: &str) -> Busy {
    let columns = columns(stat);
    let busy = columns.iter().take(3).chain(columns.iter().skip(5).take(2));
    let cpu = |line: &&str| {
        let number = line.strip_prefix("cpu");
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Busy {
        ns: busy.sum::<f64>() * TICK_NS,
        cpus: stat.lines().filter(cpu).count() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
Timer List Version: v0.10
now at 1000 nsecs

cpu: 0
  .nohz           : 1
  .tick_stopped   : 0
  .idle_entrytime : 900 nsecs
  .idle_waketime  : 800 nsecs
  .idle_exittime  : 850 nsecs
  .idle_sleeptime : 600 nsecs
  .iowait_sleeptime: 50 nsecs
cpu: 1
  .nohz           : 1
  .idle_sleeptime : 100 nsecs
  .iowait_sleeptime: 0 nsecs
";

    fn busy(ns: f64) -> Option<Busy> {
        Some(Busy { ns, cpus: 2.0 })
    }

    #[test]
    fn what_did_not_idle_was_busy() {
        assert_eq!(awake(LIST), busy(1250.0));
        let older = LIST.replace(".nohz           : 1", ".nohz_mode      : 2");
        assert_eq!(awake(&older), busy(1250.0));
        let none = LIST.replace(".nohz           : 1", ".nohz           : 0");
        assert_eq!(awake(&none), None);
        assert_eq!(awake(""), None);
    }

    #[test]
    fn a_cpu_that_still_idles_was_not_busy_since() {
        let stopped = LIST.replace(".tick_stopped   : 0", ".tick_stopped   : 1");
        assert_eq!(awake(&stopped), busy(1150.0));
        // It runs, or serves an interrupt.
        for name in [".idle_waketime  : 8", ".idle_exittime  : 8"] {
            let woken = stopped.replace(name, &name.replace('8', "9"));
            assert_eq!(awake(&woken), busy(1250.0));
        }
        // It began to idle after the list did.
        let later = stopped.replace("900", "1001");
        assert_eq!(awake(&later), busy(1250.0));
    }

    #[test]
    fn ticks_are_the_way_out() {
        let stat = "cpu  10 1 20 1000 50 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu7 1 1\nctxt 7\n";
        assert_eq!(by_ticks(stat), busy(36.0 * TICK_NS).expect("two CPUs"));
        assert_eq!(stolen_ns(stat), 4.0 * TICK_NS);
    }
}
