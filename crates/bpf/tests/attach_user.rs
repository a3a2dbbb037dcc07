//! Programs attached to events of user space run as often as they should, and leave nothing behind.

mod require;

use std::{fs, os::unix::fs::FileExt as _, sync::Mutex};

use bpfcost_bpf::{
    Space,
    attach::{
        Attach, BatchRequest, Body, BodyMaps, Driver, Events, ProbePrograms, SharedCalls, SiteCode,
    },
    current_cpu,
};

const EVENTS: u64 = 1000;

/// They look at what this process has open, so one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const DRIVERS: [Driver; 8] = [
    Driver::PageFault,
    Driver::UserNop,
    Driver::UserNop5,
    Driver::UserNop10,
    Driver::UserEndbr64,
    Driver::UserPush,
    Driver::UserRet,
    Driver::UserTail,
];

#[test]
fn programs_run_for_every_event_and_are_gone_afterwards() {
    if !require::host() {
        return;
    }
    let _alone = ALONE.lock();
    let maps = BodyMaps::make(false).expect("maps");
    let mut attached = 0;
    for attach in Attach::ALL {
        if !DRIVERS.contains(&attach.driver()) || !can(attach) {
            continue;
        }
        let mut events = attach.driver().start().expect("driver");
        let bodies = Body::ALL.into_iter();
        let bodies: Vec<Body> = bodies
            .filter(|&body| attach.refuses(body).is_none())
            .collect();
        let mut probe = ProbePrograms::load(attach, &bodies, &maps).expect("load");
        let process = events.process().unwrap_or(std::process::id() as i32);
        let code = code_of_this_program(process);
        for body in bodies {
            hits_every_event(&mut *events, &mut probe, body, &maps, &code);
            let now = code_of_this_program(process);
            assert_eq!(now, code, "{attach} {body}: detached");
        }
        attached += 1;
    }
    assert!(attached > 0, "this kernel lets nothing be attached");
    drop(maps);
    assert_eq!(open_files_of_bpf(), Vec::<String>::new());
    let tid = current_thread();
    let children = fs::read_to_string(format!("/proc/self/task/{tid}/children"));
    assert_eq!(children.expect("children"), "");
}

/// The number of this thread, whose children the test's processes are.
fn current_thread() -> String {
    let link = fs::read_link("/proc/thread-self").expect("link");
    let name = link.file_name().expect("a number");
    name.to_string_lossy().into_owned()
}

/// Returns true if this kernel has it; says so where not.
fn can(attach: Attach) -> bool {
    let needs = attach.needs();
    let missing = needs.iter().find_map(|need| need.missing().expect("asked"));
    if let Some(missing) = &missing {
        require::skip_as("features", format!("{attach}: {missing}"));
    }
    missing.is_none()
}

fn hits_every_event(
    events: &mut dyn Events,
    probe: &mut ProbePrograms,
    body: Body,
    maps: &BodyMaps,
    code: &[u8],
) {
    let attach = probe.attach();
    let name = format!("{attach} {body}");
    let ask = BatchRequest {
        events: EVENTS,
        cpu: current_cpu(),
        after_tick: false,
    };
    let mut attached = probe.attach_to(events, body).expect(&name);
    // What the first hits left.
    maps.take(attach, body).expect(&name);
    probe.forget().expect(&name);
    assert_eq!(attached.trouble().expect(&name), None, "{name}");
    let process = events.process().unwrap_or(std::process::id() as i32);
    let placed = placed_in(code, &code_of_this_program(process), attach);
    assert_eq!(attached.placed(), placed, "{name}");
    let driven = events.batch(&ask).expect(&name);
    assert_eq!((driven.events, driven.made), (EVENTS, EVENTS), "{name}");
    assert!(driven.elapsed_ns > 0.0, "{name}");
    // 250 slices of 4 events, of which the first and the last are left out; none of page faults.
    let slices = if attach == Attach::PerfEvent { 0 } else { 248 };
    assert_eq!(driven.slices.len(), slices, "{name}");
    let cut = driven.slices.iter().sum::<f64>() * 4.0;
    assert!(cut < driven.elapsed_ns, "{name}: {cut}");
    let runs = EVENTS * attach.runs_per_event();
    let seen = probe.seen().expect(&name);
    let counts = (seen.hits, seen.drops, seen.errors, seen.other_hits);
    assert_eq!(counts, (runs, 0, 0, 0), "{name}");
    assert_eq!(attached.trouble().expect(&name), None, "{name}");
    assert_eq!(attached.missed().expect(&name), 0, "{name}");
    let taken = maps.take(attach, body).expect(&name);
    match body {
        Body::Empty => assert_eq!(taken, 0, "{name}"),
        Body::Map => assert!(taken >= 1, "{name}"),
        Body::Hash | Body::Ringbuf | Body::RingbufWakeup => assert_eq!(taken, runs, "{name}"),
        Body::Stack => assert!(taken >= 1, "{name}"),
    }
    drop(attached);
    probe.forget().expect(&name);
    events.batch(&ask).expect(&name);
    assert_eq!(probe.seen().expect(&name).hits, 0, "{name}: detached");
}

