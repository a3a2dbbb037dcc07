//! Synthetic records of workloads whose costs are known, built as a run builds them: one probe, two that are
//! compared with each other, several, and two over sizes; one that counts calls; one that never fired.

use bpfcost::builtin::workload::Workload;
use bpfcost_measure::{Plan, Stop};
use bpfcost_model::{Case, Experiment, OFF, ProbedWorkload, Problem, Trial, VARIANT};
use bpfcost_record::*;
use bpfcost_workload::Definition;

use super::synthetic;

/// CPU time of redis per command without a probe, in nanoseconds.
pub const COMMAND_NS: f64 = 5_000.0;
/// Epochs of a quick run.
pub const EPOCHS: usize = 12;
/// Sizes in KiB.
pub const SIZES: [u32; 4] = [1, 4, 16, 256];

/// redis with one probe that costs this share more; values are off by `noise` of themselves at most.
pub fn one(share: f64, noise: f64, budget: Option<f64>) -> Record {
    redis(&[("bpftrace", share)], false, noise, budget)
}

/// redis with a probe that costs nothing, but this share more in one window of six; and with that many operations a
/// window.
pub fn seldom(extra: f64, budget: Option<f64>) -> Record {
    let text = redis_text(&[("agent", 0.0)], false);
    let windows = std::cell::Cell::new(0);
    build_of(
        Machine::default(),
        &text,
        EPOCHS,
        budget,
        |case, epoch, off| {
            let luck = 1.0 + 0.03 * ((epoch * 7 % 5) as f64 - 2.0) / 2.0;
            let probed = case.name == "agent";
            windows.set(windows.get() + usize::from(probed));
            let rare = if probed && windows.get() % 6 == 1 {
                1.0 + extra
            } else {
                1.0
            };
            let mut trial = trial(case, COMMAND_NS, 0.0, luck * (1.0 + 0.004 * off));
            trial.value *= rare;
            trial.secondary.insert("ops".to_owned(), 50_000.0);
            trial
        },
    )
}

/// redis with two probes, which are compared with each other too.
pub fn two(budget: Option<f64>) -> Record {
    redis(
        &[("bpftrace", 0.021), ("falco", 0.094)],
        true,
        0.004,
        budget,
    )
}

/// redis with five probes: one costs nothing, one is open, one could not run.
pub fn several() -> Record {
    let probes = [
        ("nothing", 0.0),
        ("tracepoint", 0.04),
        ("map", 0.09),
        ("stack", 0.35),
        ("kprobe", 0.1),
    ];
    let mut record = redis(&probes, false, 0.004, None);
    let kprobe = record.cases.iter_mut().find(|case| case.name == "kprobe");
    let kprobe = kprobe.unwrap();
    kprobe.status = Status::Unsupported;
    kprobe.reason = Some("needs CONFIG_KPROBES".into());
    kprobe.raw = None;
    record.comparisons.retain(|one| one.case != "kprobe");
    for metric in &mut record.metrics {
        metric.comparisons.retain(|one| one.case != "kprobe");
        metric.cases.remove("kprobe");
    }
    record
}

/// redis with probes that count its calls, which are of twelve kinds.
pub fn counted(probes: &[&str]) -> Record {
    const KINDS: [&str; 12] = [
        "read",
        "write",
        "epoll_wait",
        "futex",
        "openat",
        "close",
        "fstat",
        "mmap",
        "brk",
        "getpid",
        "fcntl",
        "ioctl",
    ];
    let costs: Vec<(&str, f64)> = probes.iter().map(|name| (*name, 0.09)).collect();
    let mut record = redis(&costs, false, 0.004, None);
    for case in record.cases.iter_mut().filter(|case| !case.baseline) {
        let mut put = |name: &str, value: f64| {
            let windows = vec![vec![value; synthetic::TRIALS]; EPOCHS];
            case.secondary.insert(name.to_owned(), windows);
        };
        put("ops", 50_000.0);
        // Each kind half as often as the one before it.
        for (place, name) in KINDS.into_iter().enumerate() {
            let calls = 60_000.0 / f64::from(1 << place);
            put(&format!("calls_{name}"), calls.round());
            put(&format!("calls_{name}_ns"), 400.0 + 100.0 * place as f64);
        }
        put("syscalls", 120_000.0);
        // What a sniffer counts.
        put("calls_written", 50_000.0);
    }
    record
}

