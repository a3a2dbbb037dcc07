//! Code for a function that leaves by a jump to another one: that one's RET is to lead to the probe.
//!
//! At the jump, the stack pointer points to the return address. It is replaced by the address of a *stub*, which pushes it
//! back and goes on to the probe, and from there by a RET to the caller: the stack is then as it was before an ordinary
//! RET. There is one stub for each return address, found in a table of such addresses by its hash. An entry is taken by
//! compare-and-swap, and stays: a stub that is in some thread's stack, or was, is valid for as long as the process lives.
//! So nothing is kept for a thread or a call, and a call may be left by `longjmp`, go on in another thread, or be copied
//! with the process by `fork`.
//!
//! A call is missed if no entry near the hash is free. So it is where the return address is a stub of the same table:
//! functions that jump to each other without end would fill it.

use super::{
    super::layout::{SLOT, STATE_ON},
    Assembly,
};
use iced_x86::{
    ConditionCode, FlowControl, IcedError, Instruction, OpKind,
    code_asm::{CodeAssembler, CodeLabel, dword_ptr, qword_ptr, registers::*},
};

/// Entries of a table.
pub(in super::super) const ENTRIES: u64 = 2048;
const _: () = assert!(ENTRIES.is_power_of_two());
/// Number of entries, from that of the hash on, that a return address may have.
const TRIES: i32 = 64;
/// 2 to the 64th by the golden ratio: the product's upper bits are the hash.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The bytes of an address in the table, and of a stub.
pub(in super::super) const KEY: u64 = 8;
pub(in super::super) const STUB: u64 = 16;

/// The jump in a stub: its first byte, its offset, and where it ends.
const JUMP: u8 = 0xe9;
const JUMP_AT: usize = 6;
const JUMP_END: usize = 11;

/// The table of one jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Table {
    /// The address of the return addresses, 0 where an entry is free.
    pub(in super::super) keys: u64,
    /// The address of the stubs.
    pub(in super::super) stubs: u64,
}

/// The jump that a function had when its return address was replaced: without it, the probe is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Condition {
    /// Offset of the jump's distance.
    pub(in super::super) address: u64,
    /// The distance.
    pub(in super::super) distance: i32,
}

impl Table {
    /// The code of the stubs, which lead to the code at `returning`, or return by themselves; `None` where that or the table
    /// is too far away.
    pub(in super::super) fn stubs(&self, returning: Option<u64>) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity((ENTRIES * STUB) as usize);
        for index in 0..ENTRIES {
            let at = self.stubs + index * STUB;
            let distance = |from: u64, to: u64| i32::try_from(to.wrapping_sub(from) as i64).ok();
            // push [key]; jmp, or ret
            bytes.extend([0xff, 0x35]);
            bytes.extend(distance(at + 6, self.keys + index * KEY)?.to_le_bytes());
            match returning {
                Some(returning) => {
                    bytes.push(JUMP);
                    bytes.extend(distance(at + JUMP_END as u64, returning)?.to_le_bytes());
                }
                None => bytes.push(0xc3),
            }
            bytes.resize(((index + 1) * STUB) as usize, 0xcc);
        }
        Some(bytes)
    }

    /// The address that a stub at an address leads to. `None` where it returns by itself, or was never written.
    pub(in super::super) fn target(at: u64, stub: &[u8]) -> Option<u64> {
        let distance = stub[JUMP_AT + 1..JUMP_END].try_into().expect("4 bytes");
        let distance = i64::from(i32::from_le_bytes(distance));
        let end = at + JUMP_END as u64;
        (stub[JUMP_AT] == JUMP).then_some(end.wrapping_add_signed(distance))
    }
}

