//! Each stimulus operates, and leaves nothing behind. One test alone: another one's threads and files would count.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use bpfcost_stimulus::{Context, Stimulus, all};

const OPERATIONS: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Stimuli for guests alone: a disk of this name may have data here, and the kernel chooses which process to kill.
const OF_GUESTS: [&str; 4] = ["block-write", "read-ahead", "random-read", "oom-kill"];

/// Stimuli that need a privilege or a kernel option. All others must work on any machine that runs tests.
const OPTIONAL: &[&str] = &[
    "block-read",
    "overlay",
    "shared-folder",
    "capabilities",
    "fallocate",
    "fanotify",
    "fsopen",
    "hostname",
    "icmp",
    "message-queue",
    "mlock",
    "mount",
    "namespaces",
    "network-link",
    "page-cache",
    "process-vm",
    "tcp6",
    "tcp-data6",
    "tcp-listen6",
    "terminal",
    "tmpfs",
    "udp6",
    "xattr",
];

/// Resources of this process.
#[derive(Debug, PartialEq, Eq)]
struct Resources {
    files: usize,
    threads: usize,
    children: String,
    folder: usize,
    identity: String,
}

impl Resources {
    fn count(folder: &Path) -> Self {
        let entries = |path: &Path| fs::read_dir(path).expect("a folder").count();
        let children = |task: fs::DirEntry| {
            fs::read_to_string(task.path().join("children")).unwrap_or_default()
        };
        let tasks = fs::read_dir("/proc/self/task").expect("threads");
        let status = fs::read_to_string("/proc/thread-self/status").expect("a status");
        let kept = [
            "Name:",
            "Uid:",
            "Gid:",
            "Sig",
            "Cap",
            "Cpus_allowed:",
            "VmLck:",
        ];
        Self {
            files: entries(Path::new("/proc/self/fd")),
            threads: entries(Path::new("/proc/self/task")),
            children: tasks.filter_map(Result::ok).map(children).collect(),
            folder: entries(folder),
            identity: status
                .lines()
                .filter(|line| kept.iter().any(|kept| line.starts_with(kept)))
                .collect(),
        }
    }
}

/// A thread that was joined is still listed for a moment.
fn expect_same(before: &Resources, folder: &Path, stimulus: &Stimulus) {
    let start = Instant::now();
    loop {
        let now = Resources::count(folder);
        if now == *before {
            return;
        }
        assert!(
            start.elapsed() < TIMEOUT,
            "{} leaves something: {before:?}, then {now:?}",
            stimulus.name
        );
        thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn each_stimulus_operates_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let context = Context::new(folder.path());
    for stimulus in all().filter(|one| !OF_GUESTS.contains(&one.name)) {
        let before = Resources::count(folder.path());
        let mut prepared = match stimulus.prepare(&context) {
            Ok(prepared) => prepared,
            Err(error) => {
                assert!(
                    OPTIONAL.contains(&stimulus.name),
                    "{}: {error}",
                    stimulus.name
                );
                eprintln!("skipped: {}: {error}", stimulus.name);
                expect_same(&before, folder.path(), stimulus);
                continue;
            }
        };
        for operation in 1..=OPERATIONS {
            if let Err(error) = prepared.operate() {
                panic!("{}, operation {operation}: {error}", stimulus.name);
            }
        }
        drop(prepared);
        expect_same(&before, folder.path(), stimulus);
    }
    all_at_once(&context);
}

/// Prepared stimuli do not disturb each other.
fn all_at_once(context: &Context) {
    let mut prepared: Vec<_> = all()
        .filter(|one| !OF_GUESTS.contains(&one.name))
        .filter_map(|stimulus| Some((stimulus, stimulus.prepare(context).ok()?)))
        .collect();
    for _ in 0..2 {
        for (stimulus, prepared) in &mut prepared {
            prepared
                .operate()
                .unwrap_or_else(|error| panic!("{}: {error}", stimulus.name));
        }
    }
    drop(prepared);
    let left = fs::read_dir(&context.folder).expect("a folder").count();
    assert_eq!(left, 0, "files are left");
}
