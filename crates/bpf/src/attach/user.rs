//! User-space events: calls of a small function of this program, which another process makes, a fork of this one.
//! Probes are placed at its first instruction, or at its return.
//!
//! The loop is the same with and without a probe, and whether the probe is the kernel's or in the process itself.
//! The kernel's are placed in `/proc/self/exe`, which leads to the program that runs, also where its file has been
//! replaced or removed since; for that process alone.

use std::rc::{Rc, Weak};

use bpfcost_uprobe::{
    probes::{At, Place},
    process::{Function, TailJump},
};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, libbpf_sys as sys};

use super::{
    Attach, Attachment, BatchRequest, BatchResult, Driver, Events, ProgramKind, Trouble,
    caller::Caller,
    user_programs::{UserAttachment, UserProgram},
};
use crate::{
    cpu,
    error::{Error, Result, failed},
    routine::{self, PROGRAM, Routine, SITE_BYTES},
};

const PROVIDER: &str = "bpfcost";

/// Calls after attaching that are not timed: what the kernel makes at the first hits (the area where it
/// executes replaced instructions, the trampoline that takes a breakpoint's place) is there then.
const FIRST_CALLS: u64 = 10;

/// Code put at a probe's site while it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiteCode {
    /// A breakpoint.
    Int3,
    /// A call, in place of a `nop` of five bytes: Linux 6.18 puts it there after the first hit. Later kernels do
    /// not, for it writes a return address below the stack pointer, where the function may keep something.
    Call,
    /// Room on the stack, and a call: in place of a `nop` of ten bytes, on Linux 7.2.
    LeaCall,
    /// A jump to the program, in the process itself.
    Jump,
}

impl SiteCode {
    /// All of them.
    pub const ALL: [SiteCode; 4] = [
        SiteCode::Int3,
        SiteCode::Call,
        SiteCode::LeaCall,
        SiteCode::Jump,
    ];

    /// As a disassembler would write it.
    pub fn name(self) -> &'static str {
        match self {
            SiteCode::Int3 => "int3",
            SiteCode::Call => "call",
            SiteCode::LeaCall => "lea+call",
            SiteCode::Jump => "jmp",
        }
    }

    /// Identifies the code that stands there; `None` where the kernel placed nothing that is known.
    fn at(code: &[u8]) -> Option<Self> {
        match code {
            [0xcc, ..] => Some(SiteCode::Int3),
            [0xe8, ..] => Some(SiteCode::Call),
            [0xe9, ..] => Some(SiteCode::Jump),
            // lea rsp, [rsp - 0x80]; call
            [0x48, 0x8d, 0x64, 0x24, 0x80, 0xe8, ..] => Some(SiteCode::LeaCall),
            _ => None,
        }
    }
}

/// A driver that has a routine called.
pub(super) struct UserCalls {
    driver: Driver,
    routine: Routine,
    caller: Rc<Caller>,
    /// Offset of the routine in the program's file.
    offset: usize,
    /// The routine's code before any probe, and what is alive while one is attached.
    original: [u8; SITE_BYTES],
    attached: Weak<()>,
}

impl UserCalls {
    pub(super) fn new(driver: Driver, routine: Routine) -> Result<Self> {
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
        let caller = Rc::new(Caller::start()?);
        let original = caller.code(routine)?;
        let calls = UserCalls {
            driver,
            routine,
            caller,
            offset,
            original,
            attached: Weak::new(),
        };
        calls.first_calls()?;
        Ok(calls)
    }

    fn first_calls(&self) -> Result<()> {
        let request = BatchRequest {
            events: FIRST_CALLS,
            cpu: cpu::current_cpu(),
            after_tick: false,
        };
        self.caller.time(self.routine, &request).map(drop)
    }

    /// Fails if the code is changed while no probe is attached: a floor is the cost of just that code. Five bytes are
    /// enough: the kernel (7.2) removes its call from a `nop` of ten through these alone, and what it leaves in the
    /// others is the operand of the same `nop`.
    fn untouched(&self) -> Result<()> {
        let code = self.caller.code(self.routine)?;
        if self.attached.strong_count() == 0 && code[..5] != self.original[..5] {
            return Err(Error::Refused(format!(
                "a probe was detached, and the code of {} differs from before: {:02x?}, now \
                 {code:02x?}",
                self.driver, self.original
            )));
        }
        Ok(())
    }

