//! Programs as people write them, in running processes: maps, rings and counts hold what the calls did.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Error, Place, Probes},
    process::{Function, Image, Memory, Site},
};
use common::{Binary, Target};
use std::collections::HashMap;

const COOKIE: u64 = 0x1234_5678_9abc_def0;
const BUSY: u64 = 2;

fn open() -> Probes {
    let object = compile::bpf("tests/probes/serve.bpf.c");
    Probes::new(LoadedObject::from_bytes("serve", &object, &Choice::default()).unwrap()).unwrap()
}

fn handle(process: &Target) -> Function {
    Image::of_program(process.pid())
        .unwrap()
        .function("handle")
        .unwrap()
}

fn place<'a>(program: &'a str, function: &'a Function, at: At) -> Place<'a> {
    Place {
        program,
        function,
        at,
        cookie: COOKIE,
    }
}

/// A word of the object's global variables.
fn global(probes: &Probes, index: usize) -> u64 {
    let values = probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap();
    u64::from_ne_bytes(values[8 * index..][..8].try_into().unwrap())
}

fn sum(probes: &Probes, index: u32) -> u64 {
    let values = probes.map("counts").unwrap().of_threads(index).unwrap();
    values
        .iter()
        .map(|value| u64::from_ne_bytes(value[..8].try_into().unwrap()))
        .sum()
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_ne_bytes(bytes[8 * index..][..8].try_into().unwrap())
}

