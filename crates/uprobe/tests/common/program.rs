//! Programs of a few instructions, which run in probes.

use bpfcost_uprobe::process::{Error, Program, Runtime};
use iced_x86::code_asm::{CodeAssembler, CodeLabel, qword_ptr, registers::*};

/// Offsets in `struct pt_regs`.
pub(crate) const RSP: i32 = 152;
pub(crate) const RIP: i32 = 128;

fn load(runtime: &mut Runtime, write: impl FnOnce(&mut CodeAssembler)) -> Program {
    let mut a = CodeAssembler::new(64).unwrap();
    write(&mut a);
    let address = runtime
        .load(512, |address| Ok::<_, Error>(a.assemble(address).unwrap()))
        .unwrap();
    Program { address, cookie: 0 }
}

/// Returns 0.
pub(crate) fn empty(runtime: &mut Runtime) -> Program {
    load(runtime, |a| {
        a.xor(eax, eax).unwrap();
        a.ret().unwrap();
    })
}

/// Adds 1 to the number at an address.
pub(crate) fn count(runtime: &mut Runtime, at: u64) -> Program {
    load(runtime, |a| {
        a.mov(rax, at).unwrap();
        a.lock().inc(qword_ptr(rax)).unwrap();
        a.ret().unwrap();
    })
}

/// Changes all that a C function may change, and 4 KiB of stack.
pub(crate) fn wild(runtime: &mut Runtime) -> Program {
    load(runtime, |a| {
        a.mov(eax, -1).unwrap();
        let mut more = a.create_label();
        a.mov(ecx, 512).unwrap();
        a.set_label(&mut more).unwrap();
        a.push(rax).unwrap();
        a.dec(ecx).unwrap();
        a.jne(more).unwrap();
        a.add(rsp, 4096).unwrap();
        for register in [rcx, rdx, rsi, rdi, r8, r9, r10, r11] {
            a.mov(register, 0x5a5a_5a5a_5a5a_5a5a_u64).unwrap();
        }
        a.stc().unwrap();
        a.ret().unwrap();
    })
}

/// Adds the function's result to the number at an address, then changes what a C function may change.
pub(crate) fn sum_results(runtime: &mut Runtime, at: u64) -> Program {
    load(runtime, |a| {
        a.mov(rax, qword_ptr(rdi + 80)).unwrap();
        a.mov(rcx, at).unwrap();
        a.lock().add(qword_ptr(rcx), rax).unwrap();
        for register in [rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11] {
            a.mov(register, 0x5a5a_5a5a_5a5a_5a5a_u64).unwrap();
        }
        a.stc().unwrap();
        a.ret().unwrap();
    })
}

/// Writes to all of the stacks of an area, and on.
pub(crate) fn deep(runtime: &mut Runtime) -> Program {
    load(runtime, |a| {
        let mut more = a.create_label();
        a.set_label(&mut more).unwrap();
        a.push(rax).unwrap();
        a.jmp(more).unwrap();
    })
}

/// Adds 1 to the number at `wrong` where the registers in `struct pt_regs` aren't those of a call of `work` of
/// busy.c: what the second, the fourth and the sixth argument are, and where it is.
pub(crate) fn check_entry(runtime: &mut Runtime, wrong: u64, address: u64) -> Program {
    load(runtime, |a| {
        let bad = a.create_label();
        for (offset, value) in [
            (104, 1),
            (88, 3),
            (64, 6),
            (120, -1),
            (136, 0x33),
            (160, 0x2b),
        ] {
            a.cmp(qword_ptr(rdi + offset), value).unwrap();
            a.jne(bad).unwrap();
        }
        a.mov(rax, address).unwrap();
        a.cmp(qword_ptr(rdi + RIP), rax).unwrap();
        a.jne(bad).unwrap();
        end(a, bad, wrong);
    })
}

