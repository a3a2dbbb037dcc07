//! Generated programs that work on an arena, in the kernel and here.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::atomic::Ordering,
};

use bpfcost_uprobe::translate::{
    ArenaPlace, Backend as _, Error, MapLayout, MapPlace, Program, Translator,
};
use libbpf_rs::libbpf_sys as sys;

use crate::{
    assemble::*,
    decode,
    generator::arena::{self as generator, PAGE, PAGES, TO_KERNEL, TO_USER, cast},
    input::{self, Random},
    kernel,
    random::number,
    require,
    trial::{Bench, CURRENT, Input, Subject, difference, report_crashes},
};

const PROGRAMS: u64 = 3000;
const INPUTS: usize = 3;
/// Offsets of arenas in their 4 GiB: at both ends, in the middle, and the default.
const LOW_HALVES: [u64; 4] = [0, 0x1_0000, 0x8000_0000, 0xffff_d000];
const PIECE: u64 = 0x3100_0000_0000;
/// The most programs of a hundred that the verifier may reject.
const REJECTED_PERCENT: u64 = 10;

/// An arena whose pages this process has too.
struct Arena {
    fd: OwnedFd,
    start: u64,
    keeps_short: bool,
    /// A byte for each page.
    met: Vec<u8>,
}

impl Arena {
    fn new(start: u64, keeps_short: bool) -> io::Result<Self> {
        let flags = if keeps_short {
            sys::BPF_F_NO_USER_CONV
        } else {
            0
        };
        let options = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as _,
            map_flags: sys::BPF_F_MMAPABLE | flags,
            map_extra: start,
            ..Default::default()
        };
        let (kind, name) = (sys::BPF_MAP_TYPE_ARENA, c"arena".as_ptr());
        // SAFETY: the name is a C string, and the options are as large as they say.
        let fd = unsafe { sys::bpf_map_create(kind, name, 0, 0, PAGES as u32, &options) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call made this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let at = std::ptr::with_exposed_provenance_mut(start as usize);
        // SAFETY: a new mapping that replaces no other one.
        let mapped = unsafe { libc::mmap(at, PAGES * PAGE, access, flags, fd.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Arena {
            fd,
            start,
            keeps_short,
            met: vec![0; PAGES],
        })
    }

    /// All pages, which are there from then on.
    fn bytes(&mut self) -> &mut [u8] {
        let at = std::ptr::with_exposed_provenance_mut(self.start as usize);
        // SAFETY: the mapping is as long, lives as long as this arena, and programs only run between such borrows.
        unsafe { std::slice::from_raw_parts_mut(at, PAGES * PAGE) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.start as usize);
        // SAFETY: the mapping is this arena's, and nothing refers to it any more.
        unsafe { libc::munmap(at, PAGES * PAGE) };
    }
}

/// The arena beside the maps.
struct Layout<'a> {
    bench: &'a Bench,
    arena: &'a Arena,
}