/// Returns what `handle` returns of a text.
fn result(text: &[u8]) -> u64 {
    text.iter().fold(7, |sum: u64, &byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

/// Every call is in every map, and every record is whole.
fn count_all(threads: u64, each: u64, timer: bool) {
    let binary = Binary::compile("serve.c", &[]);
    let (threads, each) = (threads.to_string(), each.to_string());
    let mut arguments = vec![threads.as_str(), each.as_str()];
    if timer {
        arguments.push("t");
    }
    let mut process = binary.start(&arguments);
    let mut probes = open();
    let function = handle(&process);
    let places = [
        place("on_entry", &function, At::Entry),
        place("on_return", &function, At::Return),
    ];
    let attached = probes.attach(process.pid(), &places).unwrap();
    process.send("go");
    let mut events = 0;
    // Of the perf buffers; and the sum of the results, by them and by the events.
    let (mut records, mut results, mut expected) = (0, 0_u64, 0_u64);
    let mut by_thread: HashMap<u64, u64> = HashMap::new();
    // Read while it writes: the ring holds a part only.
    let line = std::thread::scope(|scope| {
        let line = scope.spawn(|| process.line());
        loop {
            let is_over = line.is_finished();
            let read = probes.consume("events", |_, record| {
                let text = record[40..].split(|&byte| byte == 0).next().unwrap();
                assert_eq!(word(record, 1), function.address);
                assert_eq!(word(record, 2), COOKIE);
                expected = expected.wrapping_add(word(record, 3));
                // A handler's call is the one that its thread's is known by, when that returns.
                if !timer {
                    assert_eq!(word(record, 3), result(text), "{text:?}");
                    assert_eq!(word(record, 4), text.len() as u64);
                }
                *by_thread.entry(word(record, 0)).or_default() += 1;
                events += 1;
            });
            read.unwrap();
            let mut take = |record: &[u8]| {
                assert_eq!(record.len(), 8);
                results = results.wrapping_add(word(record, 0));
                records += 1;
            };
            probes.consume("results", |_, record| take(record)).unwrap();
            if is_over {
                return line.join().unwrap();
            }
            std::thread::yield_now();
        }
    });
    let (calls, wrong) = line.split_once(' ').expect("it lives");
    let calls: u64 = calls.parse().unwrap();
    assert_eq!(wrong, "0");
    let hits = probes.detach(attached).unwrap();

    for counts in [hits.entry, hits.returns] {
        assert_eq!(counts.hits + counts.missed, calls, "{hits:?}");
    }
    assert_eq!(global(&probes, 0), hits.entry.hits);
    assert_eq!(sum(&probes, 1), hits.returns.hits);
    let dropped = probes.map("events").unwrap().dropped().unwrap();
    let lengths: u64 = probes
        .map("by_length")
        .unwrap()
        .entries()
        .unwrap()
        .iter()
        .map(|(_, value)| word(value, 0))
        .sum();
    let [_, refused, busy, unknown, unread] =
        [0, 1, BUSY as usize, 3, 4].map(|at| global(&probes, at));
    assert_eq!(unread, 0);
    assert_eq!(lengths + refused, hits.entry.hits);
    assert_eq!(events + dropped + unknown, hits.returns.hits);
    let lost = probes.map("results").unwrap().dropped().unwrap();
    assert_eq!(records + lost + unknown, hits.returns.hits);
    if dropped + lost == 0 {
        assert_eq!(results, expected);
    }
    let recent = probes.map("recent").unwrap().entries().unwrap().len();
    assert!(
        (32..=64).contains(&recent),
        "{recent} of 64 entries are kept"
    );
    if !timer {
        // A new thread's first calls are missed where others look for an area at the same time.
        assert_eq!((refused, busy, dropped), (0, 0, 0));
        assert!(unknown <= hits.entry.missed, "{unknown} {hits:?}");
        assert_eq!(sum(&probes, 0), hits.entry.hits);
        assert_eq!(by_thread.len() as u64, threads.parse::<u64>().unwrap());
        let is_process = |thread: &u64| (thread >> 32) as i32 == process.pid();
        assert!(by_thread.keys().all(is_process));
        let open = probes.map("open_calls").unwrap().entries().unwrap().len() as u64;
        assert!(open <= hits.returns.missed, "{open} {hits:?}");
    }
}

#[test]
fn all_calls_of_one_thread_are_in_the_maps() {
    count_all(1, 20_000, false);
}

#[test]
fn all_calls_of_many_threads_are_in_the_maps() {
    count_all(8, 20_000, false);
    count_all(32, 2_000, false);
}

#[test]
fn signal_handlers_in_probes_leave_the_maps_right() {
    count_all(4, 200_000, true);
}

#[test]
fn maps_are_those_of_all_processes() {
    let binary = Binary::compile("serve.c", &["-static"]);
    let mut probes = open();
    let mut processes = [binary.start(&["2", "1000"]), binary.start(&["2", "500"])];
    let mut attached = Vec::new();
    for process in &processes {
        let function = handle(process);
        let place = place("on_entry", &function, At::Entry);
        attached.push(probes.attach(process.pid(), &[place]).unwrap());
    }
    let all: u64 = processes.iter_mut().map(Target::go).sum();
    assert_eq!(all, 3000);
    let detach = |probes: &mut Probes, one| {
        let counts = probes.detach(one).unwrap().entry;
        (counts.hits, counts.hits + counts.missed)
    };
    let [(one, _), (other, _)] = [(); 2].map(|()| detach(&mut probes, attached.remove(0)));
    // Two new threads may ask for an area at once: one of them misses a call then.
    let hits = one + other;
    assert!(hits > all / 2, "{hits}");
    assert_eq!(global(&probes, 0), hits);
    assert_eq!(sum(&probes, 0), hits);
    // Detached, nothing is counted; attached again, the same maps go on.
    let more = processes[0].go() - 2000;
    assert_eq!((more, global(&probes, 0)), (2000, hits));
    let function = handle(&processes[0]);
    let place = place("on_entry", &function, At::Entry);
    let again = probes.attach(processes[0].pid(), &[place]).unwrap();
    processes[0].go();
    let (again, called) = detach(&mut probes, again);
    assert_eq!(called, 2000);
    assert_eq!(global(&probes, 0), hits + again);
    // What ended keeps its counts.
    processes[1].kill();
    assert_eq!(sum(&probes, 0), hits + again);
}

#[test]
fn tables_are_read_and_written_here_too() {
    let probes = open();
    let table = probes.map("by_length").unwrap();
    for key in 0..256_u32 {
        table
            .set(&key.to_ne_bytes(), &u64::from(key).to_ne_bytes())
            .unwrap();
    }
    let full = table.set(&256_u32.to_ne_bytes(), &[0; 8]).unwrap_err();
    assert!(
        full.to_string().contains("by_length can't be written"),
        "{full}"
    );
    assert_eq!(
        table.get(&7_u32.to_ne_bytes()).unwrap(),
        Some(7_u64.to_ne_bytes().to_vec())
    );
    assert!(table.delete(&7_u32.to_ne_bytes()).unwrap());
    assert!(!table.delete(&7_u32.to_ne_bytes()).unwrap());
    assert_eq!(table.get(&7_u32.to_ne_bytes()).unwrap(), None);
    assert_eq!(table.entries().unwrap().len(), 255);
    table.set(&256_u32.to_ne_bytes(), &[1; 8]).unwrap();
    assert_eq!(table.entries().unwrap().len(), 256);
}

#[test]
fn stacks_are_those_of_frame_pointers() {
    let binary = Binary::compile(
        "serve.c",
        &["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"],
    );
    let mut process = binary.start(&["1", "10"]);
    let mut probes = open();
    let image = Image::of_program(process.pid()).unwrap();
    let function = image.function("handle").unwrap();
    let attached = probes
        .attach(process.pid(), &[place("on_stack", &function, At::Entry)])
        .unwrap();
    process.go();
    probes.detach(attached).unwrap();
    let request = image.function("work").unwrap();
    let is_in = |address: u64| {
        (request.address..request.address + request.code.len() as u64).contains(&address)
    };
    // entered, refused, busy, unknown, unread, stack_id, stack.
    assert_eq!(global(&probes, 6), function.address);
    assert!(
        is_in(global(&probes, 7)) || is_in(global(&probes, 8)),
        "the caller is missing"
    );
    assert!(
        global(&probes, 5) < 64,
        "a stack's number: {}",
        global(&probes, 5)
    );
    let stacks = probes.map("stacks").unwrap();
    let stack = stacks.stack(global(&probes, 5) as u32).unwrap().unwrap();
    assert_eq!(stack[..3], [6, 7, 8].map(|word| global(&probes, word)));
    assert!(stacks.stack(64).unwrap().is_none());
}

/// Words in which `on_any` counts, and keeps its place, by the cookie.
const RUNS: usize = 10;
const AT: usize = 14;

#[test]
fn one_program_runs_at_an_entry_and_inside() {
    let binary = Binary::compile("serve.c", &[]);
    let mut process = binary.start(&["2", "1000"]);
    let mut probes = open();
    let function = handle(&process);
    let mut end = Site::entry(&function).unwrap().end();
    let mut offsets = vec![0];
    for offset in 1..function.code.len() as u64 {
        let Ok(site) = Site::at(&function, offset) else {
            continue;
        };
        if site.address >= end && offsets.len() < 4 {
            offsets.push(offset);
            end = site.end();
        }
    }
    assert!(offsets.len() > 2, "{offsets:x?}");
    let places = offsets.iter().enumerate().map(|(cookie, &offset)| {
        let semaphore = None;
        let at = match offset {
            0 => At::Entry,
            _ => At::Inside { offset, semaphore },
        };
        Place {
            cookie: cookie as u64,
            ..place("on_any", &function, at)
        }
    });
    let places: Vec<Place<'_>> = places.collect();
    let attached = probes.attach(process.pid(), &places).unwrap();
    let calls = process.go();
    let hits = probes.detach(attached).unwrap();
    assert_eq!(hits.entry.hits + hits.entry.missed, calls);
    assert_eq!(global(&probes, RUNS), hits.entry.hits);
    let inside: Vec<u64> = (1..offsets.len())
        .map(|index| global(&probes, RUNS + index))
        .collect();
    assert_eq!(inside.iter().sum::<u64>(), hits.inside.hits);
    assert!(inside.iter().any(|&runs| runs + 10 > calls), "{inside:?}");
    for (index, offset) in offsets.iter().enumerate() {
        if global(&probes, RUNS + index) > 0 {
            assert_eq!(global(&probes, AT + index), function.address + offset);
        }
    }
    // Places that overlap.
    let overlapping = places[1..].iter().find_map(|place| {
        let At::Inside { offset, semaphore } = place.at else {
            return None;
        };
        let offset = (offset + 1..offset + 5).find(|&at| Site::at(&function, at).is_ok())?;
        let at = At::Inside { offset, semaphore };
        Some([*place, Place { at, ..*place }])
    });
    let overlapping = overlapping.expect("an instruction is shorter than 5 bytes");
    let attach = |probes: &mut Probes, place| probes.attach(process.pid(), &[place]);
    let error = probes.attach(process.pid(), &overlapping).unwrap_err();
    assert!(error.to_string().contains("would overlap"), "{error}");
    let first = attach(&mut probes, overlapping[0]).unwrap();
    let error = attach(&mut probes, overlapping[1]).unwrap_err();
    let reason = "another probe of this program has replaced some of the bytes there";
    assert!(error.to_string().contains(reason), "{error}");
    probes.detach(first).unwrap();
    function
        .check(&Memory::open(process.pid()).unwrap())
        .unwrap();
}

#[test]
fn usdt_sites_are_places_with_a_semaphore() {
    let mut process = Binary::compile("inside.c", &[]).start(&["2", "", "250"]);
    let image = Image::of_program(process.pid()).unwrap();
    let sites = image.usdt("test", "armed").unwrap();
    let function = image.function_around(sites[0].address).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let raised = || memory.read_u64(sites[0].semaphore.unwrap()).unwrap() & 0xffff;
    let mut probes = open();
    let places: Vec<Place<'_>> = sites
        .iter()
        .map(|site| {
            let at = At::Inside {
                offset: site.address - function.address,
                semaphore: site.semaphore,
            };
            place("on_any", &function, at)
        })
        .collect();
    let attached = probes.attach(process.pid(), &places).unwrap();
    assert_eq!(raised(), places.len() as u64);
    assert_eq!(process.stop(), (500, 0));
    let hits = probes.detach(attached).unwrap().inside;
    assert_eq!(hits.hits + hits.missed, 500 * places.len() as u64);
    assert_eq!(global(&probes, RUNS), hits.hits);
    assert_eq!(raised(), 0);
}

#[test]
fn what_can_not_be_read_is_an_error_in_the_program_alone() {
    let binary = Binary::compile("serve.c", &[]);
    let mut process = binary.start(&["2", "1000"]);
    let mut probes = open();
    let function = handle(&process);
    let attached = probes
        .attach(process.pid(), &[place("on_wild", &function, At::Entry)])
        .unwrap();
    let calls = process.go();
    let counts = probes.detach(attached).unwrap().entry;
    assert_eq!(counts.hits + counts.missed, calls);
    assert_eq!(global(&probes, 0), counts.hits);
}

#[test]
fn what_can_not_run_is_named() {
    let binary = Binary::compile("serve.c", &[]);
    let process = binary.start(&["1", "1"]);
    let mut probes = open();
    let function = handle(&process);
    let mut refused = |program| {
        let places = [place(program, &function, At::Entry)];
        probes
            .attach(process.pid(), &places)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("on_queue"),
        "on_queue can't run in user space: the map queue is of a type that is not supported in user space: queue\n  \
         use a kernel uprobe for it"
    );
    let missing = refused("on_nothing");
    assert!(
        missing.starts_with("the object has no program on_nothing\n  it has: on_entry, "),
        "{missing}"
    );
    let Err(Error::NoMap { names, .. }) = probes.map("nothing") else {
        panic!("the map is not there");
    };
    assert!(names.contains(&"by_length".to_owned()));
}
