//! A tool of the user: a command that runs while the probe is on, ended by SIGINT as from a terminal.
//!
//! It is ready when the set of BPF programs that it has loaded stays the same for a while. A tool without BPF
//! programs (strace, perf) must be declared as such: a tool that is slow to load would otherwise appear to cost
//! nothing.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use regex::bytes::Regex;
use rustix::process::Signal;

use super::{
    Probe, WindowCounts,
    programs::{Loading, freed},
};
use bpfcost_model::Fault;
use bpfcost_process::{
    Capture, ChildFailed, Process, ProcessClock, RunContext, Search, describe_exit,
    restore::RestoreGuard,
};

/// Time that a tool has to load its programs: bpftrace needs one second, bcc's compiler some five.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// When a tool without BPF counts as started.
const PLAIN_START: Duration = Duration::from_secs(1);
/// Time that a tool has to end after SIGINT: many print all that they have counted.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Tools that are known to do without BPF programs.
const WITHOUT_BPF: [&str; 5] = ["gdb", "ltrace", "perf", "strace", "tcpdump"];
/// Beginning of the line with which `bpfcost user` ends.
const IN_USER_SPACE: &str = "In user space: ";
/// Sysctls that tools are known to change, and not always to put back.
const SETTINGS: [&str; 3] = [
    "kernel.bpf_stats_enabled",
    "kernel.kptr_restrict",
    "kernel.perf_event_paranoid",
];
/// Mounts tracefs and debugfs for a tool, in its own mount namespace, where this machine has not mounted them.
const WITH_TRACEFS: &str = r#"
[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
[ -d /sys/kernel/debug/tracing ] || mount -t debugfs debugfs /sys/kernel/debug
exec sh -c "$1"
"#;

#[derive(Debug)]
pub(super) struct Tool {
    command: String,
    kind: Kind,
    running: Option<RunningTool>,
    /// Put back when it is gone.
    _settings: Vec<RestoreGuard>,
}

/// Kind of a tool, by its BPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They run in the kernel.
    Bpf,
    /// Those at uprobes run in user space; `bpfcost user` says at its end how often.
    UserSpace,
    /// A tool without programs.
    Plain,
}

/// A tool that runs.
#[derive(Debug)]
struct RunningTool {
    process: Process,
    loading: Loading,
}

impl Tool {
    pub(super) fn new(command: &str, kind: Kind) -> Result<Self> {
        if !has_tracefs() {
            try_mounting(&["unshare", "--mount", "true"])?;
        }
        let without = kind == Kind::Bpf && WITHOUT_BPF.contains(&program(command));
        Ok(Tool {
            command: match kind {
                Kind::UserSpace => format!("{{bpfcost}} user -- {command}"),
                _ => command.to_owned(),
            },
            kind: if without { Kind::Plain } else { kind },
            running: None,
            _settings: RestoreGuard::of_settings(SETTINGS)?,
        })
    }

    /// Waits until it is ready; what it has loaded.
    fn ready(&self, process: &mut Process, loading: &mut Loading) -> Result<Vec<u32>> {
        let clock = ProcessClock::start_new();
        loop {
            let programs = loading.look(&process.pids());
            self.alive(process)?;
            match programs {
                Some(programs) => return Ok(programs),
                None if self.kind == Kind::Plain && clock.wall() > PLAIN_START => {
                    return Ok(Vec::new());
                }
                None if !clock.exceeds(process.id(), LOAD_TIMEOUT) => {}
                None => {
                    return Err(ChildFailed(format!(
                        "{} loaded no BPF program within {} s\n{}\n  If it is a tool without BPF, write \
                         'process:{0}'",
                        self.command,
                        LOAD_TIMEOUT.as_secs(),
                        process.tail(),
                    ))
                    .into());
                }
            }
        }
    }

    /// Refuses a tool that has ended: what was measured was not with it.
    fn alive(&self, process: &mut Process) -> Result<()> {
        let Some(status) = process.ended()? else {
            return Ok(());
        };
        let advice = if status.success() {
            "A probe must run until bpfcost stops it with SIGINT"
        } else {
            "Run it alone first, to see that it works"
        };
        Err(ChildFailed(format!(
            "{} {} during the run\n{}\n  {advice}",
            self.command,
            describe_exit(status),
            process.tail(),
        ))
        .into())
    }
}

