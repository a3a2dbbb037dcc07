//! Tail calls: a jump to another program, which takes the place of the function that makes it.

use super::{
    MachineCode, ProbeContext,
    assembler::{Condition, Memory, Op, RAX, RDI, RDX, RSI, Reg, Shift, Size},
    control::LOAD,
    helpers::MapDescriptor,
    translator::Pass,
};

/// The most tail calls of one run: the kernel's `MAX_TAIL_CALL_CNT`.
pub const MAX_TAIL_CALLS: u32 = 33;

/// The most bytes of stack that programs can take that call each other by tail calls, the first one included. A tail call
/// of a subprogram leaves the frames of that subprogram's callers where they are; so each may add as much.
pub fn most_stack<'a>(programs: impl Iterator<Item = &'a MachineCode> + Clone) -> u32 {
    let deepest = programs.clone().map(|one| one.stack_bytes).max();
    let left = programs.filter_map(|one| one.tail_stack_bytes).max();
    deepest.unwrap_or(0) + MAX_TAIL_CALLS * left.unwrap_or(0)
}

/// A comparison of 32 bits in memory with a register, and an operation with a number of 8 bits.
const COMPARE: Memory<'static> = Memory {
    prefix: 0,
    size: Size::S32,
    code: &[0x39],
    is_byte: false,
};
const OPERATION: Memory<'static> = Memory {
    code: &[0x83],
    ..COMPARE
};
const STORE: Memory<'static> = Memory {
    code: &[0xc7],
    ..COMPARE
};

impl Pass<'_> {
    /// At a program's beginning: no tail call was made yet.
    pub(super) fn begin_count(&mut self) {
        self.code.memory(
            &STORE,
            0,
            RDI,
            ProbeContext::TAIL_CALLS_OFFSET.cast_signed(),
        );
        self.code.immediate(&0_i32.to_le_bytes());
    }

    /// RDI is the context, RSI the array of programs, and EDX the index. It goes on behind the call where there is no
    /// program at the index, or where too many tail calls were made. Those to empty slots don't count, as in Linux 6.18.
    pub(super) fn tail_call(&mut self) {
        let count = ProbeContext::TAIL_CALLS_OFFSET.cast_signed();
        let (table, entries) = (MapDescriptor::MEMORY_OFFSET, MapDescriptor::ENTRIES_OFFSET);
        self.code
            .memory(&COMPARE, RDX.0, RSI, entries.cast_signed());
        let beyond = self.code.skip_if(Condition::BelowEqual);
        self.counted(Op::Cmp, count, MAX_TAIL_CALLS);
        let too_many = self.code.skip_if(Condition::AboveEqual);
        self.code.mov(Size::S32, RDX, RDX);
        self.code.memory(&LOAD, RAX.0, RSI, table.cast_signed());
        self.code.shift_immediate(Size::S64, Shift::Left, RDX, 3);
        self.code.op(Size::S64, Op::Add, RDX, RAX);
        self.code.memory(&LOAD, RAX.0, RDX, 0);
        self.code.test(Size::S64, RAX, RAX);
        let empty = self.code.skip_if(Condition::Equal);
        self.counted(Op::Add, count, 1);
        self.leave_frame(self.function());
        self.code.jump_register(RAX);
        self.code.land(beyond);
        self.code.land(too_many);
        self.code.land(empty);
    }

    /// An operation on the count of tail calls.
    fn counted(&mut self, op: Op, count: i32, number: u32) {
        self.code.memory(&OPERATION, Reg(op as u8).0, RDI, count);
        self.code.immediate(&number.to_le_bytes()[..1]);
    }
}
