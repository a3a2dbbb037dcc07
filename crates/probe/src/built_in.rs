//! A built-in probe, `builtin:NAME:ARGUMENT…`: what it needs, and where it runs.
//!
//! To add one: a file with a [`BuiltIn`], and its line in `registry.rs`.

use anyhow::Result;
use bpfcost_bpf::Feature;

use super::{Probe, agent::Agent};

/// The words after the name of a probe, between colons.
pub type Arguments = [String];

/// A probe that this program brings.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Spelling, with the name first: `busy:EVENT:NANOSECONDS`.
    pub form: &'static str,
    /// Kernel features that it needs; an error where the arguments are wrong.
    pub needs: fn(&Arguments) -> Result<Vec<Feature>>,
    /// Reason that this kernel does not have what the arguments name, or `None`.
    pub absent: fn(&Arguments) -> Result<Option<String>>,
    /// Seconds that switching it on and off takes once it is started: mostly the kernel's wait until no CPU is in a
    /// program any more.
    pub switch_s: f64,
    /// Process that runs it.
    pub runs: Runs,
}

/// The process that runs a built-in probe, and the function that opens it there.
#[derive(Clone, Copy, Debug)]
pub enum Runs {
    /// In this process: it has nothing to do in user space.
    Here(fn(&Arguments) -> Result<Box<dyn Probe>>),
    /// In its own process. It looks at the processes of a server.
    Agent(fn(&Arguments) -> Result<Box<dyn Agent>>),
}

impl BuiltIn {
    /// An agent. It ends each window with what its process has to say.
    pub const fn agent(
        form: &'static str,
        needs: fn(&Arguments) -> Result<Vec<Feature>>,
        open: fn(&Arguments) -> Result<Box<dyn Agent>>,
    ) -> Self {
        BuiltIn {
            form,
            needs,
            absent: |_| Ok(None),
            switch_s: 0.25,
            runs: Runs::Agent(open),
        }
    }

    /// A probe without arguments that takes no time to switch.
    pub(super) const fn plain(
        form: &'static str,
        open: fn(&Arguments) -> Result<Box<dyn Probe>>,
    ) -> Self {
        BuiltIn {
            form,
            needs: |_| Ok(Vec::new()),
            absent: |_| Ok(None),
            switch_s: 0.0,
            runs: Runs::Here(open),
        }
    }

    /// Name: the first word of the form.
    pub(super) fn name(&self) -> &'static str {
        self.form.split(':').next().unwrap_or(self.form)
    }
}
