//! What disturbed a run: counters of the kernel read at its start, at each epoch, and at its end.
//!
//! Sources: proc(5) for `/proc/stat` and `/proc/PID/stat`; `/proc/PID/task/TID/sched` for
//! migrations (kernel/sched/debug.c), which not every kernel has.

use std::{collections::BTreeMap, time::Instant};

use super::{Host, machine::field};
use bpfcost_record::{Disturbance, Machine};

/// Milliseconds in a tick of `/proc/stat`: USER_HZ, part of the kernel's interface, is 100 on every
/// architecture with a BPF JIT, whatever the kernel's own HZ.
const TICK_MS: f64 = 10.0;

impl Host {
    /// Starts watching what disturbs a run on `cpus`.
    pub fn watch(&self, cpus: &[u32]) -> DisturbanceWatch {
        DisturbanceWatch::start(self.clone(), cpus)
    }

    /// Writes down in a fingerprint what disturbed the run.
    pub fn disturbed(machine: &mut Machine, seen: &Disturbance, other_tracers: Vec<String>) {
        machine.steal_ms = seen.steal_ms;
        machine.other_cpu_ms = seen.other_cpu_ms;
        machine.migrations = seen.migrations;
        machine.mhz = seen.mhz;
        machine.user_bytes = seen.user_bytes;
        machine.other_tracers = other_tracers;
    }
}

/// Watches a machine from its creation on.
#[derive(Debug)]
pub struct DisturbanceWatch {
    host: Host,
    cpus: Vec<u32>,
    online: f64,
    begun: Instant,
    first: KernelCounters,
    mhz: Option<[f64; 2]>,
}

impl DisturbanceWatch {
    /// Begins; `cpus` are those whose frequency matters.
    fn start(host: Host, cpus: &[u32]) -> Self {
        DisturbanceWatch {
            online: host.online_cpus().len().max(1) as f64,
            cpus: cpus.to_vec(),
            begun: Instant::now(),
            first: KernelCounters::read(&host),
            mhz: frequencies(&host, cpus),
            host,
        }
    }

    /// What was seen so far. Call it between epochs, never while a trial runs: it reads files, and
    /// frequencies are known only as of the calls.
    pub fn look(&mut self) -> Disturbance {
        self.mhz = Disturbance::widest(self.mhz, frequencies(&self.host, &self.cpus));
        let now = KernelCounters::read(&self.host);
        let wall_ms = self.begun.elapsed().as_secs_f64() * 1e3;
        Disturbance {
            wall_ms,
            capacity_ms: wall_ms * self.online,
            user_bytes: peak_memory(&self.host.read("/proc/self/status").unwrap_or_default()),
            mhz: self.mhz,
            ..self.first.until(&now)
        }
    }
}

/// Counters of the kernel at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
struct KernelCounters {
    busy: u64,
    steal: u64,
    own_ticks: u64,
    migrations: BTreeMap<String, u64>,
}

impl KernelCounters {
    fn read(host: &Host) -> Self {
        let (busy, steal) = cpu_ticks(&host.read("/proc/stat").unwrap_or_default());
        let migrations = host
            .names("/proc/self/task")
            .into_iter()
            .filter_map(|thread| {
                let sched = host.read(&format!("/proc/self/task/{thread}/sched"))?;
                let count = field(&sched, "se.nr_migrations")?.parse().ok()?;
                Some((thread, count))
            })
            .collect();
        KernelCounters {
            busy,
            steal,
            own_ticks: process_ticks(&host.read("/proc/self/stat").unwrap_or_default()),
            migrations,
        }
    }

    /// What happened between two moments. Counters that run backwards count as still.
    fn until(&self, later: &KernelCounters) -> Disturbance {
        let busy = later.busy.saturating_sub(self.busy);
        let own_ticks = later.own_ticks.saturating_sub(self.own_ticks);
        let steal = later.steal.saturating_sub(self.steal);
        let migrations = later
            .migrations
            .iter()
            .map(|(thread, count)| {
                count.saturating_sub(self.migrations.get(thread).copied().unwrap_or(0))
            })
            .fold(0, u64::saturating_add);
        Disturbance {
            steal_ms: steal as f64 * TICK_MS,
            other_cpu_ms: busy.saturating_sub(own_ticks) as f64 * TICK_MS,
            migrations,
            ..Disturbance::default()
        }
    }
}

