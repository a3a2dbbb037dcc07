//! A guest from its start to its end: booted, or going on where an earlier one waited for the host.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, atomic::AtomicBool},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    Console, GuestError, GuestSpec, Monitor, Tools,
    command::INITRAMFS,
    first::{NOW, READY},
    initramfs,
    qemu::Qemu,
    snapshot::{BootLock, Snapshot},
    tracer,
};

/// A guest that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Vm {
    qemu: Qemu,
    folder: PathBuf,
    console: Console,
    /// True if the guest was released to go on from the point where it waits for the host.
    released: bool,
    /// The file to save its state to at that point, if any, and the right to.
    snapshot: Option<Snapshot>,
    booting: Option<BootLock>,
    emulator: String,
}

impl Vm {
    /// Starts one that shares `folder`. An interrupt ends every wait for QEMU. Call it on a thread that lasts as long as the guest: it
    /// is that thread's end which kills the guest.
    pub fn start(
        tools: &Tools,
        spec: &GuestSpec,
        folder: &Path,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Vm, GuestError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        fs::write(
            folder.join(NOW),
            now.unwrap_or_default().as_secs().to_string(),
        )
        .map_err(GuestError::io("writing to the guest's folder"))?;
        let mut composed = spec.compose(tools, folder);
        let snapshot = Snapshot::for_guest(spec, &composed, folder);
        if spec.traced {
            // A guest goes on from a state saved without it.
            let installed = tracer::install(tools, folder)
                .map_err(GuestError::io("putting the tracer into the guest's folder"))?;
            composed.args.extend(installed.into_iter().flatten());
        }
        let resume = || Qemu::resume(snapshot.as_ref()?, &composed.args, folder, interrupt);
        let mut resumed = resume();
        let mut booting = None;
        if resumed.is_none() {
            booting = snapshot.as_ref().and_then(|kept| kept.lock(interrupt));
            if booting.is_none() {
                resumed = resume();
            }
        }
        let mut console = Console::default();
        let released = resumed.is_some();
        let qemu = match resumed {
            Some(qemu) => {
                console.feed(format!("{READY}, at another time\n").as_bytes());
                qemu
            }
            None => {
                initramfs::write(spec, folder)?;
                Qemu::start(&composed.args, folder, interrupt)?
            }
        };
        Ok(Vm {
            qemu,
            folder: folder.to_owned(),
            console,
            released,
            snapshot,
            booting,
            emulator: composed.emulator,
        })
    }

    /// QEMU's version and the arguments that decide what is counted, as records keep them.
    pub fn emulator(&self) -> &str {
        &self.emulator
    }

    /// QEMU's number as a process.
    pub fn id(&self) -> u32 {
        self.qemu.id()
    }

    /// QEMU's exit status; `None` while it runs.
    pub fn end(&mut self) -> io::Result<Option<ExitStatus>> {
        self.qemu.end()
    }

    /// QEMU's monitor.
    pub fn monitor(&mut self) -> io::Result<Monitor> {
        self.qemu.monitor(&self.folder)
    }

    /// The console, with its last output.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Reads the console. Lets the guest go on once it waits for the host, and saves its state before.
    pub fn read_console(&mut self) {
        self.qemu.read(&mut self.console);
        let ready = |line: &String| line.contains(READY);
        if self.released || !self.console.lines().iter().any(ready) {
            return;
        }
        // Where it can't be kept, or can't go on, that is seen soon enough: the next one boots, or this one is silent.
        if let Some(snapshot) = self.snapshot.take()
            && let Ok(mut monitor) = self.qemu.monitor(&self.folder)
        {
            let _ = snapshot.take(&mut monitor, &self.folder);
        }
        self.booting = None;
        // It was unpacked.
        let _ = fs::remove_file(self.folder.join(INITRAMFS));
        let _ = self.qemu.release();
        self.released = true;
    }
}
