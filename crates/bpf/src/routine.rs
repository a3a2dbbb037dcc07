//! Functions in assembly: the functions that are probed (uprobes, USDT), and the loops that call them to make
//! user-space events.
//!
//! In assembly so that an event costs the same instructions in every build, and the bytes that a probe
//! replaces are known. They fill a page of their own, one routine a cache line. The USDT notes are what
//! `sys/sdt.h` would leave: provider `bpfcost`, names `nop`, `nop5` and `nop10`, no arguments.
//!
//! Both loops run under eight frames that lead nowhere further, so that a walk of the stack finds the
//! same in every build too.

#![allow(unsafe_code)]

/// A function that can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routine {
    /// `nop; ret`, the `nop` of one byte.
    Nop,
    /// The same with five bytes.
    Nop5,
    /// The same with ten bytes.
    Nop10,
    /// `endbr64; ret`.
    Endbr64,
    /// `push; pop; ret`.
    Push,
    /// `ret`.
    Ret,
    /// `push; pop; jmp` to a `ret` elsewhere, which returns in its stead.
    Tail,
}

impl Routine {
    /// All of them.
    pub(crate) const ALL: [Routine; 7] = [
        Routine::Nop,
        Routine::Nop5,
        Routine::Nop10,
        Routine::Endbr64,
        Routine::Push,
        Routine::Ret,
        Routine::Tail,
    ];

    /// Bytes of its code, without the padding.
    pub(crate) fn length(self) -> usize {
        match self {
            Routine::Nop => 2,
            Routine::Nop5 => 6,
            Routine::Nop10 => 11,
            Routine::Endbr64 => 5,
            Routine::Push => 3,
            Routine::Ret => 1,
            Routine::Tail => 7,
        }
    }

    /// Offset of the jump by which it leaves, if it leaves by one.
    pub(crate) fn tail_jump(self) -> Option<u64> {
        (self == Routine::Tail).then_some(2)
    }

    /// The name of its static probe; only the nops have one.
    pub(crate) fn usdt(self) -> &'static str {
        match self {
            Routine::Nop5 => "nop5",
            Routine::Nop10 => "nop10",
            _ => "nop",
        }
    }
}

/// As much of a routine as a probe may replace: five bytes from its last instruction on, and it has eleven at most.
pub(crate) const SITE_BYTES: usize = 16;

pub(crate) use machine::{address, call, code, read_pages};

/// The program that runs, also where its file has been replaced or removed since.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

/// Returns the offset of a routine in the file of this program.
pub(crate) fn file_offset(routine: Routine) -> std::io::Result<usize> {
    let address = address(routine);
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let offset = maps.lines().find_map(|line| offset_by(line, address));
    offset.ok_or_else(|| std::io::Error::other("no file is mapped there"))
}

