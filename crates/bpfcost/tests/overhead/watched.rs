//! Services that run already: switched beside, never stopped, and let go of where that hurts.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use crate::{
    measuring::{Measuring, record, run, says},
    require,
    tool::{Tool, said},
};

/// A service that is busy all the time. Killed when dropped.
struct Service(Child);

impl Service {
    fn start() -> Self {
        let child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
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

/// Prints a growing number of operations: a thousand more each time it runs, but one more while the file `on` exists.
const OPS: &str = "step=1000; [ -e on ] && step=1; n=$(($(cat n 2>/dev/null || echo 0) + step)); echo $n > n; \
                   echo did $n";

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
fn a_probe_that_hurts_is_let_go() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut service = Service::start();
    // While it runs, the same work costs a thousand times as much.
    let hurts = "process:touch on; trap 'rm on; exit' INT TERM; while :; do sleep 0.1; done";
    let asked = [
        "--ops",
        OPS,
        "--metric",
        "did ([0-9]+)",
        "--abort-above",
        "20%",
    ];
    let id = service.id();
    let words = [&[hurts, "--watch", &id][..], &asked].concat();
    let said = says(&tool, &words);
    assert_eq!(said.code, Some(1), "{said:?}");
    // Before the first trial had ended: the reason is all there is to report, and is reported once.
    assert!(
        said.out.starts_with("The probe was detached after"),
        "{said:?}"
    );
    assert!(
        said.out.contains("Nothing was measured before that."),
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
    assert_eq!(said.code, Some(1), "{said:?}");
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
        fs::read_dir(tool.path("bpfcost/restore")).is_err(),
        "nothing was to be put back"
    );
}
