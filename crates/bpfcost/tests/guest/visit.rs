//! A run in a guest: its command, its journal while it goes on, and what it leaves behind.

use std::{
    cell::Cell,
    fs,
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};

use bpfcost_process::wait_until;
use bpfcost_target::guest::HOOKS;

use crate::tool::{Said, Tool, said};

/// No wait in these tests is longer. On an idle machine a guest is measured in 20 s.
const TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One of the cheapest cases.
pub(crate) const QUICK: &str = "run ladder --quick --seed 7 --case added-10";

/// The command line with its own home, but with this user's kernels and programs, and what is known of KVM.
pub(crate) fn command(tool: &Tool, line: &str) -> Command {
    tool.with_caches(tool.command(line))
}

/// A shell in the same surroundings that runs `$BPFCOST`. Its mounts are its own, and end with it.
pub(crate) fn aside(tool: &Tool, script: &str) -> Command {
    let mut shell = tool.wrapped("unshare", "--mount --propagation private sh -ec");
    shell.arg(script);
    for (name, value) in command(tool, "").get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell.env("BPFCOST", env!("CARGO_BIN_EXE_bpfcost"));
    shell
}

/// A run that goes on. Killed when dropped.
pub(crate) struct Visit {
    child: Option<Child>,
    journal: PathBuf,
}

impl Visit {
    /// Starts it. `line` says nothing of `--out`, which is `x.json`; `hooks` are faults to put in, as
    /// JSON.
    pub(crate) fn start(tool: &Tool, line: &str, hooks: &str) -> Self {
        Self::spawn(
            tool,
            command(tool, &format!("{line} --out x.json")).env(HOOKS, hooks),
        )
    }

    /// Starts this command of [`command`]'s.
    pub(crate) fn spawn(tool: &Tool, command: &mut Command) -> Self {
        Visit {
            child: Some(command.spawn().expect("the binary runs")),
            journal: tool.path("x.json.journal"),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("it has not ended").id()
    }

    /// Waits until its journal is as wanted.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: impl Fn(&str) -> bool) {
        self.wait_for(|visit| wanted(&fs::read_to_string(&visit.journal).unwrap_or_default()));
    }

    #[track_caller]
    pub(crate) fn wait_for(&mut self, ready: impl Fn(&Visit) -> bool) {
        let in_time = wait_until(TIMEOUT, POLL_INTERVAL, || {
            let is_ready = ready(self);
            let child = self.child.as_mut().expect("it has not ended");
            let has_ended = child.try_wait().expect("a child").is_some();
            assert!(is_ready || !has_ended, "it has ended");
            is_ready
        });
        assert!(in_time, "it takes too long");
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Waits for its QEMU, and returns its number.
    #[track_caller]
    pub(crate) fn qemu(&mut self, tool: &Tool) -> u32 {
        let find = || {
            children(tool).into_iter().find_map(|(pid, line)| {
                let is_qemu = line.starts_with("/") && line.contains("/qemu-system");
                (is_qemu && line.contains("-kernel")).then_some(pid)
            })
        };
        // Seen twice: one that is about to end, or to become another program, is not the guest's.
        let seen = Cell::new(None);
        self.wait_for(|_| {
            let before = seen.replace(find());
            before.is_some() && before == seen.get()
        });
        seen.get().expect("it is there")
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Said {
        let child = self.child.take().expect("it has not ended");
        said(&child.wait_with_output().expect("a child"))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs it to its end, and looks at what it leaves.
#[track_caller]
pub(crate) fn says(tool: &Tool, line: &str, hooks: &str) -> Said {
    let said = Visit::start(tool, line, hooks).end();
    assert_nothing_left(tool);
    said
}

/// Runs it until all cases were loaded and measured so many times, interrupts it, and looks at what it leaves. All trials are
/// checked, and the ten epochs of intervals would only take longer.
#[track_caller]
pub(crate) fn says_of_epochs(tool: &Tool, line: &str, epochs: usize) -> Said {
    let mut visit = Visit::start(tool, line, "{}");
    visit.until(|journal| journal.matches("\n{\"epoch-finished\"").count() >= epochs);
    visit.signal("INT");
    let said = visit.end();
    assert_nothing_left(tool);
    assert_eq!(said.code, Some(130), "{said:?}");
    said
}

/// A run that ends with exit code 4 and all of `words`, and leaves nothing, not even a journal.
#[track_caller]
pub(crate) fn refused(tool: &Tool, line: &str, hooks: &str, words: &[&str]) -> Said {
    let said = says(tool, line, hooks);
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(words);
    assert!(!tool.names().iter().any(|name| name.starts_with("x.json")));
    said
}

/// Sends a signal, by its name, to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .status();
    assert!(sent.expect("sh runs").success());
}

/// The processes that have to do with this home, by their arguments or by their environment.
pub(crate) fn processes(tool: &Tool) -> Vec<String> {
    children(tool).into_iter().map(|(_, line)| line).collect()
}

/// The same, each with its number.
fn children(tool: &Tool) -> Vec<(u32, String)> {
    let scratch = tool.path("scratch").display().to_string();
    fs::read_dir("/proc")
        .expect("processes")
        .flatten()
        .filter_map(|entry| {
            let text = |name: &str| {
                let bytes = fs::read(entry.path().join(name)).ok()?;
                Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
            };
            let (line, set) = (text("cmdline")?, text("environ").unwrap_or_default());
            let pid = entry.file_name().to_str()?.parse().ok()?;
            (line.contains(&scratch) || set.contains(&scratch)).then_some((pid, line))
        })
        .collect()
}

/// No process, no file, no mount. The reaper that removes them may take a moment.
#[track_caller]
pub(crate) fn assert_nothing_left(tool: &Tool) {
    let scratch = tool.path("scratch");
    let mut left = String::new();
    let nothing_is_left = wait_until(TIMEOUT, POLL_INTERVAL, || {
        let files: Vec<_> = fs::read_dir(&scratch)
            .expect("a folder")
            .flatten()
            .collect();
        let processes = processes(tool);
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mounted = mounts.contains(&scratch.display().to_string());
        left = format!("{files:?}, {processes:?}, mounted: {mounted}");
        files.is_empty() && processes.is_empty() && !mounted
    });
    assert!(nothing_is_left, "left: {left}");
}
