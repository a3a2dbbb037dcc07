//! The helpers of tables with a value of each thread, called in turn as two threads.

use std::{arch::asm, ffi::c_void, ptr};

use bpfcost_uprobe::translate::helpers::{Blob, Environment, MapDescriptor, TableShape};

use crate::machine::Machine;

/// The kernel's ids, and its flags of updates.
const LOOKUP: u32 = 1;
const UPDATE: u32 = 2;
const DELETE: u32 = 3;
const FOR_EACH: u32 = 164;
const ANY: u64 = 0;
const NOEXIST: u64 = 1;
const EXIST: u64 = 2;
/// `E2BIG`, `EEXIST`, `ENOENT`.
const FULL: i64 = -7;
const THERE: i64 = -17;
const MISSING: i64 = -2;

/// Offsets of the address behind a thread's frames, of its number in a control page, and of the values.
const LIMIT: usize = 16;
const THREAD: usize = 24;
const VALUES: usize = 4096;
/// Distance of the control page from that address: a frame, and three levels.
const LIMIT_BELOW: u64 = 512 + 3 * (80 << 10);
/// Memory of a thread that is not zero.
const GARBAGE: u64 = 0x5555_5555_5555_5555;

/// A table, and two threads that use it.
struct Bench {
    blob: Blob,
    _machine: Machine,
    _memory: Vec<u64>,
    map: Vec<u8>,
    threads: [Vec<u64>; 2],
}

impl Bench {
    fn new(entries: u32, is_lru: bool) -> Self {
        let shape = TableShape {
            key_size: 4,
            value_size: 12,
            entries,
            is_lru,
            is_of_threads: true,
        };
        let mut memory = vec![0_u64; shape.bytes().div_ceil(8)];
        let at = memory.as_mut_ptr();
        // SAFETY: as many bytes as the words have.
        shape.clear(unsafe { std::slice::from_raw_parts_mut(at.cast(), memory.len() * 8) });
        let map = MapDescriptor::table(at as u64, shape).with_values(VALUES as u64);
        let mut machine = Machine::new().expect("memory can be had");
        let environment = Environment {
            has_areas: true,
            ..Environment::default()
        };
        let blob = Blob::at(machine.helpers(), environment);
        machine.put_helpers(&blob.bytes);
        let words = (VALUES + shape.thread_stride() * entries as usize) / 8;
        let threads = [101, 102].map(|number| {
            let mut area = vec![0; words + 1];
            area[THREAD / 8] = number;
            area[LIMIT / 8] = area.as_ptr() as u64 - LIMIT_BELOW;
            area[words] = GARBAGE;
            area
        });
        Bench {
            blob,
            _machine: machine,
            _memory: memory,
            map: map.to_bytes().to_vec(),
            threads,
        }
    }

    /// Calls a helper with the map as one of the threads.
    fn call(&mut self, thread: usize, id: u32, arguments: [u64; 3]) -> u64 {
        let address = self.blob.helpers.address(id).expect("the blob has it");
        // SAFETY: the blob has a function there, which takes words and returns one.
        let helper: extern "C" fn(u64, u64, u64, u64) -> u64 =
            unsafe { std::mem::transmute(address as usize) };
        let base = self.threads[thread].as_mut_ptr() as u64;
        let (map, [first, second, third]) = (self.map.as_ptr() as u64, arguments);
        // SAFETY: nothing else in this thread uses GS.
        unsafe { asm!("wrgsbase {}", in(reg) base) };
        helper(map, first, second, third)
    }

    /// The number in the value of a key.
    fn get(&mut self, thread: usize, key: u32) -> Option<u64> {
        let value = self.call(thread, LOOKUP, [&raw const key as u64, 0, 0]) as *const u64;
        // SAFETY: the address of a value in the thread's memory.
        (!value.is_null()).then(|| unsafe { value.read_volatile() })
    }

    fn add(&mut self, thread: usize, key: u32, number: u64) {
        let value = self.call(thread, LOOKUP, [&raw const key as u64, 0, 0]) as *mut u64;
        assert!(!value.is_null());
        // SAFETY: the address of a value in the thread's memory.
        unsafe { value.write_volatile(value.read_volatile() + number) };
    }

