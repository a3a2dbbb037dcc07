//! User-space events: calls of a small function of this program. Probes are placed at its first instruction.
//!
//! The loop is the same with and without a probe. Probes are placed in `/proc/self/exe`, which leads to
//! the program that runs, also where its file has been replaced or removed since; for this process alone.

use std::{
    process,
    rc::{Rc, Weak},
};

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, libbpf_sys as sys};

use super::{
    Attach, Attachment, BatchRequest, BatchResult, Driver, Events, ProgramKind, Trouble, stopwatch,
};
use crate::{
    error::{Error, Result, failed},
    routine::{self, PROGRAM, Routine, SITE_BYTES},
};

const PROVIDER: &str = "bpfcost";

/// Calls after attaching that are not timed: what the kernel makes at the first hits (the area where it
/// executes replaced instructions, the trampoline that takes a breakpoint's place) is there then.
const FIRST_CALLS: u64 = 10;

/// What the kernel puts at a probe's site while it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiteCode {
    /// A breakpoint.
    Int3,
    /// A call, in place of a `nop` of five bytes: Linux 6.18 puts it there after the first hit. Later kernels do
    /// not, for it writes a return address below the stack pointer, where the function may keep something.
    Call,
    /// Room on the stack, and a call: in place of a `nop` of ten bytes, on Linux 7.2.
    LeaCall,
}

impl SiteCode {
    /// All of them.
    pub const ALL: [SiteCode; 3] = [SiteCode::Int3, SiteCode::Call, SiteCode::LeaCall];

    /// As a disassembler would write it.
    pub fn name(self) -> &'static str {
        match self {
            SiteCode::Int3 => "int3",
            SiteCode::Call => "call",
            SiteCode::LeaCall => "lea+call",
        }
    }

    /// By the code that stands there; `None` where the kernel placed nothing that is known.
    fn at(code: &[u8]) -> Option<Self> {
        match code {
            [0xcc, ..] => Some(SiteCode::Int3),
            [0xe8, ..] => Some(SiteCode::Call),
            // lea rsp, [rsp - 0x80]; call
            [0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8, ..] => Some(SiteCode::LeaCall),
            _ => None,
        }
    }
}

/// A driver that calls a routine.
pub(super) struct UserCalls {
    driver: Driver,
    routine: Routine,
    /// Where the routine lies in the program's file.
    offset: usize,
    /// Its code before any probe, and what is alive while one is attached.
    original: [u8; SITE_BYTES],
    attached: Weak<()>,
}

impl UserCalls {
    pub(super) fn of(driver: Driver, routine: Routine) -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Error::Refused(format!(
                "{driver} calls functions written for x86-64, and this machine is {}",
                std::env::consts::ARCH
            )));
        }
        let offset = routine::file_offset(routine).map_err(failed(
            driver.name(),
            "looking its function up in /proc/self/maps",
        ))?;
        routine::call(routine, FIRST_CALLS);
        Ok(UserCalls {
            driver,
            routine,
            offset,
            original: routine::code(routine),
            attached: Weak::new(),
        })
    }

    /// Fails if the code is changed while no probe is attached: a floor is the cost of just that code. Five bytes are
    /// enough: the kernel (7.2) removes its call from a `nop` of ten through these alone, and what it leaves in the
    /// others is the operand of the same `nop`.
    fn untouched(&self) -> Result<()> {
        let code = routine::code(self.routine);
        if self.attached.strong_count() == 0 && code[..5] != self.original[..5] {
            return Err(Error::Refused(format!(
                "a probe was detached, and the code of {} differs from before: {:02x?}, now \
                 {code:02x?}",
                self.driver, self.original
            )));
        }
        Ok(())
    }
}

impl Events for UserCalls {
    fn attach(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        self.driver.owns(attach)?;
        let pid = process::id() as i32;
        let many = |retprobe, session| {
            let options = UprobeMultiOpts {
                offsets: vec![self.offset],
                retprobe,
                session,
                ..Default::default()
            };
            program.attach_uprobe_multi_with_opts(pid, PROGRAM, "", options)
        };
        let at_return = attach.at_return();
        let link = match (attach.kind(), attach.expected()) {
            (ProgramKind::Usdt, _) => {
                program.attach_usdt(pid, PROGRAM, PROVIDER, self.routine.usdt())
            }
            (_, sys::BPF_TRACE_UPROBE_MULTI) => many(at_return, false),
            (_, sys::BPF_TRACE_UPROBE_SESSION) => many(at_return, true),
            _ => program.attach_uprobe(at_return, pid, PROGRAM, self.offset),
        };
        let link = link.map_err(failed(attach.name(), "attaching it"))?;
        routine::call(self.routine, FIRST_CALLS);
        let site = RoutineProbe::now(link, self.routine);
        self.attached = Rc::downgrade(&site.alive);
        Ok(Box::new(site))
    }

    fn batch(&mut self, ask: &BatchRequest) -> Result<BatchResult> {
        self.untouched()?;
        stopwatch::time(ask, || {
            routine::call(self.routine, ask.events);
            Ok(())
        })
    }
}

/// A probe at a routine.
struct RoutineProbe {
    _link: Link,
    alive: Rc<()>,
    routine: Routine,
    placed: SiteCode,
}

impl RoutineProbe {
    /// Call it after the first hits. What becomes of a site differs between kernels, so its state is read, and
    /// must not change.
    fn now(link: Link, routine: Routine) -> Self {
        RoutineProbe {
            _link: link,
            alive: Rc::new(()),
            routine,
            placed: SiteCode::at(&routine::code(routine)).unwrap_or(SiteCode::Int3),
        }
    }
}

impl Attachment for RoutineProbe {
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        let code = routine::code(self.routine);
        let got = SiteCode::at(&code);
        Ok((got != Some(self.placed)).then(|| Trouble {
            check: "the instruction that the kernel placed",
            expected: self.placed.name().to_owned(),
            got: got.map_or_else(|| format!("{code:02x?}"), |placed| placed.name().to_owned()),
        }))
    }

    fn placed(&self) -> Option<SiteCode> {
        Some(self.placed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_placed_is_known_by_its_bytes() {
        let lea_call = [0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8, 1, 2, 3, 4];
        assert_eq!(SiteCode::at(&lea_call), Some(SiteCode::LeaCall));
        assert_eq!(SiteCode::at(&lea_call[5..]), Some(SiteCode::Call));
        assert_eq!(
            SiteCode::at(&[0xcc, 0x1f, 0x44, 0, 0]),
            Some(SiteCode::Int3)
        );
        assert_eq!(SiteCode::at(&[0x90, 0xc3]), None);
    }
}
