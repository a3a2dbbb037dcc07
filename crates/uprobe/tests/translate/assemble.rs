//! BPF instructions by their names in the kernel's documentation.

use bpfcost_uprobe::translate::Instruction;

pub(crate) const BYTE: u8 = 0x10;
pub(crate) const HALF: u8 = 0x08;
pub(crate) const WORD: u8 = 0x00;
pub(crate) const DOUBLE: u8 = 0x18;
pub(crate) const ALU: u8 = 0x04;
pub(crate) const ALU64: u8 = 0x07;
pub(crate) const JMP: u8 = 0x05;
pub(crate) const JMP32: u8 = 0x06;

pub(crate) const FETCH: i32 = 1;
pub(crate) const XCHG: i32 = 0xe1;
pub(crate) const CMPXCHG: i32 = 0xf1;
pub(crate) const LOAD_ACQUIRE: i32 = 0x100;
pub(crate) const STORE_RELEASE: i32 = 0x110;

pub(crate) fn raw(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        dst,
        src,
        offset,
        immediate,
    }
}

/// Arithmetic with a register.
pub(crate) fn op(class: u8, operation: u8, dst: u8, src: u8, offset: i16) -> Instruction {
    raw(class | operation | 0x08, dst, src, offset, 0)
}

/// Arithmetic with a number.
pub(crate) fn op_imm(class: u8, operation: u8, dst: u8, offset: i16, imm: i32) -> Instruction {
    raw(class | operation, dst, 0, offset, imm)
}

pub(crate) fn mov(dst: u8, src: u8) -> Instruction {
    op(ALU64, 0xb0, dst, src, 0)
}

pub(crate) fn mov_imm(dst: u8, immediate: i32) -> Instruction {
    op_imm(ALU64, 0xb0, dst, 0, immediate)
}

pub(crate) fn wide(dst: u8, value: u64) -> [Instruction; 2] {
    let [low, high] = [value, value >> 32].map(|half| (half as u32).cast_signed());
    [raw(0x18, dst, 0, 0, low), raw(0, 0, 0, 0, high)]
}

pub(crate) fn map(dst: u8, fd: i32) -> [Instruction; 2] {
    [raw(0x18, dst, 1, 0, fd), raw(0, 0, 0, 0, 0)]
}

pub(crate) fn map_value(dst: u8, fd: i32, offset: i32) -> [Instruction; 2] {
    [raw(0x18, dst, 2, 0, fd), raw(0, 0, 0, 0, offset)]
}

pub(crate) fn function(dst: u8, distance: i32) -> [Instruction; 2] {
    [raw(0x18, dst, 4, 0, distance), raw(0, 0, 0, 0, 0)]
}

pub(crate) fn load(width: u8, dst: u8, base: u8, offset: i16) -> Instruction {
    raw(0x61 | width, dst, base, offset, 0)
}

pub(crate) fn load_signed(width: u8, dst: u8, base: u8, offset: i16) -> Instruction {
    raw(0x81 | width, dst, base, offset, 0)
}

pub(crate) fn store(width: u8, base: u8, offset: i16, src: u8) -> Instruction {
    raw(0x63 | width, base, src, offset, 0)
}

pub(crate) fn store_imm(width: u8, base: u8, offset: i16, immediate: i32) -> Instruction {
    raw(0x62 | width, base, 0, offset, immediate)
}

pub(crate) fn atomic(width: u8, operation: i32, base: u8, offset: i16, src: u8) -> Instruction {
    raw(0xc3 | width, base, src, offset, operation)
}

pub(crate) fn load_acquire(width: u8, dst: u8, base: u8, offset: i16) -> Instruction {
    raw(0xc3 | width, dst, base, offset, LOAD_ACQUIRE)
}

pub(crate) fn jump(class: u8, operation: u8, dst: u8, src: u8, offset: i16) -> Instruction {
    raw(class | operation | 0x08, dst, src, offset, 0)
}

pub(crate) fn jump_imm(class: u8, operation: u8, dst: u8, imm: i32, offset: i16) -> Instruction {
    raw(class | operation, dst, 0, offset, imm)
}

pub(crate) fn always(offset: i16) -> Instruction {
    raw(JMP, 0, 0, offset, 0)
}

/// `gotol`.
pub(crate) fn always_far(distance: i32) -> Instruction {
    raw(JMP32, 0, 0, 0, distance)
}

pub(crate) fn may_goto(offset: i16) -> Instruction {
    raw(0xe5, 0, 0, offset, 0)
}

pub(crate) fn call(helper: i32) -> Instruction {
    raw(0x85, 0, 0, 0, helper)
}

pub(crate) fn call_function(distance: i32) -> Instruction {
    raw(0x85, 0, 1, 0, distance)
}

pub(crate) fn exit() -> Instruction {
    raw(0x95, 0, 0, 0, 0)
}
