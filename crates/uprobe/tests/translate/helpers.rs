//! The helpers of the blob, called as programs call them, against what this process knows by itself.

use std::{collections::HashSet, ffi::CStr, fs, ptr};

use bpfcost_uprobe::translate::{
    ArrayPlace,
    helpers::{Blob, Environment, MapDescriptor, clock_gettime_offset},
};
use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::{decode, machine::Machine};

/// The kernel's ids.
const MAP_LOOKUP: u32 = 1;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const KTIME: u32 = 5;
const PRANDOM: u32 = 7;
const CPU: u32 = 8;
const PID_TGID: u32 = 14;
const UID_GID: u32 = 15;
const COMM: u32 = 16;
const NODE: u32 = 42;
const KTIME_BOOT: u32 = 125;
const KTIME_COARSE: u32 = 160;
const KTIME_TAI: u32 = 208;

/// The helpers in memory that can be run.
struct Helpers {
    blob: Blob,
    _machine: Machine,
}

impl Helpers {
    fn new(environment: Environment) -> Self {
        let mut machine = Machine::new().expect("memory can be had");
        let blob = Blob::at(machine.helpers(), environment);
        machine.put_helpers(&blob.bytes);
        Helpers {
            blob,
            _machine: machine,
        }
    }

    fn call(&self, id: u32, arguments: [u64; 4]) -> u64 {
        let address = self.blob.helpers.address(id).expect("the blob has it");
        // SAFETY: the blob has a function there, which takes words and returns one.
        let helper: extern "C" fn(u64, u64, u64, u64) -> u64 =
            unsafe { std::mem::transmute(address as usize) };
        let [first, second, third, fourth] = arguments;
        helper(first, second, third, fourth)
    }

    fn get(&self, id: u32) -> u64 {
        self.call(id, [0; 4])
    }
}

/// The vdso of this process: its address and its bytes.
fn vdso() -> (u64, &'static [u8]) {
    // SAFETY: the call has no preconditions.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is there");
    let line = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .expect("a vdso is mapped");
    let end = line.split(['-', ' ']).nth(1).expect("an end");
    let end = u64::from_str_radix(end, 16).expect("an address");
    // SAFETY: the kernel has mapped this for the process' whole life, and it is never written.
    let image = unsafe { std::slice::from_raw_parts(base as *const u8, (end - base) as usize) };
    (base, image)
}

fn environments() -> [Environment; 2] {
    let (base, image) = vdso();
    let offset = clock_gettime_offset(image).expect("the vdso has a clock");
    let has_rdpid = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" rdpid"));
    [
        Environment::default(),
        Environment {
            clock_gettime: Some(base + offset),
            has_rdpid,
            ..Environment::default()
        },
    ]
}

#[test]
fn helpers_have_no_vector_registers() {
    let blob = Blob::at(0x1000_0000, Environment::default());
    assert_eq!(
        decode::violation(&blob.bytes[..blob.code_bytes], 0x1000_0000, false),
        None
    );
}

/// The check itself: it sees a vector register, and a write to absolute memory.
#[test]
fn a_vector_register_or_a_wild_write_is_seen() {
    let movaps = [0x0f, 0x28, 0xc1];
    assert!(decode::violation(&movaps, 0, false).is_some());
    let absolute = [0xc7, 0x04, 0x25, 0, 0, 0, 0, 1, 0, 0, 0];
    assert!(decode::violation(&absolute, 0, true).is_some());
    let below_the_stack = [0x48, 0x89, 0x44, 0x24, 0xf8];
    assert!(decode::violation(&below_the_stack, 0, true).is_some());
}

/// Follows the vdso's clock through its jumps and calls.
#[test]
fn the_vdsos_clock_has_no_vector_registers() {
    let (_, image) = vdso();
    let start = clock_gettime_offset(image).expect("the vdso has a clock");
    let mut todo = vec![start];
    let mut seen = HashSet::new();
    while let Some(at) = todo.pop() {
        let code = &image[at as usize..];
        let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
        loop {
            let instruction = decoder.decode();
            if !seen.insert(instruction.ip()) {
                break;
            }
            let bytes = &image[instruction.ip() as usize..instruction.next_ip() as usize];
            assert_eq!(decode::violation(bytes, instruction.ip(), false), None);
            match instruction.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => break,
                FlowControl::UnconditionalBranch => {
                    todo.push(instruction.near_branch_target());
                    break;
                }
                // A system call is a call too.
                FlowControl::ConditionalBranch | FlowControl::Call
                    if instruction.op0_kind() == OpKind::NearBranch64 =>
                {
                    todo.push(instruction.near_branch_target());
                }
                _ => {}
            }
        }
    }
    assert!(
        seen.len() > 10,
        "only {} instructions were followed",
        seen.len()
    );
}

