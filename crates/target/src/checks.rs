//! `bpfcost check`: what can be measured on this machine, and what will disturb it.

use serde::{Deserialize, Serialize};

use super::{
    Host, STEAL_SHARE,
    disturbance::{all_ticks, cpu_ticks},
    format_cpus,
    machine::field,
};
use bpfcost_record::{Disturbance, Machine};

/// The oldest kernel on which BPF programs can time themselves here: `bpf_loop` came with 5.17.
pub const OLDEST_KERNEL: (u32, u32) = (5, 17);

/// Load average beyond which an otherwise idle machine is busy: half a CPU.
const BUSY_LOAD: f64 = 0.5;

/// How one thing on this machine stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// It will disturb the numbers, or is unknown.
    Warn,
    /// Without it there is nothing to measure.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at, in a word or two.
    pub name: String,
    /// How it stands.
    pub state: CheckState,
    /// What was seen.
    pub text: String,
    /// What to do; empty where it is ok.
    pub advice: String,
}

/// State, observation and advice of a check.
pub type CheckResult = (CheckState, String, String);

/// A check that passed.
pub fn ok(text: impl Into<String>) -> CheckResult {
    (CheckState::Ok, text.into(), String::new())
}

/// A check that passed with a reservation.
pub fn warn(text: impl Into<String>, advice: impl Into<String>) -> CheckResult {
    (CheckState::Warn, text.into(), advice.into())
}

/// A check that found something missing.
pub fn missing(text: impl Into<String>, advice: impl Into<String>) -> CheckResult {
    (CheckState::Missing, text.into(), advice.into())
}

impl Check {
    /// Of that name.
    pub fn new(name: &str, (state, text, advice): CheckResult) -> Self {
        Check {
            name: name.to_owned(),
            state,
            text,
            advice,
        }
    }
}

impl Host {
    /// The checks of `bpfcost check`: what can be measured here, and what will disturb it.
    pub fn checks(&self) -> Vec<Check> {
        checks(self)
    }

    /// Capabilities that measuring needs and this process lacks, by name.
    pub fn missing_capabilities(&self) -> Vec<&'static str> {
        missing_capabilities(&self.read("/proc/self/status").unwrap_or_default())
    }

    /// True if the kernel shows this process BPF programs that it has not loaded itself.
    pub fn sees_other_programs(&self) -> bool {
        let status = self.read("/proc/self/status").unwrap_or_default();
        capable(&status, SYS_ADMIN)
    }
}

fn checks(host: &Host) -> Vec<Check> {
    let machine = host.machine();
    let status = host.read("/proc/self/status").unwrap_or_default();
    let user_namespace = user_namespace(host.read("/proc/self/uid_map").as_deref());
    let btf = host.path("/sys/kernel/btf/vmlinux").exists();
    let jit_enable = host.read("/proc/sys/net/core/bpf_jit_enable");
    let disabled = host.read("/proc/sys/kernel/unprivileged_bpf_disabled");
    let stat = host.read("/proc/stat").unwrap_or_default();
    let load_average = host.read("/proc/loadavg");
    [
        ("privileges", privileges(&status)),
        ("user namespace", user_namespace),
        ("kernel", kernel(&machine.kernel)),
        ("BTF", self::btf(btf)),
        ("JIT", jit(jit_enable.as_deref())),
        ("unprivileged BPF", unprivileged(disabled.as_deref())),
        ("bpf_stats", bpf_stats(&machine)),
        ("machine", virtualised(&machine)),
        ("CPUs", cpus(&host.online_cpus())),
        ("clock", clocksource(&machine)),
        ("governor", governor(&machine)),
        ("SMT", smt(&machine)),
        ("interrupt time", irq_time(&machine)),
        ("steal", steal(&stat)),
        ("load", load(load_average.as_deref())),
    ]
    .map(|(name, stand)| Check::new(name, stand))
    .into()
}

