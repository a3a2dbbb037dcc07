//! The host read from folders made up for the test.

use std::fs;

use tempfile::TempDir;

use super::{CheckState, Host};

/// A machine whose files are these.
fn host(files: &[(&str, &str)]) -> (TempDir, Host) {
    let root = TempDir::new().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let host = Host::at(root.path());
    (root, host)
}

const CPUINFO: &str = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\n\
                       flags\t\t: fpu vme hypervisor tsc\n\nprocessor\t: 1\n";

fn good() -> Vec<(&'static str, &'static str)> {
    vec![
        ("proc/sys/kernel/osrelease", "6.12.1-amd64\n"),
        ("proc/sys/kernel/version", "#1 SMP Debian\n"),
        (
            "proc/cpuinfo",
            "processor : 0\nmodel name : A CPU: fast\nflags : fpu tsc\n",
        ),
        ("proc/self/status", "Name:\tx\nCapEff:\t000000c000001000\n"),
        ("proc/self/uid_map", "         0          0 4294967295\n"),
        ("proc/stat", "cpu  10 0 10 979 0 0 0 1 0 0\n"),
        ("proc/loadavg", "0.12 2.08 0.90 7/134 21511\n"),
        ("proc/sys/net/core/bpf_jit_enable", "1\n"),
        ("proc/sys/kernel/bpf_stats_enabled", "0\n"),
        ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
        ("sys/kernel/btf/vmlinux", "btf"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/devices/system/cpu/possible", "0-3\n"),
        ("sys/devices/system/cpu/smt/active", "0\n"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "performance\n",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
            "3000000\n",
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq",
            "2500000\n",
        ),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "tsc\n",
        ),
        (
            "sys/devices/system/cpu/vulnerabilities/retbleed",
            "Vulnerable\n",
        ),
        (
            "sys/devices/system/cpu/vulnerabilities/l1tf",
            "Not affected\n",
        ),
    ]
}

/// The good machine with one file changed.
fn with(path: &'static str, text: &'static str) -> (TempDir, Host) {
    let mut files = good();
    files.retain(|(name, _)| *name != path);
    files.push((path, text));
    host(&files)
}

/// The names of checks that are not ok, with their state.
fn troubles(host: &Host) -> Vec<(String, CheckState)> {
    host.checks()
        .into_iter()
        .filter(|check| check.state != CheckState::Ok)
        .inspect(|check| assert!(!check.advice.is_empty(), "{check:?}"))
        .map(|check| (check.name, check.state))
        .collect()
}

#[test]
fn a_fingerprint_is_read() {
    let (_root, host) = host(&good());
    let machine = host.machine();
    assert_eq!(machine.kernel, "6.12.1-amd64");
    assert_eq!(machine.kernel_build, "#1 SMP Debian");
    assert_eq!(machine.cpu, "A CPU: fast");
    assert_eq!(machine.cpus, 2);
    assert_eq!(machine.virtualised, None);
    assert_eq!(machine.clocksource, "tsc");
    assert_eq!(machine.governor.as_deref(), Some("performance"));
    assert_eq!(machine.smt, Some(false));
    assert_eq!(machine.mitigations, ["retbleed: Vulnerable"]);
    assert!(machine.jit && !machine.bpf_stats);
}

#[test]
fn an_empty_machine_has_an_empty_fingerprint() {
    let (_root, host) = host(&[]);
    let machine = host.machine();
    assert_eq!((machine.kernel.as_str(), machine.cpus), ("", 0));
    assert_eq!((machine.smt, machine.governor), (None, None));
    assert!(!machine.jit);
    assert_eq!(host.watch(&[0]).look().mhz, None);
    assert_eq!(host.missing_capabilities().len(), 3);
    assert!(host.usable_cpus(&[0]).is_err());
}

