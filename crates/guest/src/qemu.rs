//! QEMU as a process: its arguments, its console, its end.

use std::{
    io::{self, ErrorKind, PipeReader, Read, Write, pipe},
    path::Path,
    process::{Child, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::json;

use super::{Console, GuestError, launch, monitor::Monitor, snapshot::Snapshot};

/// QEMU. Dies with the thread that started it, and when it is dropped.
#[derive(Debug)]
pub(crate) struct Qemu {
    process: Child,
    output: PipeReader,
    /// Ends every wait for it.
    interrupt: Arc<AtomicBool>,
}

impl Qemu {
    /// Starts it in this folder. Call it on a thread that lasts as long as the guest.
    pub(crate) fn start(
        args: &[String],
        folder: &Path,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Self, GuestError> {
        let starting = || GuestError::io("starting QEMU");
        let (output, input) = pipe().map_err(starting())?;
        fcntl_setfl(&output, OFlags::NONBLOCK).map_err(|error| starting()(error.into()))?;
        let process = launch::launcher(args)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(input.try_clone().map_err(starting())?)
            .stderr(input)
            .spawn()
            .map_err(starting())?;
        Ok(Qemu {
            process,
            output,
            interrupt: Arc::clone(interrupt),
        })
    }

    /// Starts it where an earlier guest waited for the host; `None` where there is no such guest, or it is not taken.
    pub(crate) fn resume(
        kept: &Snapshot,
        args: &[String],
        folder: &Path,
        interrupt: &Arc<AtomicBool>,
    ) -> Option<Self> {
        let incoming = kept.incoming(folder)?;
        let mut qemu = Qemu::start(&[args, &incoming].concat(), folder, interrupt).ok()?;
        let goes_on = qemu.go_on(folder);
        if goes_on.is_err() && !interrupt.load(Ordering::Relaxed) {
            kept.forget(folder);
        }
        goes_on.ok().map(|()| qemu)
    }

    fn go_on(&mut self, folder: &Path) -> io::Result<()> {
        let mut monitor = self.monitor(folder)?;
        match monitor
            .ask_until_not("query-status", "status", &["inmigrate"])?
            .as_str()
        {
            "paused" => monitor.ask("cont", json!({}))?,
            state => return Err(io::Error::other(state.to_owned())),
        };
        self.release()
    }

    /// Connects to the monitor.
    pub(crate) fn monitor(&mut self, folder: &Path) -> io::Result<Monitor> {
        let id = self.id();
        let interrupt = Arc::clone(&self.interrupt);
        Monitor::connect(folder, id, interrupt, || !matches!(self.end(), Ok(None)))
    }

    /// The flag that ends every wait for it.
    pub(crate) fn interrupt(&self) -> &Arc<AtomicBool> {
        &self.interrupt
    }

    /// QEMU's number as a process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Lets the guest, which waits for that, go on.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        match &mut self.process.stdin {
            Some(stdin) => stdin.write_all(b"\n"),
            None => Ok(()),
        }
    }

    /// Exit status; `None` while it runs.
    pub(crate) fn end(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Hands what the guest's console has said to `console`.
    pub(crate) fn read(&mut self, console: &mut Console) {
        let mut bytes = [0; 16 << 10];
        loop {
            match self.output.read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => console.feed(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Ends it. Nothing in the guest is worth an orderly shutdown: its file system is this machine's, read-only.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}
