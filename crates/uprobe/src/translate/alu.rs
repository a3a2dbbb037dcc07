//! Arithmetic.

use super::{
    assembler::{Condition, Extend, Op, R9, R10, R11, RAX, RCX, RDX, Reg, Shift, Size},
    error::Result,
    instruction::{Instruction, alu, class},
    pointers::ArenaUse,
    translator::Pass,
};

impl Pass<'_> {
    pub(super) fn arithmetic(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        let size = match (instruction.class(), self.arena_use(index)) {
            (_, ArenaUse::Unclear(what)) => return self.unsupported(index, what.to_owned()),
            (class::ALU64, ArenaUse::None) => Size::S64,
            _ => Size::S32,
        };
        let dst = self.writable(index, instruction.dst)?;
        let source = self.readable(index, instruction.src)?;
        let is_register = instruction.has_register_operand();
        let immediate = instruction.immediate;
        let op = match instruction.operation() {
            alu::ADD => Op::Add,
            alu::SUB => Op::Sub,
            alu::OR => Op::Or,
            alu::AND => Op::And,
            alu::XOR => Op::Xor,
            other => return self.other_arithmetic(index, instruction, (size, dst, source), other),
        };
        if is_register {
            self.code.op(size, op, dst, source);
        } else {
            self.code.op_immediate(size, op, dst, immediate);
        }
        Ok(())
    }

    fn other_arithmetic(
        &mut self,
        index: usize,
        instruction: Instruction,
        (size, dst, source): (Size, Reg, Reg),
        operation: u8,
    ) -> Result<()> {
        let is_register = instruction.has_register_operand();
        let immediate = instruction.immediate;
        match operation {
            alu::MOV if is_register => return self.moving(index, instruction, size, dst, source),
            alu::MOV => {
                let value = match size {
                    Size::S64 => i64::from(immediate).cast_unsigned(),
                    Size::S32 => u64::from(immediate.cast_unsigned()),
                };
                self.code.constant(dst, value);
            }
            alu::NEG => self.code.neg(size, dst),
            alu::MUL if is_register => self.code.imul(size, dst, source),
            alu::MUL => self.code.imul_immediate(size, dst, immediate),
            alu::DIV | alu::MOD => {
                let divisor = is_register.then_some(source);
                self.division(instruction, size, dst, divisor);
            }
            alu::LSH => self.shift(instruction, size, Shift::Left, dst, source),
            alu::RSH => self.shift(instruction, size, Shift::Right, dst, source),
            alu::ARSH => self.shift(instruction, size, Shift::Arithmetic, dst, source),
            alu::END => return self.byte_order(index, instruction, dst),
            _ => return self.unsupported(index, format!("the operation {:#x}", instruction.code)),
        }
        Ok(())
    }

    /// Copies, with a sign extension where the offset says of how many bits.
    fn moving(
        &mut self,
        index: usize,
        instruction: Instruction,
        size: Size,
        dst: Reg,
        source: Reg,
    ) -> Result<()> {
        match (instruction.offset, size) {
            (0, _) => self.code.mov(size, dst, source),
            (8, _) => self.code.extend(size, Extend::SignByte, dst, source),
            (16, _) => self.code.extend(size, Extend::SignHalf, dst, source),
            (32, Size::S64) => self.code.extend(size, Extend::SignWord, dst, source),
            (1, Size::S64) => return self.cast(index, instruction, dst, source),
            _ => return self.unsupported(index, "a move of this width".to_owned()),
        }
        Ok(())
    }

    fn shift(&mut self, instruction: Instruction, size: Size, shift: Shift, dst: Reg, count: Reg) {
        if !instruction.has_register_operand() {
            // The verifier rejects larger counts.
            let count = instruction.immediate.to_le_bytes()[0];
            self.code.shift_immediate(size, shift, dst, count);
        } else if self.has_bmi2 {
            self.code.shift_by(size, shift, dst, count);
        } else if count == RCX && dst != RCX {
            self.code.shift_by_cl(size, shift, dst);
        } else if dst == RCX {
            self.code.mov(Size::S64, R11, RCX);
            self.code.mov(Size::S32, RCX, count);
            self.code.shift_by_cl(size, shift, R11);
            self.code.mov(Size::S64, RCX, R11);
        } else {
            self.code.mov(Size::S64, R11, RCX);
            self.code.mov(Size::S32, RCX, count);
            self.code.shift_by_cl(size, shift, dst);
            self.code.mov(Size::S64, RCX, R11);
        }
    }

    /// Division and remainder, by a register, or by the immediate number (`None`). By zero, the quotient is 0 and the
    /// remainder the dividend; the least number by -1 has itself as the quotient and the remainder 0.
    fn division(&mut self, instruction: Instruction, size: Size, dst: Reg, divisor: Option<Reg>) {
        let is_signed = instruction.offset == 1;
        let is_remainder = instruction.operation() == alu::MOD;
        let by = match divisor {
            // These two are the dividend's.
            Some(RAX | RDX) | None => R9,
            Some(other) => other,
        };
        match divisor {
            Some(register) if register != by => self.code.mov(size, by, register),
            Some(_) => {}
            None => {
                let value = i64::from(instruction.immediate).cast_unsigned();
                self.code.constant(by, value);
            }
        }
        let mut dones = Vec::new();
        if divisor.is_some() {
            self.code.test(size, by, by);
            let skip = self.code.skip_if(Condition::NotEqual);
            match (is_remainder, size) {
                (false, _) => self.code.constant(dst, 0),
                (true, Size::S32) => self.code.mov(Size::S32, dst, dst),
                (true, Size::S64) => {}
            }
            dones.push(self.code.skip());
            self.code.land(skip);
        }
        if is_signed && (divisor.is_some() || instruction.immediate == -1) {
            self.code.op_immediate(size, Op::Cmp, by, -1);
            let skip = self.code.skip_if(Condition::NotEqual);
            if is_remainder {
                self.code.constant(dst, 0);
            } else {
                self.code.neg(size, dst);
            }
            dones.push(self.code.skip());
            self.code.land(skip);
        }
        self.divide(size, dst, by, is_signed, is_remainder);
        for done in dones {
            self.code.land(done);
        }
    }

    /// The division itself; RAX and RDX keep their values where they are not the destination.
    fn divide(&mut self, size: Size, dst: Reg, by: Reg, is_signed: bool, is_remainder: bool) {
        if dst != RAX {
            self.code.mov(Size::S64, R10, RAX);
            self.code.mov(size, RAX, dst);
        }
        if dst != RDX {
            self.code.mov(Size::S64, R11, RDX);
        }
        if is_signed {
            self.code.sign_to_rdx(size);
        } else {
            self.code.constant(RDX, 0);
        }
        self.code.div(size, is_signed, by);
        let result = if is_remainder { RDX } else { RAX };
        if dst != result {
            self.code.mov(size, dst, result);
        }
        if dst != RAX {
            self.code.mov(Size::S64, RAX, R10);
        }
        if dst != RDX {
            self.code.mov(Size::S64, RDX, R11);
        }
    }

    /// `bswap`, and conversions from and to the machine's byte order, which is little-endian.
    fn byte_order(&mut self, index: usize, instruction: Instruction, dst: Reg) -> Result<()> {
        let swaps = instruction.class() == class::ALU64 || instruction.has_register_operand();
        match (instruction.immediate, swaps) {
            (16, false) => self.code.extend(Size::S32, Extend::ZeroHalf, dst, dst),
            (16, true) => {
                self.code.swap_low_bytes(dst);
                self.code.extend(Size::S32, Extend::ZeroHalf, dst, dst);
            }
            (32, false) => self.code.mov(Size::S32, dst, dst),
            (32, true) => self.code.bswap(Size::S32, dst),
            (64, false) => {}
            (64, true) => self.code.bswap(Size::S64, dst),
            _ => return self.unsupported(index, "a byte order of this width".to_owned()),
        }
        Ok(())
    }
}
