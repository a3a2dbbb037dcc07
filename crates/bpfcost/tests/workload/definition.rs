//! A definition that is quick to run, and what it leaves behind.

use std::{env, fs};

use crate::{require, tool::Tool};

/// Redis, as short as it can be: a window takes some 0.1 s.
pub(crate) const REDIS: &str = r#"name = "short"
about = "a short one"
operation = "command"
window-ms = 150

[server]
command = ["redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "{dir}"]
ready = { tcp = "{port}" }

[[client]]
command = ["redis-benchmark", "-p", "{port}", "-t", "set", "-c", "10", "-d", "3", "-n", "10000", "--csv"]
output = "redis-benchmark"
ops = 10000

[[variant]]
name = "nothing"
about = "none either"
probe = "builtin:nothing"
quick = true
"#;

/// A client alone, which sleeps.
pub(crate) const CLIENT: &str = r#"name = "client"
about = "a client alone"
operation = "thing"
headline = "machine"
window-ms = 100

[[client]]
command = ["sh", "-c", "sleep 0.1; echo did 1000 things"]
output = "text"
metrics = { ops = "did (\\d+) things" }

[[variant]]
name = "nothing"
about = "none either"
probe = "builtin:nothing"
quick = true
"#;

/// Returns true if BPF and these programs are there. Prints the reason where not.
pub(crate) fn able(programs: &[&str]) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let there = |name: &&str| env::split_paths(&path).any(|folder| folder.join(name).exists());
    if let Some(missing) = programs.iter().find(|name| !there(name)) {
        require::skip(format!("{missing} is not installed"));
        return false;
    }
    require::host()
}

/// A folder with that definition as `x.toml`, `from` replaced by `to`.
#[track_caller]
pub(crate) fn with(definition: &str, from: &str, to: &str) -> Tool {
    assert!(definition.contains(from), "{from}");
    let tool = Tool::new();
    tool.write("x.toml", definition.replacen(from, to, 1));
    tool
}

/// The children of a process, and theirs.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    children
        .flat_map(|child: u32| [vec![child], family(child)].concat())
        .collect()
}

/// Command line of a process.
pub(crate) fn called(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}
