//! Probes that come and go in running programs: every call is counted, none gives a wrong result, and the bytes are
//! restored.

mod common;

use bpfcost_uprobe::process::{
    Counts, Error, Function, Hits, Image, Memory, Probe, Program, Runtime,
};
use common::{Binary, Target, program, wait_until};
use std::fs::OpenOptions;

const COUNTS: usize = 0;
const HANDLED: usize = 1;
const SEEN: usize = 2;
/// Number of threads that busy.c counts apart, and the distance of their numbers.
const LINES: usize = 256;
const LINE: usize = 64;

fn function(process: &Target, name: &str) -> Function {
    Image::of_program(process.pid())
        .unwrap()
        .function(name)
        .unwrap()
}

fn both(function: &Function, program: Program) -> Probe<'_> {
    Probe {
        function,
        entry: Some(program),
        returns: Some(program),
        inside: &[],
    }
}

fn sum(counts: Counts) -> u64 {
    counts.hits + counts.missed
}

/// All calls of the process so far.
fn calls(process: &Target, memory: &Memory) -> u64 {
    let read = |index: usize| {
        memory
            .read_vec(process.address(index), LINES * LINE)
            .unwrap()
    };
    let numbers = [read(COUNTS), read(HANDLED)].concat();
    numbers
        .chunks_exact(LINE)
        .map(|line| u64::from_le_bytes(line[..8].try_into().unwrap()))
        .sum()
}

