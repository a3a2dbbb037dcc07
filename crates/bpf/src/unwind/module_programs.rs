//! The programs of `bpf/unwind_modules.bpf.h`, which note that modules come and go.

use libbpf_rs::{Link, ProgramMut};

use crate::error::Result;

/// Names, and the tracepoints that they are for.
const PROGRAMS: [(&str, &str); 2] = [
    ("on_module_load", "module_load"),
    ("on_module_free", "module_free"),
];

/// Returns true if a program is one of them.
pub(crate) fn is_of_modules(name: &str) -> bool {
    PROGRAMS.iter().any(|(one, _)| *one == name)
}

/// Attaches them; `find` gives the loaded one of a name. Kernels without modules have no such tracepoints.
pub(crate) fn attach_to_modules<'a>(find: impl Fn(&str) -> Result<ProgramMut<'a>>) -> Vec<Link> {
    let attach =
        |(name, tracepoint): (&str, &str)| find(name).ok()?.attach_raw_tracepoint(tracepoint).ok();
    PROGRAMS.into_iter().filter_map(attach).collect()
}
