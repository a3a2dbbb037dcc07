//! A copy of memory that may not be there, and the handler of SIGSEGV and SIGBUS that ends it where it faults.
//!
//! The handler looks at the instruction that faulted. In the copy, it has the copy return 0. All else it passes on to
//! the handler that was there before, by a jump with the same registers and stack, as if the kernel had called that
//! one; flags, mask and restorer are that one's too. Where there was none, it does what the kernel does by default.
//!
//! The helpers rely on it only together with a check of the address (`blob/guard.h`): the program may replace the
//! handler, or block the signals.
//!
//! The code stays mapped for ever, and a forked child has it too: its handler is the same.

use super::{
    error::{Error, Result},
    handlers::{Action, SIGNALS},
    layout::STATE_SCRATCH,
    memory::Write,
    runtime::{Runtime, check_length},
};
use iced_x86::{
    BlockEncoderOptions, IcedError,
    code_asm::{CodeAssembler, CodeLabel, byte_ptr, dword_ptr, qword_ptr, registers::*},
};

/// The most bytes of its code.
const BYTES: u64 = 512;
/// From here on, `rep movsq` is faster than single moves.
const LONG: i32 = 512;
/// The instruction pointer in a handler's `struct ucontext`, and the code in its `siginfo_t`.
const UCONTEXT_RIP: i32 = 168;
const SIGINFO_CODE: i32 = 8;
/// Codes from here on are not those of the CPU's faults, although the kernel sends them (`SI_KERNEL`).
const SI_KERNEL: i32 = 0x80;
/// Broken memory that the thread does not need now.
const BUS_MCEERR_AO: i32 = 5;
const SIGBUS: i32 = libc::SIGBUS;

#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    /// Address of the two words with the earlier handlers of [`SIGNALS`].
    old: u64,
    copy: u64,
    handler: u64,
    /// Handler that does what the kernel does by default.
    default: u64,
    /// Returns from a handler.
    restorer: u64,
}

impl Guard {
    /// Returns the code for an address.
    fn assemble(at: u64) -> Result<(Self, Vec<u8>), IcedError> {
        let mut a = CodeAssembler::new(64)?;
        let mut label = || a.create_label();
        let (mut copy, mut fixup, mut handler) = (label(), label(), label());
        let (mut default, mut restorer) = (label(), label());
        let mut old = [label(), label()];
        for old in &mut old {
            a.set_label(old)?;
            a.dq(&[0])?;
        }
        a.set_label(&mut copy)?;
        write_copy(&mut a)?;
        a.set_label(&mut fixup)?;
        a.xor(eax, eax)?;
        a.ret()?;
        a.set_label(&mut handler)?;
        write_handler(&mut a, copy, fixup, old)?;
        a.set_label(&mut default)?;
        write_default(&mut a)?;
        a.set_label(&mut restorer)?;
        a.mov(eax, libc::SYS_rt_sigreturn as i32)?;
        a.syscall()?;
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let made = a.assemble_options(at, options)?;
        let guard = Guard {
            old: at,
            copy: made.label_ip(&copy)?,
            handler: made.label_ip(&handler)?,
            default: made.label_ip(&default)?,
            restorer: made.label_ip(&restorer)?,
        };
        Ok((guard, made.inner.code_buffer))
    }

    /// Returns what takes the place of a signal's action. `None` where the handler can't act as that one does.
    fn action(&self, old: Action) -> Option<Action> {
        match old.handler as usize {
            libc::SIG_DFL => Some(Action {
                handler: self.handler,
                flags: (libc::SA_SIGINFO | libc::SA_RESTART | Action::RESTORER) as u64,
                restorer: self.restorer,
                mask: 0,
            }),
            // An ignored signal interrupts nothing, and is ignored after an exec.
            libc::SIG_IGN => None,
            _ if old.flags & (libc::SA_RESETHAND as u32 as u64) != 0 => None,
            _ => Some(Action {
                handler: self.handler,
                flags: old.flags | libc::SA_SIGINFO as u64,
                ..old
            }),
        }
    }
}

/// `u8 copy(void *to, u64 from, u64 bytes)`, whose stack pointer is the same everywhere.
fn write_copy(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let mut label = || a.create_label();
    let (mut words, mut tail, mut rest, mut end) = (label(), label(), label(), label());
    a.mov(rcx, rdx)?;
    a.shr(rcx, 3)?;
    a.je(tail)?;
    a.cmp(rdx, LONG)?;
    a.jb(words)?;
    a.rep().movsq()?;
    a.jmp(tail)?;
    a.set_label(&mut words)?;
    a.mov(rax, qword_ptr(rsi))?;
    a.mov(qword_ptr(rdi), rax)?;
    a.add(rsi, 8)?;
    a.add(rdi, 8)?;
    a.dec(rcx)?;
    a.jne(words)?;
    a.set_label(&mut tail)?;
    a.and(edx, 7)?;
    a.je(end)?;
    a.set_label(&mut rest)?;
    a.mov(al, byte_ptr(rsi))?;
    a.mov(byte_ptr(rdi), al)?;
    a.inc(rsi)?;
    a.inc(rdi)?;
    a.dec(edx)?;
    a.jne(rest)?;
    a.set_label(&mut end)?;
    a.mov(eax, 1)?;
    a.ret()
}

