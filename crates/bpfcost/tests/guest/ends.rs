//! However the run ends, its guest ends with it.

use std::{fs, path::Path};

use crate::{
    require,
    tool::{Said, Tool},
    visit::{QUICK, Visit, assert_nothing_left, processes, says},
};

/// A run in a guest that is ended by these signals, at a moment.
fn ended(signals: &[&str], when: impl Fn(&mut Visit, &Tool)) -> Option<(Tool, Said)> {
    let kernel = require::kernel()?;
    let tool = Tool::new();
    let line = format!("run xdp-lb --seed 7 --case pass-non-ip --time 300s --on vm:{kernel}");
    let mut visit = Visit::start(&tool, &line, "{}");
    when(&mut visit, &tool);
    let there = processes(&tool);
    for part in ["-kernel", "guard"] {
        let has = there.iter().any(|line| line.contains(part));
        assert!(has, "no {part} among {there:?}");
    }
    for signal in signals {
        visit.signal(signal);
    }
    let said = visit.end();
    assert_nothing_left(&tool);
    Some((tool, said))
}

fn measuring(visit: &mut Visit, _: &Tool) {
    visit.until(|journal| journal.contains("\n{\"trial\""));
}

/// QEMU is there: the guest boots, or has booted.
fn booting(visit: &mut Visit, tool: &Tool) {
    visit.wait_for(|_| processes(tool).iter().any(|line| line.contains("-kernel")));
}

#[test]
fn killed_while_it_measures() {
    let Some((tool, said)) = ended(&["KILL"], measuring) else {
        return;
    };
    assert_eq!(said.code, None, "{said:?}");
    assert!(
        tool.path("x.json.journal").exists(),
        "what was measured is kept"
    );
}

#[test]
fn killed_while_the_guest_boots() {
    let Some((tool, _)) = ended(&["KILL"], booting) else {
        return;
    };
    assert_eq!(tool.names(), ["scratch"]);
}

#[test]
fn interrupted_while_the_guest_boots() {
    let Some((tool, said)) = ended(&["INT"], booting) else {
        return;
    };
    assert_eq!(said.code, Some(130), "{said:?}");
    said.complains(&["nothing was measured"]);
    assert_eq!(tool.names(), ["scratch"]);
}

#[test]
fn interrupted_twice() {
    let Some((tool, said)) = ended(&["INT", "INT"], measuring) else {
        return;
    };
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(tool.path("x.json.journal").exists());
}

#[test]
fn by_a_panic_of_this_program() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let said = says(
        &tool,
        &format!("{QUICK} --on vm:{kernel}"),
        r#"{"panic": true}"#,
    );
    assert_eq!(said.code, Some(101), "{said:?}");
    assert!(said.err.contains("a test asked for a panic"), "{said:?}");
}

/// Mounts a small disk that no one else sees, on which the guest's folder lies, and fills it in the
/// middle of a run. What is to be looked at is copied out of it, for it goes with the shell.
const FULL: &str = r#"
mkdir disk && mount -t tmpfs -o size=12m none disk || exit 99
TMPDIR=$PWD/disk $BPFCOST $ARGS --out x.json >table 2>said &
run=$!
until grep -q '^{"trial"' x.json.journal 2>/dev/null; do kill -0 $run || exit 98; sleep 0.05; done
cat /dev/zero >disk/filler 2>/dev/null
wait $run
echo $? >code
rm disk/filler
ls -A disk >left
"#;

#[test]
fn by_a_disk_without_room() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    tool.write("script", FULL);
    let line = format!("run xdp-lb --seed 7 --case pass-non-ip --time 300s --on vm:{kernel}");
    let mut shell = tool.wrapped("unshare", "--mount sh script");
    for (name, value) in crate::visit::command(&tool, "").get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
        .env("BPFCOST", env!("CARGO_BIN_EXE_bpfcost"))
        .env("ARGS", line);
    let status = shell.status().expect("unshare runs");
    let read = |name: &str| fs::read_to_string(tool.path(name)).unwrap_or_default();
    if status.code() == Some(99) || !tool.path("disk").exists() {
        eprintln!("SKIPPED: no file system can be mounted here");
        return;
    }
    assert_eq!(status.code(), Some(0), "{}", read("said"));
    assert_eq!(read("code").trim(), "4", "{}", read("said"));
    assert!(read("said").contains("no room is left"), "{}", read("said"));
    assert!(read("said").contains("--resume"), "{}", read("said"));
    assert_eq!(read("left"), "", "nothing is left");
    assert!(Path::new(&tool.path("x.json.journal")).exists());
}
