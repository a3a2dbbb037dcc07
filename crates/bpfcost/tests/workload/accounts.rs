//! CPU time, against the scheduler's own account of the same process.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use bpfcost_process::cgroup::{self, LockedCgroup};
use bpfcost_workload::UsageReader;
use serde_json::Value;

use crate::{
    definition::{CLIENT, able, with},
    require,
};

/// Burns one CPU until it is dropped.
struct Burner(Child);

impl Burner {
    fn start() -> Self {
        let child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn();
        Burner(child.expect("sh starts"))
    }

    /// Nanoseconds on a CPU, by proc_pid_schedstat(5).
    fn scheduled_ns(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.0.id())).ok()?;
        stat.split(' ').next()?.parse().ok()
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_a_process_burns_is_read() {
    let burner = Burner::start();
    if burner.scheduled_ns().is_none() {
        return require::skip("this kernel has no /proc/PID/schedstat");
    }
    let accounts = UsageReader::default();
    let pids = [burner.0.id()];
    let ns = || burner.scheduled_ns().expect("it is there");
    // Each reading is taken between two of the scheduler's.
    let outer = ns();
    let before = accounts.spent(&pids, &pids, None).expect("an account");
    let inner = ns();
    sleep(Duration::from_millis(700));
    let most_inner = ns() - inner;
    let spent = accounts
        .spent(&pids, &pids, None)
        .expect("an account")
        .since(&before);
    let most = ns() - outer;
    let between = |value: f64| value >= 0.99 * most_inner && value <= 1.01 * most;
    assert!(between(spent.server_ns), "{spent:?} {most_inner} {most}");
    assert!(between(spent.tool_ns), "{spent:?} {most_inner} {most}");
    // Steal is counted in ticks of 10 ms.
    assert!(spent.machine_ns > 0.98 * spent.server_ns - 1e7, "{spent:?}");
    assert!(spent.switches >= 0.0 && spent.drops >= 0.0, "{spent:?}");
}

/// A server that answers each of `requests` by a short child, as inetd did. Each child writes down its own runtime, as
/// proc_pid_schedstat(5) shows it at its end.
const FORKS: &str = r#"
while [ ! -e go ]; do sleep 0.01; done
n=0
while [ $n -lt 5 ]; do
  sh -c 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; read ns rest < /proc/$$/schedstat; echo $ns >> children'
  n=$((n+1))
done
touch done
while :; do sleep 1; done
"#;

/// CPU time of such a server's children by their own clocks, once it had `accounts` read around their lives, and by
/// these, in nanoseconds. `pids` are its processes by their numbers.
fn served(folder: &Path, accounts: &UsageReader<'_>, pids: &[u32]) -> (f64, f64) {
    let before = accounts.spent(pids, &[], None).expect("an account");
    fs::write(folder.join("go"), "").expect("a file");
    while !folder.join("done").exists() {
        sleep(Duration::from_millis(5));
    }
    let after = accounts.spent(pids, &[], None).expect("an account");
    let children = fs::read_to_string(folder.join("children")).expect("they ended");
    let ns = children
        .lines()
        .map(|ns| ns.parse::<f64>().expect("a number"));
    (ns.sum(), after.since(&before).server_ns)
}

#[test]
fn children_of_a_watched_service_are_counted_by_its_group() {
    if !require::host() {
        return;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let version_2 = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let Some(place) = version_2.and_then(|line| line.split(' ').nth(4)) else {
        return require::skip("no control groups of version 2");
    };
    let folder = tempfile::TempDir::new().expect("a folder");
    let group = LockedCgroup::make_in(Path::new(place)).expect("a group");
    let script = format!(
        "echo $$ > {}/cgroup.procs; cd {}; touch in; {FORKS}",
        group.path().display(),
        folder.path().display()
    );
    let service = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .spawn();
    let service = Burner(service.expect("sh starts"));
    while !folder.path().join("in").exists() {
        sleep(Duration::from_millis(5));
    }
    let pids = [service.0.id()];
    let accounts = UsageReader::watching(&pids, None);
    let (children, told) = served(folder.path(), &accounts, &pids);
    cgroup::kill(group.path());
    assert!(children > 0.0 && told >= children, "{told} of {children}");
}

#[test]
fn a_group_that_others_share_is_no_account_of_a_service() {
    let burner = Burner::start();
    let pids = [burner.0.id()];
    // It is in the group of this test.
    let shared = UsageReader::watching(&pids, None);
    assert_eq!(
        format!("{shared:?}"),
        format!("{:?}", UsageReader::default())
    );
}

/// As `FORKS`, for each request that a client leaves: a window has one, of three children.
const SERVER: &str = r#"
[server]
command = ["sh", "-c", """
cd {dir}
while :; do
  while [ ! -e request ]; do sleep 0.01; done
  for n in 1 2 3; do
    sh -c 'i=0; while [ $i -lt 6000 ]; do i=$((i+1)); done; read ns rest < /proc/$$/schedstat; echo $ns >> children'
  done
  rm request
  touch answer
done
"""]

[[client]]
command = ["sh", "-c", """
cd {dir}
rm -f children
touch request
while [ ! -e answer ]; do sleep 0.02; done
rm answer
sleep 0.05
echo children took $(($(tr '\\n' '+' < children)0))
"""]
ops = 1
output = "text"
metrics = { children_ns = "took (\\d+)" }
"#;

#[test]
fn children_that_came_and_went_are_counted() {
    if !able(&[]) {
        return;
    }
    let client = CLIENT.find("[[client]]").expect("a client");
    let variant = CLIENT.find("[[variant]]").expect("a variant");
    let tool = with(CLIENT, &CLIENT[client..variant], SERVER);
    let said = tool.says("run x.toml --quick --format json --out x.json");
    assert_eq!(said.code, Some(0), "{said:?}");
    let record: Value = serde_json::from_str(&said.out).expect("a record");
    for case in record["cases"].as_array().expect("cases") {
        let values = |name: &str| -> Vec<f64> {
            let epochs = case["secondary"][name].as_array().expect("epochs");
            let trials = epochs.iter().filter_map(Value::as_array).flatten();
            trials.filter_map(Value::as_f64).collect()
        };
        let (children, server) = (values("children_ns"), values("server_ns"));
        assert!(children.len() >= 20, "{children:?}");
        for (children, server) in children.iter().zip(&server) {
            // Their starts and ends, and what starts them, come on top.
            assert!(
                *children > 0.0 && server >= children,
                "{server} of {children}"
            );
        }
    }
}
