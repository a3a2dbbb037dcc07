//! Code by which a thread shows that an area is its own, and takes one where it has none: the invariant of
//! [`super::super::identity`].

use super::{
    super::layout::{
        AREA, CONTROL, CONTROL_FRAME, CONTROL_GUARD, CONTROL_HOLDER, CONTROL_LIMIT, CONTROL_OWNER,
        CONTROL_THREAD, CONTROL_WORD, FIRST_FRAME, LEVEL, LEVELS, SLOT, STATE_HOLDERS, STATE_LIMIT,
        STATE_LOCK, STATE_ON, STATE_OWNERS, STATE_SPILL, regs,
    },
    Assembly, CS, RFLAGS, SS, gs,
};
use iced_x86::{
    IcedError,
    code_asm::{AsmRegister64, dword_ptr, qword_ptr, registers::*},
};

/// Number of times a thread that waits for the lock pauses before it tries a second time.
const PAUSES: i32 = 2000;

/// The frame of a level, from the area's control page.
fn frame(level: u64) -> i32 {
    (FIRST_FRAME as i64 - CONTROL as i64 - (level * LEVEL) as i64) as i32
}

impl Assembly<'_> {
    /// Goes on only with the thread's own area behind the GS base. A new thread has its parent's.
    pub(super) fn write_check(&mut self) -> Result<(), IcedError> {
        let (s, layout, proof) = (self.scratch, self.context.layout, self.context.proof);
        let a = &mut self.a;
        // The process may have set it: nothing is read there, then.
        a.rdgsbase(s)?;
        a.sub(s, qword_ptr(self.block))?;
        a.cmp(s, (layout.areas * AREA) as i32)?;
        a.jae(self.missed)?;
        a.rdfsbase(s)?;
        a.cmp(s, gs(CONTROL_OWNER))?;
        a.jne(self.claim)?;
        match (proof.counter, proof.asks) {
            (Some(counter), asks) => {
                a.mov(s, counter)?;
                a.cmp(dword_ptr(s), 0)?;
                a.jne(if asks { self.ask } else { self.missed })?;
            }
            (None, true) => a.jmp(self.ask)?,
            (None, false) => {}
        }
        a.set_label(&mut self.verified)?;
        a.zero_bytes()
    }

    /// Compares the thread's number with the area's.
    pub(super) fn write_ask(&mut self) -> Result<(), IcedError> {
        let a = &mut self.a;
        a.set_label(&mut self.ask)?;
        // The stack of a goroutine has no room: there, the claim compares it.
        if !self.site.is_go || self.site.is_amid() {
            a.push(rax)?;
            a.push(rcx)?;
            a.mov(eax, libc::SYS_gettid as i32)?;
            a.syscall()?;
            a.cmp(eax, dword_ptr(CONTROL_THREAD).gs())?;
            a.pop(rcx)?;
            a.pop(rax)?;
            a.je(self.verified)?;
        }
        a.zero_bytes()
    }

    /// The registers that a claim changes, and where they are saved.
    fn spilled(&self) -> impl Iterator<Item = (AsmRegister64, i32)> + use<> {
        let s = self.scratch;
        let all = [rax, rcx, rdx, rsi, rdi, r8, r10, r11];
        let offsets = (STATE_SPILL..STATE_OWNERS).step_by(8);
        all.into_iter().filter(move |&one| one != s).zip(offsets)
    }

    /// Takes the thread's own area, or one that is free.
    pub(super) fn write_claim(&mut self) -> Result<(), IcedError> {
        let (s, layout, proof) = (self.scratch, self.context.layout, self.context.proof);
        let spilled: Vec<_> = self.spilled().collect();
        let a = &mut self.a;
        let mut label = || a.create_label();
        let (mut locked, mut pause, mut none) = (label(), label(), label());
        let (mut find, mut next, mut free, mut found) = (label(), label(), label(), label());

        a.set_label(&mut self.claim)?;
        a.mov(s, layout.base)?;
        if layout.children.is_none() {
            a.cmp(dword_ptr(s + STATE_ON), 0)?;
            a.je(self.past)?;
        }
        // A handler that interrupted who holds the lock would wait in vain: two tries.
        a.lock().bts(dword_ptr(s + STATE_LOCK), 0)?;
        a.jae(locked)?;
        a.mov(s, i64::from(PAUSES))?;
        a.set_label(&mut pause)?;
        a.pause()?;
        a.dec(s)?;
        a.jne(pause)?;
        a.mov(s, layout.base)?;
        a.lock().bts(dword_ptr(s + STATE_LOCK), 0)?;
        a.jb(self.missed)?;

        a.set_label(&mut locked)?;
        for &(register, offset) in &spilled {
            a.mov(qword_ptr(s + offset), register)?;
        }
        if let Some(children) = layout.children {
            self.write_child(children)?;
        }
        let a = &mut self.a;
        a.rdfsbase(r8)?;
        // The thread's number, or 0 where the FS base is enough.
        a.xor(r10d, r10d)?;
        if let Some(counter) = proof.counter {
            a.mov(rax, counter)?;
            a.cmp(dword_ptr(rax), 0)?;
            if proof.asks {
                a.je(find)?;
            } else {
                a.jne(none)?;
            }
        }
        if proof.asks {
            a.mov(eax, libc::SYS_gettid as i32)?;
            a.syscall()?;
            a.mov(r10d, eax)?;
            a.mov(s, layout.base)?;
            // A thread may not change its area while a probe of its is in one: where the area is of an unknown thread
            // with this FS base, that is so if a frame is taken.
            a.cmp(r8, gs(CONTROL_OWNER))?;
            a.jne(find)?;
            a.cmp(dword_ptr(CONTROL_THREAD).gs(), 0)?;
            a.jne(find)?;
            a.rdgsbase(rdx)?;
            a.lea(rax, qword_ptr(rdx + frame(0)))?;
            a.cmp(rax, gs(CONTROL_FRAME))?;
            a.jne(none)?;
        }

        // An area that is its own already: a thread that ended had its FS base before.
        a.set_label(&mut find)?;
        a.mov(edx, 1)?;
        let mut another = a.create_label();
        a.set_label(&mut another)?;
        a.cmp(qword_ptr(s + rdx * 8 + STATE_OWNERS), r8)?;
        a.jne(next)?;
        if proof.asks {
            a.test(r10d, r10d)?;
            a.je(found)?;
            a.imul_3(rax, rdx, AREA as i32)?;
            a.mov(rcx, layout.control(0) + CONTROL_THREAD)?;
            a.mov(edi, dword_ptr(rcx + rax))?;
            a.cmp(edi, r10d)?;
            a.je(found)?;
            a.test(edi, edi)?;
            a.je(next)?;
            a.xor(esi, esi)?;
            a.mov(eax, libc::SYS_kill as i32)?;
            a.syscall()?;
            a.mov(s, layout.base)?;
            a.cmp(eax, -libc::ESRCH)?;
        }
        a.je(found)?;
        a.set_label(&mut next)?;
        a.inc(edx)?;
        a.cmp(edx, dword_ptr(s + STATE_LIMIT))?;
        a.jb(another)?;
        a.mov(edx, 1)?;
        a.set_label(&mut free)?;
        a.cmp(qword_ptr(s + rdx * 8 + STATE_OWNERS), 0)?;
        a.je(found)?;
        a.inc(edx)?;
        a.cmp(edx, dword_ptr(s + STATE_LIMIT))?;
        a.jb(free)?;
        a.jmp(none)?;

        a.set_label(&mut found)?;
        self.write_take()?;
        self.write_unlock()?;
        let a = &mut self.a;
        a.jmp(self.verified)?;

        a.set_label(&mut none)?;
        self.write_unlock()?;
        let slot = layout.slots(0) + self.context.slot * SLOT + 8;
        let a = &mut self.a;
        a.set_label(&mut self.missed)?;
        a.mov(s, slot)?;
        a.lock().inc(qword_ptr(s))
    }

    /// Makes an area ready, whose index is in RDX, for the FS base in R8 and the thread's number in R10.
    fn write_take(&mut self) -> Result<(), IcedError> {
        let (s, layout) = (self.scratch, self.context.layout);
        let a = &mut self.a;
        a.mov(qword_ptr(s + rdx * 8 + STATE_OWNERS), r8)?;
        a.mov(esi, edx)?;
        a.imul_3(rdx, rdx, AREA as i32)?;
        a.mov(rcx, layout.control(0))?;
        a.add(rdx, rcx)?;
        for level in 0..LEVELS {
            a.mov(qword_ptr(rdx + (frame(level) + regs::ORIG_RAX)), -1)?;
            a.mov(qword_ptr(rdx + (frame(level) + regs::CS)), CS)?;
            a.mov(qword_ptr(rdx + (frame(level) + regs::RFLAGS)), RFLAGS)?;
            a.mov(qword_ptr(rdx + (frame(level) + regs::SS)), SS)?;
        }
        for (field, level) in [(CONTROL_FRAME, 0), (CONTROL_LIMIT, LEVELS)] {
            a.lea(rcx, qword_ptr(rdx + frame(level)))?;
            a.mov(qword_ptr(rdx + field as i32), rcx)?;
        }
        a.mov(qword_ptr(rdx + CONTROL_THREAD as i32), r10)?;
        a.mov(qword_ptr(rdx + CONTROL_GUARD as i32), 0)?;
        a.mov(qword_ptr(rdx + CONTROL_WORD as i32), 0)?;
        a.add(esi, dword_ptr(s + STATE_HOLDERS))?;
        a.mov(qword_ptr(rdx + CONTROL_HOLDER as i32), rsi)?;
        a.wrgsbase(rdx)?;
        // Last: from here on the thread's handlers find the area ready.
        a.mov(qword_ptr(rdx + CONTROL_OWNER as i32), r8)
    }

    fn write_unlock(&mut self) -> Result<(), IcedError> {
        let s = self.scratch;
        for (register, offset) in self.spilled() {
            self.a.mov(register, qword_ptr(s + offset))?;
        }
        self.a.mov(dword_ptr(s + STATE_LOCK), 0)
    }
}