#[test]
fn clocks_are_those_of_the_kernel() {
    let clocks = [
        (KTIME, libc::CLOCK_MONOTONIC),
        (KTIME_BOOT, libc::CLOCK_BOOTTIME),
        (KTIME_COARSE, libc::CLOCK_MONOTONIC_COARSE),
        (KTIME_TAI, libc::CLOCK_TAI),
    ];
    let now = |clock| {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call fills in the structure.
        assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    for environment in environments() {
        let helpers = Helpers::new(environment);
        for (id, clock) in clocks {
            let (before, time, after) = (now(clock), helpers.get(id), now(clock));
            assert!(
                (before..=after).contains(&time),
                "helper {id}: {before} {time} {after}"
            );
        }
    }
}

#[test]
fn ids_are_those_of_the_process() {
    let helpers = Helpers::new(Environment::default());
    // SAFETY: the calls have no preconditions.
    let (tid, uid, gid) = unsafe { (libc::gettid() as u64, libc::getuid(), libc::getgid()) };
    assert_eq!(
        helpers.get(PID_TGID),
        u64::from(std::process::id()) << 32 | tid
    );
    assert_eq!(helpers.get(UID_GID), u64::from(gid) << 32 | u64::from(uid));
}

#[test]
fn a_command_is_cut_and_padded() {
    let run = || {
        let helpers = Helpers::new(Environment::default());
        for length in [1usize, 4, 8, 16, 24] {
            let mut name = [0xffu8; 32];
            let pointer = name.as_mut_ptr() as u64;
            assert_eq!(helpers.call(COMM, [pointer, length as u64, 0, 0]), 0);
            let text = CStr::from_bytes_until_nul(&name).expect("it ends");
            let expected = &"worker-7"[..(length - 1).min(8)];
            assert_eq!(text.to_str(), Ok(expected));
            assert!(
                name[expected.len()..length].iter().all(|byte| *byte == 0),
                "{name:?}"
            );
            assert_eq!(name[length], 0xff, "a byte behind the buffer was written");
        }
        assert_eq!(helpers.call(COMM, [0, 0, 0, 0]).cast_signed(), -22);
    };
    let thread = std::thread::Builder::new()
        .name("worker-7".to_owned())
        .spawn(run);
    thread
        .expect("a thread starts")
        .join()
        .expect("all lengths are right");
}

#[test]
fn the_cpu_is_where_the_thread_runs() {
    for environment in environments() {
        let helpers = Helpers::new(environment);
        let place = || {
            let (mut cpu, mut node) = (0u32, 0u32);
            let (no_cache, cpu_at, node_at) = (ptr::null_mut::<u8>(), &raw mut cpu, &raw mut node);
            // SAFETY: the call fills in both numbers.
            let result = unsafe { libc::syscall(libc::SYS_getcpu, cpu_at, node_at, no_cache) };
            assert_eq!(result, 0);
            (u64::from(cpu), u64::from(node))
        };
        // Again, where the thread was moved in between.
        let found = (0..1000).find_map(|_| {
            let before = place();
            let helper = (helpers.get(CPU), helpers.get(NODE));
            (before == place()).then_some((before, helper))
        });
        let (expected, helper) = found.expect("a thread stays for a moment");
        assert_eq!(helper, expected);
    }
}

#[test]
fn random_numbers_use_all_bits() {
    let helpers = Helpers::new(Environment::default());
    let numbers: Vec<u64> = (0..1000).map(|_| helpers.get(PRANDOM)).collect();
    let (all, any) = numbers
        .iter()
        .fold((u64::MAX, 0), |(all, any), one| (all & one, any | one));
    assert_eq!((all, any), (0, u32::MAX.into()));
    let different: HashSet<_> = numbers.iter().collect();
    assert!(
        different.len() > 900,
        "only {} of 1000 are different",
        different.len()
    );
}

#[test]
fn arrays_are_looked_up_and_updated_as_in_the_kernel() {
    let helpers = Helpers::new(Environment::default());
    // Values of 13 bytes, at distances of 16.
    let mut values = [0x55u8; 48];
    let descriptor = MapDescriptor::array(ArrayPlace {
        values: values.as_mut_ptr() as u64,
        value_size: 13,
        entries: 3,
    });
    let map = descriptor.to_bytes();
    let value: Vec<u8> = (1..=16).collect();
    let call = |id, key: u32, flags| {
        let arguments = [
            map.as_ptr() as u64,
            &raw const key as u64,
            value.as_ptr() as u64,
            flags,
        ];
        helpers.call(id, arguments)
    };
    let start = values.as_ptr() as u64;
    assert_eq!(
        [0, 1, 2, 3, u32::MAX].map(|key| call(MAP_LOOKUP, key, 0)),
        [start, start + 16, start + 32, 0, 0]
    );
    let update = |key, flags| call(MAP_UPDATE, key, flags).cast_signed();
    // Beyond the array, no new entries, unknown flags; any value and an existing one.
    assert_eq!([update(3, 0), update(0, 1), update(0, 8)], [-7, -17, -22]);
    assert_eq!([update(1, 0), update(2, 2)], [0, 0]);
    assert_eq!(call(MAP_DELETE, 0, 0).cast_signed(), -22);
    let mut expected = [0x55u8; 48];
    expected[16..29].copy_from_slice(&value[..13]);
    expected[32..45].copy_from_slice(&value[..13]);
    // SAFETY: the array is alive; it is read as programs left it.
    assert_eq!(unsafe { ptr::read_volatile(&raw const values) }, expected);
}
