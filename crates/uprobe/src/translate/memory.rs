//! Loads, stores, and atomic operations on memory.

use super::{
    arena::Place,
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
        let at = (base, instruction.offset);
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
        let place = self.access_place(index, at, width, Some(dst))?;
        self.access(0, size, code, dst, place.base, place.offset);
        self.land_access(place);
        Ok(())
    }

    pub(super) fn store(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        let base = self.readable(index, instruction.dst)?;
        let source = self.readable(index, instruction.src)?;
        match (instruction.class(), instruction.mode()) {
            (class::ST, mode::MEM) => {
                let at = (base, instruction.offset);
                let place = self.access_place(index, at, instruction.width(), None)?;
                self.store_immediate(instruction, &place);
                self.land_access(place);
                Ok(())
            }
            (class::STX, mode::MEM) => {
                let at = (base, instruction.offset);
                let place = self.access_place(index, at, instruction.width(), None)?;
                self.store_register(instruction.width(), source, &place);
                self.land_access(place);
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

    fn store_register(&mut self, width: Width, source: Reg, place: &Place) {
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
        self.code
            .memory(&form, source.0, place.base, place.offset.into());
    }

    fn store_immediate(&mut self, instruction: Instruction, place: &Place) {
        let bytes = instruction.immediate.to_le_bytes();
        let (prefix, size, code, length): (_, _, &[u8], _) = match instruction.width() {
            Width::Byte => (0, Size::S32, &[0xc6], 1),
            Width::Half => (HALF, Size::S32, &[0xc7], 2),
            Width::Word => (0, Size::S32, &[0xc7], 4),
            Width::Double => (0, Size::S64, &[0xc7], 4),
        };
        self.access(prefix, size, code, Reg(0), place.base, place.offset);
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
                let place = self.access_place(index, (base, offset), width, None)?;
                self.store_register(width, source, &place);
                self.land_access(place);
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
        let place = self.access_place(index, (base, offset), width, None)?;
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
                let is_conditional = place.is_conditional();
                self.fetching(size, op, source, &place);
                self.land_access(place);
                if is_conditional && size == Size::S32 {
                    self.code.mov(size, source, source);
                }
                return Ok(());
            }
        };
        let is_conditional = place.is_conditional();
        self.access(prefix, size, code, source, place.base, place.offset);
        self.land_access(place);
        // The verifier relies on an empty upper half. Where the exchange succeeds, that of RAX is what it was.
        match size {
            Size::S32 if immediate == atomic::CMPXCHG => self.code.mov(size, RAX, RAX),
            Size::S32 if is_conditional && is_fetching => self.code.mov(size, source, source),
            _ => {}
        }
        Ok(())
    }

    /// Returns what x86 has no instruction for: combines memory with the source, which gets the old value.
    fn fetching(&mut self, size: Size, op: Op, source: Reg, place: &Place) {
        let moved = |reg| if reg == RAX { R11 } else { reg };
        let (base, offset) = (moved(place.base), place.offset);
        self.code.mov(Size::S64, R11, RAX);
        self.access(0, size, &[0x8b], RAX, base, offset);
        let again = self.code.here();
        self.code.mov(size, R10, RAX);
        self.code.op(size, op, R10, moved(source));
        self.access(LOCK, size, &[0x0f, 0xb1], R10, base, offset);
        self.code.repeat_if(Condition::NotEqual, again);
        if source != RAX {
            self.code.mov(size, source, RAX);
            self.code.mov(Size::S64, RAX, R11);
        }
    }
}