impl Assembly<'_> {
    /// The code of a site whose last instruction is the jump. Flags are dead, and the stack below the return address.
    pub(super) fn write_tail(&mut self, table: Table) -> Result<(), IcedError> {
        let instructions = self.site.instructions.clone();
        let (before, after) = instructions.split_at(self.site.probed);
        self.write_moved(before)?;
        let jump = after[0];
        let is_conditional = jump.flow_control() == FlowControl::ConditionalBranch;
        self.a.set_label(&mut self.probe)?;
        if is_conditional {
            let mut taken = self.a.create_label();
            jump_if(&mut self.a, jump.condition_code(), taken)?;
            self.back = Some(self.a.instructions().len());
            self.a.jmp(self.site.end())?;
            self.a.set_label(&mut taken)?;
        }
        self.write_replacing(table)?;
        self.a.set_label(&mut self.function)?;
        self.moved.push(self.a.instructions().len());
        self.a.zero_bytes()?;
        if jump.op0_kind() == OpKind::NearBranch64 {
            self.a.jmp(jump.near_branch_target())?;
        } else {
            let mut jump: Instruction = jump;
            jump.set_ip(0);
            self.a.add_instruction(jump)?;
        }
        self.a.int3()
    }

    /// Replaces the return address by that of its stub.
    fn write_replacing(&mut self, table: Table) -> Result<(), IcedError> {
        let saved = [rax, rcx, rdx, rsi, rdi];
        let return_address = 8 * saved.len() as i32;
        let layout = self.context.layout;
        let slot = layout.slots(0) + self.context.slot * SLOT + 8;
        let a = &mut self.a;
        let mut label = || a.create_label();
        let (mut find, mut next, mut found) = (label(), label(), label());
        let (mut full, mut done) = (label(), label());
        for register in saved {
            a.push(register)?;
        }
        a.mov(rdi, qword_ptr(rsp + return_address))?;
        // 0 is what a free entry has.
        a.test(rdi, rdi)?;
        a.je(full)?;
        a.mov(rsi, table.stubs)?;
        a.mov(rax, rdi)?;
        a.sub(rax, rsi)?;
        a.cmp(rax, (ENTRIES * STUB) as i32)?;
        a.jb(full)?;
        a.mov(rdx, GOLDEN)?;
        a.imul_2(rdx, rdi)?;
        a.shr(rdx, 64 - ENTRIES.trailing_zeros())?;
        a.mov(rsi, table.keys)?;
        a.mov(ecx, TRIES)?;

        a.set_label(&mut find)?;
        a.mov(rax, qword_ptr(rsi + rdx * 8))?;
        a.cmp(rax, rdi)?;
        a.je(found)?;
        a.test(rax, rax)?;
        a.jne(next)?;
        a.lock().cmpxchg(qword_ptr(rsi + rdx * 8), rdi)?;
        a.je(found)?;
        // Another thread took it, maybe for the same address.
        a.cmp(rax, rdi)?;
        a.je(found)?;
        a.set_label(&mut next)?;
        a.inc(edx)?;
        a.and(edx, ENTRIES as i32 - 1)?;
        a.dec(ecx)?;
        a.jne(find)?;

        a.set_label(&mut full)?;
        if layout.children.is_none() {
            // A forked child is not counted.
            a.mov(rsi, layout.base)?;
            a.cmp(dword_ptr(rsi + STATE_ON), 0)?;
            a.je(done)?;
        }
        a.mov(rsi, slot)?;
        a.lock().inc(qword_ptr(rsi))?;
        a.jmp(done)?;

        a.set_label(&mut found)?;
        a.shl(edx, STUB.trailing_zeros())?;
        a.mov(rsi, table.stubs)?;
        a.add(rdx, rsi)?;
        a.mov(qword_ptr(rsp + return_address), rdx)?;
        a.set_label(&mut done)?;
        for register in saved.into_iter().rev() {
            a.pop(register)?;
        }
        Ok(())
    }

    /// Leaves the program out where the function's jump is gone: a call that was under way then returns much later, maybe.
    pub(super) fn write_condition(&mut self, condition: Condition) -> Result<(), IcedError> {
        let s = self.scratch;
        self.a.mov(s, condition.address)?;
        self.a.cmp(dword_ptr(s), condition.distance)?;
        self.a.jne(self.past)
    }
}

/// A conditional jump to a label.
fn jump_if(
    a: &mut CodeAssembler,
    condition: ConditionCode,
    label: CodeLabel,
) -> Result<(), IcedError> {
    match condition {
        ConditionCode::o => a.jo(label),
        ConditionCode::no => a.jno(label),
        ConditionCode::b => a.jb(label),
        ConditionCode::ae => a.jae(label),
        ConditionCode::e => a.je(label),
        ConditionCode::ne => a.jne(label),
        ConditionCode::be => a.jbe(label),
        ConditionCode::a => a.ja(label),
        ConditionCode::s => a.js(label),
        ConditionCode::ns => a.jns(label),
        ConditionCode::p => a.jp(label),
        ConditionCode::np => a.jnp(label),
        ConditionCode::l => a.jl(label),
        ConditionCode::ge => a.jge(label),
        ConditionCode::le => a.jle(label),
        ConditionCode::g => a.jg(label),
        // Those that test RCX reach 127 bytes, and have no room.
        ConditionCode::None => a.ud2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Decoder, DecoderOptions};

    #[test]
    fn a_stub_pushes_its_own_entry_and_leads_to_the_probe() {
        let table = Table {
            keys: 0x7000_0000,
            stubs: 0x6000_0000,
        };
        let bytes = table.stubs(Some(0x5000_0000)).unwrap();
        assert_eq!(bytes.len() as u64, ENTRIES * STUB);
        for (index, stub) in (0..ENTRIES).zip(bytes.chunks_exact(STUB as usize)) {
            let at = table.stubs + index * STUB;
            let mut decoder = Decoder::with_ip(64, stub, at, DecoderOptions::NONE);
            let (push, jump) = (decoder.decode(), decoder.decode());
            assert_eq!(push.code(), Code::Push_rm64);
            assert_eq!(push.ip_rel_memory_address(), table.keys + index * KEY);
            assert_eq!(jump.code(), Code::Jmp_rel32_64);
            assert_eq!(jump.near_branch_target(), 0x5000_0000);
            assert_eq!(Table::target(at, stub), Some(0x5000_0000));
        }
        assert_eq!(table.stubs(Some(0x5_0000_0000)), None, "too far");
    }

    #[test]
    fn a_stub_of_a_tool_that_ended_returns_by_itself() {
        let table = Table {
            keys: 0x7000_0000,
            stubs: 0x6000_0000,
        };
        let (before, after) = (table.stubs(Some(0x5000_0000)), table.stubs(None));
        let (before, after) = (before.unwrap(), after.unwrap());
        let pairs = before
            .chunks_exact(STUB as usize)
            .zip(after.chunks_exact(STUB as usize));
        for (before, after) in pairs {
            // A thread may be between the two instructions.
            assert_eq!(before[..JUMP_AT], after[..JUMP_AT]);
            let mut decoder = Decoder::new(64, &after[JUMP_AT..], DecoderOptions::NONE);
            assert_eq!(decoder.decode().code(), Code::Retnq);
            assert_eq!(Table::target(table.stubs, after), None);
        }
    }
}
