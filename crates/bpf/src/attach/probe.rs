//! The loaded programs of one attach type, and what their runs left.

#![allow(unsafe_code)]

use libbpf_rs::{
    AsRawLibbpf as _, OpenProgramMut, ProgramMut, ProgramType, libbpf_sys as sys,
    skel::{OpenSkel as _, Skel as _, SkelBuilder as _},
};

use super::{Attach, Body, Driver, Kind, Maps};
use crate::{
    error::{Error, Result},
    feature::{TRACE_FENTRY_MULTI, TRACE_FEXIT_MULTI, TRACE_FSESSION_MULTI},
    object::Owned,
    skel::probe::{OpenProbeSkel, ProbeSkel, ProbeSkelBuilder, types},
    stats::RunStats,
    timing::{fetch, store},
};

/// Programs of one attach type, one a body.
pub struct Probe {
    attach: Attach,
    skeleton: Owned<ProbeSkel<'static>>,
}

/// What runs of a program left, since the counts began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Runs of the body.
    pub hits: u64,
    /// Events that the ring buffer had no room for.
    pub drops: u64,
    /// Refusals of a helper.
    pub errors: u64,
    /// The number of the last stack; negative where none was taken.
    pub stack_id: i64,
    /// Runs for other functions than the one asked for, where a type is attached to all.
    pub strangers: u64,
}

impl Probe {
    /// Loads the programs with these bodies.
    pub fn load(attach: Attach, bodies: &[Body], maps: &Maps) -> Result<Self> {
        let names: Vec<String> = bodies.iter().map(|&body| name(attach, body)).collect();
        let skeleton = Owned::new("probe", |storage| {
            let mut open = ProbeSkelBuilder::default().open(storage)?;
            maps.lend(&mut open)?;
            choose(&mut open, attach, &names)?;
            open.load()
        })?;
        Ok(Probe { attach, skeleton })
    }

    /// How its programs are attached.
    pub fn attach(&self) -> Attach {
        self.attach
    }

    /// The program with that body.
    pub fn program(&self, body: Body) -> Result<ProgramMut<'_>> {
        let wanted = name(self.attach, body);
        let mut programs = self.skeleton.object().progs_mut();
        programs
            .find(|program| program.autoload() && program.name().to_string_lossy() == wanted)
            .ok_or(Error::NotLoaded(wanted))
    }

    /// Tells programs that are attached to all functions which one's hits count.
    pub(super) fn count_only(&mut self, function: u64) {
        if let Some(bss) = self.bss() {
            store(&mut bss.function, function);
        }
    }

    /// Lets the counts begin again.
    pub fn forget(&mut self) {
        if let Some(bss) = self.bss() {
            for count in [
                &mut bss.hits,
                &mut bss.drops,
                &mut bss.errors,
                &mut bss.strangers,
            ] {
                store(count, 0);
            }
            store(&mut bss.stack_id, -1);
        }
    }

    /// What runs left since then.
    pub fn seen(&self) -> Seen {
        let Some(bss) = self.skeleton.maps.bss_data.as_deref() else {
            return Seen::default();
        };
        Seen {
            hits: fetch(&bss.hits),
            drops: fetch(&bss.drops),
            errors: fetch(&bss.errors),
            stack_id: fetch(&bss.stack_id),
            strangers: fetch(&bss.strangers),
        }
    }

    /// What the kernel wrote down of a program's runs so far.
    pub fn run_stats(&self, body: Body) -> Result<RunStats> {
        RunStats::of(&self.program(body)?)
    }

    fn bss(&mut self) -> Option<&mut types::bss> {
        self.skeleton.maps.bss_data.as_deref_mut()
    }
}

fn name(attach: Attach, body: Body) -> String {
    format!("{}__{}", attach.kind().prefix(), body.suffix())
}

/// Has the named programs loaded, for that attach type, and no others.
fn choose(open: &mut OpenProbeSkel<'_>, attach: Attach, names: &[String]) -> libbpf_rs::Result<()> {
    for mut program in open.open_object_mut().progs_mut() {
        let chosen = names.iter().any(|name| program.name() == name.as_str());
        program.set_autoload(chosen);
        if chosen {
            aim(&mut program, attach)?;
        }
    }
    Ok(())
}

/// Sets what a program is to be attached to, where the kernel wants to know when it loads it.
fn aim(program: &mut OpenProgramMut<'_>, attach: Attach) -> libbpf_rs::Result<()> {
    let expected = match attach {
        Attach::KprobeMulti | Attach::KprobeMultiAll | Attach::KretprobeMulti => {
            sys::BPF_TRACE_KPROBE_MULTI
        }
        Attach::KprobeSession => sys::BPF_TRACE_KPROBE_SESSION,
        Attach::UprobeMulti | Attach::UretprobeMulti => sys::BPF_TRACE_UPROBE_MULTI,
        Attach::UprobeSession => sys::BPF_TRACE_UPROBE_SESSION,
        Attach::Fentry => sys::BPF_TRACE_FENTRY,
        Attach::Fexit => sys::BPF_TRACE_FEXIT,
        Attach::Fsession => sys::BPF_TRACE_FSESSION,
        Attach::FmodRet | Attach::FmodRetSecurity => sys::BPF_MODIFY_RETURN,
        Attach::TpBtf | Attach::TpBtfPrintk => sys::BPF_TRACE_RAW_TP,
        Attach::FentryMulti => TRACE_FENTRY_MULTI,
        Attach::FexitMulti => TRACE_FEXIT_MULTI,
        Attach::FsessionMulti => TRACE_FSESSION_MULTI,
        _ => return target(program, attach),
    };
    // SAFETY: the program is open, and not loaded yet. libbpf-rs has no names for the newest types.
    let answer = unsafe {
        sys::bpf_program__set_expected_attach_type(program.as_libbpf_object().as_ptr(), expected)
    };
    if answer < 0 {
        return Err(libbpf_rs::Error::from_raw_os_error(-answer));
    }
    target(program, attach)
}

/// Names what of the kernel's BTF a program is for.
fn target(program: &mut OpenProgramMut<'_>, attach: Attach) -> libbpf_rs::Result<()> {
    match (attach.kind(), attach) {
        // Which functions is said by the link alone. libbpf insists on one by the name of the section,
        // which it forgets when the type changes.
        (_, Attach::FentryMulti | Attach::FexitMulti | Attach::FsessionMulti) => {
            program.set_prog_type(ProgramType::Unspec);
            program.set_prog_type(ProgramType::Tracing);
            Ok(())
        }
        (Kind::Tracing, Attach::TpBtf | Attach::TpBtfPrintk) => {
            program.set_attach_target(0, attach.driver().tracepoint().map(str::to_owned))
        }
        (Kind::Tracing | Kind::Security, _) => {
            program.set_attach_target(0, attach.driver().function().map(str::to_owned))
        }
        (Kind::Lsm, _) => program.set_attach_target(0, Some("bpf".to_owned())),
        _ => Ok(()),
    }
}

impl Driver {
    /// The kernel's function that is called for each event, where there is one to attach to.
    pub(super) fn function(self) -> Option<&'static str> {
        match self {
            Driver::Helper => Some("bpf_get_numa_node_id"),
            Driver::Kfunc => Some("bpf_modify_return_test_tp"),
            Driver::SysBpf => Some("security_bpf"),
            _ => None,
        }
    }

    /// The tracepoint in it.
    pub(super) fn tracepoint(self) -> Option<&'static str> {
        match self {
            Driver::Kfunc => Some("bpf_trigger_tp"),
            Driver::Printk => Some("bpf_trace_printk"),
            _ => None,
        }
    }
}
