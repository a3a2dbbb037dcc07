//! Programs attached to events of the kernel: they run for every event, what they leave is as it should
//! be, and nothing of them is left. What this kernel lacks is skipped, with the reason.

mod require;

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpfcost_bpf::{
    CpuPin, allowed_cpus,
    attach::{Attach, BatchRequest, Body, BodyMaps, Driver, Events, ProbePrograms, others},
    feature::LinuxVersion,
    loaded_programs,
};

const EVENTS: u64 = 1000;
const DRIVERS: [Driver; 4] = [
    Driver::Helper,
    Driver::Kfunc,
    Driver::Printk,
    Driver::SysBpf,
];

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel")
}

/// State that must be as before once all is dropped.
#[derive(Debug, PartialEq)]
struct Left {
    programs: BTreeSet<u32>,
    mounts: BTreeSet<String>,
    optimisation: Option<String>,
    kprobes: Option<usize>,
}

impl Left {
    /// Returns true if nothing has come: what others left may go meanwhile.
    fn is_within(&self, before: &Left) -> bool {
        self.programs.is_subset(&before.programs)
            && self.mounts.is_subset(&before.mounts)
            && self.optimisation == before.optimisation
            && self.kprobes <= before.kprobes
    }
}

/// The kernel's numbers of all programs.
fn programs() -> BTreeSet<u32> {
    loaded_programs().iter().map(|one| one.id).collect()
}

fn left() -> Left {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    Left {
        programs: programs(),
        mounts: mounts.lines().map(str::to_owned).collect(),
        optimisation: fs::read_to_string("/proc/sys/debug/kprobes-optimization").ok(),
        kprobes: fs::read_to_string("/sys/kernel/debug/kprobes/list")
            .ok()
            .map(|list| list.lines().count()),
    }
}

/// The kernel frees programs some time after the last who held them is gone, and other tests come and go.
fn await_as_before(before: &Left) {
    let begun = Instant::now();
    while !left().is_within(before) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}, before {before:?}",
            left()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns true if this kernel can have it; says why not.
fn can(attach: Attach) -> bool {
    for feature in attach.needs() {
        if let Some(missing) = feature.missing().expect("an answer") {
            require::skip_as("features", format!("{attach}: {missing}"));
            return false;
        }
    }
    true
}

fn with_driver(driver: Driver) -> impl Iterator<Item = Attach> {
    Attach::ALL
        .into_iter()
        .filter(move |attach| attach.driver() == driver)
}

fn ask(events: u64) -> BatchRequest {
    BatchRequest {
        events,
        cpu: allowed_cpus()[0],
        after_tick: false,
    }
}

/// Attaches the program with that body, makes events, and looks at all that came of them.
fn check(events: &mut dyn Events, probe: &mut ProbePrograms, maps: &BodyMaps, body: Body) {
    let attach = probe.attach();
    let mut attached = probe
        .attach_to(events, body)
        .unwrap_or_else(|error| panic!("{attach}/{body}: {error}"));
    assert_eq!(attached.trouble().expect("an answer"), None, "{attach}");
    // So that a batch finds its own entry there.
    events.batch(&ask(10)).expect("events");
    maps.take(attach, body).expect("maps");
    probe.forget().expect("counts");

    let driven = events.batch(&ask(EVENTS)).expect("events");
    let (seen, taken) = (
        probe.seen().expect("counts"),
        maps.take(attach, body).expect("maps"),
    );
    assert_eq!((driven.events, driven.made), (EVENTS, EVENTS), "{attach}");
    // 250 slices of 4 events, of which the first and the last are left out.
    assert_eq!(driven.slices.len(), 248, "{attach}");
    let cut = driven.slices.iter().sum::<f64>() * 4.0;
    assert!(cut > 0.0 && cut < driven.elapsed_ns, "{attach}: {cut}");
    let runs = EVENTS * attach.runs_per_event();
    assert_eq!(seen.hits, runs, "{attach}/{body}");
    assert_eq!((seen.drops, seen.errors), (0, 0), "{attach}/{body}");
    let expected = match body {
        Body::Empty => 0..=0,
        Body::Map => 1..=1,
        Body::Hash | Body::Ringbuf | Body::RingbufWakeup => runs..=runs,
        Body::Stack => 1..=u64::MAX,
    };
    assert!(expected.contains(&taken), "{attach}/{body}: {taken} taken");
    assert_eq!(attached.trouble().expect("an answer"), None, "{attach}");
    if attach != Attach::KprobeMultiAll {
        assert_eq!(attached.missed().expect("an answer"), 0, "{attach}");
        assert_eq!(seen.other_hits, 0, "{attach}");
    }
    drop(attached);

    // Nothing is attached any more.
    probe.forget().expect("counts");
    events.batch(&ask(EVENTS)).expect("events");
    assert_eq!(
        probe.seen().expect("counts").hits,
        0,
        "{attach}/{body} after it"
    );
}

