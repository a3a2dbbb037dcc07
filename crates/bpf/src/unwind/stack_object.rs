//! An object whose programs take stacks, loaded: its rules are kept those of the modules that the kernel has.

use libbpf_rs::Link;

use super::{KernelSymbols, RuleTable, Unwinder, kernel::modules_are_changing};
use crate::{
    attach::AttachMethod,
    error::{Error, Result},
    object::{NamedObject, OpenNamed},
};

/// Programs of `bpf/unwind_modules.bpf.h`, which note that modules come and go, and the tracepoints that they are for.
const MODULE_PROGRAMS: [(&str, &str); 2] = [
    ("on_module_load", "module_load"),
    ("on_module_free", "module_free"),
];

/// Most times that the rules are not read anew because a module is being loaded or unloaded. One that hangs there must
/// not make all stacks stale for ever.
const MAX_WAITS: u32 = 50;

/// The object. Dropping it detaches the programs of modules.
pub(crate) struct StackObject {
    modules: Vec<Link>,
    /// Times that the rules were not read anew since modules came or went.
    waits: u32,
    /// `None` where the kernel's helper takes the stacks.
    pub(crate) unwinder: Option<Unwinder>,
    pub(crate) object: NamedObject,
}

impl StackObject {
    /// Loads an object, with a program aimed at an event. Without rules, the kernel's helper takes the stacks.
    pub(crate) fn load(
        mut open: OpenNamed,
        (method, event): (AttachMethod, &str),
        rules: Option<&RuleTable>,
    ) -> Result<Self> {
        if let Some(rules) = rules {
            Unwinder::size(open.object(), rules)?;
        }
        let object = open.load_aimed(stack_program(method)?, method, event)?;
        let unwinder = rules.map(|rules| Unwinder::fill(object.object(), rules));
        let unwinder = unwinder.transpose()?;
        // Kernels without modules have no such tracepoints.
        let attach = |(name, tracepoint)| {
            let program = object.program(name).ok()?;
            program.attach_raw_tracepoint(tracepoint).ok()
        };
        Ok(StackObject {
            modules: MODULE_PROGRAMS.into_iter().filter_map(attach).collect(),
            waits: 0,
            unwinder,
            object,
        })
    }

    /// Detaches the programs that note that modules come and go.
    pub(crate) fn detach_from_modules(&mut self) {
        self.modules.clear();
    }

    /// Reads the rules anew where modules came or went. Returns whether it did. A `patient` caller comes again while one
    /// is about to come or go.
    pub(crate) fn refresh(&mut self, patient: bool) -> Result<bool> {
        let Some(unwinder) = &mut self.unwinder else {
            return Ok(false);
        };
        let Some(changes) = unwinder.changes() else {
            return Ok(false);
        };
        if patient && modules_are_changing() && self.waits < MAX_WAITS {
            self.waits += 1;
            return Ok(false);
        }
        self.waits = 0;
        unwinder.write(&RuleTable::read(&KernelSymbols::read()?)?, changes)?;
        Ok(true)
    }
}

/// Has the programs loaded that note that modules come and go.
pub(crate) fn note_modules(open: &mut OpenNamed) -> Result<()> {
    let mut programs = MODULE_PROGRAMS.into_iter();
    programs.try_for_each(|(name, _)| open.with(name))
}

/// The program that takes stacks where it is attached in this way.
pub(crate) fn stack_program(method: AttachMethod) -> Result<&'static str> {
    match method {
        AttachMethod::RawTp => Ok("on_raw_tp"),
        AttachMethod::Tracepoint => Ok("on_tracepoint"),
        AttachMethod::Kprobe | AttachMethod::KprobeInt3 => Ok("on_kprobe"),
        AttachMethod::Fentry => Ok("on_fentry"),
        other => Err(Error::Refused(format!(
            "stacks are not taken at a {}",
            other.attach()
        ))),
    }
}