/// The handler, which changes no register but those that a handler may, and has RAX 0 as the kernel leaves it.
fn write_handler(
    a: &mut CodeAssembler,
    copy: CodeLabel,
    fixup: CodeLabel,
    old: [CodeLabel; 2],
) -> Result<(), IcedError> {
    let (mut ours, mut foreign, mut bus) = (a.create_label(), a.create_label(), a.create_label());
    a.mov(rax, qword_ptr(rdx + UCONTEXT_RIP))?;
    a.lea(rcx, qword_ptr(copy))?;
    a.cmp(rax, rcx)?;
    a.jb(foreign)?;
    a.lea(rcx, qword_ptr(fixup))?;
    a.cmp(rax, rcx)?;
    a.jae(foreign)?;
    // A signal that somebody sent may come there too, and one of broken memory elsewhere.
    a.cmp(dword_ptr(rsi + SIGINFO_CODE), 0)?;
    a.jle(foreign)?;
    a.cmp(edi, SIGBUS)?;
    a.jne(ours)?;
    a.cmp(dword_ptr(rsi + SIGINFO_CODE), BUS_MCEERR_AO)?;
    a.je(foreign)?;
    a.set_label(&mut ours)?;
    a.mov(qword_ptr(rdx + UCONTEXT_RIP), rcx)?;
    a.ret()?;
    a.set_label(&mut foreign)?;
    a.xor(eax, eax)?;
    a.cmp(edi, SIGBUS)?;
    a.je(bus)?;
    a.jmp(qword_ptr(old[0]))?;
    a.set_label(&mut bus)?;
    a.jmp(qword_ptr(old[1]))
}

/// The default action: from now on it is the kernel's, which a fault meets when its instruction runs again. Any other
/// signal is sent again, as it was. Returning restores all registers, so any may be changed.
fn write_default(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let (mut again, mut end) = (a.create_label(), a.create_label());
    a.mov(ebx, edi)?;
    a.mov(rbp, rsi)?;
    // A `struct sigaction` of zeros: SIG_DFL.
    for _ in 0..4 {
        a.push(0)?;
    }
    a.mov(rsi, rsp)?;
    a.xor(edx, edx)?;
    a.mov(r10d, 8)?;
    a.mov(eax, libc::SYS_rt_sigaction as i32)?;
    a.syscall()?;
    a.add(rsp, 32)?;
    a.mov(ecx, dword_ptr(rbp + SIGINFO_CODE))?;
    a.cmp(ecx, 0)?;
    a.jle(again)?;
    a.cmp(ecx, SI_KERNEL)?;
    a.jge(again)?;
    a.cmp(ebx, SIGBUS)?;
    a.jne(end)?;
    a.cmp(ecx, BUS_MCEERR_AO)?;
    a.jne(end)?;
    a.set_label(&mut again)?;
    a.mov(eax, libc::SYS_getpid as i32)?;
    a.syscall()?;
    a.mov(r12, rax)?;
    a.mov(eax, libc::SYS_gettid as i32)?;
    a.syscall()?;
    a.mov(rdi, r12)?;
    a.mov(rsi, rax)?;
    a.mov(edx, ebx)?;
    a.mov(r10, rbp)?;
    a.mov(eax, libc::SYS_rt_tgsigqueueinfo as i32)?;
    a.syscall()?;
    a.set_label(&mut end)?;
    a.ret()
}

impl Runtime {
    /// Puts the copy and the handler into the process, for helpers, without effect so far. Returns the addresses of
    /// both.
    pub fn load_guard(&mut self) -> Result<(u64, u64)> {
        // The process may keep the handler's address wherever it likes.
        let address = self.kept_code(None, BYTES)?;
        let (guard, bytes) = Guard::assemble(address).map_err(|error| Error::Code {
            what: "the guarded copy".into(),
            reason: error.to_string(),
        })?;
        check_length("the guarded copy", bytes.len(), BYTES as usize)?;
        self.pending.push(Write { address, bytes });
        self.guard = Some(guard);
        Ok((guard.copy, guard.handler))
    }

    /// Makes it the process's handler, up to this runtime's end, or the tool's. Where it can't be, helpers do without.
    pub fn install_guard(&mut self) -> Result<()> {
        let Some(guard) = self.guard else {
            return Ok(());
        };
        let session = self.stop()?;
        let scratch = self.areas.layout.base + STATE_SCRATCH;
        let rt_sigaction = |signal: i32, new, old| {
            let arguments = [signal as u64, new, old, 8, 0, 0];
            session.call("rt_sigaction", libc::SYS_rt_sigaction, arguments)
        };
        let mut old = self.tracer.old_handlers();
        for (signal, old) in SIGNALS.into_iter().zip(&mut old) {
            rt_sigaction(signal, 0, scratch)?;
            let now = Action::read(&self.memory, scratch)?;
            // Ours is there where this failed halfway before: it must not lead to itself.
            if now.handler != guard.handler {
                *old = now;
            }
        }
        let [Some(segv), Some(bus)] = old.map(|old| guard.action(old)) else {
            return session.finish();
        };
        for (at, old) in [guard.old, guard.old + 8].into_iter().zip(old) {
            let next = match old.handler as usize {
                libc::SIG_DFL => guard.default,
                _ => old.handler,
            };
            let bytes = next.to_le_bytes().to_vec();
            self.pending.push(Write { address: at, bytes });
        }
        self.write_code(&session)?;
        self.tracer.set_handlers(scratch, guard.handler, old);
        for (signal, new) in SIGNALS.into_iter().zip([segv, bus]) {
            self.memory.write(scratch, &new.to_bytes())?;
            match rt_sigaction(signal, scratch, 0) {
                Err(Error::Remote { .. }) => break,
                other => drop(other?),
            }
        }
        session.finish()
    }
}
