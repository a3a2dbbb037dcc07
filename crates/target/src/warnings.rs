//! Warnings about the machine: what disturbed a run, its effect on the numbers, and what to do.

use bpfcost_measure::Warning;
use bpfcost_record::{Disturbance, Machine};

/// Share of the CPUs' time that a hypervisor may take away: beyond 1 %, which is also the margin
/// within which kernel costs count as the same, batches are stretched noticeably.
pub const STEAL_SHARE: f64 = 0.01;

/// Share of the CPUs' time that other processes may use. Daemons of an idle machine stay below 1 %;
/// at 5 % every twentieth batch shares caches or its CPU with something else.
pub const BUSY_SHARE: f64 = 0.05;

/// Moves of threads between CPUs a second. A move costs microseconds and cold caches; a pinned
/// thread makes none, the helper threads of this program a few in a whole run.
pub const MIGRATIONS_PER_S: f64 = 1.0;

/// Moves that never count as many, however short the run: threads are placed when they start.
pub const MIN_MIGRATIONS: u64 = 10;

/// By how much of its highest value the frequency may vary. Turbo steps of 100 MHz at 3 GHz are
/// 3 %; beyond 5 % nanoseconds of early and late epochs differ more than their intervals say.
pub const FREQUENCY_SHARE: f64 = 0.05;

/// [`Warning::code`] where every instruction was emulated.
pub const EMULATED: &str = "emulated";

/// [`Warning::code`] where other processes used the CPUs.
pub const BUSY: &str = "busy-neighbours";

/// [`Warning::code`] where threads moved between CPUs.
pub const MIGRATIONS: &str = "migrations";

/// Clocks that are read without leaving the CPU. Others take a microsecond or an exit of the guest.
const FAST_CLOCKS: [&str; 5] = [
    "tsc",
    "arch_sys_counter",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "xen",
];

/// What a reader of a record should know about its machine.
pub fn warnings(machine: &Machine, seen: &Disturbance) -> Vec<Warning> {
    // A part of the time that the CPUs had, 0 where nothing was watched.
    let share = |part_ms: f64| {
        if seen.capacity_ms > 0.0 {
            part_ms / seen.capacity_ms
        } else {
            0.0
        }
    };
    let (steal, busy) = (share(seen.steal_ms), share(seen.other_cpu_ms));
    let moves = (seen.wall_ms / 1e3 * MIGRATIONS_PER_S).max(MIN_MIGRATIONS as f64);
    let [low, high] = seen.mhz.unwrap_or_default();
    let governor = machine.governor.as_deref().unwrap_or("performance");
    let clock = machine.clocksource.as_str();
    // A guest of this program's own: what runs it is known, and said where it matters.
    let virtualised = machine
        .virtualised
        .as_deref()
        .filter(|_| machine.emulator.is_none());
    let rules = [
        (
            "steal",
            (steal > STEAL_SHARE).then(|| {
                format!(
                    "the hypervisor took {:.1} % of the CPU time away during the run, \
                     which stretched batches; measure longer, or when its other guests \
                     are quiet",
                    steal * 100.0
                )
            }),
        ),
        (
            BUSY,
            (busy > BUSY_SHARE).then(|| {
                format!(
                    "other processes used {:.0} % of the CPU time during the run, \
                     which widens the intervals; stop them, or reserve a CPU with \
                     --cpus",
                    busy * 100.0
                )
            }),
        ),
        (
            MIGRATIONS,
            (seen.migrations as f64 > moves).then(|| {
                format!(
                    "threads of bpfcost moved between CPUs {} times during the run, to \
                     cold caches each time; pin them with --cpus",
                    seen.migrations
                )
            }),
        ),
        (
            "frequency",
            ((high - low) / high > FREQUENCY_SHARE).then(|| {
                format!(
                    "the CPUs ran between {low:.0} and {high:.0} MHz, so times of \
                     different moments differ; fix it with the `performance` governor \
                     and turbo off"
                )
            }),
        ),
        (
            "other-tracers",
            (!machine.other_tracers.is_empty()).then(|| {
                format!(
                    "BPF programs of others were loaded during the run: {}. If they \
                     share a hook with a measured program, their cost is in the \
                     numbers; stop them to be sure",
                    tracers(&machine.other_tracers)
                )
            }),
        ),
        (
            "governor",
            (governor != "performance").then(|| {
                format!(
                    "the frequency governor is `{governor}`; with `performance` the \
                     frequency varies less (cpupower frequency-set -g performance)"
                )
            }),
        ),
        (
            "bpf-stats-on",
            machine.bpf_stats.then(|| {
                "kernel.bpf_stats_enabled is on: every run of a BPF program reads \
                     the clock two more times, which is in the numbers; switch it off \
                     with `sysctl kernel.bpf_stats_enabled=0`"
                    .to_owned()
            }),
        ),
        (
            "jit-off",
            (!machine.jit).then(|| {
                "the BPF JIT is off, or its state is unknown: interpreted programs \
                     cost several times as much; switch it on with `sysctl \
                     net.core.bpf_jit_enable=1`"
                    .to_owned()
            }),
        ),
        (
            "clocksource",
            (!clock.is_empty() && !FAST_CLOCKS.contains(&clock)).then(|| {
                format!(
                    "the kernel's clock is `{clock}`, which is slow and coarse to \
                     read; batches hide most of it, single windows do not. See \
                     /sys/devices/system/clocksource/clocksource0/available_clocksource \
                     for others"
                )
            }),
        ),
        (
            "virtualised",
            virtualised.map(|by| match by {
                "container" => "this is a container: other load on the same kernel is in the \
                     numbers, and is not visible from here"
                    .to_owned(),
                by => format!(
                    "this is a virtual machine ({by}): its host shares caches and \
                     memory with others, and costs can differ from those on hardware; \
                     compare only runs of this machine"
                ),
            }),
        ),
        (
            EMULATED,
            machine.emulates_time().then(|| {
                "every instruction was emulated, so these times are the \
                     emulator's: caches, branches and clock rates of a CPU are not in \
                     them. They show which case of a run does more work; for costs that \
                     repeat, count instructions with --on exact:KERNEL"
                    .to_owned()
            }),
        ),
    ];
    let rules = rules.into_iter();
    rules
        .filter_map(|(code, text)| Some(Warning::new(code, text?)))
        .collect()
}

