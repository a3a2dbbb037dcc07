//! A control group around a run: all that the run starts is in it, however it is started.

use std::{fs, path::PathBuf, process::Command};

use bpfcost_process::cgroup::{LockedCgroup, all_pids};
use bpfcost_process::wait_until;

use super::{POLL_INTERVAL, TIMEOUT};
use crate::{own_cgroups::own_cgroups, tool::Tool};

pub(crate) struct Group(LockedCgroup);

impl Group {
    /// An empty one; `None` where no control group of version 2 may be made.
    pub(crate) fn make() -> Option<Self> {
        let made = |folder: PathBuf| LockedCgroup::make_in(&folder).ok();
        own_cgroups().into_iter().find_map(made).map(Group)
    }

    /// A call of bpfcost that runs in it.
    pub(crate) fn command(&self, tool: &Tool, words: &[String]) -> Command {
        let mut command = tool.with_caches(tool.wrapped("sh", "-c"));
        command
            .arg("echo $$ >\"$0\" && exec \"$@\"")
            .arg(self.0.path().join("cgroup.procs"))
            .arg(env!("CARGO_BIN_EXE_bpfcost"))
            .args(words);
        command
    }

    /// All that runs in it, and in groups within it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        all_pids(self.0.path())
    }

    /// Processes, by their command lines, and groups within it.
    fn left(&self) -> Vec<String> {
        let called = |id: u32| fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let called = |id| format!("process {id} {}", String::from_utf8_lossy(&called(id)));
        let within = fs::read_dir(self.0.path()).expect("the group").flatten();
        let within = within.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let within = within.map(|entry| entry.path().display().to_string());
        let processes = self.processes().into_iter().map(called);
        processes.chain(within).collect()
    }

    /// Waits until nothing is in it.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        let empty = wait_until(TIMEOUT, POLL_INTERVAL, || self.left().is_empty());
        assert!(empty, "left running: {:#?}", self.left());
    }
}
