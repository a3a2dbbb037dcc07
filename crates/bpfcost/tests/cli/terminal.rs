//! Text of others never drives the terminal: names of processes, files and symbols, and the output of tools, servers and
//! clients may hold escape sequences and line ends.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use bpfcost_bpf::idle::Idle;

use crate::{
    attached::alone,
    require,
    tool::{Tool, said},
};

/// Renames the window, clears the screen, hides what follows, and forges a line, in few bytes: the kernel keeps 15 of
/// a process's name.
const EVIL: &str = "a\u{1b}]0;X\u{7}\nY\u{1b}[2J";

/// Runs it on a terminal of its own; returns what reaches that.
fn on_terminal(tool: &Tool, words: &[&str]) -> String {
    let quoted = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    let words = quoted.collect::<Vec<_>>().join(" ");
    let mut command = tool.wrapped("script", "-qec");
    command
        .arg(format!("'{}' {words}", env!("CARGO_BIN_EXE_bpfcost")))
        .arg("/dev/null");
    said(&command.output().expect("script runs")).out
}

/// Nothing of [`EVIL`] is left that a terminal obeys: no sequence that names a window or clears the screen (indicatif clears
/// lines, `top` what is below), and no line that it begins.
#[track_caller]
fn assert_tame(shown: &str, what: &[&str]) {
    for sequence in ["\u{1b}]", "\u{7}", "\u{1b}[2J"] {
        assert!(!shown.contains(sequence), "{what:?}: {shown:?}");
    }
    let mut lines = shown.split(['\n', '\r']);
    assert!(
        !lines.any(|line| line.starts_with('Y')),
        "{what:?}: {shown:?}"
    );
}

fn has_script() -> bool {
    let found = Command::new("script").arg("--version").output().is_ok();
    if !found {
        require::skip("there is no `script`, which makes a terminal");
    }
    found
}

fn program(tool: &Tool, name: impl AsRef<OsStr>, text: &str) -> String {
    let path = tool.path("").join(Path::new(name.as_ref()));
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its rights");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn names_on_the_command_line_drive_no_terminal() {
    if !has_script() {
        return;
    }
    let tool = Tool::new();
    let mut named = 0;
    let (record, object) = (&*format!("{EVIL}.json"), &*format!("{EVIL}.o"));
    tool.write(record, "{}");
    tool.write(object, "no object");
    for words in [
        &[EVIL][..],
        &["list", EVIL],
        &["run", EVIL],
        &["run", record],
        &["run", "xdp-lb", "--case", EVIL],
        &["run", "xdp-lb", "--on", EVIL],
        &["run", "xdp-lb", "--dry-run", "--out", record],
        &["run", "--resume", record],
        &["overhead", EVIL, "--", "true"],
        &["overhead", object, "--", "true"],
        &["overhead", "builtin:nothing", "--watch", EVIL],
        &["overhead", "builtin:nothing", "--workload", EVIL],
        &["program", object],
        &["program", "missing.o", "--against", object],
        &["stack", EVIL],
        &["stack", "sched:sched_switch", "--svg", EVIL, "--pid", EVIL],
        &["top", EVIL],
        &["compare", record, record],
        &["report", record],
        &["report", "--no-such", EVIL],
        &["kernel", "add", EVIL],
        &["kernel", "remove", EVIL],
        &["init-ci", EVIL],
        &["self-test", EVIL],
        &["check", EVIL],
    ] {
        let shown = on_terminal(&tool, words);
        assert_tame(&shown, words);
        named += usize::from(shown.contains('Y'));
    }
    // The others complain of something else first.
    assert!(named > 18, "only {named} show the name");
}

#[test]
fn what_programs_print_drives_no_terminal() {
    if !require::host() || !has_script() {
        return;
    }
    let tool = Tool::new();
    let evil = program(
        &tool,
        "evil",
        &format!("#!/bin/sh\necho '{EVIL}' >&2\necho '{EVIL}'\nexit 3\n"),
    );
    let evil = evil.as_str();
    for words in [
        &["overhead", evil, "--quick", "--", "true"][..],
        &["overhead", "builtin:nothing", "--quick", "--", evil],
        &[
            "overhead",
            "builtin:nothing",
            "--quick",
            "--server",
            &format!("{evil} {{port}}"),
            "--client",
            "true {port}",
        ],
    ] {
        let shown = on_terminal(&tool, words);
        assert_tame(&shown, words);
        assert!(shown.contains('Y'), "{words:?}: {shown:?}");
    }
}