/// The same by one line: `start-end rights offset device inode path`.
fn offset_by(line: &str, address: usize) -> Option<usize> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let offset = words.nth(1)?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let inside = (start..end).contains(&address);
    inside.then_some(number(offset)? + (address - start))
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::{arch::global_asm, ptr};

    use super::Routine;

    global_asm!(
        ".macro bpfcost_routine name",
        ".p2align 6, 0xcc",
        ".globl \\name",
        ".hidden \\name",
        ".type \\name, @function",
        "\\name:",
        ".endm",
        // As _SDT_ASM_BODY of sys/sdt.h.
        ".macro bpfcost_usdt name, place",
        ".pushsection .note.stapsdt, \"\", @note",
        ".balign 4",
        ".4byte 3f - 2f, 5f - 4f, 3",
        "2: .asciz \"stapsdt\"",
        "3: .balign 4",
        "4: .8byte \\place, _.stapsdt.base, 0",
        ".asciz \"bpfcost\"",
        ".asciz \"\\name\"",
        ".asciz \"\"",
        "5: .balign 4",
        ".popsection",
        ".endm",
        // Eight frames above the caller's; the first leads to none.
        ".macro bpfcost_frames",
        "push rbp",
        "xor ebp, ebp",
        "lea rax, [rip + 6f]",
        ".rept 8",
        "push rax",
        "push rbp",
        "mov rbp, rsp",
        ".endr",
        "6:",
        ".endm",
        ".macro bpfcost_no_frames",
        "add rsp, 8 * 16",
        "pop rbp",
        ".endm",
        // A page of their own: nothing else moves with them, or is copied when a probe is placed.
        ".pushsection .text.bpfcost_routines, \"ax\", @progbits",
        ".p2align 12, 0xcc",
        "bpfcost_routine bpfcost_nop",
        "nop",
        "ret",
        "bpfcost_routine bpfcost_nop5",
        ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
        "ret",
        "bpfcost_routine bpfcost_push",
        "push rbp",
        "pop rbp",
        "ret",
        "bpfcost_routine bpfcost_ret",
        "ret",
        // rdi: a routine; rsi: how often to call it, at least once.
        "bpfcost_routine bpfcost_call",
        "bpfcost_frames",
        ".p2align 6",
        "2: call rdi",
        "dec rsi",
        "jnz 2b",
        "bpfcost_no_frames",
        "ret",
        // rdi: the first page; rsi: pages, at least one; rdx: bytes of a page.
        "bpfcost_routine bpfcost_read_pages",
        "bpfcost_frames",
        ".p2align 6",
        "2: mov al, byte ptr [rdi]",
        "add rdi, rdx",
        "dec rsi",
        "jnz 2b",
        "bpfcost_no_frames",
        "ret",
        // Behind the others, which so stay where they were.
        "bpfcost_routine bpfcost_nop10",
        ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00",
        "ret",
        "bpfcost_routine bpfcost_endbr64",
        "endbr64",
        "ret",
        // A jump of five bytes, as that to another function mostly is.
        "bpfcost_routine bpfcost_tail",
        "push rbp",
        "pop rbp",
        ".byte 0xe9",
        ".4byte bpfcost_tail_end - . - 4",
        "bpfcost_routine bpfcost_tail_end",
        "ret",
        ".p2align 12, 0xcc",
        ".popsection",
        ".pushsection .stapsdt.base, \"aG\", @progbits, .stapsdt.base, comdat",
        ".weak _.stapsdt.base",
        ".hidden _.stapsdt.base",
        "_.stapsdt.base: .space 1",
        ".size _.stapsdt.base, 1",
        ".popsection",
        "bpfcost_usdt nop, bpfcost_nop",
        "bpfcost_usdt nop5, bpfcost_nop5",
        "bpfcost_usdt nop10, bpfcost_nop10",
    );

    // SAFETY: as they are written above, in the C calling convention.
    unsafe extern "C" {
        fn bpfcost_nop();
        fn bpfcost_nop5();
        fn bpfcost_nop10();
        fn bpfcost_endbr64();
        fn bpfcost_push();
        fn bpfcost_ret();
        fn bpfcost_tail();
        fn bpfcost_call(routine: unsafe extern "C" fn(), times: u64);
        fn bpfcost_read_pages(first: *const u8, pages: u64, stride: usize);
    }

    fn entry(routine: Routine) -> unsafe extern "C" fn() {
        match routine {
            Routine::Nop => bpfcost_nop,
            Routine::Nop5 => bpfcost_nop5,
            Routine::Nop10 => bpfcost_nop10,
            Routine::Endbr64 => bpfcost_endbr64,
            Routine::Push => bpfcost_push,
            Routine::Ret => bpfcost_ret,
            Routine::Tail => bpfcost_tail,
        }
    }

    pub(crate) fn address(routine: Routine) -> usize {
        entry(routine) as usize
    }

    /// Reads the bytes at a routine's beginning as they are just now.
    pub(crate) fn code(routine: Routine) -> [u8; super::SITE_BYTES] {
        // SAFETY: code of this program, which can be read, and each routine is padded to a cache line;
        // volatile, since the kernel changes it.
        unsafe { ptr::read_volatile(address(routine) as *const _) }
    }

    /// Calls it so often, at least once.
    pub(crate) fn call(routine: Routine, times: u64) {
        // SAFETY: the routines do nothing; the loop keeps to the calling convention.
        unsafe { bpfcost_call(entry(routine), times.max(1)) }
    }

    /// Reads a byte of each page.
    pub(crate) fn read_pages(memory: &[u8], stride: usize) {
        let pages = memory.len() / stride.max(1);
        if pages > 0 {
            // SAFETY: all that is read lies in the slice.
            unsafe { bpfcost_read_pages(memory.as_ptr(), pages as u64, stride) }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use std::hint::black_box;

    use super::Routine;

    // No driver has a routine here: `Routine::of` makes none.
    pub(crate) fn address(_: Routine) -> usize {
        0
    }

    pub(crate) fn code(_: Routine) -> [u8; super::SITE_BYTES] {
        [0; super::SITE_BYTES]
    }

    pub(crate) fn call(_: Routine, _: u64) {}

    /// Reads a byte of each page.
    pub(crate) fn read_pages(memory: &[u8], stride: usize) {
        for page in memory.chunks_exact(stride.max(1)) {
            black_box(page[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_tells_where_an_address_stands_in_the_file() {
        let line = "55d0-55e0 r-xp 0000a000 fe:00 123   /usr/bin/two words";
        assert_eq!(offset_by(line, 0x55d8), Some(0xa008));
        assert_eq!(offset_by(line, 0x55e0), None);
        assert_eq!(offset_by("no map", 0), None);
    }
}
