//! Loaders of one's own.

use std::process::Command;

use super::{case, compile, record};
use crate::{require, tool::Tool};

/// Passes what a loader has put into an array.
const LOADED: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[2]; int (*max_entries)[1]; unsigned int *key; unsigned long *value; } verdicts SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
SEC("xdp") int judges(void *context)
{
	unsigned int first = 0;
	unsigned long *verdict = lookup(&verdicts, &first);

	return verdict ? *verdict : 0;
}
"#;

/// As people write one, here with bpftool.
const LOADER: &str = "#!/bin/sh
echo \"$BPFCOST_MAPS\" >>where
ls \"$BPFCOST_MAPS\" >names
exec bpftool map update pinned \"$BPFCOST_MAPS/verdicts\" key 0 0 0 0 value 3 0 0 0 0 0 0 0
";

fn executable(tool: &Tool, name: &str, text: &str) {
    tool.write(name, text);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(tool.path(name), mode).expect("it is a file");
}

#[test]
fn a_loader_fills_maps_before_programs_run() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", LOADED);
    executable(&tool, "load", LOADER);
    let loaded = record(&tool, "program x.bpf.o --setup ./load", 0);
    assert_eq!(case(&loaded, "judges/udp")["observed"]["code"], 3);
    let text = |name: &str| std::fs::read_to_string(tool.path(name)).expect(name);
    assert!(
        text("names").lines().any(|name| name == "verdicts"),
        "{}",
        text("names")
    );
    // Gone with the process that had them, wherever they were.
    for place in text("where").lines() {
        assert!(!std::path::Path::new(place).exists(), "{place}");
    }
    let alone = record(&tool, "program x.bpf.o", 0);
    assert_eq!(case(&alone, "judges/udp")["observed"]["code"], 0);
    assert_ne!(
        case(&alone, "judges/udp")["factors"]["given"],
        case(&loaded, "judges/udp")["factors"]["given"]
    );
    executable(&tool, "fails", "#!/bin/sh\necho no such flow >&2\nexit 7\n");
    let fails = [
        "--setup ./fails ended with exit code 7",
        "no such flow",
        "$BPFCOST_MAPS",
    ];
    tool.refuses("program x.bpf.o --quick --setup ./fails", 5, &fails);
    let none = "program x.bpf.o --quick --setup ./none";
    tool.refuses(none, 4, &["--setup ./none: there is no program ./none"]);
}

/// Neither the loader nor the maps: both are of the process that is killed.
#[test]
fn a_kill_leaves_no_loader_and_no_map() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", &LOADED.replace("verdicts", "killed_verdict"));
    executable(
        &tool,
        "waits",
        "#!/bin/sh\necho $$ >pid.tmp\nmv pid.tmp pid\nexec sleep 1000\n",
    );
    let mut killed = tool
        .command("program x.bpf.o --setup ./waits")
        .spawn()
        .expect("it starts");
    let maps = || {
        let list = Command::new("bpftool").args(["map", "list"]).output();
        let list = String::from_utf8(list.expect("bpftool runs").stdout).expect("text");
        list.matches("name killed_verdict ").count()
    };
    let pid = until(|| {
        assert!(
            killed.try_wait().expect("a child").is_none(),
            "it has ended"
        );
        std::fs::read_to_string(tool.path("pid")).ok()
    });
    assert_eq!(maps(), 1);
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    let process = std::path::Path::new("/proc").join(pid.trim());
    until(|| (!process.exists() && maps() == 0).then_some(()));
}

/// Waits for what comes to be, sooner or later.
fn until<T>(mut there: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(there) = there() {
            return there;
        }
        // No machine is so slow: the test would hang.
        assert!(begun.elapsed().as_secs() < 600, "it takes too long");
        std::thread::yield_now();
    }
}
