//! Each call is counted once, and the program has its result.

use super::{Probe, Runtime, Tails, at_return, attach, only, program, sum};
use crate::held::{hold, release};
use bpfcost_uprobe::process::Site;

const ALLOCATORS: [&str; 7] = [
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
];

#[test]
fn each_call_of_the_c_librarys_allocators_is_counted_with_its_result() {
    let mut tails = Tails::start(&["-fno-builtin"]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let program = tails.summing(&mut runtime);
    // The C library keeps their memory for those that come next, and calls calloc for no more.
    hold(&mut tails, 4);
    release(&mut tails, 4);
    for name in ALLOCATORS {
        let function = tails.library(name);
        let attachment = attach(&mut runtime, &[&function], program);
        let (calls, results) = tails.call(&format!("alloc {name} 4 5000"));
        let returns = only(&runtime.detach(attachment).unwrap());
        assert_eq!((returns.hits, returns.missed), (calls, 0), "{name}");
        assert_eq!(tails.take_sum(), results, "{name}");
        function.check(&tails.memory).unwrap();
        // Without a probe, none is counted.
        tails.call(&format!("alloc {name} 2 100"));
        assert_eq!(tails.take_sum(), 0, "{name}");
    }
}

#[test]
fn a_million_calls_of_two_threads_are_counted() {
    let mut tails = Tails::start(&["-fno-builtin"]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let program = tails.summing(&mut runtime);
    let all =
        ["calloc", "realloc", "memalign", "valloc", "pvalloc"].map(|name| tails.library(name));
    let functions = all.each_ref();
    hold(&mut tails, 2);
    release(&mut tails, 2);
    let attachment = attach(&mut runtime, &functions, program);
    let (calls, results) = tails.call("alloc memalign 2 500000");
    assert_eq!(calls, 1_000_000);
    let hits = runtime.detach(attachment).unwrap();
    assert_eq!((hits[2].returns.hits, hits[2].returns.missed), (calls, 0));
    assert_eq!((hits[1].returns, hits[3].returns), Default::default());
    assert_eq!(hits[0].returns, Default::default());
    assert_eq!(tails.take_sum(), results);
}

#[test]
fn forked_children_are_counted_or_left_alone() {
    for follows in [true, false] {
        let mut tails = Tails::start(&["-fno-builtin"]);
        let mut runtime = Runtime::open(tails.process.pid()).unwrap();
        if follows {
            runtime.follow_children().unwrap();
        }
        let program = tails.summing(&mut runtime);
        for name in ["calloc", "realloc", "memalign", "valloc"] {
            let function = tails.library(name);
            let attachment = attach(&mut runtime, &[&function], program);
            let (calls, results) = tails.call(&format!("fork {name} 3000"));
            let returns = only(&runtime.detach(attachment).unwrap());
            let (calls, results) = if follows { (calls, results) } else { (0, 0) };
            assert_eq!((returns.hits, returns.missed), (calls, 0), "{name}");
            assert_eq!(tails.take_sum(), results, "{name}");
        }
    }
}

#[test]
fn arguments_results_and_kept_registers_stay() {
    for flags in [
        &[][..],
        &["-static"],
        &["-O3", "-fcf-protection=full"],
        &["-no-pie"],
    ] {
        let mut tails = Tails::start(flags);
        let mut runtime = Runtime::open(tails.process.pid()).unwrap();
        let program = tails.summing(&mut runtime);
        for name in ["leaves", "spread", "halves", "keeper"] {
            let function = tails.function(name);
            let wild = program::wild(&mut runtime);
            let returns = if name == "leaves" { program } else { wild };
            let both = Probe {
                entry: Some(wild),
                ..at_return(&function, returns)
            };
            // Some are too short for both.
            let probes = [both];
            let attachment = match runtime.attach(&probes) {
                Ok(attachment) => attachment,
                Err(_) => attach(&mut runtime, &[&function], returns),
            };
            let command = if name == "leaves" {
                "leaves 1000"
            } else {
                "spread 1000"
            };
            let (calls, results) = tails.call(command);
            let returns = only(&runtime.detach(attachment).unwrap());
            assert_eq!((returns.hits, returns.missed), (calls, 0), "{name}");
            if name == "leaves" {
                assert_eq!(tails.take_sum(), results);
            }
        }
    }
}

#[test]
fn conditional_and_short_jumps_are_counted() {
    let mut tails = Tails::start(&[]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let program = tails.summing(&mut runtime);
    let both = ["conditional", "brief"].map(|name| tails.function(name));
    assert_eq!(Site::returns(&both[0]).unwrap().sites.len(), 2);
    let attachment = attach(&mut runtime, &both.each_ref(), program);
    let (calls, results) = tails.call("choose 1000");
    let hits = runtime.detach(attachment).unwrap();
    assert!(hits.iter().all(|one| one.returns.hits == calls), "{hits:?}");
    assert_eq!(tails.take_sum(), results);
}

#[test]
fn functions_that_jump_to_each_other_are_counted_each() {
    let mut tails = Tails::start(&[]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let wild = program::wild(&mut runtime);
    let all = ["first", "second", "third"].map(|name| tails.function(name));
    // Half of the calls come to each twice.
    let expected = |calls: u64| calls + calls / 2;
    let attachment = attach(&mut runtime, &all.each_ref(), wild);
    let (calls, _) = tails.call("nested 1000");
    let hits = runtime.detach(attachment).unwrap();
    for one in &hits {
        assert_eq!(sum(one.returns), expected(calls), "{hits:?}");
        assert_eq!(one.returns.missed, 0, "{hits:?}");
    }
    // The second time, one alone would return to itself.
    let attachment = attach(&mut runtime, &[&all[0]], wild);
    let (calls, _) = tails.call("nested 1000");
    let returns = only(&runtime.detach(attachment).unwrap());
    assert_eq!((returns.hits, returns.missed), (calls, calls / 2));
}

#[test]
fn a_full_table_misses_calls_and_later_probes_use_it_again() {
    let mut tails = Tails::start(&[]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let program = tails.summing(&mut runtime);
    let function = tails.function("leaves");
    let mut counts = Vec::new();
    for _ in 0..3 {
        let attachment = attach(&mut runtime, &[&function], program);
        let (calls, results) = tails.call("many 4000 3");
        let returns = only(&runtime.detach(attachment).unwrap());
        assert_eq!(sum(returns), calls);
        assert!(returns.hits > 3 * 1500, "{returns:?}");
        assert!(returns.missed > 3 * 1500, "{returns:?}");
        assert_ne!(tails.take_sum(), results);
        counts.push(returns);
    }
    assert_eq!(counts[0], counts[1]);
    assert_eq!(counts[0], counts[2]);
}

#[test]
fn several_programs_and_names_share_a_jump() {
    let mut tails = Tails::start(&["-fno-builtin"]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let program = tails.summing(&mut runtime);
    let counted = tails.process.address(0) + 8;
    let count = program::count(&mut runtime, counted);
    // One function, by two names.
    let both = ["memalign", "aligned_alloc"].map(|name| tails.library(name));
    let first = attach(&mut runtime, &both.each_ref(), program);
    let second = attach(&mut runtime, &[&both[0]], count);
    let (calls, results) = tails.call("alloc memalign 2 1000");
    assert_eq!(only(&runtime.detach(second).unwrap()).hits, calls);
    let more = tails.call("alloc aligned_alloc 2 500");
    for hits in runtime.detach(first).unwrap() {
        assert_eq!(
            (hits.returns.hits, hits.returns.missed),
            (calls + more.0, 0)
        );
    }
    let results = results.wrapping_add(more.1);
    assert_eq!(tails.take_sum(), results.wrapping_mul(2));
    assert_eq!(tails.memory.read_u64(counted).unwrap(), calls);
}
