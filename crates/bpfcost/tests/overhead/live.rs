//! Services that run already: switched beside, never stopped, and let go of where that hurts.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bpfcost_process::wait_until;
use serde_json::Value;

use crate::{
    measuring::{Measuring, record, run, says},
    object::{calls, ends},
    patched::patched,
    require,
    tool::{STATE, Tool, said},
};

/// A service that is busy all the time. Killed when dropped.
struct Service(Child);

impl Service {
    fn start() -> Self {
        Service::spawn("while :; do :; done")
    }

    fn spawn(script: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .spawn();
        Service(child.expect("sh runs"))
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }

    #[track_caller]
    fn lives(&mut self) {
        assert_eq!(self.0.try_wait().expect("a child"), None, "it was ended");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints a growing number of operations: a million more each time it runs, but one more while the file `on` exists.
const OPS: &str = "step=1000000; [ -e on ] && step=1; n=$(($(cat n 2>/dev/null || echo 0) + step)); echo $n > n; \
                   echo did $n";

/// A limit beyond the noise of any machine, and a thousandth of what [`OPS`] adds.
const LIMIT: &str = "100000%";

#[test]
fn a_process_is_watched_and_goes_on() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut service = Service::start();
    let mut run = Measuring::start(&tool, &["builtin:nothing", "--watch", &service.id()]);
    run.until_trials_of(&[0, 1]);
    let said = run.interrupt();
    service.lives();
    assert!(said.out.contains(" % of a CPU"), "{said:?}");
    assert!(!said.out.contains("per second"), "{said:?}");
    let record = record(&tool);
    assert!(record.contains("\"operation\":\"second\""), "{record}");
}

#[test]
fn uprobes_run_in_what_a_watched_process_starts() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    ends(&tool);
    let mut service = Service::spawn("while :; do /usr/bin/true; sleep 0.05; done");
    let words = ["user:ends.bpf.o", "--watch", &service.id()];
    let mut run = Measuring::start(&tool, &words);
    run.until_trials_of(&[0, 1]);
    run.interrupt();
    service.lives();
    let record: Value = serde_json::from_str(&record(&tool)).expect("JSON");
    let hits = &record["cases"][1]["secondary"]["hits"];
    let trials = hits.as_array().expect("hits").iter();
    let mut trials = trials.flat_map(|epoch| epoch.as_array().expect("trials"));
    // A process every fraction of a second, and a hit for each.
    assert!(trials.all(|hits| hits.as_f64() > Some(1.0)), "{hits}");
}

#[test]
fn no_process_is_left_probed_or_stopped_by_a_kill() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    calls(&tool);
    let turns = tool.path("turns");
    let script = format!(
        "while :; do /usr/bin/true; echo turn >>'{}'; sleep 0.01; done",
        turns.display()
    );
    let mut service = Service::spawn(&script);
    let id = service.id();
    let mut run = Measuring::start(&tool, &["user:calls.bpf.o", "--watch", &id]);
    run.until_trials_of(&[1]);
    // In the middle of a window with the probe.
    until(|| !patched(service.0.id()).is_empty());
    run.kill();
    until(|| patched(service.0.id()).is_empty());
    let length = || fs::metadata(&turns).expect("turns").len();
    let before = length();
    until(|| length() > before + 100);
    service.lives();
}

/// Waits until something is so, for half a minute.
#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let (limit, step) = (Duration::from_secs(30), Duration::from_millis(1));
    assert!(wait_until(limit, step, is_so), "it takes too long");
}

#[test]
fn a_probe_that_hurts_is_let_go() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut service = Service::start();
    // While it runs, the same work costs a million times as much.
    let hurts = "process:touch on; trap 'rm on; exit' INT TERM; while :; do sleep 0.1; done";
    let asked = [
        "--ops",
        OPS,
        "--metric",
        "did ([0-9]+)",
        "--abort-above",
        LIMIT,
    ];
    let id = service.id();
    let words = [&[hurts, "--watch", &id][..], &asked].concat();
    let said = says(&tool, &words);
    assert_eq!(said.code, Some(6), "{said:?}");
    // Before the first trial had ended: the reason is all there is to report, and is reported once.
    assert!(
        said.out.starts_with("The probe was detached after"),
        "{said:?}"
    );
    let out = said.out.replace('\n', " ");
    assert!(
        out.contains("Nothing was measured before that."),
        "{said:?}"
    );
    assert_eq!(said.out.matches("was detached").count(), 1, "{said:?}");
    assert!(
        said.err.contains("detached; nothing left behind"),
        "{said:?}"
    );
    assert!(!tool.path("on").exists(), "it was detached");
    service.lives();
}

