//! This process' side: executable memory, and calls on a stack of their own.

use std::{arch::naked_asm, io, ptr};

/// Memory for code, of one mebibyte.
const CODE_BYTES: usize = 1 << 20;
/// Offset of the helpers in it.
const HELPERS: usize = 768 << 10;
/// A stack, of which all is looked at that a program must not write.
const STACK_BYTES: usize = 64 << 10;
/// Content of unwritten stack.
const UNTOUCHED: u8 = 0xa5;

/// Memory in which translated code runs.
#[derive(Debug)]
pub(crate) struct Machine {
    code: *mut u8,
    stack: Vec<u8>,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: u64,
    /// True if the registers that a function must keep were kept.
    pub(crate) kept_registers: bool,
    /// Bytes of stack that were written, from the top down to the lowest.
    pub(crate) stack_bytes: usize,
}

impl Machine {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let code = unsafe {
            libc::mmap(
                ptr::null_mut(),
                CODE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if code == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Machine {
            code: code.cast(),
            stack: vec![UNTOUCHED; STACK_BYTES],
        })
    }

    /// Returns where code will be.
    pub(crate) fn address(&self) -> u64 {
        self.code as u64
    }

    pub(crate) fn put(&mut self, code: &[u8]) {
        self.put_at(0, code);
    }

    /// Copies code to a place behind the first.
    pub(crate) fn put_at(&mut self, offset: usize, code: &[u8]) {
        assert!(offset + code.len() <= HELPERS, "code is too large");
        // SAFETY: the mapping is this machine's, and larger; nothing runs in it now.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), self.code.add(offset), code.len()) };
    }

    /// Returns where helpers will be.
    pub(crate) fn helpers(&self) -> u64 {
        self.address() + HELPERS as u64
    }

    pub(crate) fn put_helpers(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= CODE_BYTES - HELPERS, "helpers are too large");
        // SAFETY: the mapping is this machine's, and larger; nothing runs in it now.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.code.add(HELPERS), bytes.len()) };
    }

    /// Runs the code on a context. The bytes of stack that were written are counted where `measures_stack`.
    pub(crate) fn run(&mut self, context: &mut [u8], measures_stack: bool) -> Outcome {
        if measures_stack {
            self.stack.fill(UNTOUCHED);
        }
        let end = self.stack.as_mut_ptr_range().end;
        let top = end.map_addr(|address| address & !15);
        let mut changed = 1u64;
        // SAFETY: the code follows System V's rules for functions, which the tests are about; a crash is a failure.
        let result = unsafe { call(self.code, context.as_mut_ptr(), top, &raw mut changed) };
        let written = self.stack.iter().position(|byte| *byte != UNTOUCHED);
        // The frame of `call` itself is two words.
        let stack_bytes = written.map_or(0, |lowest| {
            (top.addr() - self.stack.as_ptr().addr() - lowest).saturating_sub(16)
        });
        Outcome {
            result,
            kept_registers: changed == 0,
            stack_bytes: if measures_stack { stack_bytes } else { 0 },
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the mapping is this machine's, and nothing runs in it.
        unsafe { libc::munmap(self.code.cast(), CODE_BYTES) };
    }
}

/// Calls `code(context)` with its stack at `top` - 16, and writes to `changed` which bits of the registers that it must
/// keep are not what they were.
#[unsafe(naked)]
unsafe extern "C" fn call(
    code: *const u8,
    context: *mut u8,
    top: *mut u8,
    changed: *mut u64,
) -> u64 {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdx - 8], rsp",
        "mov [rdx - 16], rcx",
        "lea rsp, [rdx - 16]",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rbx, 0x1111111122222222",
        "mov rbp, 0x3333333344444444",
        "mov r12, 0x5555555566666666",
        "mov r13, 0x7777777788888888",
        "lea r14, [rbx + r12]",
        "mov r15, rsp",
        "call rax",
        // Differences add up to something other than 0.
        "mov rcx, 0x1111111122222222",
        "xor rcx, rbx",
        "mov rdx, 0x3333333344444444",
        "xor rdx, rbp",
        "or rcx, rdx",
        "mov rdx, 0x5555555566666666",
        "xor rdx, r12",
        "or rcx, rdx",
        "mov rdx, 0x7777777788888888",
        "xor rdx, r13",
        "or rcx, rdx",
        "mov rdx, 0x6666666688888888",
        "xor rdx, r14",
        "or rcx, rdx",
        "mov rdx, rsp",
        "xor rdx, r15",
        "or rcx, rdx",
        "mov rdx, [rsp]",
        "mov [rdx], rcx",
        "mov rsp, [rsp + 8]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}
