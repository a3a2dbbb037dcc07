//! Traces that a run could leave on the machine, a line each: in the kernel, in tracefs, in settings, devices, mounts,
//! and memory that has a name.

use std::{
    collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration,
};

use bpfcost_process::wait_until;
use bpfcost_uprobe::mount::MountedFs;

use super::TIMEOUT;
use crate::running::Held;

/// The settings below `/proc/sys`; those of memory and of file systems are others' too.
const SETTINGS: [&str; 3] = ["kernel", "net", "debug"];
/// Settings that the kernel changes by itself.
const RESTLESS: [&str; 3] = [
    "ns_last_pid",
    "perf_event_max_sample_rate",
    "perf_cpu_time_max_percent",
];

#[derive(Debug, Default)]
pub(crate) struct Machine(BTreeSet<String>);

impl Machine {
    /// As it is now.
    pub(crate) fn now() -> Self {
        let mut lines = BTreeSet::new();
        unheld(&mut lines);
        events(&mut lines);
        for folder in SETTINGS {
            settings(&Path::new("/proc/sys").join(folder), &mut lines);
        }
        for folder in ["/sys/class/net", "/dev/shm", "/run"] {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            lines.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        lines.extend(mounts.lines().map(|line| format!("mount {line}")));
        Machine(lines)
    }

    /// Waits until nothing is on the machine that was not there before, and no setting has another value. Lines that `but`
    /// accepts may be.
    #[track_caller]
    pub(crate) fn assert_nothing_new(&self, but: impl Fn(&str) -> bool) {
        let mut new = Vec::new();
        let nothing_is_new = wait_until(TIMEOUT, Duration::from_millis(50), || {
            let now = Machine::now().0.into_iter();
            new = now
                .filter(|line| !self.0.contains(line) && !but(line))
                .collect();
            new.is_empty()
        });
        assert!(nothing_is_new, "left on the machine: {new:#?}");
    }
}

/// An event of tracefs that a killed run left. The next run that makes such events removes it, as docs/commands.md says.
pub(crate) fn is_swept_later(line: &str) -> bool {
    line.starts_with("event ") && line.contains(":bpfcost/")
}

/// BPF programs that no process has open, and all that is pinned. A map that is neither the run's own nor pinned is held by a
/// program.
fn unheld(lines: &mut BTreeSet<String>) {
    let programs = bpfcost_bpf::loaded_programs();
    // After the list: what is loaded meanwhile is not in it.
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let held = Held::by(processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()));
    let programs = programs
        .iter()
        .filter(|one| !held.programs.contains(&one.id));
    lines.extend(programs.map(|one| format!("program {} {} {}", one.id, one.kind, one.name)));
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    for mount in mounts.lines() {
        if let [_, folder, "bpf", ..] = mount.split(' ').collect::<Vec<_>>()[..] {
            pins(Path::new(folder), lines);
        }
    }
}

fn pins(folder: &Path, lines: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        lines.insert(format!("pin {}", entry.path().display()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            pins(&entry.path(), lines);
        }
    }
}

/// Events that were made in tracefs, those that are on, and instances.
fn events(lines: &mut BTreeSet<String>) {
    let Ok(tracefs) = MountedFs::ask("tracefs") else {
        return;
    };
    for file in ["kprobe_events", "uprobe_events", "dynamic_events"] {
        let text = fs::read_to_string(tracefs.path(file)).unwrap_or_default();
        lines.extend(text.lines().map(|line| format!("event {line}")));
    }
    let on = fs::read_to_string(tracefs.path("set_event")).unwrap_or_default();
    lines.extend(on.lines().map(|line| format!("switched on: {line}")));
    let instances = fs::read_dir(tracefs.path("instances"))
        .into_iter()
        .flatten();
    let instances = instances.flatten().map(|entry| entry.file_name());
    lines.extend(instances.map(|name| format!("instance {}", name.display())));
}

/// The values of all settings below a folder that can be changed.
fn settings(folder: &Path, lines: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Ok(about) = entry.metadata() else {
            continue;
        };
        if about.is_dir() {
            settings(&path, lines);
        } else if about.permissions().mode() & 0o200 != 0
            && !RESTLESS.iter().any(|one| name == **one)
            && let Ok(value) = fs::read(&path)
        {
            let value = String::from_utf8_lossy(&value);
            lines.insert(format!("{} = {}", path.display(), value.trim()));
        }
    }
}
