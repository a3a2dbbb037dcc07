//! Two small processes, both of this program, that see to it that nothing of a guest outlives the run
//! that started it, however that ends.
//!
//! [`launch`] becomes QEMU after it has asked the kernel for SIGKILL when its parent dies (prctl(2),
//! PR_SET_PDEATHSIG, which outlives exec). [`sweep`] waits until its parent is gone and removes the
//! guest's folder.

use std::{
    fs, io,
    os::unix::process::{CommandExt, parent_id},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::mailbox::{LOCK, PREFIX};

/// This program, even where its file was replaced meanwhile.
const MYSELF: &str = "/proc/self/exe";

/// How long a folder may resist: QEMU, which dies at the same moment, may still write to it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes `args`, and dies with this process. Start it from the main thread: it is that thread's
/// end which kills it.
pub(super) fn launcher(args: &[String]) -> Command {
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
        return io::Error::other("the run that asked for a guest is gone");
    }
    match args {
        [program, args @ ..] => Command::new(program).args(args).exec(),
        [] => io::Error::other("there is no program to start"),
    }
}

/// Starts the guard of a folder. It has a process group of its own, so that a kill of this one spares
/// it.
pub(super) fn spawn(folder: &Path) -> io::Result<Child> {
    Command::new(MYSELF)
        // For those who look at the list of processes.
        .arg0("bpfcost")
        .args(["guest", "sweep"])
        .arg(folder)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Waits until the other end of stdin is closed, and removes the folder.
pub fn sweep(folder: &Path) -> io::Result<()> {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with(PREFIX) || !folder.join(LOCK).exists() {
        return Err(io::Error::other("this is no folder of a guest"));
    }
    let begun = Instant::now();
    loop {
        match fs::remove_dir_all(folder) {
            Err(error) if folder.exists() && begun.elapsed() >= PATIENCE => return Err(error),
            Err(_) if folder.exists() => sleep(Duration::from_millis(20)),
            _ => return Ok(()),
        }
    }
}
