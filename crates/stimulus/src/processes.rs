//! Processes and threads: started, ended, waited for.

use std::{
    ffi::CStr,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
};

use nix::{fcntl::AtFlags, unistd::execveat};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, getgid, getpid, pidfd_open},
    time::Timespec,
};

use crate::{
    error::{Result, Step},
    smallest_program,
    stimulus::{Context, Prepared, Stimulus, expect_error},
};

/// A child process that runs longer is killed.
const TIMEOUT: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "fork",
        "socketpair, clone, close, recvfrom, wait4, close; the child: setgid, execve (no such file), write, exit_group",
        fork,
    )
    .failing(),
    Stimulus::new(
        "vfork",
        "mmap, clone3 (CLONE_VFORK), wait4, munmap; the child: rt_sigaction of each signal, execve (no such file), exit_group",
        vfork,
    )
    .failing(),
    Stimulus::new(
        "exec",
        "openat ×3 (/dev/null), mmap, clone3 (CLONE_VFORK), munmap, close ×3, pidfd_open, ppoll, close, wait4; the child: rt_sigaction of each signal, dup2 ×3, execve of a program that ends at once, exit_group",
        exec,
    ),
    Stimulus::new(
        "execveat",
        "execveat of a file that is not there",
        exec_at,
    )
    .failing(),
    Stimulus::new(
        "thread",
        "clone3, futex; the thread: sigaltstack, mmap, mprotect, munmap, madvise, exit",
        start_thread,
    ),
    Stimulus::new("pidfd", "getpid, pidfd_open of this process, close", process_file),
];

fn fork(context: &Context) -> Result<Prepared> {
    let mut command = missing(context)?;
    // Setting the group that it has makes the standard library fork.
    command.gid(getgid().as_raw());
    Ok(Prepared::new(move || fail(&mut command)))
}

fn vfork(context: &Context) -> Result<Prepared> {
    let mut command = missing(context)?;
    Ok(Prepared::new(move || fail(&mut command)))
}

/// A program that does not exist, so that the child ends after a failed execve.
fn missing(context: &Context) -> Result<Command> {
    Ok(Command::new(context.folder.join("no-such-program")))
}

fn fail(command: &mut Command) -> io::Result<()> {
    match command.spawn() {
        // The standard library has waited for the child.
        Err(error) => expect_error(Err::<(), _>(error), rustix::io::Errno::NOENT),
        Ok(child) => finish(child).map(drop),
    }
}

/// A program of these bytes in this folder.
pub(crate) fn program(folder: &Path, bytes: &[u8]) -> Result<Command> {
    let program = folder.join("program");
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&program)
        .step("make a program")?;
    file.write_all(bytes).step("write a program")?;
    drop(file);
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command)
}

fn exec(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let mut command = program(folder.path(), &smallest_program::that_ends())?;
    Ok(Prepared::new(move || {
        let _kept = &folder;
        let status = finish(command.spawn()?)?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("the program ended with {status}")))
        }
    }))
}

fn exec_at(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let opened = File::open(folder.path()).step("open a folder")?;
    Ok(Prepared::new(move || {
        let _kept = &folder;
        let none: [&CStr; 0] = [];
        let ended = execveat(&opened, c"no-such-program", &[c""], &none, AtFlags::empty());
        expect_error(ended, rustix::io::Errno::NOENT)
    }))
}

/// Waits for a child, and kills it if it does not end in time.
pub(crate) fn finish(mut child: Child) -> io::Result<ExitStatus> {
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .and_then(|process| poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&TIMEOUT)));
    if !matches!(ended, Ok(1)) {
        child.kill()?;
    }
    child.wait()
}

fn start_thread(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        thread::Builder::new()
            .spawn(|| ())?
            .join()
            .map_err(|_| io::Error::other("the thread panicked"))
    }))
}

fn process_file(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(())
    }))
}
