//! Programs attached to events of user space run as often as they should, and leave nothing behind.

mod require;

use std::{fs, os::unix::fs::FileExt as _, sync::Mutex};

use bpfcost_bpf::{
    attach::{Attach, BatchRequest, Body, BodyMaps, Driver, Events, ProbePrograms, SiteCode},
    current_cpu,
};

const EVENTS: u64 = 1000;

/// They look at what this process has open, so one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const DRIVERS: [Driver; 7] = [
    Driver::PageFault,
    Driver::UserNop,
    Driver::UserNop5,
    Driver::UserNop10,
    Driver::UserEndbr64,
    Driver::UserPush,
    Driver::UserRet,
];

#[test]
fn programs_run_for_every_event_and_are_gone_afterwards() {
    if !require::host() {
        return;
    }
    let _alone = ALONE.lock();
    let maps = BodyMaps::make(false).expect("maps");
    let code = code_of_this_program();
    let mut attached = 0;
    for attach in Attach::ALL {
        if !DRIVERS.contains(&attach.driver()) || !can(attach) {
            continue;
        }
        let mut events = attach.driver().start().expect("driver");
        let mut probe = ProbePrograms::load(attach, &Body::ALL, &maps).expect("load");
        for body in Body::ALL {
            hits_every_event(&mut *events, &mut probe, body, &maps, &code);
            assert_eq!(code_of_this_program(), code, "{attach} {body}: detached");
        }
        attached += 1;
    }
    assert!(attached > 0, "this kernel lets nothing be attached");
    assert_eq!(open_files_of_bpf(), Vec::<String>::new());
}

/// Whether this kernel has it; says so where not.
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
    probe.forget();
    assert_eq!(attached.trouble().expect(&name), None, "{name}");
    assert_eq!(attached.placed(), placed_in(code, attach), "{name}");
    let driven = events.batch(&ask).expect(&name);
    assert_eq!((driven.events, driven.made), (EVENTS, EVENTS), "{name}");
    assert!(driven.elapsed_ns > 0.0, "{name}");
    let runs = EVENTS * attach.runs_per_event();
    let seen = probe.seen();
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
    probe.forget();
    events.batch(&ask).expect(&name);
    assert_eq!(probe.seen().hits, 0, "{name}: detached");
}

/// What was put into the code of this program, as `/proc/self/mem` has it.
fn placed_in(code: &[u8], attach: Attach) -> Option<SiteCode> {
    let now = code_of_this_program();
    let place = code.iter().zip(&now).position(|(was, is)| was != is)?;
    let may_be = match attach.driver() {
        Driver::UserNop5 => SiteCode::Call,
        Driver::UserNop10 => SiteCode::LeaCall,
        _ => SiteCode::Int3,
    };
    match now[place] {
        0xcc => Some(SiteCode::Int3),
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

/// The code as it stands in memory.
fn code_of_this_program() -> Vec<u8> {
    let program = fs::read_link("/proc/self/exe").expect("link");
    let memory = fs::File::open("/proc/self/mem").expect("memory");
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
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
        probe.forget();
        assert_eq!(events.batch(&ask).expect("batch").events, most);
        assert_eq!(probe.seen().hits, most);
    }
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
