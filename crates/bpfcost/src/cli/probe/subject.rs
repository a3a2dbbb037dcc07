//! Processes that are probed: those that are named, and those that come later.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::attach::{ProcessObject, Subjects};
use bpfcost_process::{cgroup, describe_exit, process_tree, program, wait_until};
use bpfcost_text::number::count;
use rustix::process::{Pid, Signal, kill_process};

use super::{Args, output::Output};
use crate::cli::{exit::usage, output::errors_for_command};

/// Time that a command has to end after SIGTERM, and the interval at which that is looked at.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Processes that are probed.
pub(super) enum Subject {
    /// Those that were named.
    Processes(Vec<u32>),
    /// Those that start this file.
    Starting(PathBuf),
    /// Those of a control group.
    Group(Group),
    /// A command, and its program's file.
    Command(PathBuf, Vec<String>, Option<Running>),
}

/// A control group.
pub(super) struct Group {
    folder: PathBuf,
    follow: bool,
    /// Processes that were there, each with its program: it may execute another one later.
    known: BTreeSet<(u32, PathBuf)>,
}

/// A command that was started.
pub(super) struct Running {
    child: Child,
    status: Option<ExitStatus>,
}

impl Subject {
    /// Checks what can be said before anything is loaded.
    pub(super) fn new(args: &Args) -> Result<Self> {
        if let Some(path) = &args.path {
            let known = fs::metadata(path);
            if let Some(words) = known.as_ref().err().map(ToString::to_string) {
                let path = path.display();
                return Err(usage(format!(
                    "{path}: {words}\n  Name the program's file, as in /proc/PID/exe"
                )));
            }
            return Ok(Subject::Starting(path.clone()));
        }
        if let Some(group) = &args.cgroup {
            return Ok(Subject::Group(Group {
                folder: folder(group)?,
                follow: args.follow,
                known: BTreeSet::new(),
            }));
        }
        if let Some(first) = args.command.first() {
            let file = program::find(first).map_err(|error| usage(error.to_string()))?;
            return Ok(Subject::Command(file, args.command.clone(), None));
        }
        let pids: BTreeSet<u32> = args.pid.iter().copied().collect();
        for pid in &pids {
            check(*pid)?;
        }
        Ok(Subject::Processes(pids.into_iter().collect()))
    }

    /// Attaches the object to it.
    pub(super) fn attach(&mut self, object: &mut ProcessObject, output: &mut Output) -> Result<()> {
        let mut report = |event: bpfcost_bpf::attach::ObjectEvent<'_>| output.show(event);
        match self {
            Subject::Processes(pids) => object.probe(Subjects::All(pids), &mut report)?,
            Subject::Starting(file) => {
                let subjects = Subjects::Starting(file, None);
                object
                    .probe(subjects, &mut report)
                    .map_err(|error| not_a_program(file, error.into()))?;
            }
            Subject::Group(group) => {
                let pids = group.new_processes();
                if pids.is_empty() && !group.follow {
                    return Err(usage(format!(
                        "there is no process in {}\n  With --follow, bpfcost waits for one",
                        group.folder.display()
                    )));
                }
                object.probe(Subjects::Any(&pids), &mut report)?;
            }
            Subject::Command(file, words, running) => {
                let subjects = Subjects::Starting(file, Some(std::process::id()));
                object
                    .probe(subjects, &mut report)
                    .map_err(|error| not_a_program(file, error.into()))?;
                *running = Some(Running::start(file, words)?);
            }
        }
        Ok(())
    }

    /// A line about what is probed, and how it ends.
    pub(super) fn words(&self) -> String {
        let what = match self {
            Subject::Processes(pids) => match pids.as_slice() {
                [pid] => format!("process {pid}"),
                pids => format!("{} processes", count(pids.len() as u64)),
            },
            Subject::Starting(file) => {
                return format!(
                    "Waiting for processes that start {}; Ctrl-C ends it and shows the result",
                    file.display()
                );
            }
            Subject::Group(group) => format!("the processes of {}", group.folder.display()),
            Subject::Command(_, words, _) => words.join(" "),
        };
        format!("Probing {what}; Ctrl-C ends it and shows the result")
    }

    /// Attaches to processes that joined a group.
    pub(super) fn look(&mut self, object: &mut ProcessObject, output: &mut Output) -> Result<()> {
        if let Subject::Group(group) = self
            && group.follow
        {
            let new = group.new_processes();
            object.attach_running(&new, &mut |event| output.show(event))?;
        }
        Ok(())
    }

