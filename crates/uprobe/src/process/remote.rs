//! System calls made by a stopped thread.
//!
//! The thread executes a `syscall` instruction that its process already has (the vdso's), from one system-call stop
//! to the next, never by single steps. Its signals are blocked meanwhile, so that no handler sees registers that
//! aren't the thread's own. At the end, mask and registers are as they were, and the thread is in
//! `PTRACE_EVENT_STOP` again, from where the kernel restarts a system call that the stop interrupted.

#![allow(unsafe_code, reason = "nix has no PTRACE_GETSIGMASK")]

use super::{
    error::{Error, Result},
    maps::mappings,
    memory::Memory,
    priority::Priority,
    stopped::{Registers, Stop, Stopped},
};
use nix::{errno::Errno, unistd::Pid};
use std::io;

/// The bytes of `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Values from here on are errors, negated.
const ERRORS: u64 = -4095_i64 as u64;

/// A thread that makes system calls for us.
#[derive(Debug)]
pub struct Remote<'a> {
    stopped: &'a Stopped,
    tid: i32,
    /// Address of a `syscall` instruction.
    instruction: u64,
    registers: Registers,
    mask: u64,
    /// SIGSTOP can't be blocked: it is sent again at the end.
    was_sent_stop: bool,
    restored: bool,
    /// No threads are made, but this one competes with the process's others, where those go on.
    _priority: Priority,
}

impl<'a> Remote<'a> {
    /// Makes a stopped thread ready.
    pub fn new(stopped: &'a Stopped, memory: &Memory) -> Result<Self> {
        let (tid, registers) = stopped
            .threads_of_user()
            .next()
            .transpose()?
            .ok_or(Error::Gone { pid: stopped.pid() })?;
        let instruction = instruction(stopped.pid(), memory)?;
        if registers.cs != 0x33 {
            return Err(Error::Architecture { pid: stopped.pid() });
        }
        let mask = signal_mask(tid).map_err(|error| stopped.error("PTRACE_GETSIGMASK", error))?;
        set_signal_mask(tid, u64::MAX)
            .map_err(|error| stopped.error("PTRACE_SETSIGMASK", error))?;
        Ok(Remote {
            stopped,
            tid,
            instruction,
            registers,
            mask,
            was_sent_stop: false,
            restored: false,
            _priority: Priority::raise(tid),
        })
    }

    /// Makes one system call, whose name is for errors. Returns what it returns.
    pub fn call(
        &mut self,
        name: &'static str,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<u64> {
        let pid = self.stopped.pid();
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rax: number as u64,
            orig_rax: u64::MAX, // No system call, so that none is restarted.
            rip: self.instruction,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        self.stopped.set_registers(self.tid, registers)?;
        self.next()?;
        let entered = self.stopped.registers(self.tid)?;
        if entered.orig_rax != number as u64 {
            let reason = format!(
                "entered system call {} instead of {number}",
                entered.orig_rax as i64
            );
            return Err(Error::Code {
                what: name.into(),
                reason,
            });
        }
        self.next()?;
        match self.stopped.registers(self.tid)?.rax {
            value @ ERRORS.. => {
                let source = io::Error::from_raw_os_error(value.wrapping_neg() as i32);
                Err(Error::Remote {
                    pid,
                    call: name,
                    source,
                })
            }
            value => Ok(value),
        }
    }

    /// Gives the thread its own registers and signals back.
    pub fn finish(mut self) -> Result<()> {
        self.restore()
    }

    /// Goes on to the next stop of a system call.
    fn next(&mut self) -> Result<()> {
        self.stopped.resume(self.tid, libc::PTRACE_SYSCALL, 0)?;
        loop {
            match self.stopped.wait_running(self.tid)? {
                Stop::SystemCall => return Ok(()),
                Stop::Dead => {
                    return Err(Error::Gone {
                        pid: self.stopped.pid(),
                    });
                }
                Stop::Signal(signal) => self.was_sent_stop |= signal == libc::SIGSTOP,
                Stop::Interrupted | Stop::Other => {}
            }
            self.stopped.resume(self.tid, libc::PTRACE_SYSCALL, 0)?;
        }
    }

    fn restore(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.restored, true) {
            return Ok(());
        }
        // From the exit of a system call, the kernel would return to user space with the number of an error that
        // only it must see (ERESTARTSYS). From PTRACE_EVENT_STOP, it restarts the call.
        self.stopped.set_registers(self.tid, self.registers)?;
        loop {
            self.stopped.interrupt(self.tid)?;
            self.stopped.resume(self.tid, libc::PTRACE_CONT, 0)?;
            match self.stopped.wait_running(self.tid)? {
                Stop::Interrupted => break,
                Stop::Dead => {
                    return Err(Error::Gone {
                        pid: self.stopped.pid(),
                    });
                }
                Stop::Signal(signal) => self.was_sent_stop |= signal == libc::SIGSTOP,
                Stop::SystemCall | Stop::Other => {}
            }
        }
        self.stopped.set_registers(self.tid, self.registers)?;
        set_signal_mask(self.tid, self.mask)
            .map_err(|error| self.stopped.error("PTRACE_SETSIGMASK", error))?;
        if self.was_sent_stop {
            let _ = nix::sys::signal::kill(
                Pid::from_raw(self.stopped.pid()),
                nix::sys::signal::Signal::SIGSTOP,
            );
        }
        Ok(())
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // An error here means that the thread is gone.
        let _ = self.restore();
    }
}

/// The address of a `syscall` instruction: the vdso's, else that of any code.
fn instruction(pid: i32, memory: &Memory) -> Result<u64> {
    let all = mappings(pid)?;
    if all.is_empty() {
        // It is about to die.
        return Err(Error::Gone { pid });
    }
    let vdso = all.iter().filter(|mapping| mapping.name == "[vdso]");
    let others = all.iter().filter(|mapping| mapping.inode != 0);
    for mapping in vdso.chain(others).filter(|mapping| mapping.is_executable()) {
        let code = memory.read_vec(mapping.start, (mapping.end - mapping.start) as usize)?;
        if let Some(at) = code.windows(2).position(|pair| pair == SYSCALL) {
            return Ok(mapping.start + at as u64);
        }
    }
    if memory.is_gone() {
        // It died while its mappings were listed.
        return Err(Error::Gone { pid });
    }
    let reason = "it has no syscall instruction".to_owned();
    Err(Error::Unpatchable {
        function: format!("process {pid}"),
        reason,
    })
}

fn signal_mask(tid: i32) -> Result<u64, Errno> {
    let mut mask = 0_u64;
    // SAFETY: the kernel writes a signal set of 8 bytes, as the third argument says, to `mask`.
    Errno::result(unsafe {
        libc::ptrace(
            libc::PTRACE_GETSIGMASK,
            tid,
            size_of::<u64>(),
            &raw mut mask,
        )
    })?;
    Ok(mask)
}

fn set_signal_mask(tid: i32, mask: u64) -> Result<(), Errno> {
    // SAFETY: the kernel reads a signal set of 8 bytes, as the third argument says, from `mask`.
    Errno::result(unsafe {
        libc::ptrace(
            libc::PTRACE_SETSIGMASK,
            tid,
            size_of::<u64>(),
            &raw const mask,
        )
    })?;
    Ok(())
}