    fn set(&mut self, thread: usize, key: u32, number: u64, flags: u64) -> i64 {
        let value = [number, 7];
        let arguments = [&raw const key as u64, value.as_ptr() as u64, flags];
        self.call(thread, UPDATE, arguments).cast_signed()
    }

    fn delete(&mut self, thread: usize, key: u32) -> i64 {
        let arguments = [&raw const key as u64, 0, 0];
        self.call(thread, DELETE, arguments).cast_signed()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: it was 0 before, as nothing uses it.
        unsafe { asm!("wrgsbase {}", in(reg) 0_u64) };
    }
}

#[test]
fn a_new_entry_is_zero_in_other_threads() {
    let mut bench = Bench::new(4, false);
    // No thread's memory is as it was made.
    for area in &mut bench.threads {
        let last = area.len() - 1;
        area[VALUES / 8..last].fill(GARBAGE);
    }
    assert_eq!(bench.get(0, 1), None);
    assert_eq!(bench.set(0, 1, 5, ANY), 0);
    assert_eq!((bench.get(0, 1), bench.get(1, 1)), (Some(5), Some(0)));
    bench.add(1, 1, 3);
    bench.add(0, 1, 1);
    assert_eq!((bench.get(0, 1), bench.get(1, 1)), (Some(6), Some(3)));
    // An update of what is there is one of the thread's own value.
    assert_eq!(bench.set(1, 1, 9, EXIST), 0);
    assert_eq!(bench.set(1, 1, 8, NOEXIST), THERE);
    assert_eq!(bench.set(1, 2, 8, EXIST), MISSING);
    assert_eq!((bench.get(0, 1), bench.get(1, 1)), (Some(6), Some(9)));
    // What is deleted begins again, whoever inserts it.
    assert_eq!(bench.delete(1, 1), 0);
    assert_eq!(bench.delete(1, 1), MISSING);
    assert_eq!((bench.get(0, 1), bench.get(1, 1)), (None, None));
    assert_eq!(bench.set(1, 1, 2, NOEXIST), 0);
    assert_eq!((bench.get(0, 1), bench.get(1, 1)), (Some(0), Some(2)));
    for area in &bench.threads {
        assert_eq!(area.last(), Some(&GARBAGE), "memory behind the values");
    }
}

#[test]
fn a_full_table_refuses_keys_or_drops_some() {
    let mut bench = Bench::new(4, false);
    for key in 0..4 {
        assert_eq!(bench.set(0, key, 10 + u64::from(key), ANY), 0);
    }
    assert_eq!(bench.set(1, 4, 1, ANY), FULL);
    for key in 0..4 {
        assert_eq!(bench.get(0, key), Some(10 + u64::from(key)));
        bench.add(1, key, u64::from(key));
    }
    let mut bench = Bench::new(16, true);
    for key in 0..1000 {
        assert_eq!(bench.set((key % 2) as usize, key, key.into(), ANY), 0);
        // The node may be one that was another key's.
        assert_eq!(bench.get(1 - (key % 2) as usize, key), Some(0), "{key}");
    }
    let left = (0..1000).filter(|key| bench.get(0, *key).is_some()).count();
    assert!((8..=16).contains(&left), "{left}");
}

extern "C" fn add(_: *const c_void, key: *const u32, value: *const u64, sum: *mut u64) -> u64 {
    // SAFETY: the helper passes a key, its value, and what it was given.
    unsafe { *sum += u64::from(*key) * 100 + *value };
    0
}

#[test]
fn a_walk_gets_the_threads_own_values() {
    let mut bench = Bench::new(8, false);
    for key in 1..=3 {
        assert_eq!(bench.set(0, key, key.into(), ANY), 0);
    }
    bench.add(1, 2, 50);
    for (thread, expected) in [(0, 600 + 6), (1, 600 + 50)] {
        let mut sum = 0_u64;
        let arguments = [add as *const () as u64, ptr::from_mut(&mut sum) as u64, 0];
        assert_eq!(bench.call(thread, FOR_EACH, arguments), 3);
        assert_eq!(sum, expected);
    }
}
