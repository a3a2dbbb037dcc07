//! Code by which a forked child gets slots of its own (`process/children.rs`).

use super::{
    super::layout::{
        CHILD, CHILD_AREAS, CHILDREN, CHILDREN_CLOSED, CHILDREN_FREED, CHILDREN_GENERATIONS,
        CHILDREN_HEAD, CHILDREN_QUEUE, CONTROL_OWNER, FIRST_CHILD_HOLDER, IS_CHILD,
        STATE_GENERATION, STATE_HOLDERS, STATE_LIMIT, STATE_ON, STATE_OWNERS,
    },
    Assembly,
};
use iced_x86::{
    IcedError,
    code_asm::{dword_ptr, qword_ptr, registers::*, word_ptr},
};

impl Assembly<'_> {
    /// Gives a forked child, whose state was wiped, slots of its own in place of its parent's. Where there are none
    /// left, or children get none, none of its threads gets an area. The registers of [`Assembly::spilled`] may change.
    pub(super) fn write_child(&mut self, children: u64) -> Result<(), IcedError> {
        let (s, layout) = (self.scratch, self.context.layout);
        let a = &mut self.a;
        let mut label = || a.create_label();
        let (mut is_on, mut none, mut done) = (label(), label(), label());
        let (mut take, mut taken) = (label(), label());

        a.cmp(dword_ptr(s + STATE_ON), 0)?;
        a.jne(is_on)?;
        a.set_label(&mut take)?;
        a.mov(rdx, children)?;
        a.cmp(qword_ptr(rdx + CHILDREN_CLOSED as i32), 0)?;
        a.jne(none)?;
        // The next position of the queue, and its slot.
        a.mov(rax, qword_ptr(rdx))?;
        a.mov(rcx, qword_ptr(rdx + CHILDREN_FREED as i32))?;
        a.add(rcx, CHILDREN as i32)?;
        a.cmp(rax, rcx)?;
        a.jae(none)?;
        a.mov(edi, eax)?;
        a.cmp(rax, CHILDREN as i32)?;
        a.jb(taken)?;
        a.and(edi, CHILDREN as i32 - 1)?;
        a.movzx(edi, word_ptr(rdx + rdi * 2 + CHILDREN_QUEUE as i32))?;
        a.set_label(&mut taken)?;
        a.movzx(esi, word_ptr(rdx + rdi * 2 + CHILDREN_GENERATIONS as i32))?;
        a.lea(rcx, qword_ptr(rax + 1))?;
        a.lock().cmpxchg(qword_ptr(rdx), rcx)?;
        a.jne(take)?;
        a.mov(dword_ptr(s + STATE_GENERATION), esi)?;
        // Of length 0, memory that is shared stays where it was.
        a.imul_3(rdi, rdi, CHILD as i32)?;
        a.lea(rdi, qword_ptr(rdx + rdi + CHILDREN_HEAD as i32))?;
        a.xor(esi, esi)?;
        a.mov(edx, CHILD as i32)?;
        a.mov(r10d, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED)?;
        a.mov(r8, layout.base + layout.private())?;
        a.mov(eax, libc::SYS_mremap as i32)?;
        a.syscall()?;
        a.mov(s, layout.base)?;
        a.cmp(rax, r8)?;
        a.jne(none)?;
        a.mov(rax, children)?;
        a.sub(rdi, rax)?;
        a.sub(rdi, CHILDREN_HEAD as i32)?;
        a.shr(rdi, (CHILD / CHILD_AREAS).trailing_zeros())?;
        // The tool took the slot for one that is free, before it was mapped.
        a.mov(edx, edi)?;
        a.shr(edx, CHILD_AREAS.trailing_zeros())?;
        a.movzx(edx, word_ptr(rax + rdx * 2 + CHILDREN_GENERATIONS as i32))?;
        a.cmp(edx, dword_ptr(s + STATE_GENERATION))?;
        a.jne(take)?;
        // The holders of locks are numbered as the areas of all children are.
        a.add(edi, FIRST_CHILD_HOLDER as i32)?;
        a.mov(dword_ptr(s + STATE_HOLDERS), edi)?;
        a.mov(edx, CHILD_AREAS as i32)?;
        a.jmp(done)?;
        a.set_label(&mut none)?;
        a.mov(edx, 2)?;
        a.mov(qword_ptr(s + (STATE_OWNERS + 8)), -1)?;
        a.set_label(&mut done)?;
        a.mov(dword_ptr(s + STATE_LIMIT), edx)?;
        a.mov(rdx, layout.control(0) + CONTROL_OWNER)?;
        a.mov(qword_ptr(rdx), -1)?;
        a.mov(dword_ptr(s + STATE_ON), IS_CHILD as i32)?;
        a.set_label(&mut is_on)?;
        a.zero_bytes()
    }
}