#[test]
fn guests_and_containers_are_told_from_bare_metal() {
    let (_root, host) = with("proc/cpuinfo", CPUINFO);
    assert_eq!(host.machine().virtualised.as_deref(), Some("a hypervisor"));
    let (_root, host) = with("sys/class/dmi/id/sys_vendor", "QEMU\n");
    assert_eq!(host.machine().virtualised.as_deref(), Some("QEMU"));
    let (_root, host) = with("run/.containerenv", "x");
    assert_eq!(host.machine().virtualised.as_deref(), Some("container"));
    let (root, host) = with("sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
    assert_eq!(host.machine().virtualised.as_deref(), Some("Amazon EC2"));
    fs::write(
        root.path().join("sys/class/dmi/id/product_name"),
        "m5.metal\n",
    )
    .unwrap();
    assert_eq!(host.machine().virtualised, None);
}

#[test]
fn a_good_machine_passes_every_check() {
    let (_root, host) = host(&good());
    assert_eq!(troubles(&host), []);
    let (_root, oldest) = with("proc/sys/kernel/osrelease", "5.17.0");
    assert_eq!(troubles(&oldest), []);
}

#[test]
fn each_trouble_is_found() {
    use CheckState::{Missing, Warn};
    for (path, text, name, state) in [
        (
            "proc/self/status",
            "CapEff:\t0000008000001000\n",
            "privileges",
            Missing,
        ),
        ("proc/self/uid_map", "0 1000 1\n", "user namespace", Warn),
        ("proc/sys/kernel/osrelease", "5.16.9", "kernel", Missing),
        ("proc/sys/kernel/osrelease", "six", "kernel", Warn),
        ("proc/sys/net/core/bpf_jit_enable", "0", "JIT", Warn),
        (
            "proc/sys/kernel/unprivileged_bpf_disabled",
            "0",
            "unprivileged BPF",
            Warn,
        ),
        ("proc/sys/kernel/bpf_stats_enabled", "1", "bpf_stats", Warn),
        ("proc/cpuinfo", CPUINFO, "machine", Warn),
        ("sys/devices/system/cpu/online", "0", "CPUs", Warn),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
            "clock",
            Warn,
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave",
            "governor",
            Warn,
        ),
        ("sys/devices/system/cpu/smt/active", "1", "SMT", Warn),
        (
            "sys/kernel/btf/vmlinux",
            "\0cpu_irqtime\0",
            "interrupt time",
            Warn,
        ),
        ("proc/stat", "cpu  10 0 10 979 0 0 0 11 0 0", "steal", Warn),
        ("proc/loadavg", "0.51 0 0 1/1 1", "load", Warn),
    ] {
        let (_root, host) = with(path, text);
        assert_eq!(troubles(&host), [(name.to_owned(), state)], "{path}");
    }
}

#[test]
fn a_kernel_that_accounts_interrupts_by_themselves_is_known_by_its_types() {
    let irq_time = |files: &[(&str, &str)]| host(files).1.machine().irq_time;
    const TYPES: &str = "sys/kernel/btf/vmlinux";
    let with = (TYPES, "\u{9f}\0cpu_info\0cpu_irqtime\0cpu_mask\0");
    assert_eq!(irq_time(&[]), None);
    assert_eq!(irq_time(&[(TYPES, "")]), None);
    assert_eq!(
        irq_time(&[(TYPES, "\0cpu_info\0no_cpu_irqtime\0")]),
        Some(false)
    );
    assert_eq!(irq_time(&[with]), Some(true));
    assert_eq!(
        irq_time(&[with, ("proc/cmdline", "ro quiet\n")]),
        Some(true)
    );
    let off = ("proc/cmdline", "ro tsc=noirqtime quiet\n");
    assert_eq!(irq_time(&[with, off]), Some(false));
}

#[test]
fn missing_capabilities_are_named() {
    let (_root, none) = with("proc/self/status", "CapEff:\t0000000000000000\n");
    assert_eq!(
        none.missing_capabilities(),
        ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]
    );
    let (_root, no_perfmon) = with("proc/self/status", "CapEff:\t0000008000001000\n");
    assert_eq!(no_perfmon.missing_capabilities(), ["CAP_PERFMON"]);
    let (_root, sys_admin) = with("proc/self/status", "CapEff:\t0000000000200000\n");
    assert_eq!(sys_admin.missing_capabilities(), [""; 0]);
}

#[test]
fn frequencies_are_those_of_the_measuring_cpus() {
    let (_root, host) = host(&good());
    assert_eq!(host.watch(&[0, 1]).look().mhz, Some([2500.0, 3000.0]));
    assert_eq!(host.watch(&[0]).look().mhz, Some([3000.0, 3000.0]));
}