/// All attach types of a driver.
fn check_driver(driver: Driver) {
    let bodies = |attach: Attach| {
        Body::ALL
            .into_iter()
            .filter(move |&body| attach.refuses(body).is_none())
    };
    for feature in driver.needs() {
        if let Some(missing) = feature.missing().expect("an answer") {
            require::skip_as("features", format!("{driver}: {missing}"));
            return;
        }
    }
    let alone = others(driver).expect("an answer");
    let mut events = driver.start().expect("events");
    let before = programs();
    for attach in with_driver(driver).filter(|&attach| can(attach)) {
        let maps = BodyMaps::make(false).expect("maps");
        let all: Vec<Body> = bodies(attach).collect();
        let mut probe = ProbePrograms::load(attach, &all, &maps)
            .unwrap_or_else(|error| panic!("{attach}: {error}"));
        let loaded = &programs() - &before;
        assert!(loaded.len() >= all.len(), "{attach}: {loaded:?}");
        // Attaching to everything takes an emulated guest many seconds.
        let some = match attach {
            Attach::KprobeMultiAll => &all[..1],
            _ => &all[..],
        };
        for &body in some {
            check(&mut *events, &mut probe, &maps, body);
        }
        eprintln!("checked: {attach}");
    }
    assert_eq!(others(driver).expect("an answer"), alone, "{driver}");
}

/// One test for all, since what is attached to the machine is one: they would see each other.
#[test]
fn every_type_runs_for_every_event_and_leaves_nothing() {
    if !require::host() {
        return;
    }
    let _pinned = CpuPin::to(allowed_cpus()[0]).expect("a CPU");
    let before = left();
    for driver in DRIVERS {
        check_driver(driver);
        await_as_before(&before);
    }
    who_else_is_there_is_told();
    what_is_not_of_a_family_is_refused();
    await_as_before(&before);
    a_killed_process_leaves_nothing();
    await_as_before(&before);
}

/// Another process's program on the tracepoint or the function is reported by its name.
fn who_else_is_there_is_told() {
    let maps = BodyMaps::make(false).expect("maps");
    for attach in DRIVERS
        .into_iter()
        .flat_map(with_driver)
        .filter(|&attach| can(attach))
    {
        // Everything is too much to take; and only ftrace shows a link of many trampolines.
        if attach == Attach::KprobeMultiAll {
            continue;
        }
        let driver = attach.driver();
        let alone = others(driver).expect("an answer");
        let mut events = driver.start().expect("events");
        let mut probe = ProbePrograms::load(attach, &[Body::Empty], &maps).expect("a probe");
        let attached = probe
            .attach_to(&mut *events, Body::Empty)
            .expect("attached");
        let begun = Instant::now();
        let said = others(driver).expect("an answer");
        let took = begun.elapsed();
        // Perf links report their tracepoints since Linux 6.6.
        let by_perf = matches!(attach, Attach::Tracepoint | Attach::TracepointPrintk);
        if said == alone
            && by_perf
            && LinuxVersion::of_release(&release()) < Some(LinuxVersion((6, 6)))
        {
            continue;
        }
        assert_ne!(said, alone, "{attach} is not seen");
        eprintln!("seen: {attach}: {} ({took:?})", said.unwrap_or_default());
        drop(attached);
        assert_eq!(others(driver).expect("an answer"), alone, "{attach}");
    }
}

fn what_is_not_of_a_family_is_refused() {
    if !can(Attach::RawTpPrintk) || !can(Attach::RawTp) {
        return;
    }
    let maps = BodyMaps::make(false).expect("maps");
    let mut probe =
        ProbePrograms::load(Attach::RawTpPrintk, &[Body::Empty], &maps).expect("a probe");
    let mut events = Driver::Kfunc.start().expect("events");
    let refused = probe.attach_to(&mut *events, Body::Empty).map(|_| ());
    let words = refused.expect_err("another family").to_string();
    assert!(
        words.contains("raw_tp-printk") && words.contains("kfunc"),
        "{words}"
    );
}

/// This process again, which attaches one and waits to be killed.
fn a_killed_process_leaves_nothing() {
    let types = [
        Attach::KprobeInt3,
        Attach::KprobeOptimised,
        Attach::RawTpPrintk,
    ];
    for attach in types.into_iter().filter(|&attach| can(attach)) {
        let alone = others(attach.driver()).expect("an answer");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "--nocapture", "attached_until_killed"])
            .env(HERE, attach.name())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this test starts");
        let stderr = child.stderr.take().expect("a pipe");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
        let is_attached = |line: std::io::Result<String>| line.expect("a line") == "attached";
        assert!(lines.any(is_attached), "{attach}");
        assert_ne!(others(attach.driver()).expect("an answer"), alone);
        child.kill().expect("a child");
        child.wait().expect("a child");
        let begun = Instant::now();
        while others(attach.driver()).expect("an answer") != alone {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{attach} is still there"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

const HERE: &str = "BPFCOST_TEST_ATTACH_HERE";

#[test]
fn attached_until_killed() {
    let Some(name) = std::env::var_os(HERE) else {
        return;
    };
    let mut all = Attach::ALL.into_iter();
    let attach = all.find(|attach| *attach.name() == *name).expect("a type");
    let maps = BodyMaps::make(false).expect("maps");
    let mut probe = ProbePrograms::load(attach, &[Body::Empty], &maps).expect("a probe");
    let mut events = attach.driver().start().expect("events");
    let _attached = probe
        .attach_to(&mut *events, Body::Empty)
        .expect("attached");
    eprintln!("attached");
    thread::sleep(Duration::from_secs(60));
}