#[test]
fn names_of_processes_drive_no_terminal() {
    let _turn = alone();
    if !require::host() || !has_script() {
        return;
    }
    let tool = Tool::new();
    // A process is named after its file.
    let file = tool.path(EVIL);
    symlink("/bin/dd", &file).expect("a link");
    let mut load = Command::new(&file)
        .args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"])
        .spawn()
        .expect("it runs");
    let pid = load.id().to_string();
    let stack = [
        "stack",
        "raw_syscalls:sys_enter",
        "--live",
        "--pid",
        &pid,
        "--duration",
        "200ms",
    ];
    // The load may be kept from its CPU.
    let shown = (0..100)
        .map(|_| on_terminal(&tool, &stack))
        .find(|shown| shown.contains("do_syscall_64"));
    // Its name is in the sentence of what it can't be asked for.
    let watch = ["overhead", "builtin:nothing", "--watch", &pid, "--dry-run"];
    let watched = on_terminal(&tool, &watch);
    load.kill().expect("a child");
    load.wait().expect("a child");
    let shown = shown.expect("an event");
    assert!(
        shown.contains('Y') && watched.contains('Y'),
        "{shown:?}, {watched:?}"
    );
    assert_tame(&shown, &stack);
    assert_tame(&watched, &watch);
}

#[test]
fn holders_of_programs_drive_no_terminal() {
    let _turn = alone();
    if !require::host() || !has_script() {
        return;
    }
    let tool = Tool::new();
    let held = Idle::load().expect("a program");
    let name = fs::read_to_string("/proc/self/comm").expect("a name");
    fs::write("/proc/self/comm", EVIL).expect("a name");
    let top = ["top", "--once", "--every", "100ms"];
    // Only programs that ran are shown.
    let shown = (0..100)
        .map(|_| {
            std::thread::scope(|scope| {
                let shown = scope.spawn(|| on_terminal(&tool, &top));
                while !shown.is_finished() {
                    held.run(1000).expect("runs");
                }
                shown.join().expect("a thread")
            })
        })
        .find(|shown| shown.contains("bpfcost_idle"));
    fs::write("/proc/self/comm", name.trim_end()).expect("a name");
    assert_tame(&shown.expect("the program"), &top);
}

/// Sources outside of the two `output.rs` have no other way to a terminal.
#[test]
fn there_are_two_ways_out() {
    let ways = [
        "println!",
        "eprintln!",
        "print!",
        "eprint!",
        "stdout()",
        "stderr()",
        "dbg!",
        "ProgressBar",
        "MultiProgress",
        "/dev/tty",
        "/dev/stdout",
        "/dev/stderr",
        ".print()",
    ];
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![own.join("src"), own.join("../console/src")];
    let mut others = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension() != Some(OsStr::new("rs")) || path.ends_with("self_test/planted.rs")
            {
                // The second is a test.
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().map(str::trim_start) {
                let comment = line.starts_with("//");
                let asked = [
                    "stdout().is_terminal()",
                    "stderr().is_terminal()",
                    "for_stdout()",
                    "use_stderr()",
                ];
                let asked = asked
                    .iter()
                    .fold(line.to_owned(), |line, asked| line.replace(asked, ""));
                if !comment && ways.iter().any(|way| asked.contains(way)) {
                    others.push(format!("{}: {line}", path.display()));
                }
            }
        }
    }
    let allowed = |line: &&String| {
        line.contains("src/cli/output.rs: ")
            || line.contains("console/src/output.rs: ")
            // An agent's standard output is a pipe to bpfcost.
            || line.contains("src/probe/agent/serve.rs: let mut out = std::io::stdout().lock()")
    };
    others.retain(|line| !allowed(&line));
    assert_eq!(others, [""; 0]);
}
