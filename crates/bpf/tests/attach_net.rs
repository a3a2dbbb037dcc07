//! Ways to attach to a packet's way: each program runs once for each packet, and nothing is left behind.

mod require;

use std::{
    collections::BTreeSet,
    fs,
    process::{self, Command},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use bpfcost_bpf::{
    CpuPin,
    attach::{Attach, BatchRequest, Body, BodyMaps, Driver, ProbeCounts, ProbePrograms},
    current_cpu, loaded_programs,
};

const TYPES: [Attach; 6] = [
    Attach::CgroupSkb,
    Attach::Tcx,
    Attach::Netfilter,
    Attach::XdpGeneric,
    Attach::XdpNativeVethSkb,
    Attach::XdpNative,
];

const EVENTS: u64 = 1000;

/// One test at a time: they look at what is left on the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that must be afterwards as it was before.
#[derive(Debug, PartialEq)]
struct State {
    programs: BTreeSet<String>,
    interfaces: Vec<String>,
    namespace: String,
    groups: Vec<String>,
    group: String,
    mounts: String,
}

impl State {
    fn now() -> Self {
        let names = |folder: &str| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut names: Vec<_> = entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut groups = Vec::new();
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let ours = |name: &String| name.starts_with(&format!("bpfcost-{}-", process::id()));
            groups.extend(names(root).into_iter().filter(ours));
        }
        State {
            // Other tests of this machine may load what they like; these names are of this object.
            programs: loaded_programs()
                .into_iter()
                .filter(|program| {
                    ["feed", "cgroup_skb__", "tcx__", "netfilter__", "xdp__"]
                        .iter()
                        .any(|name| program.name.starts_with(name))
                })
                .map(|program| program.name)
                .collect(),
            interfaces: names("/sys/class/net"),
            namespace: fs::read_link("/proc/self/ns/net")
                .expect("a namespace")
                .display()
                .to_string(),
            groups,
            group: read("/proc/self/cgroup"),
            mounts: read("/proc/self/mounts"),
        }
    }
}

