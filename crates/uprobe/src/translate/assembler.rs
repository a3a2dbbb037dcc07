//! Writes the x86-64 instructions that the translator needs: general registers only, never a vector.
//!
//! Written by hand rather than with a general assembler, as a program is translated while its target is stopped.

use super::labels::{Label, Labels};

/// A general register, by its number in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg(pub(crate) u8);

pub(crate) const RAX: Reg = Reg(0);
pub(crate) const RCX: Reg = Reg(1);
pub(crate) const RDX: Reg = Reg(2);
pub(crate) const RBX: Reg = Reg(3);
pub(crate) const RSP: Reg = Reg(4);
pub(crate) const RBP: Reg = Reg(5);
pub(crate) const RSI: Reg = Reg(6);
pub(crate) const RDI: Reg = Reg(7);
pub(crate) const R8: Reg = Reg(8);
pub(crate) const R9: Reg = Reg(9);
pub(crate) const R10: Reg = Reg(10);
pub(crate) const R11: Reg = Reg(11);
pub(crate) const R13: Reg = Reg(13);
pub(crate) const R14: Reg = Reg(14);
pub(crate) const R15: Reg = Reg(15);

/// The operand size of arithmetic. 32-bit results clear the upper half, as BPF wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    S32,
    S64,
}

/// The operations that share one encoding (`op r/m, r` and `op r/m, imm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts, by their number in `C1 /n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Left = 4,
    Right = 5,
    Arithmetic = 7,
}

/// Conditions of jumps, by their number in `7x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Below = 0x2,
    AboveEqual = 0x3,
    Equal = 0x4,
    NotEqual = 0x5,
    BelowEqual = 0x6,
    Above = 0x7,
    Less = 0xc,
    GreaterEqual = 0xd,
    LessEqual = 0xe,
    Greater = 0xf,
}

/// More than any program has: a million instructions of BPF are the verifier's limit.
const LARGEST_CODE: u64 = 1 << 26;

/// The code of one pass (see [`Labels`]).
#[derive(Debug)]
pub(crate) struct Assembler {
    at: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) labels: Labels,
}

impl Assembler {
    /// The first pass, of code that will be at the address `at`.
    pub(crate) fn new(at: u64, labels: usize) -> Self {
        Assembler {
            at,
            bytes: Vec::with_capacity(labels * 6),
            labels: Labels::new(labels),
        }
    }