/// Capabilities that measuring needs (capabilities(7)), by bit.
const NEEDED: [(u32, &str); 3] = [(12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];

/// CAP_SYS_ADMIN stands for each of them, as the kernel itself has it.
const SYS_ADMIN: u32 = 21;

/// Whether the capability of that bit is in effect.
fn capable(status: &str, bit: u32) -> bool {
    let effective = field(status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    effective.unwrap_or(0) >> bit & 1 == 1
}

/// The needed capabilities that are not in effect, from `/proc/self/status`. Where that can't be
/// read, all are taken as missing.
fn missing_capabilities(status: &str) -> Vec<&'static str> {
    NEEDED
        .iter()
        .filter(|(bit, _)| !capable(status, *bit) && !capable(status, SYS_ADMIN))
        .map(|(_, name)| *name)
        .collect()
}

fn privileges(status: &str) -> CheckResult {
    let lacks = missing_capabilities(status);
    if lacks.is_empty() {
        ok("may load and run BPF programs")
    } else {
        missing(
            format!("missing: {}", lacks.join(", ")),
            "run as root, or grant these capabilities with setcap",
        )
    }
}

/// Capabilities of a user namespace other than the first count for nothing where BPF is loaded.
fn user_namespace(uid_map: Option<&str>) -> CheckResult {
    let words = uid_map.map(|map| map.split_whitespace().collect::<Vec<_>>());
    match words.as_deref() {
        None | Some(["0", "0", "4294967295"]) => ok("the initial one"),
        _ => warn(
            "this process is in another one, whose privileges do not cover BPF",
            "run outside rootless containers, as root of the machine",
        ),
    }
}

/// The first two numbers of a kernel's version.
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(kernel: &str) -> CheckResult {
    let (major, minor) = OLDEST_KERNEL;
    let needed = format!("Linux {major}.{minor} or newer is needed");
    match version(kernel) {
        None => warn(format!("`{kernel}` contains no version number"), needed),
        Some(version) if version < OLDEST_KERNEL => missing(
            format!("Linux {kernel} is too old"),
            format!("{needed} (bpf_loop); boot such a kernel, or measure on another machine"),
        ),
        Some(_) => ok(format!("Linux {kernel}")),
    }
}

fn btf(exists: bool) -> CheckResult {
    if exists {
        ok("/sys/kernel/btf/vmlinux exists")
    } else {
        missing(
            "/sys/kernel/btf/vmlinux is missing (CONFIG_DEBUG_INFO_BTF is not set)",
            "boot a distribution's kernel: they all have it",
        )
    }
}

fn jit(enable: Option<&str>) -> CheckResult {
    const ON: &str = "sysctl net.core.bpf_jit_enable=1";
    match enable {
        Some("1") => ok("on"),
        Some("2") => warn("on, and writes every program to the kernel's log", ON),
        Some(_) => warn(
            "off: programs are interpreted and cost several times more",
            ON,
        ),
        None => warn(
            "unknown: net.core.bpf_jit_enable cannot be read",
            "run as root; a kernel without it has no JIT",
        ),
    }
}

fn unprivileged(disabled: Option<&str>) -> CheckResult {
    match disabled {
        Some("0") => warn(
            "allowed: programs without CAP_PERFMON run with extra checks, bpfcost's do not",
            "sysctl kernel.unprivileged_bpf_disabled=1, the default of distributions",
        ),
        Some(_) => ok("not allowed, the default of distributions"),
        None => ok("not reported by this kernel"),
    }
}

fn bpf_stats(machine: &Machine) -> CheckResult {
    if machine.bpf_stats {
        warn(
            "on: every run of a program reads the clock two more times",
            "sysctl kernel.bpf_stats_enabled=0",
        )
    } else {
        ok("off")
    }
}

fn virtualised(machine: &Machine) -> CheckResult {
    match machine.virtualised.as_deref() {
        None => ok(format!("{}, bare metal", machine.cpu)),
        Some(by) => warn(
            format!("{}, under {by}", machine.cpu),
            "compare only runs of this machine: its host shares caches and memory with others",
        ),
    }
}

fn cpus(online: &[u32]) -> CheckResult {
    match online.len() {
        0 => warn("unknown", "mount /sys"),
        1 => warn(
            "one online: the measurement shares it with all other processes",
            "use a machine with two or more, or expect wider intervals",
        ),
        count => ok(format!("{count} online ({})", format_cpus(online))),
    }
}

fn clocksource(machine: &Machine) -> CheckResult {
    let clock = &machine.clocksource;
    // The same judgement as in a record's warnings.
    let slow = super::warnings(machine, &Disturbance::default())
        .into_iter()
        .any(|warning| warning.code == "clocksource");
    match (clock.is_empty(), slow) {
        (true, _) => warn("unknown", "mount /sys"),
        (_, true) => warn(
            format!("{clock}: slow and coarse to read"),
            "see /sys/devices/system/clocksource/clocksource0/available_clocksource for others",
        ),
        _ => ok(clock),
    }
}

fn governor(machine: &Machine) -> CheckResult {
    match machine.governor.as_deref() {
        None => ok("none: this kernel does not control the frequency"),
        Some("performance") => ok("performance"),
        Some(other) => warn(
            format!("{other}: the frequency moves with load"),
            "cpupower frequency-set -g performance",
        ),
    }
}

fn smt(machine: &Machine) -> CheckResult {
    match machine.smt {
        Some(true) => warn(
            "on: a sibling thread takes its share of the core",
            "keep siblings idle, or echo off > /sys/devices/system/cpu/smt/control",
        ),
        Some(false) => ok("off, or not present"),
        None => ok("not reported by this kernel"),
    }
}

fn irq_time(machine: &Machine) -> CheckResult {
    match machine.irq_time {
        Some(false) => ok("counted for the process that was interrupted"),
        Some(true) => warn(
            "counted by itself: the CPU time of a server lacks it",
            "workloads show the CPU time of the machine instead, which other processes add to; boot with \
             tsc=noirqtime to see the server's",
        ),
        None => warn(
            "unknown: /sys/kernel/btf/vmlinux cannot be read",
            "boot a kernel with BTF; where interrupts are counted by themselves, a server's CPU time lacks them",
        ),
    }
}

fn steal(stat: &str) -> CheckResult {
    let (_, steal) = cpu_ticks(stat);
    let share = steal as f64 / all_ticks(stat).max(1) as f64;
    let text = format!("{:.2} % of the CPU time since boot", share * 100.0);
    if share > STEAL_SHARE {
        warn(
            text,
            "the hypervisor serves other guests too: measure longer, or on another machine",
        )
    } else {
        ok(text)
    }
}

fn load(loadavg: Option<&str>) -> CheckResult {
    let one: Option<f64> = loadavg.and_then(|text| text.split_whitespace().next()?.parse().ok());
    match one {
        None => warn("unknown", "mount /proc"),
        Some(one) if one > BUSY_LOAD => warn(
            format!("{one:.2} over the last minute"),
            "stop other processes, or expect wider intervals",
        ),
        Some(one) => ok(format!("{one:.2} over the last minute")),
    }
}
