//! A tool can't make uprobes of the kernel by tracefs, nor use those that are there.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    common::{Binary, require},
    counting::{self, Running, Supervised, called},
};

/// The folder with the mounts of the test.
const FOLDER: &str = "BPFCOST_UPROBE_TRACEFS";
/// Mounts tracefs, twice, and debugfs, which has it too, shared with other namespaces, if there were some.
const MOUNTS: &str = r#"
    cd "$1" && mkdir trace again debug new && mount -t tracefs tracefs trace && mount --bind trace again &&
    mount -t debugfs debugfs debug && mount --make-shared trace && mount --make-shared again &&
    mount --make-shared debug && exec "$2" --exact tracefs::in_a_namespace --ignored --nocapture"#;
/// Says of each file whether a line may be added to it, how many lines it has, and whether another file may be written.
const WRITES: &str = r#"
    for file in trace/uprobe_events again/uprobe_events debug/tracing/uprobe_events trace/dynamic_events; do
        (echo "$2" >>"$1/$file") 2>/dev/null && echo "$file written"
        cat "$1/$file" >/dev/null || echo "$file not read"
    done
    on=$(cat "$1/trace/tracing_on") && echo "$on" >"$1/trace/tracing_on" && echo other written
    read -r line"#;

/// An event that is removed again.
struct Event {
    events: PathBuf,
    name: String,
}

impl Event {
    fn add(folder: &Path, name: String, place: &str) -> Self {
        let events = folder.join("trace/uprobe_events");
        append(&events, &format!("p:{name} {place}"));
        Event { events, name }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        append(&self.events, &format!("-:{}", self.name));
    }
}

fn append(file: &Path, line: &str) {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

/// Runs a command under the supervisor. Returns what it printed, and its end.
fn supervised(program: impl AsRef<Path>, arguments: &[&str]) -> (Vec<String>, Supervised) {
    let mut command = Command::new(program.as_ref());
    command.args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::in_user_space(command, None);
    let mut lines = Vec::new();
    while let line = running.line()
        && !line.is_empty()
    {
        lines.push(line);
    }
    (lines, running.end().unwrap())
}

#[test]
fn a_tool_makes_no_uprobe_by_tracefs() {
    if !require::host() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", MOUNTS, "sh"])
        .args([folder.path(), &env::current_exe().unwrap()])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    // A skip is said there.
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let words = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{words:?}");
    assert!(words[0].contains("1 passed"), "{words:?}");
}

#[test]
#[ignore = "runs in a mount namespace that another test makes"]
fn in_a_namespace() {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    if !folder.join("trace/uprobe_events").exists() {
        return require::skip("this kernel has no uprobe_events");
    }
    let (_binary, target) = called();
    let (path, offset) = counting::work(&target);
    let place = format!("{}:{offset:#x}", path.display());
    let group = format!("bpfcost_test_{}", std::process::id());

    // What a tool writes does not arrive, by whichever mount.
    let line = format!("p:{group}/written {place}");
    let mut command = Command::new("sh");
    command.args(["-c", WRITES, "sh"]).arg(&folder).arg(&line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::in_user_space(command, None);
    assert_eq!(running.line(), "other written");
    let events = fs::read_to_string(folder.join("trace/uprobe_events")).unwrap();
    assert!(!events.contains(&group), "{events}");
    // Here, outside of the tool's namespace, all is as before.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("_events"), "{mounts}");
    let event = Event::add(&folder, format!("{group}/other"), &place);
    running.end();

    // An event that another has made.
    let id = fs::read_to_string(folder.join(format!("trace/events/{}/id", event.name))).unwrap();
    let opener = Binary::compile("tracepoint.c", &[]);
    let (lines, end) = supervised(opener.path(), &[id.trim()]);
    let refused = format!(
        "perf_event_open refused: {} is a uprobe of the kernel's, which tracefs has",
        event.name
    );
    assert_eq!((lines, end.events), (vec!["95".to_owned()], vec![refused]));
    assert_eq!(end.counts.calls_refused, 1);
    let other = fs::read_to_string(folder.join("trace/events/sched/sched_switch/id")).unwrap();
    let (lines, end) = supervised(opener.path(), &[other.trim()]);
    assert_eq!((lines, end.events), (vec!["0".to_owned()], Vec::new()));

    // Mounts of the tool's own.
    let new = folder.join("new");
    let new = new.to_str().unwrap();
    for kind in ["tracefs", "debugfs"] {
        let (_, end) = supervised("mount", &["-t", kind, kind, new]);
        assert_ne!(end.code, Some(0));
        let reason = format!(
            "mount refused: the tool could write uprobes of the kernel to a {kind} that it mounts itself"
        );
        assert!(end.events[0].starts_with(&reason), "{:?}", end.events);
        assert!(end.counts.calls_refused > 0);
    }
    let (_, end) = supervised("mount", &["-t", "tmpfs", "tmpfs", new]);
    assert_eq!((end.code, end.events), (Some(0), Vec::new()));
}