impl MapLayout for Layout<'_> {
    fn constants(&self, fd: i32) -> Option<Vec<u8>> {
        self.bench.constants(fd)
    }

    fn place(&self, fd: i32) -> Result<MapPlace, Error> {
        if fd != self.arena.fd.as_raw_fd() {
            return self.bench.place(fd);
        }
        Ok(MapPlace {
            handle: self.arena.start,
            array: None,
            arena: Some(ArenaPlace {
                start: self.arena.start,
                bytes: (PAGES * PAGE) as u64,
                pages: self.arena.met.as_ptr() as u64,
                keeps_short: self.arena.keeps_short,
            }),
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    rejected: u64,
    runs: u64,
    changed: u64,
}

fn fill(random: &mut Random) -> Vec<u8> {
    let words = (0..PAGES * PAGE / 8).flat_map(|_| match random.below(4) {
        0 => random.value().to_le_bytes(),
        _ => [0; 8],
    });
    words.collect()
}

/// A program in both ways, from the same contents of the arena.
fn compare(
    bench: &mut Bench,
    arena: &mut Arena,
    subject: &Subject,
    inputs: &[(Input, Vec<u8>)],
    seen: &mut Seen,
) -> Result<(), String> {
    let types = (&bench.btf, &*subject.functions);
    let fd = match kernel::load(&subject.instructions, Some(types)) {
        Ok(fd) => fd,
        Err(why) => {
            if std::env::var_os("BPFCOST_TRANSLATE_LOG").is_some() {
                let lines: Vec<&str> = why.lines().collect();
                eprintln!("{}", lines[lines.len().saturating_sub(6)..].join("\n"));
            }
            seen.rejected += 1;
            return Ok(());
        }
    };
    let program = Program {
        instructions: &subject.instructions,
        fd: fd.as_raw_fd(),
    };
    let at = bench.machine.address();
    let layout = Layout { bench, arena };
    let code = Translator::of_this_machine()
        .translate(&program, at, &bench.helpers, &layout)
        .map_err(|error| error.to_string())?;
    if let Some(why) = decode::program_violation(&code, at) {
        return Err(why);
    }
    bench.machine.put(&code.bytes);
    for (input, pages) in inputs {
        arena.bytes().copy_from_slice(pages);
        let expected = bench.in_kernel(&fd, input);
        let kernel_pages = arena.bytes().to_vec();
        arena.bytes().copy_from_slice(pages);
        arena.met.fill(0);
        let (output, outcome) = bench.in_process(input, true);
        seen.runs += 1;
        seen.changed += u64::from(kernel_pages != *pages);
        if !outcome.kept_registers {
            return Err("a register was not kept".to_owned());
        }
        if outcome.stack_bytes > code.stack_bytes as usize {
            let (used, promised) = (outcome.stack_bytes, code.stack_bytes);
            return Err(format!("{used} bytes of stack, not {promised}"));
        }
        if output != expected {
            return Err(difference(&expected, &output));
        }
        let pages = arena.bytes();
        if let Some(at) = (0..pages.len()).find(|&at| pages[at] != kernel_pages[at]) {
            let (kernel, here) = (kernel_pages[at], pages[at]);
            return Err(format!("arena+{at:#x}: kernel {kernel:#x}, here {here:#x}"));
        }
    }
    Ok(())
}

#[test]
fn generated_accesses_to_an_arena_give_the_kernels_results() {
    if !require::host() {
        return;
    }
    report_crashes();
    let mut bench = Bench::new().expect("maps and memory can be made");
    let piece = |index: usize| PIECE + ((index as u64) << 32);
    let mut arenas: Vec<Arena> = LOW_HALVES
        .iter()
        .enumerate()
        .map(|(index, low)| Arena::new(piece(index) + low, false).expect("an arena can be made"))
        .collect();
    let mut seen = Seen::default();
    let programs = number("BPFCOST_TRANSLATE_PROGRAMS", PROGRAMS);
    let first = number("BPFCOST_TRANSLATE_SEED", 1);
    for seed in first..first + programs {
        CURRENT.store(seed, Ordering::Relaxed);
        let mut random = Random::new(seed);
        let arena = &mut arenas[seed as usize % LOW_HALVES.len()];
        let subject = generator::program(
            &mut random,
            bench.value.fd(),
            arena.fd.as_raw_fd(),
            arena.start,
        );
        let inputs: Vec<_> = (0..INPUTS)
            .map(|_| (input::input(&mut random), fill(&mut random)))
            .collect();
        let compared = compare(&mut bench, arena, &subject, &inputs, &mut seen);
        if compared.is_err() {
            for (index, one) in subject.instructions.iter().enumerate() {
                eprintln!("{index}: {one:x?}");
            }
        }
        assert_eq!(compared, Ok(()), "seed {seed}");
    }
    eprintln!("{programs} programs, {seen:?}");
    assert!(
        seen.rejected * 100 <= programs * REJECTED_PERCENT,
        "{seen:?}"
    );
    assert!(seen.changed * 2 > seen.runs, "{seen:?}");
}

/// Returns what the pointers are is the same in both ways: a number, a short pointer and a long one.
#[test]
fn pointers_stay_short_where_the_arena_says_so() {
    if !require::host() {
        return;
    }
    let mut bench = Bench::new().expect("maps and memory can be made");
    let mut random = Random::new(1);
    for (index, keeps_short) in [false, true].into_iter().enumerate() {
        let start = PIECE + ((16 + index as u64) << 32) + 0x1_0000;
        let mut arena = Arena::new(start, keeps_short).expect("an arena can be made");
        let mut code = Vec::new();
        code.extend(map_value(6, bench.value.fd(), 0));
        code.extend(map_value(7, arena.fd.as_raw_fd(), 16));
        code.extend([
            cast(8, 7, TO_KERNEL),
            cast(9, 8, TO_USER),
            store(DOUBLE, 6, 0, 7),
            store(DOUBLE, 6, 8, 8),
            store(DOUBLE, 6, 16, 9),
            mov_imm(0, 0),
            exit(),
        ]);
        let subject = Subject {
            instructions: code,
            functions: vec![0],
        };
        let inputs = [(input::input(&mut random), fill(&mut random))];
        let mut seen = Seen::default();
        let compared = compare(&mut bench, &mut arena, &subject, &inputs, &mut seen);
        assert_eq!((compared, seen.runs), (Ok(()), 1));
        let words = bench.value.bytes()[..24].to_vec();
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("8 bytes"));
        let (long, short) = (start + 16, 0x1_0010);
        let expected = if keeps_short { short } else { long };
        assert_eq!([word(0), word(8), word(16)], [long, short, expected]);
    }
}

/// Returns where an arena's pointer and another one can't be told apart. The verifier may know more.
#[test]
fn programs_whose_pointers_are_unclear_are_refused() {
    if !require::host() {
        return;
    }
    let bench = Bench::new().expect("maps and memory can be made");
    let arena = Arena::new(PIECE + (20 << 32), false).expect("an arena can be made");
    let maybe = |register| {
        // An arena's pointer in R4, and on one path in the register too.
        let [low, high] = map_value(4, arena.fd.as_raw_fd(), 0);
        let skip = jump_imm(JMP, 0x20, 3, 9, 1);
        let move_it = mov(register, 4);
        vec![low, high, cast(4, 4, TO_KERNEL), skip, move_it]
    };
    let number = load(DOUBLE, 3, 1, 0);
    let somewhere = [mov(2, 10), op(ALU64, 0x00, 2, 3, 0)];
    let mut access = vec![number];
    access.extend(maybe(1));
    access.push(load(DOUBLE, 0, 1, 8));
    let mut sum = vec![number, mov(5, 3)];
    sum.extend(maybe(5));
    sum.extend([op_imm(ALU64, 0x00, 5, 0, 8), mov(0, 5)]);
    let mut spill = vec![number];
    spill.extend(maybe(0));
    spill.extend(somewhere);
    spill.extend([store(DOUBLE, 2, -8, 4), mov_imm(0, 0)]);
    let mut fill = vec![number];
    fill.extend(maybe(0));
    fill.extend(somewhere);
    fill.extend([
        store(DOUBLE, 10, -8, 4),
        store(DOUBLE, 10, -16, 1),
        load(DOUBLE, 5, 2, -16),
        load(DOUBLE, 0, 5, 0),
    ]);
    // Read back from somewhere, and on one path another pointer in its place.
    let mut meet = vec![number];
    meet.extend(maybe(0));
    meet.extend(somewhere);
    meet.extend([
        store(DOUBLE, 10, -8, 4),
        load(DOUBLE, 5, 2, -8),
        jump_imm(JMP, 0x20, 3, 9, 1),
        mov(5, 1),
        load(DOUBLE, 0, 5, 0),
    ]);
    for (mut code, says) in [
        (access, "an access to what may be an arena"),
        (sum, "arithmetic on what may be an arena's pointer"),
        (
            spill,
            "an arena's pointer that is kept where it can't be followed",
        ),
        (fill, "an access by a pointer that can't be followed"),
        (meet, "an access by a pointer that can't be followed"),
    ] {
        code.push(exit());
        let program = Program {
            instructions: &code,
            fd: -1,
        };
        let layout = Layout {
            bench: &bench,
            arena: &arena,
        };
        let translator = Translator::of_this_machine();
        let translated = translator.translate(&program, 0x1000, &bench.helpers, &layout);
        let error = translated.expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
}
