//! A small process of this program that becomes QEMU, so that no guest survives the run that started it, however
//! that ends: [`launch`] asks the kernel for SIGKILL when its parent dies (prctl(2), PR_SET_PDEATHSIG, which
//! survives exec).

use std::{
    io,
    os::unix::process::{CommandExt, parent_id},
    process::{Command, Stdio},
};

use super::program::MYSELF;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Command of a process that becomes `args`, and dies with this one. Start it from a thread that lasts as long: it is that thread's
/// end which kills it.
pub(crate) fn launcher(args: &[String]) -> Command {
    let mut command = Command::new(MYSELF);
    command
        .args(["guest", "launch", &std::process::id().to_string(), "--"])
        .args(args)
        // Ctrl-C is for this program, which then ends the guest in good order.
        .process_group(0)
        .stdin(Stdio::null());
    command
}

/// Becomes `args`, to die with `parent`. Returns only where that fails.
pub fn launch(parent: u32, args: &[String]) -> io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have died before the call above.
    if parent_id() != parent {
        return io::Error::other("the run that started the guest has ended");
    }
    match args {
        [program, args @ ..] => Command::new(program).args(args).exec(),
        [] => io::Error::other("there is no program to start"),
    }
}
