//! Tools of Debian's packages, as they are.

use crate::{
    WAYS,
    lab::{Running, Way},
    loads::{self, Lines},
    require,
};

/// A shell's first line, which it may be waiting for before it is probed.
const FIRST: &str = "first";

/// A tool, and a process that it probes.
struct Case {
    /// The tool and its arguments. PID is the process.
    command: &'static str,
    process: fn() -> Lines,
    /// Words that the tool prints at its start.
    greeting: &'static str,
    /// A line for the process with [`FIRST`], to be repeated until the tool prints it, and then left out.
    first: Option<&'static str>,
    /// Lines for the process.
    lines: &'static [&'static str],
    /// Number of rows that the tool prints of them meanwhile, and the first of all.
    rows: usize,
    row: &'static str,
    /// The part of the output that is the same in both ways.
    alike: fn(&[String], &str) -> Vec<String>,
    places: &'static str,
}

const BASHREADLINE: Case = Case {
    command: "bashreadline",
    process: loads::shell,
    greeting: "TIME",
    first: Some("echo first"),
    lines: &["echo 1", "echo two  words", "echo 3"],
    rows: 3,
    row: "PID echo 1",
    alike: |lines, pid| rows(lines, pid, |words| words.join(" ")),
    places: "1 place,",
};

const GETHOSTLATENCY: Case = Case {
    command: "gethostlatency -p PID",
    process: loads::resolver,
    greeting: "TIME",
    first: None,
    lines: &["localhost 300"],
    rows: 300,
    row: "PID python3 localhost",
    alike: |lines, pid| rows(lines, pid, without_latency),
    places: "6 places,",
};

const CASES: [Case; 6] = [
    BASHREADLINE,
    Case {
        command: "bpftrace -q -B line /usr/sbin/bashreadline.bt",
        ..BASHREADLINE
    },
    GETHOSTLATENCY,
    Case {
        command: "bpftrace -q -B line /usr/sbin/gethostlatency.bt",
        lines: &["localhost 100"],
        rows: 100,
        ..GETHOSTLATENCY
    },
    Case {
        command: "javagc -p PID",
        process: loads::collector,
        greeting: "TIME",
        first: None,
        lines: &["20"],
        rows: 20,
        row: "PID",
        alike: |lines, pid| rows(lines, pid, |words| words[0].to_owned()),
        places: "4 places, 80 hits,",
    },
    Case {
        command: "funclatency -p PID :work",
        process: loads::caller,
        greeting: "Tracing",
        first: None,
        lines: &["5000"],
        rows: 0,
        row: "5000 calls",
        alike: |lines, _| vec![format!("{} calls", sum(lines))],
        places: "2 places, 10,000 hits,",
    },
];

/// The rows of a process, from its number on. Their order may be another each time: each CPU has a buffer.
fn rows(lines: &[String], pid: &str, row: fn(&[&str]) -> String) -> Vec<String> {
    let own = lines.iter().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = words.iter().position(|word| *word == pid)?;
        Some(row(&words[number..])).filter(|_| !line.contains(FIRST))
    });
    let mut own: Vec<String> = own.collect();
    own.sort();
    own
}

/// Number, name and host.
fn without_latency(words: &[&str]) -> String {
    [&words[..2], &words[3..]].concat().join(" ")
}

/// Calls in a histogram, of all latencies: `16 -> 31 : 5 |***|`.
fn sum(lines: &[String]) -> u64 {
    let counts = lines.iter().filter_map(|line| {
        let (_, rest) = line.split_once("->")?;
        rest.split_whitespace().nth(2)?.parse::<u64>().ok()
    });
    counts.sum()
}

/// A tool's output while the process works, in one way.
fn printed(case: &Case, process: &mut Lines, way: Way) -> Vec<String> {
    let pid = process.id().to_string();
    let command = case.command.replace("PID", &pid);
    let mut words = command.split(' ').map(str::to_owned);
    let name = words.next().expect("a tool");
    let arguments: Vec<String> = words.collect();
    let tool = Running::start(process.id(), &name, &arguments, way);
    tool.until_said(case.greeting);
    tool.until_waiting();
    if let Some(line) = case.first {
        tool.until_seen(FIRST, || _ = process.ask(line));
    }
    for line in case.lines {
        process.ask(line);
    }
    let mut lines = Vec::new();
    while case.rows > 0 && (case.alike)(&lines, &pid).len() < case.rows {
        lines.extend(tool.lines(1));
    }
    let said = tool.interrupted();
    lines.extend(said.out.lines().map(str::to_owned));
    if way == Way::User {
        let (words, missed) = (format!("In user space: {}", case.places), " hits, 0 missed");
        assert!(
            said.err.contains(&words) && said.err.contains(missed),
            "{said:?}"
        );
    }
    (case.alike)(&lines, &pid)
}

#[test]
fn tools_print_the_same_in_both_ways() {
    if !require::host() {
        return;
    }
    for case in &CASES {
        let mut process = (case.process)();
        let [kernel, user] = WAYS.map(|way| printed(case, &mut process, way));
        assert_eq!(user, kernel, "{}", case.command);
        assert_eq!(user.len(), case.rows.max(1), "{}", case.command);
        let row = case.row.replace("PID", &process.id().to_string());
        assert_eq!(user[0], row, "{}", case.command);
    }
}