/// Busy and stolen ticks over all CPUs, from `/proc/stat`. Time of guests is in user time already.
pub(super) fn cpu_ticks(stat: &str) -> (u64, u64) {
    let fields = ticks(stat);
    let get = |index: usize| fields.get(index).copied().unwrap_or(0);
    let busy = [0, 1, 2, 5, 6]
        .map(get)
        .into_iter()
        .fold(0, u64::saturating_add);
    (busy, get(7))
}

/// All ticks of all CPUs since boot, idle ones included.
pub(super) fn all_ticks(stat: &str) -> u64 {
    ticks(stat).into_iter().fold(0, u64::saturating_add)
}

/// User, nice, system, idle, iowait, irq, softirq, steal.
fn ticks(stat: &str) -> Vec<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let fields = line.unwrap_or_default().split_whitespace().take(8);
    fields.map_while(|field| field.parse().ok()).collect()
}

/// Ticks of this process and of its children that ended, from `/proc/self/stat`.
fn process_ticks(stat: &str) -> u64 {
    // The name is in brackets and may hold anything, brackets too: count from the last one.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0;
    };
    // After the name: state is field 3 of proc(5), utime, stime, cutime and cstime are 14 to 17.
    rest.split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// The greatest resident memory so far, from `/proc/self/status`.
fn peak_memory(status: &str) -> Option<u64> {
    let kib: u64 = field(status, "VmHWM")?
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    kib.checked_mul(1024)
}

/// Lowest and highest current frequency of some CPUs, where cpufreq reports it. In a guest without
/// cpufreq, `/proc/cpuinfo` only repeats the clock rate, so it is not read.
fn frequencies(host: &Host, cpus: &[u32]) -> Option<[f64; 2]> {
    cpus.iter()
        .filter_map(|cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
            host.read(&path)?.parse::<f64>().ok()
        })
        .filter(|khz| khz.is_finite() && *khz > 0.0)
        .map(|khz| Some([khz / 1e3, khz / 1e3]))
        .fold(None, Disturbance::widest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "cpu  9268 15671 5366 150713 888 7 103 16 5 0\ncpu0 1 2 3\nintr 39 0\n";

    #[test]
    fn ticks_are_summed_without_idle_and_guests() {
        assert_eq!(cpu_ticks(STAT), (9268 + 15671 + 5366 + 7 + 103, 16));
        assert_eq!(
            all_ticks(STAT),
            9268 + 15671 + 5366 + 150713 + 888 + 7 + 103 + 16
        );
        assert_eq!(cpu_ticks("cpu  1 2 3"), (6, 0));
        assert_eq!(cpu_ticks(""), (0, 0));
    }

    #[test]
    fn a_process_name_with_brackets_is_passed_over() {
        let stat = "7 (a ) b) R 1 1 1 0 -1 4194304 101 0 0 0 30 4 2 1 20 0 1 0";
        assert_eq!(process_ticks(stat), 37);
        assert_eq!(process_ticks("nonsense"), 0);
    }

    #[test]
    fn what_others_used_is_what_this_process_did_not() {
        let first = KernelCounters {
            busy: 100,
            steal: 5,
            own_ticks: 40,
            migrations: [("1".into(), 3)].into(),
        };
        let later = KernelCounters {
            busy: 400,
            steal: 7,
            own_ticks: 240,
            migrations: [("1".into(), 5), ("2".into(), 1)].into(),
        };
        let seen = first.until(&later);
        assert_eq!(
            (seen.steal_ms, seen.other_cpu_ms, seen.migrations),
            (20.0, 1000.0, 3)
        );
        assert_eq!(later.until(&first), Disturbance::default());
    }

    #[test]
    fn peak_memory_is_in_bytes() {
        assert_eq!(peak_memory("VmPeak: 9 kB\nVmHWM:\t   12 kB\n"), Some(12288));
        assert_eq!(peak_memory("VmHWM: many"), None);
    }

    #[test]
    fn this_machine_can_be_watched() {
        let host = Host::default();
        let mut watch = host.watch(&host.online_cpus());
        let seen = watch.look();
        assert!(seen.wall_ms >= 0.0 && seen.capacity_ms >= seen.wall_ms);
        assert!(seen.user_bytes.is_some_and(|bytes| bytes > 100_000));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(cpu |\\)|[0-9 -]|\\PC){0,60}") {
            let _ = (cpu_ticks(&text), all_ticks(&text), process_ticks(&text), peak_memory(&text));
        }
    }
}