/// The kernel frees programs a moment after the last of them is closed.
#[track_caller]
fn assert_nothing_left(before: &State) {
    let begun = Instant::now();
    while State::now() != *before {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{before:?}, now {:?}",
            State::now()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns true if the kernel has all that a type needs; says what it lacks.
fn here(attach: Attach) -> bool {
    for feature in attach.needs() {
        if let Some(missing) = feature.missing().expect("an answer") {
            require::skip_as("features", format!("{attach}: {missing}"));
            return false;
        }
    }
    true
}

#[test]
fn every_packet_is_seen_once() {
    if !require::host() {
        return;
    }
    let _alone = alone();
    let before = State::now();
    let ask = BatchRequest {
        events: EVENTS,
        cpu: current_cpu(),
        after_tick: false,
    };
    let pinned = CpuPin::to(ask.cpu).expect("pinned");
    for driver in [Driver::Sendto, Driver::Frames] {
        let types = TYPES.into_iter().filter(|attach| attach.driver() == driver);
        let types: Vec<Attach> = types.filter(|attach| here(*attach)).collect();
        if types.is_empty() {
            continue;
        }
        let mut events = driver.start().expect("events");
        for after_tick in [false, true] {
            let driven = events
                .batch(&BatchRequest { after_tick, ..ask })
                .expect("a batch");
            assert!(driven.events >= EVENTS && driven.made >= driven.events);
            assert!(driven.elapsed_ns > 0.0, "{driven:?}");
        }
        let maps = BodyMaps::make(false).expect("maps");
        for attach in types {
            let bodies: Vec<Body> = Body::ALL
                .into_iter()
                .filter(|b| attach.refuses(*b).is_none())
                .collect();
            let mut probe = ProbePrograms::load(attach, &bodies, &maps).expect("programs");
            for body in bodies {
                let case = format!("{attach}/{body}");
                maps.take(attach, body).expect("what was left");
                let mut attached = probe.attach_to(&mut *events, body).expect(&case);
                probe.forget().expect("counts");
                assert_eq!(attached.trouble().expect(&case), None, "{case}");
                let driven = events.batch(&ask).expect(&case);
                assert_eq!(attached.trouble().expect(&case), None, "{case}");
                assert_eq!(attached.missed().expect(&case), 0, "{case}");
                drop(attached);
                let runs = driven.made * attach.runs_per_event();
                let expected = ProbeCounts {
                    hits: runs,
                    stack_id: -1,
                    ..ProbeCounts::default()
                };
                assert_eq!(
                    probe.seen().expect("counts"),
                    expected,
                    "{case}: {driven:?}"
                );
                let taken = match body {
                    Body::Empty => 0,
                    Body::Map => 1,
                    _ => runs,
                };
                assert_eq!(maps.take(attach, body).expect(&case), taken, "{case}");
                // It is attached no more.
                events.batch(&ask).expect(&case);
                assert_eq!(probe.seen().expect("counts"), expected, "{case}");
            }
        }
        let foreign = ProbePrograms::load(Attach::PerfEvent, &[Body::Empty], &maps);
        let refused = foreign
            .expect("programs")
            .attach_to(&mut *events, Body::Empty);
        let said = refused.err().expect("not of this family").to_string();
        assert!(said.contains("perf_event is not attached"), "{said}");
    }
    drop(pinned);
    assert_nothing_left(&before);
}

/// Runs this test again, without some capabilities, and returns what `said` printed there.
fn without(capabilities: &str, test: &str) -> Option<String> {
    let said = Command::new("setpriv")
        .args([&format!("--bounding-set={capabilities}"), "--inh-caps=-all"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "--nocapture", test])
        .env(AGAIN, "1")
        .output();
    match said {
        Ok(said) if said.status.success() => {
            Some(String::from_utf8_lossy(&said.stdout).into_owned())
        }
        _ => {
            require::skip("only root with setpriv can give capabilities up");
            None
        }
    }
}

const AGAIN: &str = "BPFCOST_TEST_ATTACH_NET";

#[test]
fn who_may_not_make_a_network_is_told_what_it_takes() {
    if std::env::var_os(AGAIN).is_some() {
        for driver in [Driver::Sendto, Driver::Frames] {
            let error = driver.start().err().expect("not allowed");
            println!("said: {error}");
        }
        return;
    }
    if !require::host() {
        return;
    }
    let _alone = alone();
    let before = State::now();
    for (taken, lacks) in [
        ("-net_admin", "lacks CAP_NET_ADMIN"),
        ("-sys_admin", "lacks CAP_SYS_ADMIN"),
    ] {
        let test = "who_may_not_make_a_network_is_told_what_it_takes";
        let Some(said) = without(taken, test) else {
            return;
        };
        assert_eq!(said.matches(lacks).count(), 2, "{taken}: {said}");
        assert!(said.contains("run it as root"), "{said}");
    }
    assert_nothing_left(&before);
}

/// A process that is killed leaves a folder of control groups at most, and the next one removes it.
#[test]
fn what_a_kill_leaves_is_removed_by_the_next() {
    if std::env::var_os(AGAIN).is_some() {
        let _events = Driver::Sendto.start().expect("events");
        println!("said: started");
        thread::sleep(Duration::from_secs(60));
        return;
    }
    if !require::host() || !here(Attach::CgroupSkb) {
        return;
    }
    let _alone = alone();
    let before = State::now();
    let mut victim = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "--nocapture",
            "what_a_kill_leaves_is_removed_by_the_next",
        ])
        .env(AGAIN, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(
        victim.stdout.take().expect("its output"),
    ));
    let started = lines.any(|line| line.is_ok_and(|line| line.contains("said: started")));
    assert!(started);
    victim.kill().expect("killed");
    victim.wait().expect("gone");
    drop(Driver::Sendto.start().expect("events"));
    assert_nothing_left(&before);
}

/// Without a control group there is an error where one is needed, and only there.
#[test]
fn without_a_control_group_the_other_types_go_on() {
    let name = "without_a_control_group_the_other_types_go_on";
    if std::env::var_os(AGAIN).is_some() {
        let maps = BodyMaps::make(false).expect("maps");
        let mut events = Driver::Sendto.start().expect("events");
        for attach in [Attach::CgroupSkb, Attach::XdpGeneric] {
            let mut probe = ProbePrograms::load(attach, &[Body::Empty], &maps).expect("programs");
            match probe.attach_to(&mut *events, Body::Empty) {
                Ok(_attached) => println!("said: {attach} is attached"),
                Err(error) => println!("said: {attach}: {error}"),
            }
        }
        return;
    }
    if !require::host() || !here(Attach::CgroupSkb) {
        return;
    }
    let _alone = alone();
    let before = State::now();
    // In a separate mount namespace, where the hierarchy can't be written to.
    let said = Command::new("unshare")
        .args(["--mount", "sh", "-c"])
        .arg(
            "mount -t cgroup2 | while read -r _ _ path _; do mount -o remount,bind,ro $path; done\n\
             exec \"$0\" \"$@\"",
        )
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "--nocapture", name])
        .env(AGAIN, "1")
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.contains("said: cgroup_skb: a control group (cgroup2): making one: Read-only"),
        "{said}"
    );
    assert!(said.contains("said: xdp-generic is attached"), "{said}");
    assert_nothing_left(&before);
}