    /// A probe that was attached just now, to this code. Call it after the first hits. What becomes of a site differs
    /// between kernels, so its state is read, and must not change.
    fn attached<A>(&mut self, held: A, before: [u8; SITE_BYTES]) -> Result<RoutineProbe<A>> {
        self.first_calls()?;
        let code = self.caller.code(self.routine)?;
        let probe = RoutineProbe {
            held,
            alive: Rc::new(()),
            routine: self.routine,
            caller: Rc::clone(&self.caller),
            code,
            placed: placed(&before, &code).unwrap_or(SiteCode::Int3),
        };
        self.attached = Rc::downgrade(&probe.alive);
        Ok(probe)
    }
}

impl Events for UserCalls {
    fn attach(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        self.driver.owns(attach)?;
        let before = self.caller.code(self.routine)?;
        let pid = self.caller.pid();
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
        Ok(Box::new(self.attached(UprobeLink { _link: link }, before)?))
    }

    fn attach_inside(
        &mut self,
        attach: Attach,
        program: &UserProgram<'_>,
    ) -> Result<Box<dyn Attachment>> {
        self.driver.owns(attach)?;
        // An earlier uprobe may have left bytes in it.
        let before = self.caller.code(self.routine)?;
        let at = match attach.kind() {
            ProgramKind::Usdt => At::Inside {
                offset: 0,
                semaphore: None,
            },
            _ if attach.at_return() => At::Return,
            _ => At::Entry,
        };
        let (code, padding) = self.original.split_at(self.routine.length());
        let address = routine::address(self.routine) as u64;
        let function = Function {
            name: self.driver.name().to_owned(),
            address,
            code: code.to_vec(),
            padding: padding.to_vec(),
            is_go: false,
            entrances: Vec::new(),
            // The routines are our own: nothing leads into them, and no exception passes where one jumps to.
            is_described: true,
            tail_jumps: Vec::from_iter(self.routine.tail_jump().map(|offset| TailJump {
                address: address + offset,
                obstacle: None,
            })),
        };
        let place = Place {
            program: program.name,
            function: &function,
            at,
            cookie: 0,
        };
        let held = UserAttachment::attach(program.probes, self.caller.pid(), &place)?;
        Ok(Box::new(self.attached(held, before)?))
    }

    fn batch_of_threads(&mut self, events: u64, cpus: &[u32]) -> Result<u64> {
        self.untouched()?;
        self.caller.time_threads(self.routine, events, cpus)
    }

    fn process(&self) -> Option<i32> {
        Some(self.caller.pid())
    }

    fn batch(&mut self, ask: &BatchRequest) -> Result<BatchResult> {
        self.untouched()?;
        self.caller.time(self.routine, ask)
    }
}

/// A uprobe. No kernel counts what it misses, and that of a static probe is several links in one.
struct UprobeLink {
    _link: Link,
}

impl Attachment for UprobeLink {}

/// A probe at a routine.
struct RoutineProbe<A> {
    /// The attachment: dropping it detaches the probe.
    held: A,
    alive: Rc<()>,
    routine: Routine,
    caller: Rc<Caller>,
    code: [u8; SITE_BYTES],
    placed: SiteCode,
}

impl<A: Attachment> Attachment for RoutineProbe<A> {
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        let code = self.caller.code(self.routine)?;
        Ok((code != self.code).then(|| Trouble {
            check: "the instruction at the site",
            expected: format!("{} ({:02x?})", self.placed.name(), self.code),
            got: format!("{code:02x?}"),
        }))
    }

    fn placed(&self) -> Option<SiteCode> {
        Some(self.placed)
    }

    fn missed(&mut self) -> Result<u64> {
        self.held.missed()
    }
}

/// Identifies the code placed, from the first changed byte on; from the whole jump, where one leads elsewhere now.
fn placed(original: &[u8], code: &[u8]) -> Option<SiteCode> {
    let changed = original.iter().zip(code).position(|(was, is)| was != is)?;
    let is_jump = |at: &usize| SiteCode::at(&original[*at..]) == Some(SiteCode::Jump);
    let jump = (changed.saturating_sub(4)..changed).find(is_jump);
    SiteCode::at(&code[jump.unwrap_or(changed)..])
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
        // At the return of a function of two bytes.
        let jump = [0x90, 0xe9, 1, 2, 3, 4];
        assert_eq!(
            placed(&[0x90, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc], &jump),
            Some(SiteCode::Jump)
        );
        assert_eq!(placed(&jump, &jump), None);
        // A jump that was there, and leads elsewhere: all of its target changed, or a part.
        for now in [[5, 6, 7, 8], [1, 2, 7, 8]] {
            let now = [&[0x5d, 0xe9], now.as_slice()].concat();
            let jumped = placed(&[0x5d, 0xe9, 1, 2, 3, 4], &now);
            assert_eq!(jumped, Some(SiteCode::Jump));
        }
    }
}
