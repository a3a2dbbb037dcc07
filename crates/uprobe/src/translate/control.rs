//! Jumps, calls, the beginnings and ends of functions.

use super::{
    assembler::{
        Condition, Memory, Op, R9, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Reg,
        Shift, Size,
    },
    error::{Error, Result},
    function::{self, Function},
    helper_table::HelperTable,
    instruction::{Instruction, class, jump, pseudo},
    maps::ArrayPlace,
    translator::Pass,
};

/// Rounds of a `may_goto` in one call of a function: `BPF_MAX_LOOPS`, as of `bpf_loop`.
const MAX_LOOPS: i32 = 8 << 20;

/// libbpf writes this helper where a CO-RE relocation failed: the verifier has proved that it is never called.
const POISONED_HELPER: i32 = 195_896_080;

/// The kernel's ids of the helpers that need no call.
mod id {
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const GET_FUNC_IP: i32 = 173;
    pub(super) const GET_ATTACH_COOKIE: i32 = 174;
    pub(super) const LOOP: i32 = 181;
}

/// Negative error numbers that helpers return.
const EINVAL: u64 = -22_i64 as u64;
const E2BIG: u64 = -7_i64 as u64;

pub(super) const LOAD: Memory<'static> = Memory {
    prefix: 0,
    size: Size::S64,
    code: &[0x8b],
    is_byte: false,
};

/// The callee-saved registers that are R6 to R9.
const SAVED: [Reg; 4] = [RBX, R13, R14, R15];

