//! Other programs: run to their end, with their output, unless interrupted.

use std::{
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{
    Error, StepObserver,
    error::{disk_full, program_failed},
};
use bpfcost_process::program::{Program, Task, installing};

/// How often an interruption is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a program said.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub(super) ok: bool,
    pub(super) out: String,
    pub(super) err: String,
}

/// A line, and whether it came from stdout.
type OutputLine = (bool, String);

/// A step of adding a kernel: a program that runs to its end.
pub(super) trait Step {
    /// Returns a command line of the program, with English output.
    fn command(&self) -> Command;

    /// Runs the program to its end. Each line on its stdout is shown to `hear`.
    fn run(
        &self,
        command: &mut Command,
        observer: &dyn StepObserver,
        hear: &mut dyn FnMut(&str),
    ) -> Result<CommandOutput, Error>;

    /// Runs the program, which writes to `folder`, and returns its stdout. Fails with its last words.
    fn succeed(
        &self,
        command: &mut Command,
        folder: &Path,
        observer: &dyn StepObserver,
    ) -> Result<String, Error>;

    /// Returns the program's failure, in its own last words; it was writing to `folder`.
    fn failed(&self, output: &CommandOutput, folder: &Path) -> Error;
}

impl Step for Program {
    fn command(&self) -> Command {
        let mut command = Command::new(self.name);
        command.env("LC_ALL", "C").env("PATH", path());
        command
    }

    fn run(
        &self,
        command: &mut Command,
        observer: &dyn StepObserver,
        hear: &mut dyn FnMut(&str),
    ) -> Result<CommandOutput, Error> {
        // Its own process group, so that all its children can be killed with it, and so that Ctrl-C
        // on a terminal does not end it behind our back.
        let mut child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| not_started(*self, &error))?;
        let (sender, lines) = channel();
        let readers = read(child.stdout.take(), sender.clone(), true)
            .and_then(|()| read(child.stderr.take(), sender, false));
        if let Err(error) = readers {
            end(&mut child);
            return Err(not_started(*self, &error));
        }
        let (out, err) = match listen(&lines, observer, hear) {
            Ok(heard) => heard,
            Err(interrupted) => {
                end(&mut child);
                return Err(interrupted);
            }
        };
        let status = child.wait().map_err(|error| not_started(*self, &error))?;
        Ok(CommandOutput {
            ok: status.success(),
            out,
            err,
        })
    }

    fn succeed(
        &self,
        command: &mut Command,
        folder: &Path,
        observer: &dyn StepObserver,
    ) -> Result<String, Error> {
        let output = self.run(command, observer, &mut |_| {})?;
        if output.ok {
            return Ok(output.out);
        }
        Err(self.failed(&output, folder))
    }

    fn failed(&self, output: &CommandOutput, folder: &Path) -> Error {
        if is_full(&output.err) {
            return disk_full(folder);
        }
        let words = last_line(&output.err).or_else(|| last_line(&output.out));
        program_failed(self.name, words.unwrap_or("it printed nothing"))
    }
}

fn not_started(program: Program, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return lacking("a kernel for guests", [(program.name, program.package)]);
    }
    program_failed(program.name, &error.to_string())
}

/// Names all that a task lacks, before anything is downloaded: programs, and further files with their packages.
pub(super) fn require(
    task: Task,
    what: &str,
    files: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> Result<(), Error> {
    let programs = task.missing();
    let programs = programs.iter().map(|one| (one.name, one.package));
    let lacks: Vec<_> = programs.chain(files).collect();
    if lacks.is_empty() {
        Ok(())
    } else {
        Err(lacking(what, lacks))
    }
}

fn lacking(what: &str, lacks: impl IntoIterator<Item = (&'static str, &'static str)>) -> Error {
    let (names, packages): (Vec<&str>, Vec<&str>) = lacks.into_iter().unzip();
    let (are, them) = match names.as_slice() {
        [_] => ("is", "it"),
        _ => ("are", "them"),
    };
    Error::Lacking(format!(
        "{what} needs {}, which {are} not installed\n  Install {them}: {}",
        names.join(", "),
        installing(packages)
    ))
}

/// Whether output reports a full disk.
pub(super) fn is_full(words: &str) -> bool {
    [
        "No space left on device",
        "enough free space",
        "Disk quota exceeded",
    ]
    .iter()
    .any(|full| words.contains(full))
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// The user's PATH and the folders of root, where depmod lies.
pub(super) fn path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    // An empty one would be the current folder.
    if !path.is_empty() {
        path.push(":");
    }
    path.push("/usr/sbin:/sbin");
    path
}

/// Starts a thread that sends the lines of a stream; an error where this user may not have another one.
fn read(
    stream: Option<impl Read + Send + 'static>,
    sender: Sender<OutputLine>,
    is_out: bool,
) -> io::Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    let lines = move || {
        let mut stream = BufReader::new(stream);
        let mut bytes = Vec::new();
        while let Ok(1..) = stream.read_until(b'\n', &mut bytes) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            if sender.send((is_out, text)).is_err() {
                return;
            }
            bytes.clear();
        }
    };
    thread::Builder::new().spawn(lines).map(drop)
}

/// Hears all lines until both streams end.
fn listen(
    lines: &Receiver<OutputLine>,
    observer: &dyn StepObserver,
    hear: &mut dyn FnMut(&str),
) -> Result<(String, String), Error> {
    let (mut out, mut err) = (String::new(), String::new());
    loop {
        if observer.interrupted() {
            return Err(Error::Interrupted);
        }
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok((is_out, line)) => {
                if is_out {
                    hear(&line);
                }
                let all = if is_out { &mut out } else { &mut err };
                *all += &(line + "\n");
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok((out, err)),
        }
    }
}

/// Ends a program and all that it started.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}
