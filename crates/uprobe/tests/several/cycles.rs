//! Programs that come and go at a place of a busy process where another one stays: no run is lost, and none is counted
//! twice.

use super::common::{Binary, program, wait_until};
use bpfcost_uprobe::process::{
    Attachment, Counts, Function, Hits, Image, Memory, Probe, Program, Runtime,
};

/// The address of busy.c's `seen`, of those that it prints.
const SEEN: usize = 2;
/// Cookies of the program that stays, and of the two that come and go.
const STAYS: u64 = 0;
const FIRST: u64 = 1;
const SECOND: u64 = 2;
const CYCLES: u64 = 30;
const THREADS: u64 = 8;

fn both(function: &Function, program: Program) -> Probe<'_> {
    Probe {
        function,
        entry: Some(program),
        returns: Some(program),
        inside: &[],
    }
}

fn runs(hits: Hits) -> u64 {
    hits.entry.hits + hits.returns.hits
}

fn sum(counts: Counts) -> u64 {
    counts.hits + counts.missed
}

fn wait_for(runtime: &Runtime, attachment: &Attachment, more: u64) {
    let before = runs(runtime.hits(attachment)[0]);
    wait_until(|| runs(runtime.hits(attachment)[0]) >= before + more);
}

fn cycle(binary: &Binary, mode: &str) {
    let mut process = binary.start(&[&THREADS.to_string(), mode]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let image = Image::of_program(process.pid()).unwrap();
    let work = image.function("work").unwrap();
    let seen = process.address(SEEN);
    let at = |number: u64| seen + 8 * number;
    let [stays, first, second] =
        [STAYS, FIRST, SECOND].map(|number| program::count(&mut runtime, at(number)));
    let staying = runtime.attach(&[both(&work, stays)]).unwrap();
    process.send("go");
    process.ready();
    // Two of the first program at once; they leave in either order.
    let (mut of_first, mut of_second) = (0, 0);
    for cycle in 0..CYCLES {
        let twice = [both(&work, first), both(&work, first)];
        let one = runtime.attach(&twice).unwrap();
        wait_for(&runtime, &one, 500);
        let other = runtime.attach(&[both(&work, second)]).unwrap();
        wait_for(&runtime, &other, 500);
        let (one, other) = if cycle % 2 == 0 {
            let one = runtime.detach(one).unwrap();
            wait_for(&runtime, &other, 500);
            (one, runtime.detach(other).unwrap())
        } else {
            let other = runtime.detach(other).unwrap();
            wait_for(&runtime, &one, 500);
            (runtime.detach(one).unwrap(), other)
        };
        of_first += runs(one[0]) + runs(one[1]);
        of_second += runs(other[0]);
    }
    let (calls, wrong) = process.stop();
    assert_eq!(wrong, 0, "{mode}");
    // All of its calls, from the first to the last.
    let hits = runtime.detach(staying).unwrap()[0];
    assert_eq!(
        (sum(hits.entry), sum(hits.returns)),
        (calls, calls),
        "{mode}"
    );
    let memory = Memory::open(process.pid()).unwrap();
    let ran = [STAYS, FIRST, SECOND].map(|number| memory.read_u64(at(number)).unwrap());
    assert_eq!(ran[0], runs(hits), "{mode}");
    // A thread that was about to count when others were detached counts and runs them: at each detachment at most those of
    // one call of each thread, and of one of its handler.
    for (ran, counted, each) in [(ran[1], of_first, 2), (ran[2], of_second, 1)] {
        let late = ran - counted;
        assert!(
            late <= 2 * each * THREADS * CYCLES,
            "{mode}: {late} of {ran}"
        );
    }
    work.check(&memory).unwrap();
}

#[test]
fn a_program_that_stays_has_all_calls_and_others_each_of_their_runs() {
    let binary = Binary::compile("busy.c", &[]);
    for mode in ["w", "wct", "wt"] {
        cycle(&binary, mode);
    }
}

#[test]
fn calls_of_threads_without_memory_are_missed_by_each_program() {
    let binary = Binary::compile("busy.c", &[]);
    // When it is opened, there is one thread.
    let mut process = binary.start(&["200", "w", "500"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let image = Image::of_program(process.pid()).unwrap();
    let work = image.function("work").unwrap();
    let wild = program::wild(&mut runtime);
    let counting = program::count(&mut runtime, process.address(SEEN));
    let probes = [wild, counting, wild].map(|program| both(&work, program));
    let attachment = runtime.attach(&probes).unwrap();
    process.send("go");
    process.ready();
    let (calls, wrong) = process.stop();
    assert_eq!(wrong, 0);
    let all = runtime.detach(attachment).unwrap();
    for hits in &all {
        assert_eq!((sum(hits.entry), sum(hits.returns)), (calls, calls));
        assert_eq!(*hits, all[0]);
        assert_ne!(hits.entry.missed, 0);
    }
    let memory = Memory::open(process.pid()).unwrap();
    let ran = memory.read_u64(process.address(SEEN)).unwrap();
    assert_eq!(ran, runs(all[1]));
}
