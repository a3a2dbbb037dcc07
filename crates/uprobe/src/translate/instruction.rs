//! One BPF instruction, as the kernel's documentation lays it out (`Documentation/bpf/standardization`).

use libbpf_rs::libbpf_sys::bpf_insn;

/// Classes: the low three bits of an operation code.
pub(crate) mod class {
    pub(crate) const LD: u8 = 0x00;
    pub(crate) const LDX: u8 = 0x01;
    pub(crate) const ST: u8 = 0x02;
    pub(crate) const STX: u8 = 0x03;
    pub(crate) const ALU: u8 = 0x04;
    pub(crate) const JMP: u8 = 0x05;
    pub(crate) const JMP32: u8 = 0x06;
    pub(crate) const ALU64: u8 = 0x07;
}

/// Arithmetic: the high four bits of an operation code of the classes ALU and ALU64.
pub(crate) mod alu {
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const DIV: u8 = 0x30;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ARSH: u8 = 0xc0;
    pub(crate) const END: u8 = 0xd0;
}

/// Jumps: the high four bits of an operation code of the classes JMP and JMP32.
pub(crate) mod jump {
    pub(crate) const JA: u8 = 0x00;
    pub(crate) const JEQ: u8 = 0x10;
    pub(crate) const JGT: u8 = 0x20;
    pub(crate) const JGE: u8 = 0x30;
    pub(crate) const JSET: u8 = 0x40;
    pub(crate) const JNE: u8 = 0x50;
    pub(crate) const JSGT: u8 = 0x60;
    pub(crate) const JSGE: u8 = 0x70;
    pub(crate) const CALL: u8 = 0x80;
    pub(crate) const EXIT: u8 = 0x90;
    pub(crate) const JLT: u8 = 0xa0;
    pub(crate) const JLE: u8 = 0xb0;
    pub(crate) const JSLT: u8 = 0xc0;
    pub(crate) const JSLE: u8 = 0xd0;
    /// `may_goto`.
    pub(crate) const JCOND: u8 = 0xe0;
}

/// Modes of loads and stores: the high three bits.
pub(crate) mod mode {
    pub(crate) const IMM: u8 = 0x00;
    pub(crate) const MEM: u8 = 0x60;
    pub(crate) const MEMSX: u8 = 0x80;
    pub(crate) const ATOMIC: u8 = 0xc0;
}

/// Operation of an atomic instruction: its immediate number.
pub(crate) mod atomic {
    /// Set where the old value is returned.
    pub(crate) const FETCH: i32 = 0x01;
    pub(crate) const ADD: i32 = 0x00;
    pub(crate) const OR: i32 = 0x40;
    pub(crate) const AND: i32 = 0x50;
    pub(crate) const XOR: i32 = 0xa0;
    pub(crate) const XCHG: i32 = 0xe1;
    pub(crate) const CMPXCHG: i32 = 0xf1;
    pub(crate) const LOAD_ACQUIRE: i32 = 0x100;
    pub(crate) const STORE_RELEASE: i32 = 0x110;
}

/// Meaning of the source register of a 64-bit immediate load, or of a call.
pub(crate) mod pseudo {
    pub(crate) const MAP_FD: u8 = 1;
    pub(crate) const MAP_VALUE: u8 = 2;
    pub(crate) const FUNCTION: u8 = 4;
    /// A call of a subprogram.
    pub(crate) const CALL: u8 = 1;
    /// A call of a kernel function.
    pub(crate) const KFUNC: u8 = 2;
}

/// The helper of tail calls, and those that write lines of text.
const TAIL_CALL: u32 = 12;
const TRACE_PRINTK: u32 = 6;
const TRACE_VPRINTK: u32 = 177;

/// The offset of a move that changes a pointer's form.
const ADDRESS_SPACE_CAST: i16 = 1;

/// The frame pointer.
pub(crate) const FRAME: u8 = 10;

/// An instruction of 8 bytes. A 64-bit immediate load takes two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// The operation code.
    pub code: u8,
    /// The destination register, 0 to 10.
    pub dst: u8,
    /// The source register, 0 to 10, or what the immediate number means.
    pub src: u8,
    /// An offset in bytes of memory, or in instructions of a jump; selects variants of arithmetic.
    pub offset: i16,
    /// The immediate number.
    pub immediate: i32,
}

/// The width of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Byte,
    Half,
    Word,
    Double,
}

impl Width {
    pub(crate) fn bytes(self) -> i32 {
        match self {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
            Width::Double => 8,
        }
    }
}

/// A change of a pointer's form (`addr_space_cast`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// To the address that user space has.
    ToUser,
    /// To the low half of it, by which programs make accesses.
    ToKernel,
}

