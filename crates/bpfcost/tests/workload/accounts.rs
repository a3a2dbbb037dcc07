//! CPU time, against the scheduler's own account of the same process.

use std::{
    fs,
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use bpfcost::workload::UsageReader;

use crate::require;

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