/// Probes all calls of a process, from the first to the last. Returns the calls.
fn probe_all(binary: &Binary, threads: &str, mode: &str) -> (u64, Hits) {
    let mut process = binary.start(&[threads, &format!("w{mode}"), "30000"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let (work, scaled) = (function(&process, "work"), function(&process, "scaled"));
    let seen = process.address(SEEN);
    let entry = program::check_entry(&mut runtime, seen, work.address);
    let returns = program::check_return(&mut runtime, seen + 8);
    let wild = program::wild(&mut runtime);
    let at_work = Probe {
        function: &work,
        entry: Some(entry),
        returns: Some(returns),
        inside: &[],
    };
    let attachment = runtime.attach(&[at_work, both(&scaled, wild)]).unwrap();
    process.send("go");
    process.ready();
    let memory = Memory::open(process.pid()).unwrap();
    let (calls, wrong) = process.stop();
    assert_eq!(wrong, 0, "{mode}");
    let all = runtime.detach(attachment).unwrap();
    let [hits, others] = all[..] else {
        panic!("{all:?}");
    };
    for one in [hits.entry, hits.returns, others.entry, others.returns] {
        assert_eq!(sum(one), calls, "{mode}: {hits:?}, {others:?}");
    }
    assert_eq!(
        memory.read_vec(seen, 16).unwrap(),
        [0; 16],
        "{mode}: registers that are not the call's"
    );
    work.check(&memory).unwrap();
    scaled.check(&memory).unwrap();
    (calls, hits)
}

#[test]
fn every_call_is_counted_whatever_the_program_is_built_as() {
    let all: [&[&str]; 6] = [
        &[],
        &["-static"],
        &["-no-pie", "-O3", "-march=native"],
        &["-O0"],
        &["-fcf-protection=full"],
        &["-fpatchable-function-entry=5"],
    ];
    for flags in all {
        let (calls, hits) = probe_all(&Binary::compile("busy.c", flags), "8", "");
        assert!(hits.entry.hits > calls / 2, "{flags:?}: {hits:?}");
    }
}

/// A program whose file is larger than all memory, most of it a hole. What is read of it for a process, the fork that traces
/// the process keeps: once that was all of the file, and 125 MB for each process.
#[test]
fn a_program_of_any_size_is_attached_to() {
    let flags = ["-no-pie"];
    let [small, large] = [(); 2].map(|()| Binary::compile("busy.c", &flags));
    let file = OpenOptions::new().write(true).open(large.path()).unwrap();
    if file.set_len(1 << 43).is_err() {
        return common::require::skip_as("features", "this file system has no files of 8 TiB");
    }
    drop(file);
    // Both have the function at the same address.
    let work = function(&small.start(&["1", "w", "30000"]), "work");
    let mut process = large.start(&["1", "w", "30000"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let entry = program::wild(&mut runtime);
    let attachment = runtime.attach(&[both(&work, entry)]).unwrap();
    process.send("go");
    process.ready();
    let (calls, wrong) = process.stop();
    assert_eq!(wrong, 0);
    let hits = runtime.detach(attachment).unwrap()[0];
    assert_eq!(sum(hits.entry), calls, "{hits:?}");
}

#[test]
fn every_call_is_counted_whatever_the_threads_do() {
    let binary = Binary::compile("busy.c", &[]);
    for mode in ["c", "t", "ts", "f", "ctf"] {
        let (calls, hits) = probe_all(&binary, "8", mode);
        assert!(hits.entry.hits > calls / 2, "{mode}: {hits:?}");
    }
    probe_all(&binary, "64", "");
}

/// Attaches and detaches so many times while the process works.
fn cycle(binary: &Binary, threads: u64, mode: &str, cycles: usize) {
    let mut process = binary.start(&[&threads.to_string(), mode]);
    let pid = process.pid();
    let mut runtime = Runtime::open(pid).unwrap();
    let memory = Memory::open(pid).unwrap();
    let work = function(&process, "work");
    let wild = program::wild(&mut runtime);
    let (mut all, mut entries, mut returns) = (0, 0, 0);
    let mut cycle = 0;
    while cycle < cycles {
        let prepared = runtime.prepare(&[both(&work, wild)]).unwrap();
        let session = runtime.stop().unwrap();
        let before = calls(&process, &memory);
        let attachment = match runtime.attach_in(session, &prepared) {
            Err(Error::SavedAddress { .. }) => continue,
            other => other.unwrap(),
        };
        // Until each of the threads could have been there.
        wait_until(|| calls(&process, &memory) >= before + 20 * threads);
        let session = runtime.stop().unwrap();
        let after = calls(&process, &memory);
        let hits = runtime.detach_in(session, attachment).unwrap()[0];
        work.check(&memory).unwrap();
        for count in [hits.entry, hits.returns] {
            // In flight: in the function, or between it and the count, at both ends. With handlers, two of each.
            let (least, most) = (after - before, after - before);
            let range = least.saturating_sub(2 * threads)..=most + 2 * threads;
            assert!(
                range.contains(&sum(count)),
                "cycle {cycle}: {count:?} of {range:?}"
            );
        }
        all += after - before;
        entries += sum(hits.entry);
        returns += sum(hits.returns);
        cycle += 1;
    }
    let (_, wrong) = process.stop();
    assert_eq!(wrong, 0);
    println!(
        "{threads} threads, {cycles} cycles: {all} calls, {entries} entries and {returns} returns counted"
    );
}

/// The same, longer: `cargo test --release -p bpfcost-uprobe --test attachment -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn a_thousand_cycles() {
    let binary = Binary::compile("busy.c", &[]);
    for mode in ["", "c", "t", "ts", "f", "ctf"] {
        println!("mode {mode:?}:");
        cycle(&binary, 64, mode, 1000);
    }
}

#[test]
fn probes_come_and_go_under_load() {
    let binary = Binary::compile("busy.c", &[]);
    cycle(&binary, 8, "", 100);
    cycle(&binary, 8, "ct", 50);
    cycle(&binary, 64, "", 10);
    // A prologue of several short instructions, in which threads can be.
    cycle(&Binary::compile("busy.c", &["-O0"]), 8, "t", 50);
}

#[test]
fn a_program_that_dies_or_is_replaced_has_nothing_to_restore() {
    let binary = Binary::compile("busy.c", &[]);
    let mut process = binary.start(&["2", "x"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let work = function(&process, "work");
    let empty = program::empty(&mut runtime);
    let attachment = runtime.attach(&[both(&work, empty)]).unwrap();
    let (calls, wrong) = process.stop();
    assert_eq!(wrong, 0);
    process.send("exec");
    process.ready();
    assert!(sum(runtime.hits(&attachment)[0].entry) <= calls);
    runtime.detach(attachment).unwrap();
    assert_eq!(process.stop(), (0, 0));

    let mut process = binary.start(&["4"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let work = function(&process, "work");
    let empty = program::empty(&mut runtime);
    let attachment = runtime.attach(&[both(&work, empty)]).unwrap();
    wait_until(|| runtime.hits(&attachment)[0].entry.hits >= 1000);
    process.kill();
    assert!(runtime.detach(attachment).unwrap()[0].entry.hits >= 1000);
}

#[test]
fn probes_of_one_function_may_come_apart() {
    let mut process = Binary::compile("busy.c", &[]).start(&["2"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let work = function(&process, "work");
    let empty = program::empty(&mut runtime);
    let entry = runtime
        .attach(&[Probe {
            function: &work,
            entry: Some(empty),
            returns: None,
            inside: &[],
        }])
        .unwrap();
    let returns = runtime
        .attach(&[Probe {
            function: &work,
            entry: None,
            returns: Some(empty),
            inside: &[],
        }])
        .unwrap();
    wait_until(|| {
        runtime.hits(&entry)[0].entry.hits >= 1000 && runtime.hits(&returns)[0].returns.hits >= 1000
    });
    runtime.detach(entry).unwrap();
    runtime.detach(returns).unwrap();
    work.check(&Memory::open(process.pid()).unwrap()).unwrap();
    assert_eq!(process.stop().1, 0);
}

#[test]
fn probes_of_one_call_are_attached_all_or_none() {
    let mut process = Binary::compile("busy.c", &[]).start(&["4", "ct"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let (work, scaled) = (function(&process, "work"), function(&process, "scaled"));
    let empty = program::empty(&mut runtime);
    let changed = Function {
        code: [&[0xcc], &scaled.code[1..]].concat(),
        ..scaled.clone()
    };
    let error = runtime
        .attach(&[both(&work, empty), both(&changed, empty)])
        .unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    let prepared = runtime
        .prepare(&[both(&work, empty), both(&scaled, empty)])
        .unwrap();
    let at_scaled = runtime.attach(&[both(&scaled, empty)]).unwrap();
    let session = runtime.stop().unwrap();
    let error = runtime.attach_in(session, &prepared).unwrap_err();
    let reason = "other programs came or went there since this one was prepared";
    assert!(error.to_string().contains(reason), "{error}");
    work.check(&memory).unwrap();
    wait_until(|| runtime.hits(&at_scaled)[0].returns.hits >= 1000);
    runtime.detach(at_scaled).unwrap();

    let attachment = runtime
        .attach(&[both(&work, empty), both(&scaled, empty)])
        .unwrap();
    wait_until(|| {
        let all = runtime.hits(&attachment);
        all.iter().all(|hits| hits.returns.hits >= 1000)
    });
    runtime.detach(attachment).unwrap();
    work.check(&memory).unwrap();
    scaled.check(&memory).unwrap();
    assert_eq!(process.stop().1, 0);
}

#[test]
fn tools_may_follow_each_other_and_work_at_once() {
    let mut process = Binary::compile("busy.c", &[]).start(&["8", "ct"]);
    let (work, scaled) = (function(&process, "work"), function(&process, "scaled"));
    for _ in 0..3 {
        let mut first = Runtime::open(process.pid()).unwrap();
        let wild = program::wild(&mut first);
        let at_work = first.attach(&[both(&work, wild)]).unwrap();
        let mut second = Runtime::open(process.pid()).unwrap();
        let empty = program::empty(&mut second);
        let error = second.attach(&[both(&work, empty)]).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        let at_scaled = second.attach(&[both(&scaled, empty)]).unwrap();
        wait_until(|| {
            first.hits(&at_work)[0].returns.hits > 1000
                && second.hits(&at_scaled)[0].returns.hits > 1000
        });
        first.detach(at_work).unwrap();
        second.detach(at_scaled).unwrap();
    }
    assert_eq!(process.stop().1, 0);
}

#[test]
fn a_seccomp_filter_is_suspended_or_the_program_refused() {
    let mut process = Binary::compile("busy.c", &[]).start(&["2", "p"]);
    match Runtime::open(process.pid()) {
        Ok(mut runtime) => {
            let work = function(&process, "work");
            let empty = program::empty(&mut runtime);
            let attachment = runtime.attach(&[both(&work, empty)]).unwrap();
            wait_until(|| runtime.hits(&attachment)[0].returns.hits > 1000);
            runtime.detach(attachment).unwrap();
        }
        // A kernel without CONFIG_CHECKPOINT_RESTORE.
        Err(error) => assert!(matches!(error, Error::Seccomp { .. }), "{error}"),
    }
    assert_eq!(process.stop().1, 0);
}

#[test]
fn a_program_with_a_gs_base_of_its_own_is_refused() {
    let mut process = Binary::compile("busy.c", &[]).start(&["1", "g"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let work = function(&process, "work");
    let empty = program::empty(&mut runtime);
    let error = runtime.attach(&[both(&work, empty)]).unwrap_err();
    assert!(matches!(error, Error::GsTaken { .. }), "{error}");
    work.check(&Memory::open(process.pid()).unwrap()).unwrap();
    assert_eq!(process.stop().1, 0);
}

#[test]
fn code_without_room_is_an_error() {
    let process = Binary::compile("busy.c", &[]).start(&["1", "w"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let error = runtime.load(8, |_| Ok::<_, Error>(vec![0xc3; 9]));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("needs 9 bytes"), "{error}");
    runtime.load(8, |_| Ok::<_, Error>(vec![0xc3; 8])).unwrap();
}

/// Also where the program's addresses leave no other room near it: those of a process that are not chosen at random.
#[test]
fn the_heap_can_grow_beside_code() {
    let heap = Binary::compile("heap.c", &[]);
    let mut process = heap.start_by(&["setarch", "-R"], &[]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let image = Image::of_program(process.pid()).unwrap();
    let work = image.function("work").unwrap();
    let empty = program::empty(&mut runtime);
    let probe = Probe {
        function: &work,
        entry: Some(empty),
        returns: None,
        inside: &[],
    };
    let attachment = runtime.attach(&[probe]).unwrap();
    process.send("grow");
    assert_eq!(process.line(), "1");
    let hits = runtime.detach(attachment).unwrap();
    assert_eq!(hits[0].entry.hits, 1);
}

#[test]
fn each_stop_of_the_first_attachment_is_short() {
    let process = Binary::compile("busy.c", &[]).start(&["4"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let image = Image::of_program(process.pid()).unwrap();
    let function = image.function("work").unwrap();
    let probe = Probe {
        function: &function,
        entry: Some(program::empty(&mut runtime)),
        returns: None,
        inside: &[],
    };
    let attachment = runtime.attach(&[probe]).unwrap();
    let stops = runtime.stops();
    // Each takes some 40 microseconds.
    assert!((1..=6).contains(&stops.most_calls), "{stops:?}");
    assert!((2..=6).contains(&stops.number), "{stops:?}");
    runtime.detach(attachment).unwrap();
}
