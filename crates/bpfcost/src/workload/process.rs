//! A process of a workload: in a group of its own, with its output kept, and gone with its owner.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a process may take to end after it was asked to.
const FAREWELL: Duration = Duration::from_secs(3);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// A process and all that it started.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: File,
}

impl Process {
    /// Starts `command`, program first, on these CPUs (any where there are none).
    pub fn start(command: &[String], cpus: &[u32], env: &[(String, String)]) -> Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            bail!("there is no command to start");
        };
        let output = tempfile::tempfile().context("no room for what a program prints")?;
        let child = Command::new(program)
            .args(arguments)
            .envs(env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("can't start {program}"))?;
        let process = Process {
            name: program.clone(),
            child,
            output,
        };
        if !cpus.is_empty() {
            let mut set = rustix::thread::CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu as usize));
            rustix::thread::sched_setaffinity(Some(process.pid()), &set)
                .with_context(|| format!("can't give {program} its CPUs"))?;
        }
        Ok(process)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if begun.elapsed() > limit {
                bail!("{} does not end", self.name);
            }
            sleep(LOOK);
        }
    }

    /// What it has printed so far.
    pub fn printed(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        // The file is shared with the process: its place is put back where it was.
        let place = self.output.stream_position()?;
        self.output.rewind()?;
        self.output.read_to_end(&mut bytes)?;
        self.output
            .seek(std::io::SeekFrom::Start(place.max(bytes.len() as u64)))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Ends it and all that it started.
    pub fn stop(&mut self, signal: Signal) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            return;
        }
        let _ = kill_process_group(self.pid(), signal);
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL && matches!(self.child.try_wait(), Ok(None)) {
            sleep(LOOK);
        }
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
    }
}

/// How a process ended, in words.
pub(crate) fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