impl Instruction {
    pub(crate) fn class(self) -> u8 {
        self.code & 0x07
    }

    /// The operation of arithmetic and jumps.
    pub(crate) fn operation(self) -> u8 {
        self.code & 0xf0
    }

    /// The mode of loads and stores.
    pub(crate) fn mode(self) -> u8 {
        self.code & 0xe0
    }

    /// Returns whether the second operand is a register (arithmetic and jumps).
    pub(crate) fn has_register_operand(self) -> bool {
        self.code & 0x08 != 0
    }

    pub(crate) fn width(self) -> Width {
        match self.code & 0x18 {
            0x00 => Width::Word,
            0x08 => Width::Half,
            0x10 => Width::Byte,
            _ => Width::Double,
        }
    }

    pub(crate) fn is_wide(self) -> bool {
        self.code == class::LD | mode::IMM | 0x18
    }

    pub(crate) fn is_jump_class(self) -> bool {
        matches!(self.class(), class::JMP | class::JMP32)
    }

    pub(crate) fn is_call(self) -> bool {
        self.code == class::JMP | jump::CALL
    }

    pub(crate) fn is_exit(self) -> bool {
        self.code == class::JMP | jump::EXIT
    }

    /// Returns how far a jump leads, in instructions from the one behind it; `None` for what is no jump.
    pub(crate) fn jump_distance(self) -> Option<i64> {
        if !self.is_jump_class() || matches!(self.operation(), jump::CALL | jump::EXIT) {
            return None;
        }
        Some(if self.code == class::JMP32 | jump::JA {
            i64::from(self.immediate)
        } else {
            i64::from(self.offset)
        })
    }
}

impl Instruction {
    /// An instruction from its 8 bytes.
    pub(crate) fn from_word(word: u64) -> Self {
        let [code, registers, low, high, immediate @ ..] = word.to_le_bytes();
        Instruction {
            code,
            dst: registers & 0x0f,
            src: registers >> 4,
            offset: i16::from_le_bytes([low, high]),
            immediate: i32::from_le_bytes(immediate),
        }
    }

    /// The file descriptor of the map that it loads.
    pub(crate) fn map(&self) -> Option<i32> {
        let is_map = self.is_wide() && matches!(self.src, pseudo::MAP_FD | pseudo::MAP_VALUE);
        is_map.then_some(self.immediate)
    }

    /// The id of the helper that it calls.
    pub(crate) fn helper(&self) -> Option<u32> {
        (self.is_call() && self.src == 0).then_some(self.immediate.cast_unsigned())
    }

    /// Returns whether it changes a pointer's form, and how.
    pub(crate) fn cast(&self) -> Option<Cast> {
        let is_move = self.class() == class::ALU64
            && self.operation() == alu::MOV
            && self.has_register_operand();
        // The address spaces, of the result in the upper half.
        match self.immediate {
            0x1_0000 if is_move && self.offset == ADDRESS_SPACE_CAST => Some(Cast::ToUser),
            1 if is_move && self.offset == ADDRESS_SPACE_CAST => Some(Cast::ToKernel),
            _ => None,
        }
    }

    /// Returns whether it is a tail call.
    pub(crate) fn is_tail_call(&self) -> bool {
        self.helper() == Some(TAIL_CALL)
    }

    /// Returns whether it calls a helper that writes a line of text.
    pub(crate) fn writes_line(&self) -> bool {
        matches!(self.helper(), Some(TRACE_PRINTK | TRACE_VPRINTK))
    }

    /// The same instruction, with the map of another file descriptor: `numbers` are pairs of old and new ones.
    pub(crate) fn with_map(mut self, numbers: &[(i32, i32)]) -> Self {
        if self.map().is_some() {
            let new = numbers.iter().find(|(old, _)| *old == self.immediate);
            self.immediate = new.map_or(self.immediate, |(_, new)| *new);
        }
        self
    }
}

impl From<&bpf_insn> for Instruction {
    fn from(raw: &bpf_insn) -> Self {
        Instruction {
            code: raw.code,
            dst: raw.dst_reg(),
            src: raw.src_reg(),
            offset: raw.off,
            immediate: raw.imm,
        }
    }
}

impl From<Instruction> for bpf_insn {
    fn from(instruction: Instruction) -> Self {
        let mut raw = bpf_insn {
            code: instruction.code,
            off: instruction.offset,
            imm: instruction.immediate,
            ..bpf_insn::default()
        };
        raw.set_dst_reg(instruction.dst);
        raw.set_src_reg(instruction.src);
        raw
    }
}