impl Probe for Tool {
    fn attach(&mut self, context: &RunContext) -> Result<(), Fault> {
        let command = context.fill(&self.command)?;
        let mut loading = Loading::begin(self.kind == Kind::Plain);
        let capture = Capture {
            search: Some(Search::Sum(lost()?)),
            ..Capture::default()
        };
        let mut process = Process::start_captured(&wrapped(&command), &[], &[], capture)?;
        let programs = self.ready(&mut process, &mut loading)?;
        super::leftovers::remember(&programs, &process.pids());
        self.running = Some(RunningTool { process, loading });
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts, Fault> {
        let Some(mut running) = self.running.take() else {
            return Ok(WindowCounts::default());
        };
        self.alive(&mut running.process)?;
        let programs = running.loading.programs_now(&running.process.pids());
        running.process.signal(Signal::INT);
        if running.process.end_within(EXIT_TIMEOUT).is_err() {
            running.process.stop(Signal::TERM);
        }
        let mut counts = WindowCounts {
            lost: running.process.found(),
            ..WindowCounts::default()
        };
        if self.kind == Kind::UserSpace {
            let printed = running.process.tail();
            let (hits, missed) = in_user_space(&printed).ok_or_else(|| {
                ChildFailed(format!(
                    "{} did not say what it did\n{printed}",
                    self.command
                ))
            })?;
            counts.hits = Some(hits);
            counts.lost += missed;
        }
        drop(running.process);
        freed(&programs);
        Ok(counts)
    }

    fn pids(&self) -> Vec<u32> {
        let running = self.running.as_ref();
        running.map_or(Vec::new(), |running| running.process.pids())
    }

    fn cpu_ns(&self) -> Option<f64> {
        let process = &self.running.as_ref()?.process;
        // What it prints is read here; beside a terminal or a pipe that would be another process of the tool.
        Some(process.cpu_ns()? + process.reading_ns())
    }

    fn programs(&self) -> Vec<u32> {
        // In the kernel, nothing hits those that run in user space.
        let running = self.running.as_ref();
        let running = running.filter(|_| self.kind != Kind::UserSpace);
        running.map_or(Vec::new(), |running| {
            running.loading.programs_now(&running.process.pids())
        })
    }
}

/// The command for a shell, with the file systems that tracers look for.
fn wrapped(command: &str) -> Vec<String> {
    let words: &[&str] = if has_tracefs() {
        &["sh", "-c", command]
    } else {
        &[
            "unshare",
            "--mount",
            "sh",
            "-c",
            WITH_TRACEFS,
            "sh",
            command,
        ]
    };
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Returns true where the file systems that tracers look for are mounted.
fn has_tracefs() -> bool {
    let there = |path: &str| Path::new(path).is_dir();
    there("/sys/kernel/tracing/events") && there("/sys/kernel/debug/tracing")
}

/// Tries what starts tools in a mount namespace of their own. A tool that failed there would be blamed itself.
fn try_mounting(command: &[&str]) -> Result<()> {
    let tried = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .output();
    let why = match tried {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("{}: {error}", command[0]),
    };
    bail!(
        "cannot mount the file systems that tools look for, in a mount namespace for them: {why}\n  Mount them yourself: \
         mount -t tracefs tracefs /sys/kernel/tracing; mount -t debugfs debugfs /sys/kernel/debug"
    )
}

/// The program of a command: its first word that sets no variable and is no `sudo`, without its folder.
pub fn program(command: &str) -> &str {
    let mut words = command.split_whitespace();
    let word = words.find(|word| *word != "sudo" && !word.contains('='));
    let word = word.unwrap_or_default();
    word.rsplit('/').next().unwrap_or(word)
}

/// Refuses a command whose first word no shell would start.
pub(super) fn there(command: &str) -> Result<()> {
    let mut words = command.split_whitespace();
    let word = words.find(|word| !word.contains('=')).unwrap_or_default();
    // What is more than a name is the shell's to understand.
    let name = |letter: char| letter.is_ascii_alphanumeric() || "_-+./".contains(letter);
    let (before, after) = command.split_once(word).unwrap_or_default();
    let quoted =
        before.contains(['"', '\'', '`', '$', '\\']) || after.trim_start().starts_with('(');
    if word.is_empty() || quoted || !word.chars().all(name) {
        return Ok(());
    }
    let status = Command::new("sh")
        .args(["-c", "command -v \"$0\"", word])
        .stdin(Stdio::null())
        .output()
        .context("cannot start a shell")?;
    if !status.status.success() {
        bail!(
            "there is no command {word}\n  Check its name, or give its path if it is not in PATH. \
             BPF objects end in .bpf.o, units in .service; built-in probes begin with builtin:"
        );
    }
    Ok(())
}

/// Runs and missed calls that `bpfcost user` says at the end of a tool.
fn in_user_space(printed: &str) -> Option<(u64, u64)> {
    let line = printed
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix(IN_USER_SPACE))?;
    let number = |unit: &str| {
        let mut parts = line.split(", ");
        let digits = parts.find_map(|part| part.trim_end_matches('s').strip_suffix(unit))?;
        digits.trim().replace(',', "").parse().ok()
    };
    Some((number("hit")?, number("missed")?))
}

/// Finds events that a tool says it has lost: bpftrace's `Lost 12 events`, bcc's `lost 12 samples`.
fn lost() -> Result<Regex> {
    Ok(Regex::new(r"(?i)\blost (\d+) (?:events|samples)")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_commands() {
        for (command, expected) in [
            ("bpftrace -e 'BEGIN { }'", "bpftrace"),
            ("sudo /usr/sbin/opensnoop-bpfcc -x", "opensnoop-bpfcc"),
            ("LANG=C strace -p 1", "strace"),
            ("", ""),
        ] {
            assert_eq!(program(command), expected);
        }
    }

    #[test]
    fn what_starts_tools_is_not_taken_for_the_tool() {
        assert!(try_mounting(&["true"]).is_ok());
        for (command, why) in [
            (
                &["sh", "-c", "echo it is forbidden >&2; exit 1"][..],
                "it is forbidden",
            ),
            (&["no-such-program"], "no-such-program: "),
        ] {
            let error = try_mounting(command).expect_err("it fails").to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.contains("Mount them yourself"), "{error}");
        }
    }

    #[test]
    fn what_no_shell_would_start_is_told() {
        for command in [
            "true",
            "LANG=C /bin/sh -c true",
            "while :; do :; done",
            "exec sleep 1",
            "(sleep 1 &); wait",
            "{bpfcost} top",
            "A='x y z' true",
            "f () { true; }; f",
            "",
        ] {
            assert!(there(command).is_ok(), "{command}");
        }
        for command in [
            "no-such-tracer -p 1",
            "A=1 ./nowhere/tracer",
            "agnet.servce",
        ] {
            let told = there(command).expect_err(command).to_string();
            assert!(told.contains("there is no command"), "{told}");
        }
    }

    #[test]
    fn counts_of_user_space_are_found() {
        let printed = "  @: 12 hits\n  In user space: 2 places, 4,000,001 hits, 1,007 missed, 3 programs refused\n";
        assert_eq!(in_user_space(printed), Some((4_000_001, 1007)));
        let printed = "In user space: 1 place, 1 hit, 0 missed";
        assert_eq!(in_user_space(printed), Some((1, 0)));
        for printed in ["", "In user space: 1 place", "1 hit, 0 missed"] {
            assert_eq!(in_user_space(printed), None);
        }
    }

    #[test]
    fn losses_are_found() {
        let lost = lost().expect("an expression");
        let numbers = |printed: &str| -> Vec<String> {
            let groups = lost.captures_iter(printed.as_bytes());
            let number = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            groups.map(|groups| number(&groups[1])).collect()
        };
        let printed =
            "Attaching 1 probe...\nLost 12 events\nPossibly lost 30 samples\nlost nothing\n";
        assert_eq!(numbers(printed), ["12", "30"]);
        assert!(numbers("@: 7").is_empty());
    }
}