/// redis with a probe that never fired.
pub fn silent() -> Record {
    let mut record = one(0.0, 0.004, None);
    let probed = record.cases.iter_mut().find(|case| !case.baseline).unwrap();
    probed.status = Status::Invalid;
    probed.raw = None;
    probed.problems = vec![Problem {
        check: "hits of the probe".into(),
        expected: "at least 1".into(),
        got: "0".into(),
        detail: "The probe fired 0 times: nothing was measured. Is the symbol used by this binary?"
            .into(),
    }];
    record.comparisons.clear();
    for metric in &mut record.metrics {
        metric.comparisons.clear();
        metric.cases.remove("bpftrace");
    }
    record
}

/// nginx with TLS over sizes: one probe whose cost falls with the size, and one that costs half of that.
pub fn sizes() -> Record {
    sizes_in(EPOCHS)
}

/// The same, from so many epochs.
pub fn sizes_in(epochs: usize) -> Record {
    let text = r#"
        name = "nginx-ssl"
        about = "what does a look into TLS cost nginx?"
        operation = "request"
        over = "size"
        prose = """
        Study 004 with intervals. Small answers are dearest to watch: what a probe costs is paid per call, not per byte.

        Throughput falls by less wherever the client is what limits it.
        """
        [server]
        command = ["nginx"]
        [[client]]
        command = ["wrk"]
        output = "wrk"
        [[factor]]
        name = "size"
        about = "KiB of an answer"
        values = ["1", "4", "16", "256"]
        [[variant]]
        name = "sslsniff"
        about = "payload of SSL_read and SSL_write to a ring buffer"
        probe = "builtin:sslsniff"
        [[variant]]
        name = "user"
        about = "the same in user space"
        probe = "builtin:sslsniff"
    "#;
    build(text, epochs, 0.004, None, |case| {
        let factor = |name: &str| case.factors.get(name).map_or("", String::as_str);
        let size: f64 = factor("size").parse().unwrap();
        let base = 30_000.0 + 1_500.0 * size;
        let share = 14_000.0 / base;
        let share = match factor("variant") {
            "sslsniff" => share,
            "user" => share / 2.0,
            _ => 0.0,
        };
        (base, share)
    })
}
/// One probe that costs 20 %, under a kernel that may account interrupts by themselves.
pub fn with_irq_time(irq_time: Option<bool>) -> Record {
    let machine = Machine {
        irq_time,
        ..Machine::default()
    };
    redis_on(machine, &[("bpftrace", 0.2)], false, 0.004, None)
}

fn redis(
    probes: &[(&str, f64)],
    against_each_other: bool,
    noise: f64,
    budget: Option<f64>,
) -> Record {
    redis_on(
        Machine::default(),
        probes,
        against_each_other,
        noise,
        budget,
    )
}

fn redis_on(
    machine: Machine,
    probes: &[(&str, f64)],
    against_each_other: bool,
    noise: f64,
    budget: Option<f64>,
) -> Record {
    let text = redis_text(probes, against_each_other);
    build_on(machine, &text, EPOCHS, noise, budget, |case| {
        let variant = case.factors.get("variant").unwrap();
        let known = probes.iter().find(|(name, _)| name == variant);
        (COMMAND_NS, known.map_or(0.0, |(_, share)| *share))
    })
}

/// The definition of redis with these probes.
fn redis_text(probes: &[(&str, f64)], against_each_other: bool) -> String {
    let mut text = format!(
        r#"
        name = "redis"
        about = "what do probes cost redis?"
        operation = "command"
        prose = "SET of 3 bytes by 50 clients."
        against-each-other = {against_each_other}
        [server]
        command = ["redis-server"]
        [[client]]
        command = ["redis-benchmark"]
        output = "redis-benchmark"
        "#
    );
    for (name, _) in probes {
        text += &format!(
            "[[variant]]\nname = \"{name}\"\nabout = \"what {name} does\"\nprobe = \"{name}\"\n"
        );
    }
    text
}

