//! A child process with its output, its control group and its CPU time.

use std::{
    fs,
    io::{self, pipe},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process_group, pidfd_open,
        setrlimit,
    },
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::{
    clock::ProcessClock,
    output::{Capture, Output},
    process_tree::process_tree,
    program,
    reaper::{Cgroup, Duty, Reaper},
    wait::wait_for,
};

/// A process that bpfcost started for the user, such as a tool, failed. The text says what it printed, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ChildFailed(pub String);

/// How long a process may take to end after it was asked to.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often it is looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Bytes of its output that an error shows.
const SHOWN: usize = 600;
/// A shell that enters a control group and becomes the program, so that nothing that this starts is ever outside.
const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// Raises this process's limit of open files as far as it goes.
pub fn allow_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

/// A process and all that it started.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Output,
    cgroup: Option<Cgroup>,
    clock: ProcessClock,
    /// Whether it is talked to. The end of that is its own end, and what it started for itself has things to put back then.
    is_talked_to: bool,
    reaper: Arc<Reaper>,
}

impl Process {
    /// Starts `command`, program first, on these CPUs (any where there are none).
    pub fn start(command: &[String], cpus: &[u32], env: &[(String, String)]) -> Result<Self> {
        Process::start_in(None, command, cpus, env)
    }

    /// The same, with its output handled in that way.
    pub fn start_captured(
        command: &[String],
        cpus: &[u32],
        env: &[(String, String)],
        capture: Capture,
    ) -> Result<Self> {
        Process::launch(None, command, cpus, env, capture, false)
    }

    /// The same in a folder.
    pub fn start_in(
        folder: Option<&Path>,
        command: &[String],
        cpus: &[u32],
        env: &[(String, String)],
    ) -> Result<Self> {
        Process::launch(folder, command, cpus, env, Capture::default(), false)
    }

    /// Starts `command` with pipes: its input and its output.
    pub fn start_talking(command: &[String]) -> Result<(Self, ChildStdin, ChildStdout)> {
        let mut process = Process::launch(None, command, &[], &[], Capture::default(), true)?;
        let (input, output) = (process.child.stdin.take(), process.child.stdout.take());
        let pipes = input.zip(output).context("it has no input or no output")?;
        Ok((process, pipes.0, pipes.1))
    }

