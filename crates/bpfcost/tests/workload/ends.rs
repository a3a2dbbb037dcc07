//! However a run ends, nothing of it is left: no process, no folder, no control group, no port.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::PathBuf,
    process::Command,
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

use bpfcost_process::wait_until;

use crate::{
    definition::{CLIENT, REDIS, able, called, family, with},
    own_cgroups::groups,
    require,
    running::Running,
    tool::Tool,
};

/// The longest that a killed process may take to be gone.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Resources of a run in a window.
struct Had {
    me: u32,
    pids: Vec<u32>,
    folder: PathBuf,
    port: u16,
}

/// A run whose server is up and whose first trial is written.
fn in_a_window(tool: &Tool) -> (Running, Had) {
    let mut run = Running::start(tool, "run x.toml --quick");
    run.until(|journal| journal.contains("\n{\"trial\""));
    let begun = Instant::now();
    loop {
        let pids = family(run.id());
        // Between two epochs there is none.
        let server = pids
            .iter()
            .find(|pid| called(**pid).contains("redis-server "));
        let port = server.and_then(|pid| {
            let called = called(*pid);
            called
                .trim()
                .rsplit_once(':')?
                .1
                .split(' ')
                .next()?
                .parse()
                .ok()
        });
        let folder = server.and_then(|pid| fs::read_link(format!("/proc/{pid}/cwd")).ok());
        if let (Some(port), Some(folder)) = (port, folder) {
            let me = run.id();
            return (
                run,
                Had {
                    me,
                    pids,
                    folder,
                    port,
                },
            );
        }
        assert!(begun.elapsed() < TIMEOUT, "no server among {pids:?}");
        sleep(Duration::from_millis(5));
    }
}

impl Had {
    /// The part of it that is still there.
    fn left(&self) -> Vec<String> {
        let alive =
            |pid: &&u32| called(**pid).contains("redis-") || called(**pid).contains("bpfcost");
        let mut left: Vec<String> = self
            .pids
            .iter()
            .filter(alive)
            .map(|pid| called(*pid))
            .collect();
        left.extend(
            self.folder
                .exists()
                .then(|| self.folder.display().to_string()),
        );
        left.extend(
            groups(self.me)
                .iter()
                .map(|group| group.display().to_string()),
        );
        if let Err(error) = TcpListener::bind(("127.0.0.1", self.port)) {
            left.push(format!("port {}: {error}", self.port));
        }
        left
    }

    #[track_caller]
    fn assert_gone(&self) {
        let gone = wait_until(TIMEOUT, Duration::from_millis(20), || {
            self.left().is_empty()
        });
        assert!(gone, "left: {:?}", self.left());
    }
}

#[test]
fn killed_in_a_window() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let tool = with(REDIS, "", "");
    let (mut run, had) = in_a_window(&tool);
    assert!(had.left().len() >= 3, "{:?}", had.left());
    run.kill();
    had.assert_gone();
    assert_eq!(tool.names(), ["x.json.journal", "x.toml"]);
}

/// A compiler that is killed leaves its temporary files where it made them.
#[test]
fn killed_in_preparation() {
    if !able(&[]) {
        return;
    }
    let slow = r#"prepare = [["sh", "-c", "mktemp made-XXXX --tmpdir && exec sleep 1234"]]"#;
    let tool = with(CLIENT, "headline", &format!("{slow}\nheadline"));
    let line = "run x.toml --quick --out x.json";
    let mut run = Running::spawn(&tool, &mut tool.with_caches(tool.command(line)));
    let files = || {
        let mut files = vec![tool.path("scratch")];
        let mut next = 0;
        while let Some(folder) = files.get(next) {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            files.extend(entries.map(|entry| entry.path()).collect::<Vec<_>>());
            next += 1;
        }
        files.split_off(1)
    };
    let until = |wanted: &dyn Fn(&[PathBuf]) -> bool| {
        let as_wanted = wait_until(TIMEOUT, Duration::from_millis(5), || wanted(&files()));
        assert!(as_wanted, "{:?}", files());
    };
    let made = |path: &PathBuf| path.display().to_string().contains("/made-");
    until(&|files| files.iter().any(made));
    run.kill();
    until(&|files| files.is_empty());
}

#[test]
fn killed_with_its_guard() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let tool = with(REDIS, "", "");
    let (mut run, had) = in_a_window(&tool);
    if groups(had.me).is_empty() {
        return require::skip("no control group of version 2 may be made here");
    }
    // The reaper first: it would be quicker than the second kill.
    let guards = had
        .pids
        .iter()
        .filter(|pid| called(**pid).contains("reaper"));
    let guards: Vec<String> = guards.map(u32::to_string).collect();
    assert_eq!(guards.len(), 1, "{guards:?}");
    let killed = Command::new("kill").args(["-9", &guards[0]]).status();
    assert!(killed.expect("kill runs").success());
    run.kill();
    // Other runs of this test program may have removed the group by now; folders they let be.
    assert!(had.folder.exists(), "{}", had.folder.display());
    // Young ones are let be.
    let past = SystemTime::now() - Duration::from_secs(120);
    let folder = File::open(&had.folder).expect("the folder");
    folder.set_modified(past).expect("its age");
    tool.answers("run --resume x.json");
    had.assert_gone();
}

#[test]
fn interrupted_in_a_window() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    for signals in [["INT"].as_slice(), &["INT", "INT"]] {
        let tool = with(REDIS, "", "");
        let (mut run, had) = in_a_window(&tool);
        signals.iter().for_each(|signal| run.signal(signal));
        let said = run.end();
        assert_eq!(said.code, Some(130), "{said:?}");
        // Once, and all is done in order; twice, and the reaper does it.
        match signals {
            [_] => {
                assert_eq!(had.left(), [""; 0]);
                assert_eq!(tool.names(), ["x.json", "x.json.journal", "x.toml"]);
                assert!(
                    said.err.contains("continue: bpfcost run --resume x.json"),
                    "{said:?}"
                );
            }
            _ => had.assert_gone(),
        }
    }
}
