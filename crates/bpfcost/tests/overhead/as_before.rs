//! Units and sysctls are afterwards as they were before, also after a kill. `systemctl` is played by a script, and
//! the sysctl by a file.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command, time::Duration};

use bpfcost_process::wait_until;

use crate::{
    measuring::{Measuring, run},
    require,
    tool::{STATE, Tool, said},
};

/// The longest time to put something back.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Keeps the unit's state in a file.
const SYSTEMCTL: &str = r#"#!/bin/sh
case "$*" in
*"--property LoadState"*agent.service) echo loaded ;;
*"--property LoadState"*) echo not-found ;;
*"--property ActiveState"*) cat state ;;
*"--property ControlGroup"*) echo ;;
*"--property MainPID"*) echo 0 ;;
"is-active agent.service") grep -qx active state ;;
"start agent.service") echo active > state; echo start >> calls ;;
"stop agent.service") echo inactive > state; echo stop >> calls ;;
*) echo "what is $*?" >&2; exit 1 ;;
esac
"#;

/// With that script in place of systemctl, and the unit in this state.
fn with_unit(state: &str) -> Tool {
    let tool = Tool::new();
    tool.write("systemctl", SYSTEMCTL);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(tool.path("systemctl"), mode).expect("our own file");
    tool.write("state", format!("{state}\n"));
    tool
}

fn beside(tool: &Tool, mut command: Command) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = tool.path("");
    command.env("PATH", format!("{}:{path}", folder.display()));
    command
}

fn state(tool: &Tool) -> String {
    let state = fs::read_to_string(tool.path("state")).expect("a state");
    state.trim().to_owned()
}

#[test]
fn a_unit_after_a_run() {
    if !require::host() {
        return;
    }
    let words = ["agent.service", "--", "sleep", "0.1"];
    // At once, since both of them mostly wait.
    let tools = ["active", "inactive"].map(|before| (before, with_unit(before)));
    let runs = tools.each_ref().map(|(before, tool)| {
        let run = Measuring::started(tool, beside(tool, run(tool, &words)));
        (before, tool, run)
    });
    for (before, tool, mut run) in runs {
        run.until_trials_of(&[0, 1]);
        run.interrupt();
        assert_eq!(state(tool), *before);
        let calls = fs::read_to_string(tool.path("calls")).expect("calls");
        assert!(calls.contains("start") && calls.contains("stop"), "{calls}");
    }
}

/// Waits until a file of the tool's says so.
#[track_caller]
fn until(tool: &Tool, file: &str, wanted: &str) {
    let said = || fs::read_to_string(tool.path(file)).unwrap_or_default();
    let as_wanted = wait_until(TIMEOUT, POLL_INTERVAL, || said().trim() == wanted);
    assert!(as_wanted, "{file} says {}", said());
}

/// The next start has nothing to do.
#[track_caller]
fn nothing_is_left_to_do(tool: &Tool) {
    let next = beside(tool, tool.command("list")).output();
    let next = said(&next.expect("the binary runs"));
    assert_eq!(next.err, "", "{next:?}");
}

/// Waits until no note about a setting to restore is left.
#[track_caller]
fn until_no_notes(tool: &Tool) {
    let notes =
        || fs::read_dir(tool.path(&format!("{STATE}/bpfcost/restore"))).map_or(0, Iterator::count);
    let none_is_left = wait_until(TIMEOUT, POLL_INTERVAL, || notes() == 0);
    assert!(none_is_left, "{} notes", notes());
}

#[test]
fn a_unit_after_a_kill() {
    if !require::host() {
        return;
    }
    let tool = with_unit("active");
    let words = ["agent.service", "--", "sleep", "0.1"];
    let measuring = Measuring::started(&tool, beside(&tool, run(&tool, &words)));
    until(&tool, "state", "inactive");
    measuring.kill();
    until(&tool, "state", "active");
    until_no_notes(&tool);
    nothing_is_left_to_do(&tool);
}

#[test]
fn the_next_start_puts_back_what_no_guard_did() {
    let tool = with_unit("inactive");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    fs::create_dir_all(tool.path(&format!("{STATE}/bpfcost/restore"))).expect("a folder");
    // As a process wrote it that had our number before us.
    let note = serde_json::json!({
        "pid": std::process::id(),
        "started": 0,
        "boot": boot.trim(),
        "state": { "of": "unit", "name": "agent.service", "active": true },
    });
    tool.write(
        &format!("{STATE}/bpfcost/restore/1-0.json"),
        note.to_string(),
    );
    let next = beside(&tool, tool.command("list")).output();
    let next = said(&next.expect("the binary runs"));
    let told = next.err.contains("agent.service is started again");
    assert!(told, "{next:?}");
    assert_eq!(state(&tool), "active");
    nothing_is_left_to_do(&tool);
}

#[test]
fn a_sysctl_after_a_kill() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let setting = "/proc/sys/kernel/perf_event_paranoid";
    tool.write("paranoid", "2\n");
    let probe = format!("process:echo 4 > {setting}; exec sleep 1234");
    // In a separate mount namespace, so that the machine's is not touched.
    let mut command = tool.wrapped("unshare", "--mount sh -c");
    command
        .arg(format!("mount --bind paranoid {setting} && exec \"$@\""))
        .args(["sh", env!("CARGO_BIN_EXE_bpfcost"), "overhead", "--quick"])
        .args([&probe, "--", "sleep", "0.1"]);
    let measuring = Measuring::started(&tool, command);
    until(&tool, "paranoid", "4");
    measuring.kill();
    until(&tool, "paranoid", "2");
    until_no_notes(&tool);
    nothing_is_left_to_do(&tool);
}

#[test]
fn a_unit_that_is_not_there_is_told() {
    let tool = with_unit("active");
    let words = ["agnet.service", "--", "true"];
    let refused = said(
        &beside(&tool, run(&tool, &words))
            .output()
            .expect("the binary runs"),
    );
    assert_eq!(refused.code, Some(2), "{refused:?}");
    refused.complains(&["there is no unit agnet.service", "list-unit-files"]);
}
