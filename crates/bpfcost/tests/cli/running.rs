//! A run in the background: its journal, what it holds in the kernel, and its end.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};

use bpfcost_process::wait_until;

use crate::tool::{Said, Tool, said};

/// No wait in these tests is longer; on an idle machine each ends within a second or two.
const TIMEOUT: Duration = Duration::from_secs(240);

/// A run whose record will be `x.json`. Killed when dropped.
pub(crate) struct Running {
    child: Option<Child>,
    journal: PathBuf,
}

/// Programs and maps that processes held, by the kernel's numbers.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) programs: BTreeSet<u32>,
    pub(crate) maps: BTreeSet<u32>,
}

impl Running {
    /// Starts it. `line` says nothing of `--out`.
    pub(crate) fn start(tool: &Tool, line: &str) -> Self {
        Running::without_record(tool, &format!("{line} --out x.json"))
    }

    /// Starts what writes no record.
    pub(crate) fn without_record(tool: &Tool, line: &str) -> Self {
        Running::spawn(tool, &mut tool.command(line))
    }

    /// Starts this command of the tool's.
    pub(crate) fn spawn(tool: &Tool, command: &mut Command) -> Self {
        Running {
            child: Some(command.spawn().expect("the binary runs")),
            journal: tool.path("x.json.journal"),
        }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it has not ended")
    }

    pub(crate) fn id(&mut self) -> u32 {
        self.child().id()
    }

    pub(crate) fn journal(&self) -> String {
        fs::read_to_string(&self.journal).unwrap_or_default()
    }

    /// Waits until the journal is as wanted.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: impl Fn(&str) -> bool) {
        assert!(
            self.until_or_end(wanted),
            "it ended before: {}",
            self.journal()
        );
    }

    /// Waits until its journal is as wanted; `false` where it ended before that was seen.
    pub(crate) fn until_or_end(&mut self, wanted: impl Fn(&str) -> bool) -> bool {
        let mut is_as_wanted = false;
        let in_time = wait_until(TIMEOUT, Duration::from_millis(1), || {
            is_as_wanted = wanted(&self.journal());
            is_as_wanted || self.is_over()
        });
        assert!(in_time, "{}", self.journal());
        is_as_wanted
    }

    /// Waits for so long, or until it ends; whether it has ended.
    pub(crate) fn ends_within(&mut self, time: Duration) -> bool {
        wait_until(time, Duration::from_millis(1), || self.is_over())
    }

    /// Returns true if it has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child().try_wait().expect("a child").is_some()
    }

    /// Programs and maps that it holds just now.
    pub(crate) fn held(&mut self) -> Held {
        let id = self.id();
        // Until exec() is through, it has this process's files still; the name comes after they are closed.
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        if name.trim_end() == "bpfcost" {
            Held::by([id])
        } else {
            Held::default()
        }
    }

    /// Waits until it holds something.
    #[track_caller]
    pub(crate) fn until_it_holds(&mut self) -> Held {
        let mut held = Held::default();
        let holds = wait_until(TIMEOUT, Duration::ZERO, || {
            held = self.held();
            !held.is_empty()
        });
        assert!(holds, "it loads nothing");
        held
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&mut self, name: &str) {
        let id = self.id();
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {id}")])
            .status();
        assert!(sent.expect("sh runs").success());
    }

    /// SIGKILL, and the wait for its end.
    pub(crate) fn kill(&mut self) {
        let child = self.child();
        child.kill().expect("it may be killed");
        child.wait().expect("a child");
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Said {
        let child = self.child.take().expect("it has not ended");
        said(&child.wait_with_output().expect("a child"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Held {
    /// Programs and maps that these processes hold just now, by their open files.
    pub(crate) fn by(processes: impl IntoIterator<Item = u32>) -> Self {
        let mut held = Held::default();
        let files = processes
            .into_iter()
            .filter_map(|id| fs::read_dir(format!("/proc/{id}/fdinfo")).ok());
        for file in files.flatten().flatten() {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            let number = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key));
                line.and_then(|value| value.trim().parse::<u32>().ok())
            };
            held.programs.extend(number("prog_id:"));
            held.maps.extend(number("map_id:"));
        }
        held
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty()
    }

    /// Waits until the kernel has none of it any more; it frees some milliseconds later. A link holds its
    /// program, so that one that was left would show.
    #[track_caller]
    pub(crate) fn assert_freed(&self) {
        let freed = wait_until(TIMEOUT, Duration::from_millis(10), || {
            let programs = bpfcost_bpf::loaded_programs();
            let maps = bpfcost_bpf::loaded_maps();
            !programs.iter().any(|one| self.programs.contains(&one.id))
                && !maps.iter().any(|id| self.maps.contains(id))
        });
        assert!(freed, "left in the kernel: {self:?}");
    }
}