    pub(super) fn offset(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect("programs are smaller than 2 GiB")
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn word(&mut self, word: i32) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    /// Prefix REX, where it is needed. `is_byte` asks for it where a byte register would be AH to BH without.
    fn rex(&mut self, size: Size, reg: u8, rm: u8, is_byte: bool) {
        let wide = u8::from(size == Size::S64) << 3;
        let rex = 0x40 | wide | (reg >> 3) << 2 | rm >> 3;
        if rex != 0x40 || is_byte && reg >= 4 {
            self.byte(rex);
        }
    }

    fn registers(&mut self, reg: u8, rm: u8) {
        self.byte(0xc0 | (reg & 7) << 3 | rm & 7);
    }

    /// `[base + displacement]`, in the shortest form.
    fn address(&mut self, reg: u8, base: Reg, displacement: i32) {
        let short = i8::try_from(displacement);
        let mode = match (displacement, short) {
            // RBP and R13 without a displacement mean something else.
            (0, _) if base.0 & 7 != RBP.0 => 0x00,
            (_, Ok(_)) => 0x40,
            _ => 0x80,
        };
        self.byte(mode | (reg & 7) << 3 | base.0 & 7);
        if base.0 & 7 == RSP.0 {
            self.byte(0x24);
        }
        match (mode, short) {
            (0x40, Ok(short)) => self.byte(short.cast_unsigned()),
            (0x80, _) => self.word(displacement),
            _ => {}
        }
    }

    /// `op dst, src`, both registers, of an operation code whose `reg` field is the source.
    fn store_form(&mut self, size: Size, code: u8, dst: Reg, src: Reg) {
        self.rex(size, src.0, dst.0, false);
        self.byte(code);
        self.registers(src.0, dst.0);
    }

    /// An instruction on memory: prefix bytes, then REX, the operation code, and the address.
    pub(crate) fn memory(&mut self, form: &Memory<'_>, reg: u8, base: Reg, displacement: i32) {
        if form.prefix != 0 {
            self.byte(form.prefix);
        }
        self.rex(form.size, reg, base.0, form.is_byte);
        self.bytes.extend_from_slice(form.code);
        self.address(reg, base, displacement);
    }

    pub(crate) fn op(&mut self, size: Size, op: Op, dst: Reg, src: Reg) {
        self.store_form(size, (op as u8) << 3 | 0x01, dst, src);
    }

    pub(crate) fn op_immediate(&mut self, size: Size, op: Op, dst: Reg, immediate: i32) {
        // A number of 31 bits leaves nothing of the upper half in either size.
        let size = if op == Op::And && immediate >= 0 {
            Size::S32
        } else {
            size
        };
        self.rex(size, 0, dst.0, false);
        if let Ok(short) = i8::try_from(immediate) {
            self.byte(0x83);
            self.registers(op as u8, dst.0);
            self.byte(short.cast_unsigned());
        } else {
            self.byte(0x81);
            self.registers(op as u8, dst.0);
            self.word(immediate);
        }
    }

    pub(crate) fn mov(&mut self, size: Size, dst: Reg, src: Reg) {
        self.store_form(size, 0x89, dst, src);
    }

    pub(crate) fn test(&mut self, size: Size, left: Reg, right: Reg) {
        self.store_form(size, 0x85, left, right);
    }

    pub(crate) fn test_immediate(&mut self, size: Size, dst: Reg, immediate: i32) {
        let size = if immediate >= 0 { Size::S32 } else { size };
        self.rex(size, 0, dst.0, false);
        self.byte(0xf7);
        self.registers(0, dst.0);
        self.word(immediate);
    }

    /// A constant, in the shortest form. Changes the flags.
    pub(crate) fn constant(&mut self, dst: Reg, value: u64) {
        if value == 0 {
            self.op(Size::S32, Op::Xor, dst, dst);
        } else if let Ok(half) = u32::try_from(value) {
            self.rex(Size::S32, 0, dst.0, false);
            self.byte(0xb8 | dst.0 & 7);
            self.word(half.cast_signed());
        } else if let Ok(signed) = i32::try_from(value.cast_signed()) {
            self.rex(Size::S64, 0, dst.0, false);
            self.byte(0xc7);
            self.registers(0, dst.0);
            self.word(signed);
        } else {
            self.rex(Size::S64, 0, dst.0, false);
            self.byte(0xb8 | dst.0 & 7);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// An address: relative to the code where that reaches it.
    pub(crate) fn address_constant(&mut self, dst: Reg, value: u64) {
        if u32::try_from(value).is_err() && self.reaches(value) {
            self.rex(Size::S64, dst.0, 0, false);
            self.byte(0x8d);
            self.byte((dst.0 & 7) << 3 | 0x05);
            self.relative(value);
        } else {
            self.constant(dst, value);
        }
    }

    /// Returns whether an address is near. The answer is the same all over the code, so that it does not change between the
    /// passes.
    fn reaches(&self, address: u64) -> bool {
        let distance = address.wrapping_sub(self.at).cast_signed();
        distance.unsigned_abs() < (1 << 31) - LARGEST_CODE
    }

    /// The distance to a near address from behind these four bytes.
    fn relative(&mut self, address: u64) {
        let end = self.at + u64::from(self.offset()) + 4;
        let distance = i32::try_from(address.wrapping_sub(end).cast_signed());
        self.word(distance.expect("a near address"));
    }

    /// The address of a label.
    pub(crate) fn label_address(&mut self, dst: Reg, label: Label) {
        self.rex(Size::S64, dst.0, 0, false);
        self.byte(0x8d);
        self.byte((dst.0 & 7) << 3 | 0x05);
        self.near(label);
    }

    /// Sign or zero extension between registers: `0F code`, or MOVSXD.
    pub(crate) fn extend(&mut self, size: Size, code: Extend, dst: Reg, src: Reg) {
        let is_byte = matches!(code, Extend::SignByte);
        let wide = u8::from(size == Size::S64) << 3;
        let rex = 0x40 | wide | (dst.0 >> 3) << 2 | src.0 >> 3;
        if rex != 0x40 || is_byte && src.0 >= 4 {
            self.byte(rex);
        }
        match code {
            Extend::SignByte => self.bytes.extend_from_slice(&[0x0f, 0xbe]),
            Extend::SignHalf => self.bytes.extend_from_slice(&[0x0f, 0xbf]),
            Extend::ZeroHalf => self.bytes.extend_from_slice(&[0x0f, 0xb7]),
            Extend::SignWord => self.byte(0x63),
        }
        self.registers(dst.0, src.0);
    }

    pub(crate) fn neg(&mut self, size: Size, dst: Reg) {
        self.group3(size, 3, dst);
    }

    /// Divides RDX:RAX by `divisor`: quotient in RAX, remainder in RDX.
    pub(crate) fn div(&mut self, size: Size, is_signed: bool, divisor: Reg) {
        self.group3(size, 6 + u8::from(is_signed), divisor);
    }

    fn group3(&mut self, size: Size, number: u8, rm: Reg) {
        self.rex(size, 0, rm.0, false);
        self.byte(0xf7);
        self.registers(number, rm.0);
    }

    /// Fills RDX with the sign of RAX.
    pub(crate) fn sign_to_rdx(&mut self, size: Size) {
        self.rex(size, 0, 0, false);
        self.byte(0x99);
    }

    pub(crate) fn imul(&mut self, size: Size, dst: Reg, src: Reg) {
        self.rex(size, dst.0, src.0, false);
        self.bytes.extend_from_slice(&[0x0f, 0xaf]);
        self.registers(dst.0, src.0);
    }

    pub(crate) fn imul_immediate(&mut self, size: Size, dst: Reg, immediate: i32) {
        self.rex(size, dst.0, dst.0, false);
        if let Ok(short) = i8::try_from(immediate) {
            self.byte(0x6b);
            self.registers(dst.0, dst.0);
            self.byte(short.cast_unsigned());
        } else {
            self.byte(0x69);
            self.registers(dst.0, dst.0);
            self.word(immediate);
        }
    }

    pub(crate) fn shift_immediate(&mut self, size: Size, shift: Shift, dst: Reg, count: u8) {
        self.rex(size, 0, dst.0, false);
        self.byte(0xc1);
        self.registers(shift as u8, dst.0);
        self.byte(count);
    }

    /// Shifts by CL.
    pub(crate) fn shift_by_cl(&mut self, size: Size, shift: Shift, dst: Reg) {
        self.rex(size, 0, dst.0, false);
        self.byte(0xd3);
        self.registers(shift as u8, dst.0);
    }

    /// Shifts by any register (BMI2).
    pub(crate) fn shift_by(&mut self, size: Size, shift: Shift, dst: Reg, count: Reg) {
        let prefix = match shift {
            Shift::Left => 0b01,
            Shift::Arithmetic => 0b10,
            Shift::Right => 0b11,
        };
        let inverse = |reg: Reg| !(reg.0 >> 3) & 1;
        self.byte(0xc4);
        self.byte(inverse(dst) << 7 | 0x40 | inverse(dst) << 5 | 0x02);
        self.byte(u8::from(size == Size::S64) << 7 | (!count.0 & 0x0f) << 3 | prefix);
        self.byte(0xf7);
        self.registers(dst.0, dst.0);
    }

    pub(crate) fn bswap(&mut self, size: Size, dst: Reg) {
        self.rex(size, 0, dst.0, false);
        self.bytes.extend_from_slice(&[0x0f, 0xc8 | dst.0 & 7]);
    }

    /// Swaps the two low bytes; the rest stays.
    pub(crate) fn swap_low_bytes(&mut self, dst: Reg) {
        self.byte(0x66);
        self.rex(Size::S32, 0, dst.0, false);
        self.byte(0xc1);
        self.registers(0, dst.0);
        self.byte(8);
    }

    pub(crate) fn push(&mut self, reg: Reg) {
        self.rex(Size::S32, 0, reg.0, false);
        self.byte(0x50 | reg.0 & 7);
    }

    pub(crate) fn pop(&mut self, reg: Reg) {
        self.rex(Size::S32, 0, reg.0, false);
        self.byte(0x58 | reg.0 & 7);
    }

    /// `syscall`, which changes RAX, RCX and R11.
    pub(crate) fn system_call(&mut self) {
        self.bytes.extend_from_slice(&[0x0f, 0x05]);
    }

    pub(crate) fn leave(&mut self) {
        self.byte(0xc9);
    }

    pub(crate) fn ret(&mut self) {
        self.byte(0xc3);
    }

    pub(crate) fn call_register(&mut self, reg: Reg) {
        self.rex(Size::S32, 0, reg.0, false);
        self.byte(0xff);
        self.registers(2, reg.0);
    }

    pub(crate) fn jump_register(&mut self, reg: Reg) {
        self.rex(Size::S32, 0, reg.0, false);
        self.byte(0xff);
        self.registers(4, reg.0);
    }

    /// Calls an address; by way of R11 where a near call does not reach it.
    pub(crate) fn call_address(&mut self, address: u64) {
        if self.reaches(address) {
            self.byte(0xe8);
            self.relative(address);
        } else {
            self.constant(R11, address);
            self.call_register(R11);
        }
    }

    pub(crate) fn call(&mut self, label: Label) {
        self.byte(0xe8);
        self.near(label);
    }

    /// The bytes of an immediate number behind an instruction on memory.
    pub(crate) fn immediate(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extend {
    SignByte,
    SignHalf,
    SignWord,
    ZeroHalf,
}

/// The form of an instruction on memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'a> {
    /// 0x66 (16 bits) or 0xF0 (LOCK); 0 for none.
    pub(crate) prefix: u8,
    pub(crate) size: Size,
    pub(crate) code: &'a [u8],
    /// True if the register is one of 8 bits.
    pub(crate) is_byte: bool,
}