/// Two seconds of work in four: no limit of some percent can be held apart from that.
#[test]
fn a_limit_within_the_noise_is_refused_before_the_probe_is_on() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut service = Service::spawn(
        "while :; do end=$(($(date +%s) + 2)); while [ $(date +%s) -lt $end ]; do :; done; sleep 2; done",
    );
    let marks = "process:touch on; trap 'exit' INT TERM; while :; do sleep 0.1; done";
    let id = service.id();
    let said = says(&tool, &[marks, "--watch", &id, "--abort-above", "5%"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&[
        "--abort-above 5% is within the noise",
        "without a probe",
        "works",
    ]);
    assert!(!tool.path("on").exists(), "it was never attached");
    assert!(!tool.path("x.json").exists());
    service.lives();
}

/// Counting operations costs the service CPU time: were that done in windows with the probe alone, it would be told as
/// the probe's cost.
#[test]
fn operations_are_counted_as_often_without_the_probe() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut service = Service::start();
    let id = service.id();
    let marks = "process:touch on; trap 'rm on; exit' INT TERM; while :; do sleep 0.1; done";
    let ops = "[ -e on ] && echo >> with || echo >> without; n=$(($(cat n 2>/dev/null || echo 0) + 1000)); \
               echo $n > n; echo $n";
    let words = [marks, "--watch", &id, "--ops", ops, "--abort-above", LIMIT];
    let mut run = Measuring::start(&tool, &words);
    run.until_trials_of(&[0, 1]);
    run.interrupt();
    service.lives();
    let record: Value = serde_json::from_str(&record(&tool)).expect("a record");
    let windows = |case: usize| {
        let epochs = record["cases"][case]["samples"].as_array().expect("epochs");
        let windows = epochs
            .iter()
            .map(|epoch| epoch.as_array().map_or(0, Vec::len));
        windows.sum::<usize>()
    };
    // Each window is read more often than at its ends. With the probe there are two more: the rehearsal, and one that was
    // interrupted. Without it there are those in which the noise is learnt, and the interrupted one.
    for (file, case, more) in [("without", 0, 21), ("with", 1, 2)] {
        let counted = fs::read_to_string(tool.path(file)).expect("it was counted");
        let (counted, windows) = (counted.lines().count(), windows(case) + more);
        assert!(
            counted > 2 * windows,
            "{file}: {counted} in {windows} windows"
        );
    }
}

#[test]
fn a_service_that_ends_ends_the_run() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let service = Service::start();
    let mut run = Measuring::started(
        &tool,
        run(&tool, &["builtin:nothing", "--watch", &service.id()]),
    );
    run.until_trials_of(&[0, 1]);
    drop(service);
    let said = run.end();
    assert_eq!(said.code, Some(5), "{said:?}");
    let all = format!("{}{}", said.out, said.err);
    assert!(
        all.contains("ended or was restarted while it was watched"),
        "{said:?}"
    );
}

#[test]
fn what_counts_no_operations_is_told() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let service = Service::start();
    let id = service.id();
    let watch = ["builtin:nothing", "--watch", &id];
    for (ops, words) in [
        ("echo a lot", &["is not a count", "--metric", "a lot"][..]),
        ("exit 5", &["--ops exit 5 ended with exit code 5"]),
        ("echo 7", &["did no operation"]),
    ] {
        let refused = says(&tool, &[&watch[..], &["--ops", ops]].concat());
        assert_eq!(refused.code, Some(4), "{refused:?}");
        refused.complains(words);
    }
    let refused = said(
        &tool
            .command("overhead builtin:nothing --watch no-such")
            .output()
            .expect("it runs"),
    );
    refused.complains(&["--watch no-such", "pidof"]);
    assert!(
        fs::read_dir(tool.path(&format!("{STATE}/bpfcost/restore"))).is_err(),
        "nothing was to be put back"
    );
}
