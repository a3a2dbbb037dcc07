//! The programs of `bpf/sites.bpf.c` for one mechanism: one, or one for each function where the kernel wants to know the
//! function at load time.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

use libbpf_rs::{ProgramMut, libbpf_sys as sys};
use rustix::io::Errno;

use super::Mechanism;
use crate::{
    cpu::current_cpu,
    error::{Result, failed},
    object::{NamedObject, OpenNamed},
    run, stats,
};

const NOTE_CALLER: &str = "note_caller";

/// The thread and function whose runs are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// The thread, in the kernel's numbering.
    pub(super) caller: u64,
    /// The address of the function; 0 for every site.
    pub(super) witness: u64,
}

impl Counted {
    /// Runs for the calling thread.
    pub(super) fn here() -> Result<Self> {
        let mut open = OpenNamed::open("sites")?;
        open.with(NOTE_CALLER)?;
        let object = open.load()?;
        run::on_cpu(&object.runnable(NOTE_CALLER)?, current_cpu(), &[])?;
        let caller = object.globals.get("caller")?;
        Ok(Counted { caller, witness: 0 })
    }
}

/// Loaded programs. Dropping them frees them.
pub(super) struct SitePrograms {
    mechanism: Mechanism,
    object: NamedObject,
    /// The same program for further functions.
    clones: Vec<OwnedFd>,
}

impl SitePrograms {
    /// Loads the program; where it is loaded for a function, for `target`.
    pub(super) fn load(mechanism: Mechanism, target: Option<&str>) -> Result<Self> {
        let mut open = OpenNamed::open("sites")?;
        open.with(name(mechanism))?;
        open.change_program(name(mechanism), |program| {
            mechanism.attach().aim_at(program, target)
        })?;
        Ok(SitePrograms {
            mechanism,
            object: open.load()?,
            clones: Vec::new(),
        })
    }

    /// Loads it again for each of these functions, by their numbers in the kernel's BTF. They share its variables.
    pub(super) fn load_for(&mut self, functions: &[u32]) -> Result<()> {
        for &function in functions {
            let clone = load_for(&self.program()?, self.mechanism, function);
            let clone = clone.map_err(failed(
                format!("{}, function {function} of the BTF", self.mechanism),
                "loading a program for it",
            ))?;
            self.clones.push(clone);
        }
        Ok(())
    }

    /// Returns true if the kernel loads it for this function. An error means that the question had no answer.
    pub(super) fn takes(&self, function: u32) -> Result<bool> {
        match load_for(&self.program()?, self.mechanism, function) {
            Ok(_) => Ok(true),
            Err(Errno::INVAL | Errno::NOENT | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(failed(
                format!("{}, function {function} of the BTF", self.mechanism),
                "asking whether a program can be loaded for it",
            )(error)),
        }
    }

    pub(super) fn program(&self) -> Result<ProgramMut<'_>> {
        self.object.program(name(self.mechanism))
    }

    /// Those that were loaded again.
    pub(super) fn clones(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.clones.iter().map(AsFd::as_fd)
    }

    /// Sets the thread and function whose runs are counted.
    pub(super) fn count(&mut self, counted: Counted) -> Result<()> {
        self.object.globals.set("caller", counted.caller)?;
        self.object.globals.set("witness", counted.witness)
    }

    /// Runs that counted so far.
    pub(super) fn hits(&self) -> u64 {
        self.object.globals.get("hits").unwrap_or(0)
    }

    /// The address of the function of the last one.
    pub(super) fn last(&self) -> u64 {
        self.object.globals.get("last").unwrap_or(0)
    }

    /// The kernel's numbers of all of them.
    pub(super) fn numbers(&self) -> Result<Vec<u32>> {
        let first = stats::number(&self.program()?)?;
        let clones = self.clones.iter().map(stats::number);
        std::iter::once(Ok(first)).chain(clones).collect()
    }
}

fn name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Kprobe | Mechanism::KprobeMulti => "on_kprobe",
        Mechanism::Fentry | Mechanism::FentryMulti => "on_fentry",
        Mechanism::Uprobe | Mechanism::UprobeMulti => "on_uprobe",
        Mechanism::Tracepoint => "on_tracepoint",
        Mechanism::Tcx => "on_tcx",
        Mechanism::Xdp => "on_xdp",
    }
}

/// Loads a loaded program again, for another function.
fn load_for(
    program: &ProgramMut<'_>,
    mechanism: Mechanism,
    function: u32,
) -> std::result::Result<OwnedFd, Errno> {
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        expected_attach_type: mechanism.attach().expected(),
        attach_btf_id: function,
        ..Default::default()
    };
    // Once loaded, they name the object's maps by their descriptors.
    let instructions = program.insns();
    // SAFETY: name, licence, instructions and options outlive the call, and are as long as is said.
    let answer = unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_TRACING,
            c"on_fentry".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            &mut options,
        )
    };
    if answer < 0 {
        return Err(Errno::from_raw_os_error(-answer));
    }
    // SAFETY: not negative, it is a descriptor that the kernel opened for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}