impl Pass<'_> {
    pub(super) fn prologue(&mut self, function: &Function) {
        if function.has_frame {
            self.code.push(RBP);
            self.code.mov(Size::S64, RBP, RSP);
        }
        match function.frame() {
            0 => {}
            8 => self.code.push(RAX),
            frame => self
                .code
                .op_immediate(Size::S64, Op::Sub, RSP, frame.cast_signed()),
        }
        for (reg, _) in SAVED.iter().zip(function.saved).filter(|(_, saved)| *saved) {
            self.code.push(*reg);
        }
        if function.has_may_goto {
            self.counter(function, Size::S64, &[0xc7], Reg(0));
            self.code.immediate(&MAX_LOOPS.to_le_bytes());
        }
    }

    fn epilogue(&mut self, function: &Function) {
        self.leave_frame(function);
        self.code.ret();
    }

    /// Undoes the prologue. It changes none of R0 to R3.
    pub(super) fn leave_frame(&mut self, function: &Function) {
        for (reg, _) in SAVED
            .iter()
            .zip(function.saved)
            .rev()
            .filter(|(_, saved)| *saved)
        {
            self.code.pop(*reg);
        }
        match function.frame() {
            _ if function.has_frame => self.code.leave(),
            0 => {}
            8 => self.code.pop(RCX),
            frame => self
                .code
                .op_immediate(Size::S64, Op::Add, RSP, frame.cast_signed()),
        }
    }

    /// An instruction on the counter of `may_goto`, below the BPF stack.
    fn counter(&mut self, function: &Function, size: Size, code: &[u8], reg: Reg) {
        let form = Memory {
            prefix: 0,
            size,
            code,
            is_byte: false,
        };
        let displacement = -(function.stack.cast_signed() + 8);
        self.code.memory(&form, reg.0, RBP, displacement);
    }

    pub(super) fn jump(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        if instruction.is_call() {
            return self.call(index, instruction);
        }
        let function = self.function();
        if instruction.is_exit() {
            self.exit(function);
            return Ok(());
        }
        let operation = instruction.operation();
        if operation == jump::JA && instruction.has_register_operand() {
            return self.unsupported(index, "an indirect jump".to_owned());
        }
        let Some(distance) = instruction.jump_distance() else {
            return self.unsupported(index, format!("the jump {:#x}", instruction.code));
        };
        // Dead code consists of these, up to the end of the program.
        if operation == jump::JA && distance == 0 {
            return Ok(());
        }
        let target = function::target(self.program, index, distance)?;
        if !(function.start..function.end).contains(&target) {
            return Err(Error::Malformed {
                instruction: index,
                what: "a jump leads out of its function",
            });
        }
        let label = self.at_instruction(target);
        match operation {
            jump::JA => self.code.jump(label),
            jump::JCOND if instruction.src == 0 => {
                // `sub qword [counter], 1`: taken where no rounds are left, now and from then on.
                self.counter(function, Size::S64, &[0x83], Reg(Op::Sub as u8));
                self.code.immediate(&[1]);
                self.code.jump_if(Condition::Less, label);
            }
            _ => {
                let condition = self.compare(index, instruction)?;
                self.code.jump_if(condition, label);
            }
        }
        Ok(())
    }

    /// One end of a function has its epilogue; the others jump there.
    fn exit(&mut self, function: &Function) {
        let label = self.at_exit();
        if self.code.is_bound(label) && (function.has_frame || function.pushes() > 0) {
            self.code.jump(label);
        } else {
            if !self.code.is_bound(label) {
                self.code.bind(label);
            }
            self.epilogue(function);
        }
    }

    fn compare(&mut self, index: usize, instruction: Instruction) -> Result<Condition> {
        let size = if instruction.class() == class::JMP {
            Size::S64
        } else {
            Size::S32
        };
        let dst = self.readable(index, instruction.dst)?;
        let source = self.readable(index, instruction.src)?;
        let immediate = instruction.immediate;
        let condition = match instruction.operation() {
            jump::JEQ => Condition::Equal,
            jump::JNE | jump::JSET => Condition::NotEqual,
            jump::JGT => Condition::Above,
            jump::JGE => Condition::AboveEqual,
            jump::JLT => Condition::Below,
            jump::JLE => Condition::BelowEqual,
            jump::JSGT => Condition::Greater,
            jump::JSGE => Condition::GreaterEqual,
            jump::JSLT => Condition::Less,
            jump::JSLE => Condition::LessEqual,
            _ => return self.unsupported(index, format!("the jump {:#x}", instruction.code)),
        };
        match (
            instruction.operation() == jump::JSET,
            instruction.has_register_operand(),
        ) {
            (true, true) => self.code.test(size, dst, source),
            (true, false) => self.code.test_immediate(size, dst, immediate),
            (false, true) => self.code.op(size, Op::Cmp, dst, source),
            // The flags are those of a comparison with 0, and it is shorter.
            (false, false) if immediate == 0 => self.code.test(size, dst, dst),
            (false, false) => self.code.op_immediate(size, Op::Cmp, dst, immediate),
        }
        Ok(condition)
    }

    fn call(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        let helper = instruction.immediate;
        match (instruction.src, helper) {
            (pseudo::CALL, distance) => {
                let target = function::target(self.program, index, distance)?;
                let label = self.at_function(index, target)?;
                self.code.call(label);
            }
            (pseudo::KFUNC, btf_id) => {
                return Err(Error::UnsupportedKfunc {
                    instruction: index,
                    btf_id,
                });
            }
            (0, POISONED_HELPER) => {
                self.code.constant(RAX, 0);
                self.exit(self.function());
            }
            (0, id::MAP_LOOKUP_ELEM) if self.known_array(index).is_some() => {
                if let Some((array, has_values)) = self.known_array(index) {
                    self.array_lookup(array, has_values);
                }
            }
            // The trampoline keeps both behind the registers: see `ProbeContext`.
            (0, id::GET_FUNC_IP) => self.code.memory(
                &LOAD,
                RAX.0,
                RDI,
                super::ProbeContext::FUNCTION_OFFSET.cast_signed(),
            ),
            (0, id::GET_ATTACH_COOKIE) => self.code.memory(
                &LOAD,
                RAX.0,
                RDI,
                super::ProbeContext::COOKIE_OFFSET.cast_signed(),
            ),
            (0, id::LOOP) => {
                self.has_loop = true;
                let label = self.at_loop();
                self.code.call(label);
            }
            _ if instruction.is_tail_call() => self.tail_call(),
            (0, _) => {
                let id = helper.cast_unsigned();
                let unsupported = Error::UnsupportedHelper {
                    instruction: index,
                    helper: HelperTable::name(id),
                };
                let Some(address) = self.helpers.address(id) else {
                    return Err(unsupported);
                };
                if instruction.writes_line() {
                    // A sixth argument.
                    let ring = self.trace_ring().ok_or(unsupported)?;
                    self.code.address_constant(R9, ring);
                }
                self.code.call_address(address);
            }
            _ => return self.unsupported(index, "a call of this kind".to_owned()),
        }
        Ok(())
    }

    /// RSI is the key's address; RDI the values' where `has_values`. R1 to R5 are dead behind a call.
    fn array_lookup(&mut self, array: ArrayPlace, has_values: bool) {
        let word = Memory {
            size: Size::S32,
            ..LOAD
        };
        self.code.memory(&word, RAX.0, RSI, 0);
        if !has_values {
            self.code.address_constant(RDI, array.values);
        }
        self.code
            .op_immediate(Size::S32, Op::Cmp, RAX, array.entries.cast_signed());
        let beyond = self.code.skip_if(Condition::AboveEqual);
        let stride = array.stride();
        if stride.is_power_of_two() {
            let count = stride.trailing_zeros().to_le_bytes()[0];
            self.code
                .shift_immediate(Size::S64, Shift::Left, RAX, count);
        } else if let Ok(stride) = i32::try_from(stride) {
            self.code.imul_immediate(Size::S64, RAX, stride);
        } else {
            self.code.constant(RDX, stride);
            self.code.imul(Size::S64, RAX, RDX);
        }
        self.code.op(Size::S64, Op::Add, RAX, RDI);
        let done = self.code.skip();
        self.code.land(beyond);
        self.code.constant(RAX, 0);
        self.code.land(done);
    }

    /// `bpf_loop`: RDI rounds of the callback RSI with the context RDX; RCX are flags, of which there are none.
    pub(super) fn loop_function(&mut self) {
        let label = self.at_loop();
        self.code.bind(label);
        self.code.constant(RAX, EINVAL);
        self.code.test(Size::S64, RCX, RCX);
        let wrong_flags = self.code.skip_if(Condition::NotEqual);
        self.code.constant(RAX, E2BIG);
        self.code.op_immediate(Size::S64, Op::Cmp, RDI, MAX_LOOPS);
        let too_many = self.code.skip_if(Condition::Above);
        // Rounds so far, all rounds, callback, context; an odd number of words aligns the stack again, and LOOP_STACK
        // counts them.
        for reg in [RBX, R13, R14, R15] {
            self.code.push(reg);
        }
        self.code.push(RAX);
        self.code.constant(RBX, 0);
        self.code.mov(Size::S64, R13, RDI);
        self.code.mov(Size::S64, R14, RSI);
        self.code.mov(Size::S64, R15, RDX);
        let again = self.code.here();
        self.code.op(Size::S64, Op::Cmp, RBX, R13);
        let done = self.code.skip_if(Condition::AboveEqual);
        self.code.mov(Size::S64, RDI, RBX);
        self.code.mov(Size::S64, RSI, R15);
        self.code.call_register(R14);
        self.code.op_immediate(Size::S64, Op::Add, RBX, 1);
        self.code.test(Size::S64, RAX, RAX);
        self.code.repeat_if(Condition::Equal, again);
        self.code.land(done);
        self.code.mov(Size::S64, RAX, RBX);
        self.code.pop(RCX);
        for reg in [R15, R14, R13, RBX] {
            self.code.pop(reg);
        }
        self.code.land(wrong_flags);
        self.code.land(too_many);
        self.code.ret();
    }
}
