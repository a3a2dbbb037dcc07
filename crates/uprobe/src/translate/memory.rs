//! Loads, stores, and atomic operations on memory.

use super::{
    assembler::{Condition, Memory, Op, R10, R11, RAX, Reg, Size},
    error::Result,
    instruction::{Instruction, Width, atomic, class, mode},
    translator::Pass,
};

/// The prefix of 16-bit operands.
const HALF: u8 = 0x66;
const LOCK: u8 = 0xf0;

impl Pass<'_> {
    pub(super) fn load(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        let dst = self.writable(index, instruction.dst)?;
        let base = self.readable(index, instruction.src)?;
        let width = instruction.width();
        let (size, code): (_, &[u8]) = match (instruction.mode(), width) {
            (mode::MEM, Width::Byte) => (Size::S32, &[0x0f, 0xb6]),
            (mode::MEM, Width::Half) => (Size::S32, &[0x0f, 0xb7]),
            (mode::MEM, Width::Word) => (Size::S32, &[0x8b]),
            (mode::MEM, Width::Double) => (Size::S64, &[0x8b]),
            (mode::MEMSX, Width::Byte) => (Size::S64, &[0x0f, 0xbe]),
            (mode::MEMSX, Width::Half) => (Size::S64, &[0x0f, 0xbf]),
            (mode::MEMSX, Width::Word) => (Size::S64, &[0x63]),
            _ => return self.unsupported(index, "a load of this mode".to_owned()),
        };
        self.access(0, size, code, dst, base, instruction.offset);
        Ok(())
    }

    pub(super) fn store(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        let base = self.readable(index, instruction.dst)?;
        let source = self.readable(index, instruction.src)?;
        match (instruction.class(), instruction.mode()) {
            (class::ST, mode::MEM) => {
                self.store_immediate(instruction, base);
                Ok(())
            }
            (class::STX, mode::MEM) => {
                self.store_register(instruction.width(), source, base, instruction.offset);
                Ok(())
            }
            (class::STX, mode::ATOMIC) => self.atomic(index, instruction),
            _ => self.unsupported(index, "a store of this mode".to_owned()),
        }
    }

    fn access(&mut self, prefix: u8, size: Size, code: &[u8], reg: Reg, base: Reg, offset: i16) {
        let form = Memory {
            prefix,
            size,
            code,
            is_byte: false,
        };
        self.code.memory(&form, reg.0, base, offset.into());
    }

    fn store_register(&mut self, width: Width, source: Reg, base: Reg, offset: i16) {
        let form = Memory {
            prefix: if width == Width::Half { HALF } else { 0 },
            size: if width == Width::Double {
                Size::S64
            } else {
                Size::S32
            },
            code: if width == Width::Byte {
                &[0x88]
            } else {
                &[0x89]
            },
            is_byte: width == Width::Byte,
        };
        self.code.memory(&form, source.0, base, offset.into());
    }

    fn store_immediate(&mut self, instruction: Instruction, base: Reg) {
        let bytes = instruction.immediate.to_le_bytes();
        let (prefix, size, code, length): (_, _, &[u8], _) = match instruction.width() {
            Width::Byte => (0, Size::S32, &[0xc6], 1),
            Width::Half => (HALF, Size::S32, &[0xc7], 2),
            Width::Word => (0, Size::S32, &[0xc7], 4),
            Width::Double => (0, Size::S64, &[0xc7], 4),
        };
        self.access(prefix, size, code, Reg(0), base, instruction.offset);
        self.code.immediate(&bytes[..length]);
    }

    fn atomic(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        let Instruction {
            offset, immediate, ..
        } = instruction;
        let width = instruction.width();
        // x86 orders loads as acquires and stores as releases.
        match immediate {
            atomic::LOAD_ACQUIRE => {
                let plain = Instruction {
                    code: class::LDX | mode::MEM | instruction.code & 0x18,
                    ..instruction
                };
                return self.load(index, plain);
            }
            atomic::STORE_RELEASE => {
                let base = self.readable(index, instruction.dst)?;
                let source = self.readable(index, instruction.src)?;
                self.store_register(width, source, base, offset);
                return Ok(());
            }
            _ => {}
        }
        let base = self.readable(index, instruction.dst)?;
        let size = match width {
            Width::Word => Size::S32,
            Width::Double => Size::S64,
            _ => return self.unsupported(index, "an atomic operation of this width".to_owned()),
        };
        let is_fetching = immediate & atomic::FETCH != 0;
        let source = if is_fetching && immediate != atomic::CMPXCHG {
            self.writable(index, instruction.src)?
        } else {
            self.readable(index, instruction.src)?
        };
        let (prefix, code): (_, &[u8]) = match immediate {
            atomic::ADD => (LOCK, &[0x01]),
            atomic::OR => (LOCK, &[0x09]),
            atomic::AND => (LOCK, &[0x21]),
            atomic::XOR => (LOCK, &[0x31]),
            // An exchange with memory locks by itself.
            atomic::XCHG => (0, &[0x87]),
            atomic::CMPXCHG => (LOCK, &[0x0f, 0xb1]),
            _ if immediate == atomic::ADD | atomic::FETCH => (LOCK, &[0x0f, 0xc1]),
            _ => {
                let op = match immediate & !atomic::FETCH {
                    atomic::OR => Op::Or,
                    atomic::AND => Op::And,
                    atomic::XOR => Op::Xor,
                    _ => return self.unsupported(index, "this atomic operation".to_owned()),
                };
                self.fetching(size, op, base, source, offset);
                return Ok(());
            }
        };
        self.access(prefix, size, code, source, base, offset);
        if immediate == atomic::CMPXCHG && size == Size::S32 {
            // Where it succeeds, the upper half of RAX is what it was.
            self.code.mov(Size::S32, RAX, RAX);
        }
        Ok(())
    }

    /// What x86 has no instruction for: combines memory with the source, which gets the old value.
    fn fetching(&mut self, size: Size, op: Op, base: Reg, source: Reg, offset: i16) {
        let moved = |reg| if reg == RAX { R11 } else { reg };
        self.code.mov(Size::S64, R11, RAX);
        self.access(0, size, &[0x8b], RAX, moved(base), offset);
        let again = self.code.here();
        self.code.mov(size, R10, RAX);
        self.code.op(size, op, R10, moved(source));
        self.access(LOCK, size, &[0x0f, 0xb1], R10, moved(base), offset);
        self.code.repeat_if(Condition::NotEqual, again);
        if source != RAX {
            self.code.mov(size, source, RAX);
            self.code.mov(Size::S64, RAX, R11);
        }
    }
}
