//! Without privilege it says what is missing; with no more than that, it measures.

use std::{fs, os::unix::fs::chown, thread, time::Duration};

use crate::{
    finished::unwritten,
    require,
    tool::{QUICK, Said, Tool, said},
};

/// A user who owns nothing.
const NOBODY: u32 = 65534;

/// Runs it as that user with only these capabilities, in the syntax of setpriv(1). A user who has
/// none anyway runs it directly.
pub(crate) fn nobody(tool: &Tool, capabilities: &str, line: &str) -> Option<Said> {
    let binary = tool.path("bpfcost-copy");
    // The build folder may be closed to others.
    fs::copy(env!("CARGO_BIN_EXE_bpfcost"), &binary).expect("a copy");
    let given = chown(tool.path(""), Some(NOBODY), Some(NOBODY));
    let options = format!(
        "--reuid={NOBODY} --regid={NOBODY} --clear-groups --bounding-set=-all{capabilities} \
         --inh-caps=-all{capabilities} --ambient-caps=-all{capabilities} {}",
        binary.display()
    );
    let mut command = tool.wrapped("setpriv", &format!("{options} {line}"));
    // A child of another test may hold the copy open for writing, until it has become what it starts.
    let became = (0..100).find_map(|_| {
        let became = command.output().ok().map(|output| said(&output))?;
        let busy = became.err.contains("Text file busy");
        if busy {
            thread::sleep(Duration::from_millis(50));
        }
        (!busy).then_some(became)
    });
    match became.filter(|said| given.is_ok() && !said.err.starts_with("setpriv:")) {
        Some(said) => Some(said),
        None if capabilities.is_empty() && !require::host() => Some(tool.says(line)),
        None => {
            require::skip("only root with setpriv can become another user");
            None
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    let tool = Tool::new();
    let Some(said) = nobody(&tool, "", "run xdp-lb --quick --out x.json") else {
        return;
    };
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{said:?}");
    said.complains(&[
        "CAP_BPF",
        "CAP_NET_ADMIN",
        "CAP_PERFMON",
        "sudo",
        "bpfcost check",
    ]);
    assert!(!tool.path("x.json.journal").exists());
    for pure in ["list", "run xdp-lb --dry-run"] {
        let said = nobody(&tool, "", pure).expect("as before");
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let check = nobody(&tool, "", "check").expect("as before");
    assert_eq!(check.code, Some(4), "{check:?}");
    assert!(check.out.contains("CAP_BPF"), "{check:?}");
}

#[test]
fn one_missing_capability_is_named_alone() {
    let tool = Tool::new();
    let Some(said) = nobody(&tool, ",+bpf,+net_admin", "run xdp-lb --quick") else {
        return;
    };
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["lacks CAP_PERFMON,"]);
}

#[test]
fn a_run_that_ended_needs_none_for_its_record() {
    if !require::host() {
        return;
    }
    let tool = unwritten();
    let journal = tool.path("x.json.journal");
    if chown(&journal, Some(NOBODY), Some(NOBODY)).is_err() {
        return;
    }
    let Some(said) = nobody(&tool, "", "run --resume x.json") else {
        return;
    };
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!journal.exists());
}

#[test]
fn three_capabilities_are_enough() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let all = ",+bpf,+net_admin,+perfmon";
    let Some(said) = nobody(&tool, all, &format!("{QUICK} --out x.json")) else {
        return;
    };
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(tool.path("x.json").exists());
    // What it can't know it says.
    assert!(said.out.contains("CAP_SYS_ADMIN"), "{said:?}");
}

#[test]
fn a_user_namespace_has_no_say_in_the_kernel() {
    let tool = Tool::new();
    let mut command = tool.wrapped("unshare", "--user --map-root-user");
    command.arg(env!("CARGO_BIN_EXE_bpfcost"));
    command.args("run xdp-lb --quick --out x.json".split(' '));
    let said = said(&command.output().expect("unshare runs"));
    if said.err.starts_with("unshare") {
        return require::skip(said.err);
    }
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{said:?}");
    said.complains(&[
        "Operation not permitted",
        "user namespaces",
        "bpfcost check",
    ]);
    assert!(!tool.path("x.json.journal").exists());
}

#[test]
fn what_probe_lacks_is_named() {
    let tool = Tool::new();
    let Some(said) = nobody(&tool, "", "probe x.bpf.o --path /bin/sh") else {
        return;
    };
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{said:?}");
    said.complains(&["lacks CAP_PERFMON and CAP_BPF", "sudo bpfcost probe"]);
}