/// Adds 1 to the number at `wrong` where the instruction pointer isn't the return address that was below the stack
/// pointer.
pub(crate) fn check_return(runtime: &mut Runtime, wrong: u64) -> Program {
    load(runtime, |a| {
        let bad = a.create_label();
        a.mov(rax, qword_ptr(rdi + RSP)).unwrap();
        a.mov(rax, qword_ptr(rax - 8)).unwrap();
        a.cmp(qword_ptr(rdi + RIP), rax).unwrap();
        a.jne(bad).unwrap();
        end(a, bad, wrong);
    })
}

/// Adds 1 to the number at `wrong` where the registers in `struct pt_regs` aren't those that `known` of inside.c has at
/// its nop, at `address`.
pub(crate) fn check_known(runtime: &mut Runtime, wrong: u64, address: u64) -> Program {
    load(runtime, |a| {
        let bad = a.create_label();
        // R14, R13, R12, RBP, RBX, R11, R10, R9, R8, RCX, RDX, RSI.
        let registers = [
            (8, 0x1e),
            (16, 0x1d),
            (24, 0x1c),
            (32, 0x17),
            (40, 0x14),
            (48, 0x1b),
            (56, 0x1a),
            (64, 0x19),
            (72, 0x18),
            (88, 0x13),
            (96, 0x12),
            (104, 0x15),
            (120, -1),
            (136, 0x33),
            (160, 0x2b),
        ];
        for (offset, value) in registers {
            a.cmp(qword_ptr(rdi + offset), value).unwrap();
            a.jne(bad).unwrap();
        }
        // RFLAGS depends on the path, as RAX does.
        a.mov(rax, qword_ptr(rdi + 80)).unwrap();
        a.mov(ecx, 0x297).unwrap();
        a.mov(edx, 0xa92).unwrap();
        a.cmp(rax, 0x11).unwrap();
        a.cmove(ecx, edx).unwrap();
        a.cmp(qword_ptr(rdi + 144), rcx).unwrap();
        a.jne(bad).unwrap();
        a.mov(rax, qword_ptr(rdi)).unwrap();
        a.cmp(qword_ptr(rdi + RSP), rax).unwrap();
        a.jne(bad).unwrap();
        a.mov(rax, address).unwrap();
        a.cmp(qword_ptr(rdi + RIP), rax).unwrap();
        a.jne(bad).unwrap();
        end(a, bad, wrong);
    })
}

/// Adds 1 to the number at `wrong` where the instruction pointer isn't the RET's, or the stack pointer doesn't point to
/// a return address in this code.
pub(crate) fn check_ret(
    runtime: &mut Runtime,
    wrong: u64,
    address: u64,
    code: std::ops::Range<u64>,
) -> Program {
    load(runtime, |a| {
        let bad = a.create_label();
        a.mov(rax, address).unwrap();
        a.cmp(qword_ptr(rdi + RIP), rax).unwrap();
        a.jne(bad).unwrap();
        a.mov(rax, qword_ptr(rdi + RSP)).unwrap();
        a.mov(rax, qword_ptr(rax)).unwrap();
        a.mov(rcx, code.start).unwrap();
        a.cmp(rax, rcx).unwrap();
        a.jb(bad).unwrap();
        a.mov(rcx, code.end).unwrap();
        a.cmp(rax, rcx).unwrap();
        a.jae(bad).unwrap();
        end(a, bad, wrong);
    })
}

/// Doesn't return before the number at `go` is above 0.
pub(crate) fn wait(runtime: &mut Runtime, go: u64) -> Program {
    load(runtime, |a| {
        let mut again = a.create_label();
        a.mov(rax, go).unwrap();
        a.set_label(&mut again).unwrap();
        a.pause().unwrap();
        a.cmp(qword_ptr(rax), 0).unwrap();
        a.je(again).unwrap();
        a.ret().unwrap();
    })
}

/// Ends the program, which adds 1 to the number at `wrong` where it jumped to `bad`.
fn end(a: &mut CodeAssembler, mut bad: CodeLabel, wrong: u64) {
    a.xor(eax, eax).unwrap();
    a.ret().unwrap();
    a.set_label(&mut bad).unwrap();
    a.mov(rax, wrong).unwrap();
    a.lock().inc(qword_ptr(rax)).unwrap();
    a.ret().unwrap();
}
