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
    command::{BOOT_SHIFT, INITRAMFS},
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
    first_boot: Option<FirstBoot>,
    emulator: String,
}

/// The boot of a guest whose state is to be saved.
#[derive(Debug)]
struct FirstBoot {
    snapshot: Snapshot,
    /// While it is held, others wait for the state.
    _lock: Option<BootLock>,
    counting: Option<Counting>,
}

/// A guest that counts boots with another clock, in a QEMU of its own: how it goes on, or begins again.
#[derive(Debug)]
struct Counting {
    spec: GuestSpec,
    args: Vec<String>,
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
        let boot_args = composed.boot_args();
        let snapshot = Snapshot::for_guest(spec, &composed, folder);
        if spec.traced {
            // A guest goes on from a state saved without it.
            let installed = tracer::install(tools, folder)
                .map_err(GuestError::io("putting the tracer into the guest's folder"))?;
            composed.args.extend(installed.into_iter().flatten());
        }
        let resume = || Qemu::resume(snapshot.as_ref()?, &composed.args, folder, interrupt);
        let mut resumed = resume();
        let mut lock = None;
        if resumed.is_none() {
            lock = snapshot.as_ref().and_then(|kept| kept.lock(interrupt));
            if lock.is_none() {
                resumed = resume();
            }
        }
        let mut console = Console::default();
        let released = resumed.is_some();
        let mut first_boot = None;
        let qemu = match (resumed, snapshot) {
            (Some(qemu), _) => {
                console.feed(format!("{READY}, at another time\n").as_bytes());
                qemu
            }
            (None, None) => boot(spec, &composed.args, folder, interrupt)?,
            (None, Some(snapshot)) => {
                let qemu = boot(
                    spec,
                    boot_args.as_ref().unwrap_or(&composed.args),
                    folder,
                    interrupt,
                )?;
                first_boot = Some(FirstBoot {
                    snapshot,
                    _lock: lock,
                    counting: boot_args.map(|_| Counting {
                        spec: spec.clone(),
                        args: composed.args,
                    }),
                });
                qemu
            }
        };
        Ok(Vm {
            qemu,
            folder: folder.to_owned(),
            console,
            released,
            first_boot,
            emulator: composed.emulator,
        })
    }

    /// QEMU's version and the arguments that decide what is counted, as records keep them.
    pub fn emulator(&self) -> &str {
        &self.emulator
    }

    /// QEMU's number as a process: another one once a guest that counts has booted, if its state is saved.
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
    pub fn read_console(&mut self) -> Result<(), GuestError> {
        self.qemu.read(&mut self.console);
        let ready = |line: &String| line.contains(READY);
        if self.released || !self.console.lines().iter().any(ready) {
            return Ok(());
        }
        if let Some(first_boot) = self.first_boot.take() {
            // Where it can't be kept, or can't go on, that is seen soon enough: the next one boots, or this one is silent.
            let shift = first_boot.counting.as_ref().map(|_| BOOT_SHIFT);
            if let Ok(mut monitor) = self.qemu.monitor(&self.folder) {
                let _ = first_boot.snapshot.take(&mut monitor, &self.folder, shift);
            }
            if let Some(counting) = first_boot.counting {
                return self.count(&first_boot.snapshot, &counting);
            }
        }
        // It was unpacked.
        let _ = fs::remove_file(self.folder.join(INITRAMFS));
        let _ = self.qemu.release();
        self.released = true;
        Ok(())
    }

    /// Goes on with the clock that counts, from the state that was saved; boots with it where there is none.
    fn count(&mut self, snapshot: &Snapshot, counting: &Counting) -> Result<(), GuestError> {
        self.qemu.kill();
        let interrupt = Arc::clone(self.qemu.interrupt());
        let Counting { spec, args } = counting;
        match Qemu::resume(snapshot, args, &self.folder, &interrupt) {
            Some(qemu) => {
                self.qemu = qemu;
                self.released = true;
            }
            None => {
                self.qemu = boot(spec, args, &self.folder, &interrupt)?;
                self.console = Console::default();
            }
        }
        Ok(())
    }
}

/// Starts QEMU with a guest that boots.
fn boot(
    spec: &GuestSpec,
    args: &[String],
    folder: &Path,
    interrupt: &Arc<AtomicBool>,
) -> Result<Qemu, GuestError> {
    initramfs::write(spec, folder)?;
    Qemu::start(args, folder, interrupt)
}
