//! Units are afterwards as they were before, also after a kill. `systemctl` is played by a script.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use crate::{
    measuring::{Measuring, run},
    require,
    tool::{Tool, said},
};

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
fn a_unit_is_as_before_after_a_run() {
    if !require::host() {
        return;
    }
    for before in ["active", "inactive"] {
        let tool = with_unit(before);
        let words = ["--with", "agent.service", "--", "sleep", "0.1"];
        let mut measuring = Measuring::started(&tool, beside(&tool, run(&tool, &words)));
        measuring.until_trials_of(&[0, 1]);
        measuring.interrupt();
        assert_eq!(state(&tool), before);
        let calls = fs::read_to_string(tool.path("calls")).expect("calls");
        assert!(calls.contains("start") && calls.contains("stop"), "{calls}");
    }
}

#[test]
fn a_unit_is_as_before_after_a_kill() {
    if !require::host() {
        return;
    }
    let tool = with_unit("active");
    let words = ["--with", "agent.service", "--", "sleep", "0.1"];
    let mut measuring = Measuring::started(&tool, beside(&tool, run(&tool, &words)));
    measuring.until_trials_of(&[0]);
    measuring.kill();
    // Whichever it was at that moment.
    tool.write("state", "inactive\n");
    let next = said(
        &beside(&tool, tool.command("list"))
            .output()
            .expect("the binary runs"),
    );
    assert!(
        next.err.contains("agent.service is started again"),
        "{next:?}"
    );
    assert_eq!(state(&tool), "active");
    let next = said(
        &beside(&tool, tool.command("list"))
            .output()
            .expect("the binary runs"),
    );
    assert_eq!(next.err, "", "once is enough");
}

#[test]
fn a_unit_that_is_not_there_is_told() {
    let tool = with_unit("active");
    let words = ["--with", "agnet.service", "--", "true"];
    let refused = said(
        &beside(&tool, run(&tool, &words))
            .output()
            .expect("the binary runs"),
    );
    assert_eq!(refused.code, Some(2), "{refused:?}");
    refused.complains(&["there is no unit agnet.service", "list-unit-files"]);
}
