//! Cost of a call of a translated program, beside a call of a function that returns its argument; and of its translation.
//!
//! `cargo run --release -p bpfcost-uprobe --example call_cost`. Needs neither root nor the kernel's BPF: the programs
//! are written here. In the numbers: the call by a register, the program, its helpers written by the translator. Not in
//! them: the trampoline, and the jump from a probed function to it. Each number is the least of several rounds.

#![allow(unsafe_code, reason = "runs machine code")]

use std::{
    hint::black_box,
    ptr,
    time::{Duration, Instant},
};

use bpfcost_uprobe::translate::{
    ArrayPlace, Backend as _, Error, HelperTable, Instruction, MachineCode, MapLayout, MapPlace,
    ProbeContext, Program, Translator,
};

/// Short batches: some of them are not interrupted.
const CALLS: u32 = 20_000;
const ROUNDS: u32 = 3000;
const TRANSLATIONS: u32 = 20;
const PAGE: usize = 4096;

/// One array of 8 values of 8 bytes.
struct OneArray {
    values: [u64; 8],
}

impl MapLayout for OneArray {
    fn place(&self, _: i32) -> Result<MapPlace, Error> {
        let values = self.values.as_ptr() as u64;
        Ok(MapPlace {
            handle: values,
            array: Some(ArrayPlace {
                values,
                value_size: 8,
                entries: 8,
            }),
            arena: None,
        })
    }
}

const fn instruction(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        dst,
        src,
        offset,
        immediate,
    }
}

/// A program that looks a key up and ends with this, R0 being the value.
fn lookup(update: &[Instruction]) -> Vec<Instruction> {
    let mut program = vec![
        instruction(0x62, 10, 0, -4, 3),
        instruction(0xbf, 2, 10, 0, 0),
        instruction(0x07, 2, 0, 0, -4),
        instruction(0x18, 1, 1, 0, 1),
        instruction(0, 0, 0, 0, 0),
        instruction(0x85, 0, 0, 0, 1),
        instruction(0x15, 0, 0, update.len() as i16, 0),
    ];
    program.extend_from_slice(update);
    program.extend(END);
    program
}

/// R0 = 0; exit.
const END: [Instruction; 2] = [instruction(0xb7, 0, 0, 0, 0), instruction(0x95, 0, 0, 0, 0)];

fn cases() -> [(&'static str, Vec<Instruction>); 3] {
    let load = instruction(0x79, 1, 0, 0, 0);
    let add = instruction(0x07, 1, 0, 0, 1);
    let store = instruction(0x7b, 0, 1, 0, 0);
    let one = instruction(0xb7, 1, 0, 0, 1);
    let atomic = instruction(0xdb, 0, 1, 0, 0);
    [
        ("empty", END.to_vec()),
        ("array increment", lookup(&[load, add, store])),
        ("atomic increment", lookup(&[one, atomic])),
    ]
}

type Function = extern "C" fn(*mut ProbeContext) -> u64;

/// A page that code runs in.
fn executable(code: &[u8]) -> Function {
    assert!(code.len() <= PAGE, "one page is enough");
    // SAFETY: a new mapping at a place of the kernel's choice, as large as the code; it stays until the program ends.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(ptr::null_mut(), PAGE, access, private, -1, 0);
        assert_ne!(page, libc::MAP_FAILED, "a page can be mapped");
        ptr::copy_nonoverlapping(code.as_ptr(), page.cast(), code.len());
        std::mem::transmute(page)
    }
}

fn nanoseconds(function: Function) -> f64 {
    let mut context = ProbeContext::default();
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(function)(&raw mut context);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn main() -> Result<(), Error> {
    let maps = OneArray { values: [0; 8] };
    let translator = Translator::of_this_machine();
    let helpers = HelperTable::new();
    let translate = |instructions: &[Instruction]| -> Result<MachineCode, Error> {
        let program = Program {
            instructions,
            fd: -1,
        };
        translator.translate(&program, 0x10_0000, &helpers, &maps)
    };
    // A function that returns its argument; a call that leads to a RET right away is slower, on AMD at least.
    let bare = [0x89, 0xf8, 0xc3];
    let mut rows = vec![("bare call", executable(&bare), bare.len(), Duration::ZERO)];
    for (name, instructions) in cases() {
        let code = translate(&instructions)?;
        let mut duration = Duration::MAX;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..TRANSLATIONS {
                black_box(translate(black_box(&instructions))?);
            }
            duration = duration.min(start.elapsed() / TRANSLATIONS);
        }
        rows.push((name, executable(&code.bytes), code.bytes.len(), duration));
    }
    let mut least = vec![f64::INFINITY; rows.len()];
    for _ in 0..ROUNDS {
        for (least, (_, function, ..)) in least.iter_mut().zip(&rows) {
            *least = least.min(nanoseconds(*function));
        }
    }
    // SAFETY: the array is alive; programs have written it.
    let counted = unsafe { ptr::read_volatile(&raw const maps.values[3]) };
    assert_eq!(
        counted,
        2 * ROUNDS as u64 * u64::from(CALLS),
        "both counters counted each call"
    );
    println!(
        "{:18} {:>8} {:>10} {:>6} {:>6} {:>14}",
        "program", "ns/call", "added ns", "ratio", "bytes", "translation µs"
    );
    for (ns, (name, _, bytes, translation)) in least.iter().zip(&rows) {
        let micros = translation.as_secs_f64() * 1e6;
        let (added, ratio) = (ns - least[0], ns / least[0]);
        println!("{name:18} {ns:8.2} {added:10.2} {ratio:6.2} {bytes:6} {micros:14.2}");
    }
    Ok(())
}