/// Finds what was put into the code of a process, as `/proc/PID/mem` has it.
fn placed_in(code: &[u8], now: &[u8], attach: Attach) -> Option<SiteCode> {
    let place = code.iter().zip(now).position(|(was, is)| was != is)?;
    if attach == Attach::UserUretprobeTail {
        // The jump by which it leaves leads elsewhere: its first byte stays.
        let jump = (place - 4..place).find(|&at| code[at] == 0xe9 && now[at] == 0xe9);
        return jump.map(|_| SiteCode::Jump);
    }
    if attach.space() == Space::User {
        // A jump at a return stands where the `ret` was.
        let at_return = attach.name().contains("uretprobe") || attach.driver() == Driver::UserRet;
        assert_eq!(code[place] == 0xc3, at_return, "{attach}");
    }
    let may_be = match attach.driver() {
        Driver::UserNop5 => SiteCode::Call,
        Driver::UserNop10 => SiteCode::LeaCall,
        _ => SiteCode::Int3,
    };
    match now[place] {
        0xcc => Some(SiteCode::Int3),
        0xe9 if attach.space() == Space::User => Some(SiteCode::Jump),
        0xe8 if may_be == SiteCode::Call => Some(may_be),
        // The first byte of `lea`.
        0x48 if may_be == SiteCode::LeaCall => Some(may_be),
        other => panic!("{attach}: {other:#x} at {place:#x}"),
    }
}

/// Programs, links and events that this process has.
fn open_files_of_bpf() -> Vec<String> {
    let files = fs::read_dir("/proc/self/fd").expect("files");
    let names = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    names
        .map(|name| name.display().to_string())
        .filter(|name| {
            ["bpf-prog", "bpf_link", "bpf-link", "perf_event"]
                .iter()
                .any(|kind| name.contains(kind))
        })
        .collect()
}

/// This program's code as it stands in the memory of a process that runs it.
fn code_of_this_program(process: i32) -> Vec<u8> {
    let program = fs::read_link("/proc/self/exe").expect("link");
    let memory = fs::File::open(format!("/proc/{process}/mem")).expect("memory");
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("maps");
    let line = maps
        .lines()
        .find(|line| line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy()))
        .expect("code is mapped");
    let (start, end) = line
        .split_once(' ')
        .and_then(|(range, _)| range.split_once('-'))
        .expect("a range");
    let address = |text| u64::from_str_radix(text, 16).expect("an address");
    let mut code = vec![0; (address(end) - address(start)) as usize];
    memory
        .read_exact_at(&mut code, address(start))
        .expect("read");
    code
}

/// A largest batch is made whole, twice: its pages are released in between.
#[test]
fn the_largest_batch_of_page_faults_is_whole() {
    if !require::host() || !can(Attach::PerfEvent) {
        return;
    }
    let _alone = ALONE.lock();
    let maps = BodyMaps::make(false).expect("maps");
    let mut events = Driver::PageFault.start().expect("driver");
    let mut probe = ProbePrograms::load(Attach::PerfEvent, &[Body::Empty], &maps).expect("load");
    let _attached = probe.attach_to(&mut *events, Body::Empty).expect("attach");
    let most = Driver::PageFault.most().expect("a limit");
    let ask = BatchRequest {
        events: most,
        cpu: current_cpu(),
        after_tick: false,
    };
    for _ in 0..2 {
        probe.forget().expect("counts");
        assert_eq!(events.batch(&ask).expect("batch").events, most);
        assert_eq!(probe.seen().expect("counts").hits, most);
    }
}

/// Threads that come and go call one function: each call is counted, in the kernel and in the process.
#[test]
fn every_call_of_many_threads_is_counted() {
    if !require::host() {
        return;
    }
    let _alone = ALONE.lock();
    let cpus = bpfcost_bpf::allowed_cpus();
    let threads: Vec<u32> = cpus.iter().copied().cycle().take(4 * cpus.len()).collect();
    for attach in [
        Attach::UprobeNop,
        Attach::UretprobeNop,
        Attach::UserUprobeNop,
        Attach::UserUretprobeNop,
    ] {
        if !can(attach) {
            continue;
        }
        let mut calls = SharedCalls::probed(attach).expect("attach");
        for _ in 0..20 {
            let seen = calls.call(EVENTS, &threads).expect("calls");
            let made = (EVENTS + 1) * threads.len() as u64;
            let counts = (seen.made, seen.hits, seen.missed);
            assert_eq!(counts, (made, made, 0), "{attach}");
            assert!(seen.elapsed_ns > 0, "{attach}");
        }
    }
    let mut alone = SharedCalls::alone(Driver::UserNop).expect("driver");
    let seen = alone.call(EVENTS, &threads).expect("calls");
    assert_eq!((seen.hits, seen.missed), (0, 0));
}

#[test]
fn drivers_refuse_attach_types_of_others() {
    if !require::host() || !can(Attach::UprobeNop) {
        return;
    }
    let _alone = ALONE.lock();
    let maps = BodyMaps::make(false).expect("maps");
    let mut events = Driver::UserRet.start().expect("driver");
    let mut probe = ProbePrograms::load(Attach::UprobeNop, &[Body::Empty], &maps).expect("load");
    let refused = probe.attach_to(&mut *events, Body::Empty);
    let words = refused.err().expect("an error").to_string();
    assert_eq!(words, "uprobe-nop is not attached to events of user-ret");
}
