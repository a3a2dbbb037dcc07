//! However the run ends, its guest ends with it.

use std::{fs, path::Path};

use crate::{
    require,
    tool::{Said, Tool},
    visit::{QUICK, Visit, aside, assert_nothing_left, command, processes, says, signal},
};

/// The command line of a run in a guest that takes longer than any test.
fn long(kernel: &str) -> String {
    format!("run ladder --seed 7 --case added-10 --time 300s --on vm:{kernel}")
}

fn long_run(tool: &Tool, kernel: &str) -> Visit {
    Visit::start(tool, &long(kernel), "{}")
}

/// A run in a guest that is ended by these signals, at a moment.
fn ended(signals: &[&str], when: impl Fn(&mut Visit, &Tool)) -> Option<(Tool, Said)> {
    let kernel = require::kernel()?;
    let tool = Tool::new();
    let mut visit = long_run(&tool, kernel);
    when(&mut visit, &tool);
    // The reaper may come behind QEMU.
    visit.wait_for(|_| {
        let there = processes(&tool);
        let has = |part: &&str| there.iter().any(|line| line.contains(*part));
        ["-kernel", "reaper"].iter().all(has)
    });
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

/// The host is stopped first, so that trials come that it can't have written.
#[test]
fn a_kill_loses_no_trial_that_the_guest_sent() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let mut visit = long_run(&tool, kernel);
    measuring(&mut visit, &tool);
    visit.signal("STOP");
    let journal = || fs::read_to_string(tool.path("x.json.journal")).expect("the journal");
    let written = || journal().matches("\n{\"trial\"").count();
    let before = written();
    visit.wait_for(|_| sent(&tool) >= before + 3);
    let there = sent(&tool);
    visit.signal("KILL");
    visit.end();
    assert_nothing_left(&tool);
    assert!(
        written() >= there,
        "{there} trials were sent, {} are kept",
        written()
    );
    bpfcost_record::read_journal(&tool.path("x.json.journal")).expect("a whole journal");
}

/// Trials that the guest has sent.
fn sent(tool: &Tool) -> usize {
    let folders = fs::read_dir(tool.path("scratch")).into_iter().flatten();
    let streams = folders.flatten().map(|entry| entry.path().join("stream"));
    let texts = streams.filter_map(|path| fs::read_to_string(path).ok());
    texts
        .map(|text| text.matches("{\"event\":{\"trial\"").count())
        .sum()
}

#[test]
fn killed_while_the_guest_boots() {
    let Some((tool, _)) = ended(&["KILL"], booting) else {
        return;
    };
    assert_eq!(tool.names(), ["scratch"]);
}

/// Guests that count run side by side, and end together.
#[test]
fn several_guests_at_the_same_time() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    if !require::version("sid", "sid") {
        return;
    }
    let line = format!("run ladder --case added-10 --on exact:{kernel} --on exact:sid --out .");
    for (signal, code) in [("INT", Some(130)), ("KILL", None)] {
        let tool = Tool::new();
        let mut visit = Visit::spawn(&tool, &mut command(&tool, &line));
        visit.wait_for(|_| {
            let guests = processes(&tool);
            guests
                .iter()
                .filter(|line| line.contains("-kernel"))
                .count()
                == 2
        });
        visit.signal(signal);
        let said = visit.end();
        assert_eq!(said.code, code, "{said:?}");
        assert_nothing_left(&tool);
    }
    let tool = Tool::new();
    let said = Visit::spawn(&tool, &mut command(&tool, &line)).end();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("ladder on 2 targets: "), "{said:?}");
    assert_nothing_left(&tool);
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

/// As the kernel does where memory is short: neither the image nor KVM is to blame.
#[test]
fn qemu_is_killed() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let mut visit = long_run(&tool, kernel);
    measuring(&mut visit, &tool);
    let qemu = visit.qemu(&tool);
    signal(qemu, "KILL");
    let said = visit.end();
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&[
        "something killed its QEMU",
        "dmesg",
        "--resume x.json.journal",
    ]);
    assert_nothing_left(&tool);
}

/// QEMU gets no CPU any more, so that the guest never comes to the end of its trial.
#[test]
fn interrupted_while_qemu_stands_still() {
    let stop = |visit: &mut Visit, tool: &Tool| {
        measuring(visit, tool);
        let qemu = visit.qemu(tool);
        signal(qemu, "STOP");
    };
    let Some((tool, said)) = ended(&["INT"], stop) else {
        return;
    };
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(tool.path("x.json").exists(), "what was measured is kept");
}

/// The same while the guest boots, or goes on where an earlier one was.
#[test]
fn interrupted_while_qemu_does_not_start() {
    let stop = |visit: &mut Visit, tool: &Tool| {
        let qemu = visit.qemu(tool);
        signal(qemu, "STOP");
    };
    let Some((tool, said)) = ended(&["INT"], stop) else {
        return;
    };
    assert_eq!(said.code, Some(130), "{said:?}");
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

/// As it ends where no memory is left for it, or where it panics while it panics.
#[test]
fn aborted_while_it_measures() {
    let Some((tool, said)) = ended(&["ABRT"], measuring) else {
        return;
    };
    assert_eq!(said.code, None, "{said:?}");
    assert!(tool.path("x.json.journal").exists());
}

#[test]
fn a_fault_that_is_no_fault_is_refused() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let line = format!("{QUICK} --on vm:{kernel}");
    let said = says(&Tool::new(), &line, r#"{"panic": true}"#);
    assert!(!matches!(said.code, Some(0 | 101)), "{said:?}");
    said.complains(&["BPFCOST_TEST_GUEST is for tests", "unknown field `panic`"]);
}

/// Mounts a small disk that no one else sees, on which the guest's folder lies, and fills it in the
/// middle of a run. Copies the results off the disk, which goes with the shell.
const FULL: &str = r#"
mkdir disk && mount -t tmpfs -o size=12m none disk || exit 99
TMPDIR=$PWD/disk $BPFCOST $ARGS --out x.json >table 2>said &
run=$!
until grep -q '^{"trial"' x.json.journal 2>/dev/null; do kill -0 $run || exit 98; sleep 0.05; done
cat /dev/zero >disk/filler 2>/dev/null || true
code=0
wait $run || code=$?
echo $code >code
rm disk/filler
ls -A disk >left
"#;

#[test]
fn by_a_disk_without_room() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let mut shell = aside(&tool, FULL);
    let status = shell
        .env("ARGS", long(kernel))
        .status()
        .expect("unshare runs");
    let read = |name: &str| fs::read_to_string(tool.path(name)).unwrap_or_default();
    if status.code() == Some(99) || !tool.path("disk").exists() {
        require::skip("no file system can be mounted");
        return;
    }
    assert_eq!(status.code(), Some(0), "{}", read("said"));
    assert_eq!(read("code").trim(), "4", "{}", read("said"));
    assert!(
        read("said").contains("no space is left"),
        "{}",
        read("said")
    );
    assert!(read("said").contains("--resume"), "{}", read("said"));
    assert_eq!(read("left"), "", "nothing is left");
    assert!(Path::new(&tool.path("x.json.journal")).exists());
}
