//! The supervisor of tools, whatever a tool asks for: no call ends it, makes it take much memory, or stays without an answer.

#![allow(unsafe_code, reason = "counts allocations")]

#[path = "../common/mod.rs"]
mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use bpfcost_uprobe::{process::Image, tool::Tool};
use common::{Binary, require};

/// The most bytes that the supervisor may have at a time: instructions of a program, twice, in the kernel's form and in its own,
/// with what is known of them.
const BYTES: usize = 64 << 20;
const CALLS: u64 = 1000;

/// The system's allocator, with the bytes that are in use, and the most that were.
struct Counted;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[test]
fn no_call_ends_the_supervisor() {
    call_randomly(3);
}

#[test]
#[ignore = "takes minutes; make endurance runs it"]
fn many_calls_do_not_end_the_supervisor() {
    call_randomly(200);
}

/// Maps that this process has open.
fn open_maps() -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    links
        .filter(|link| link.as_os_str() == "anon_inode:bpf-map")
        .count()
}

fn call_randomly(seeds: u32) {
    if !require::host() {
        return;
    }
    let called = Binary::compile("called.c", &["-fno-omit-frame-pointer"]);
    let mut target = called.start(&[]);
    let image = Image::of_program(target.pid()).unwrap();
    let work = image.function("work").unwrap();
    let mapping = image.mapping(work.address).unwrap();
    let offset = work.address - mapping.start + mapping.offset;
    let caller = Binary::compile("random_calls.c", &[]);
    for seed in 0..seeds {
        let mut command = Command::new(caller.path());
        command
            .args([seed.to_string(), CALLS.to_string()])
            .arg(image.path())
            .args([offset.to_string(), target.pid().to_string()])
            .stdout(Stdio::piped());
        let mut tool = Tool::start(command, None).unwrap();
        let output = tool.take_pipes().1.unwrap();
        let lines = thread::spawn(|| {
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .collect()
        });
        let status = loop {
            let ended = tool.run(Duration::from_secs(1), &mut |_| ()).unwrap();
            if let Some(status) = ended {
                break status;
            }
        };
        let lines: Vec<String> = lines.join().unwrap();
        assert!(status.success(), "seed {seed}: {status}, {lines:?}");
        let numbers = lines[0].split(' ').map(|word| word.parse().unwrap());
        let numbers: Vec<u64> = numbers.collect();
        let [good, bad, unanswered] = numbers[..] else {
            panic!("{lines:?}");
        };
        assert!(good > CALLS / 20 && bad > CALLS / 4, "{lines:?}");
        assert_eq!((good + bad, unanswered), (CALLS, 0));
        assert_eq!(lines[1], "7");
        target.send("1000");
        assert_eq!(target.line(), "done 0", "seed {seed}");
        // What the tool has closed is not open here.
        let maps = open_maps();
        assert!(maps < 20, "{maps} maps are open");
        tool.finish().1.unwrap();
        common::until_restored(&target, "work");
    }
    let most = MOST.load(Relaxed);
    println!("at most {most} bytes were in use");
    assert!(most < BYTES, "{most} bytes were in use");
}