/// A record of a workload; `cost` returns the cost of a case without a probe, and how much its own probe adds.
fn build(
    text: &str,
    epochs: usize,
    noise: f64,
    budget: Option<f64>,
    cost: impl Fn(&Case) -> (f64, f64),
) -> Record {
    build_on(Machine::default(), text, epochs, noise, budget, cost)
}

/// The same on a machine with such a kernel.
fn build_on(
    machine: Machine,
    text: &str,
    epochs: usize,
    noise: f64,
    budget: Option<f64>,
    cost: impl Fn(&Case) -> (f64, f64),
) -> Record {
    build_of(machine, text, epochs, budget, |case, epoch, off| {
        let (base, share) = cost(case);
        // A server is as fast as it came up, with each of its probes.
        let luck = 1.0 + 0.03 * ((epoch * 7 % 5) as f64 - 2.0) / 2.0;
        trial(case, base, share, luck * (1.0 + noise * off))
    })
}

/// A record of a workload of these windows, by case, epoch, and how far noise puts them off.
fn build_of(
    machine: Machine,
    text: &str,
    epochs: usize,
    budget: Option<f64>,
    window: impl Fn(&Case, usize, f64) -> Trial,
) -> Record {
    let definition = Definition::parse(text).unwrap();
    let experiment = Workload::new(definition);
    let plan = plan(&experiment, budget);
    let measured = synthetic::measured(&plan, epochs, None, window);
    let machine = Machine {
        kernel: "6.18.5".into(),
        cpu: "a CPU".into(),
        cpus: 2,
        programs: Some(
            "server: CPU clocks of its processes; machine: idle time by the scheduler's clock"
                .into(),
        ),
        ..machine
    };
    let mut record = Record::build(&plan, &measured, "2026-11-22T09:00:00Z", machine);
    record.spread.session = Some(2.4);
    let off = record.cases.iter();
    let off = off.filter(|case| case.factors.get(VARIANT).is_some_and(|name| name == OFF));
    let reaches = (4..).map(|tenths| f64::from(tenths) / 10.0);
    record.spread.nothing = off.map(|case| case.name.clone()).zip(reaches).collect();
    assert_eq!(record.stop, Stop::Rounds);
    record
}

/// Changes what such a record says of the workload.
pub fn describe(record: &mut Record, change: impl FnOnce(&mut ProbedWorkload)) {
    let mut workload = record.layout.workload().expect("a workload").clone();
    change(&mut workload);
    record.layout = workload.into();
}

fn plan(experiment: &Workload, budget: Option<f64>) -> Plan {
    Plan {
        target: "host".to_owned(),
        seed: 7,
        cases: experiment.cases(),
        pairs: experiment.pairs(),
        cpus: vec![0],
        quick: true,
        rounds: Some(3),
        goal_ns: 2e6,
        budget,
        ..Plan::new(experiment.description())
    }
}

/// A window: with a probe, everything costs `share` more; throughput falls by half of that.
fn trial(case: &Case, base: f64, share: f64, off: f64) -> Trial {
    let probed = case
        .factors
        .get("variant")
        .is_some_and(|name| name != "off");
    let value = base * (1.0 + share) * off;
    let tool = if probed { base * share * 0.1 } else { 0.0 };
    let rate = 1e9 / base / 2.0 / (1.0 + share / 2.0) / off;
    let latency = base * (1.0 + share) * off / 1e3;
    let mut secondary = std::collections::BTreeMap::from([
        ("server_ns", value),
        ("client_ns", base * 0.8),
        ("tool_ns", tool),
        ("machine_ns", value + base * 1.1 + tool),
        ("switches", 0.4),
        ("ops_per_s", rate),
        ("latency_p50_us", latency * 50.0),
        ("latency_p90_us", latency * 70.0),
        ("latency_p95_us", latency * 80.0),
        ("latency_p99_us", latency * 120.0),
        ("latency_p999_us", latency * 300.0),
        ("latency_max_us", latency * 900.0),
    ]);
    if probed {
        secondary.extend([
            ("hits", 1.0),
            ("lost", 0.0),
            ("attach_ms", 12.0 * off),
            ("detach_ms", 31.0 * off),
        ]);
    }
    Trial {
        value,
        ops: 50_000,
        elapsed_ns: value * 50_000.0,
        secondary: secondary
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        ..Trial::default()
    }
}