/// The first of them by name; the record has them all.
fn tracers(all: &[String]) -> String {
    const NAMED: usize = 3;
    match all.get(NAMED..).map_or(0, <[String]>::len) {
        0 => all.join(", "),
        more => format!("{} and {more} more", all[..NAMED].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> (Machine, Disturbance) {
        let machine = Machine {
            jit: true,
            clocksource: "tsc".into(),
            governor: Some("performance".into()),
            ..Machine::default()
        };
        let seen = Disturbance {
            wall_ms: 60_000.0,
            capacity_ms: 120_000.0,
            steal_ms: 1_200.0,
            other_cpu_ms: 6_000.0,
            migrations: 60,
            mhz: Some([2850.0, 3000.0]),
            user_bytes: None,
        };
        (machine, seen)
    }

    fn codes(machine: &Machine, seen: &Disturbance) -> Vec<String> {
        warnings(machine, seen)
            .into_iter()
            .map(|warning| warning.code)
            .collect()
    }

    #[test]
    fn at_its_thresholds_a_machine_is_quiet() {
        let (machine, seen) = quiet();
        assert_eq!(codes(&machine, &seen), [""; 0]);
        assert_eq!(codes(&machine, &Disturbance::default()), [""; 0]);
    }

    #[test]
    fn each_disturbance_has_its_code() {
        let (machine, quiet) = quiet();
        let with = |change: fn(&mut Disturbance)| {
            let mut seen = quiet;
            change(&mut seen);
            codes(&machine, &seen)
        };
        assert_eq!(with(|seen| seen.steal_ms = 1_210.0), ["steal"]);
        assert_eq!(
            with(|seen| seen.other_cpu_ms = 6_010.0),
            ["busy-neighbours"]
        );
        assert_eq!(with(|seen| seen.migrations = 61), ["migrations"]);
        assert_eq!(
            with(|seen| seen.mhz = Some([2840.0, 3000.0])),
            ["frequency"]
        );
        let short = Disturbance {
            wall_ms: 1.0,
            migrations: 10,
            ..Disturbance::default()
        };
        assert_eq!(codes(&machine, &short), [""; 0]);
    }

    #[test]
    fn each_trait_of_a_machine_has_its_code() {
        let (machine, seen) = quiet();
        let with = |change: fn(&mut Machine)| {
            let mut machine = machine.clone();
            change(&mut machine);
            codes(&machine, &seen)
        };
        assert_eq!(
            with(|m| m.other_tracers = vec!["xdp x (1)".into()]),
            ["other-tracers"]
        );
        assert_eq!(
            with(|m| m.governor = Some("powersave".into())),
            ["governor"]
        );
        assert_eq!(with(|m| m.governor = None), [""; 0]);
        assert_eq!(with(|m| m.bpf_stats = true), ["bpf-stats-on"]);
        assert_eq!(with(|m| m.jit = false), ["jit-off"]);
        assert_eq!(with(|m| m.clocksource = "hpet".into()), ["clocksource"]);
        assert_eq!(
            with(|m| m.virtualised = Some("KVM".into())),
            ["virtualised"]
        );
        assert_eq!(
            with(|m| m.emulator = Some("QEMU 7.2, tcg, -cpu max".into())),
            ["emulated"]
        );
        let quiet = |m: &mut Machine| {
            m.virtualised = Some("KVM".into());
            m.emulator = Some("QEMU 7.2, kvm, -cpu host".into());
        };
        assert_eq!(with(quiet), [""; 0]);
        assert_eq!(
            with(|m| m.emulator = Some("QEMU 7.2, tcg, -cpu max, -icount shift=0".into())),
            [""; 0]
        );
    }

    #[test]
    fn many_tracers_are_counted_not_listed() {
        let machine = Machine {
            other_tracers: (0..5).map(|id| format!("xdp p ({id})")).collect(),
            ..quiet().0
        };
        let text = &warnings(&machine, &Disturbance::default())[0].text;
        assert!(text.contains("xdp p (2) and 2 more"), "{text}");
    }
}