    /// Returns true if there is nothing left to probe.
    pub(super) fn is_over(&mut self, object: &ProcessObject) -> Result<bool> {
        Ok(match self {
            Subject::Starting(_) => false,
            Subject::Group(group) if group.follow => false,
            Subject::Processes(_) | Subject::Group(_) => !object.is_attached(),
            Subject::Command(.., running) => {
                let has_ended = running.as_mut().map_or(Ok(true), Running::has_ended)?;
                has_ended && !object.is_attached()
            }
        })
    }

    /// Ends a command that still runs. Returns words about one that failed by itself.
    pub(super) fn end(&mut self) -> Result<Option<String>> {
        let Subject::Command(_, words, Some(running)) = self else {
            return Ok(None);
        };
        let failed = running.status.filter(|status| !status.success());
        running.stop()?;
        let failed = failed.map(|status| format!("{}: {}", words[0], describe_exit(status)));
        Ok(failed)
    }
}

impl Group {
    /// The processes that are new, or execute another program, since the last call. bpfcost's own are left out.
    fn new_processes(&mut self) -> Vec<u32> {
        let own: BTreeSet<u32> = process_tree(std::process::id()).into_iter().collect();
        let pids = cgroup::all_pids(&self.folder).into_iter();
        let now: BTreeSet<(u32, PathBuf)> = pids
            .filter(|pid| !own.contains(pid))
            .map(|pid| {
                let program = fs::read_link(format!("/proc/{pid}/exe"));
                (pid, program.unwrap_or_default())
            })
            .collect();
        let new = now.difference(&self.known).map(|(pid, _)| *pid).collect();
        self.known = now;
        new
    }
}

impl Running {
    fn start(file: &Path, words: &[String]) -> Result<Self> {
        let child = Command::new(file)
            .args(&words[1..])
            .stdout(errors_for_command())
            .spawn();
        let child = child
            .map_err(|error| usage(format!("{}: {error}\n  Check the command", file.display())))?;
        Ok(Running {
            child,
            status: None,
        })
    }

    fn has_ended(&mut self) -> Result<bool> {
        if self.status.is_none() {
            let status = self.child.try_wait();
            self.status = status.context("cannot wait for the command")?;
        }
        Ok(self.status.is_some())
    }

    /// SIGTERM, and SIGKILL for one that ignores it.
    fn stop(&mut self) -> Result<()> {
        if self.has_ended()? {
            return Ok(());
        }
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = wait_until(EXIT_TIMEOUT, POLL_INTERVAL, || {
            self.has_ended().unwrap_or(true)
        });
        if !ended {
            let _ = self.child.kill();
            self.child.wait().context("cannot wait for the command")?;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Refuses a process that does not exist, or can't be probed whatever it does.
fn check(pid: u32) -> Result<()> {
    if pid == std::process::id() {
        return Err(usage(format!(
            "process {pid} is bpfcost itself, which can't stop itself to probe it\n  Name another process"
        )));
    }
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Err(usage(format!(
            "there is no process {pid}\n  List them: ps -e"
        )));
    }
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    if program.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(usage(format!(
            "process {pid} runs no program: it has ended, or is a thread of the kernel\n  Name another process"
        )));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let thread_of = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|number| number.trim().parse::<u32>().ok());
    match thread_of.filter(|process| *process != pid) {
        Some(process) => Err(usage(format!(
            "{pid} is a thread of process {process}\n  Name the process: --pid {process}"
        ))),
        None => Ok(()),
    }
}

/// The folder of a control group: the path as it is, or below the mounted hierarchy.
fn folder(group: &Path) -> Result<PathBuf> {
    let is_group = |path: &PathBuf| path.join("cgroup.procs").exists();
    let named = group.to_owned();
    if is_group(&named) {
        return Ok(named);
    }
    let below = group.strip_prefix("/").unwrap_or(group);
    let mounts = procfs::process::Process::myself().and_then(|own| own.mountinfo());
    let mounts = mounts.context("cannot read the mounted file systems")?;
    let mut of_version_2 = mounts.into_iter().filter(|one| one.fs_type == "cgroup2");
    let found = of_version_2.find_map(|mount| {
        let path = mount.mount_point.join(below);
        is_group(&path).then_some(path)
    });
    found.ok_or_else(|| {
        usage(format!(
            "there is no control group {}\n  List them: systemd-cgls; that of a process: /proc/PID/cgroup",
            group.display()
        ))
    })
}

/// An error with advice where the file that processes start is a script.
fn not_a_program(file: &Path, error: anyhow::Error) -> anyhow::Error {
    let mut begin = [0; 2];
    let is_script = fs::File::open(file)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin))
        .is_ok_and(|()| begin == *b"#!");
    if is_script {
        return usage(format!(
            "{} is a script, which its interpreter executes\n  Name the interpreter's file",
            file.display()
        ));
    }
    error
}