    /// Starts it; if it `is_talked_to`, its input and its standard output are pipes for that.
    fn launch(
        folder: Option<&Path>,
        command: &[String],
        cpus: &[u32],
        env: &[(String, String)],
        capture: Capture,
        is_talked_to: bool,
    ) -> Result<Self> {
        let Some((program, arguments)) = command.split_first() else {
            bail!("there is no command to start");
        };
        let path = program::find(program)?;
        let reaper = Reaper::of_process()?;
        let cgroup = reaper.group();
        let captured = || pipe().context("cannot make a pipe for the output of a program");
        let (err, to_err) = captured()?;
        let (out, to_out) = if is_talked_to {
            (None, Stdio::piped())
        } else {
            let (out, to_out) = captured()?;
            (Some(out.into()), to_out.into())
        };
        let output = Output::read([out, Some(err.into())], capture)?;
        let mut starts = match &cgroup {
            Some(cgroup) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", ENTER]).arg(cgroup.procs()).arg(&path);
                shell
            }
            None => Command::new(&path),
        };
        starts
            .args(arguments)
            .envs(env.iter().cloned())
            .stdin(if is_talked_to {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(to_out)
            .stderr(to_err)
            .process_group(0);
        if let Some(folder) = folder {
            starts.current_dir(folder);
        }
        let child = on(cpus, || starts.spawn())
            .with_context(|| format!("cannot set the CPUs of {program}"))?
            .with_context(|| format!("cannot start {program}"))?;
        let process = Process {
            name: program.clone(),
            child,
            output,
            cgroup,
            clock: ProcessClock::start_new(),
            is_talked_to,
            reaper,
        };
        if let Some(duty) = process.duty() {
            process.reaper.owe(duty)?;
        }
        Ok(process)
    }

    /// What the reaper does for it, besides removing its control group.
    fn duty(&self) -> Option<Duty> {
        match &self.cgroup {
            None => Some(Duty::Group(self.id())),
            Some(cgroup) if self.is_talked_to => Some(Duty::Await(cgroup.path().to_owned())),
            Some(_) => None,
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// It and all that it started.
    pub fn pids(&self) -> Vec<u32> {
        match self.cgroup.as_ref().map(Cgroup::pids) {
            Some(pids) if !pids.is_empty() => pids,
            _ => process_tree(self.id()),
        }
    }

    /// CPU time of it and of all that it ever started, in nanoseconds, where its control group reports it.
    pub fn cpu_ns(&self) -> Option<f64> {
        self.cgroup.as_ref()?.cpu_ns()
    }

    /// Exit status; `None` while it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end, so long after its start.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let clock = self.clock.clone();
        self.wait_by(&clock, limit)
    }

    /// Waits for its end from now on, once it was asked to end.
    pub fn end_within(&mut self, limit: Duration) -> Result<ExitStatus> {
        let clock = ProcessClock::start(self.id());
        self.wait_by(&clock, limit)
    }

    /// Waits for its end: woken by it, for looking now and then would take CPU time in a window, and be late. Time in which
    /// it waits for a CPU does not count.
    fn wait_by(&mut self, clock: &ProcessClock, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        let end = pidfd_open(self.pid(), PidfdFlags::empty())
            .with_context(|| format!("cannot wait for the end of {}", self.name))?;
        let mut ends = [PollFd::new(&end, PollFlags::IN)];
        let mut able = clock.wall();
        while able < limit {
            let left = Timespec::try_from(limit - able)?;
            retry_on_intr(|| poll(&mut ends, Some(&left)))?;
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            // Where a probe traces it just then, its parent can ask for its status a moment later.
            sleep(POLL_INTERVAL);
            able = clock.elapsed(self.id()).able();
        }
        self.ended()?.with_context(|| {
            format!(
                "{} has not ended after {:.0} s",
                self.name,
                clock.wall().as_secs_f64()
            )
        })
    }

    /// The last of what it has printed so far: of standard output, then of standard error.
    pub fn printed(&self) -> String {
        self.output.last().concat()
    }

    /// The last of what it has printed so far on standard output.
    pub fn answered(&self) -> String {
        let [out, _] = self.output.last();
        out
    }

    /// All that it has printed, to read numbers from: on standard output, and on standard error too if `both`. An error if it
    /// printed more than is kept.
    pub fn whole(&self, both: bool) -> Result<String> {
        let [out, err] = self.output.dropped();
        let dropped = if both { out + err } else { out };
        if dropped > 0 {
            bail!(
                "{} printed {:.0} MB more than the 16 MiB from which numbers are read\n  Make it print less, for example only \
                 a summary",
                self.name,
                (dropped as f64 / 1e6).ceil()
            );
        }
        Ok(if both {
            self.printed()
        } else {
            self.answered()
        })
    }

    /// The result of the search of its output.
    pub fn found(&self) -> u64 {
        self.output.found()
    }

    /// CPU time that reading its output has taken here, in nanoseconds.
    pub fn reading_ns(&self) -> f64 {
        self.output.reading_ns()
    }

    /// The last of what it printed, for an error.
    pub fn tail(&self) -> String {
        let dropped: u64 = self.output.dropped().iter().sum();
        let tail = tail(&self.printed());
        if dropped == 0 {
            return tail;
        }
        format!(
            "  (the last of its output; {} kB before it were not kept)\n{tail}",
            dropped / 1000
        )
    }

    /// Sends a signal to it and all that it started.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.pid(), signal);
    }

    /// Ends it and all that it started.
    pub fn stop(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid(), signal);
            wait_for(&[self.id()], EXIT_TIMEOUT, POLL_INTERVAL, || {
                !matches!(self.child.try_wait(), Ok(None))
            });
        }
        match &self.cgroup {
            Some(cgroup) => {
                if self.is_talked_to {
                    cgroup.wait_until_empty(EXIT_TIMEOUT);
                }
                cgroup.kill();
            }
            None => {
                let _ = kill_process_group(self.pid(), Signal::KILL);
            }
        }
        if let Some(duty) = self.duty() {
            self.reaper.done(duty);
        }
        // One that hangs in the kernel does not even die; the reaper removes its group when it does.
        let _ = self.end_within(EXIT_TIMEOUT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
    }
}

/// Does something on these CPUs (any where there are none): what it starts has them from its first instruction.
fn on<T>(cpus: &[u32], something: impl FnOnce() -> T) -> rustix::io::Result<T> {
    if cpus.is_empty() {
        return Ok(something());
    }
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    sched_setaffinity(None, &set)?;
    let done = something();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

/// How a process ended, in words.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The name of a process, on one line; a process can give itself any.
///
/// # Errors
///
/// Where the process has ended.
pub fn process_name(pid: u32) -> io::Result<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
    Ok(bpfcost_text::line(name.strip_suffix('\n').unwrap_or(&name)))
}

/// The last lines of what a program printed.
fn tail(printed: &str) -> String {
    let printed = printed.trim_end().trim_start_matches('\n');
    if printed.is_empty() {
        return "  (it printed nothing)".to_owned();
    }
    let from = printed.len().saturating_sub(SHOWN);
    let from = (from..printed.len())
        .find(|at| printed.is_char_boundary(*at))
        .unwrap_or(0);
    printed[from..]
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_an_output_is_shown() {
        assert_eq!(tail("a\nb\n\n"), "  a\n  b");
        assert_eq!(tail(""), "  (it printed nothing)");
        assert!(tail(&"ü".repeat(1000)).len() <= SHOWN + 2);
    }
}
