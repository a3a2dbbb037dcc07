//! The agent that reconstructs requests, on the Go server: what was asked for, and nothing else.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use bpfcost_process::RunContext;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    agent::{Agent, Running},
    definition::able,
};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/l7-go");

struct Server {
    process: Running,
    port: u16,
}

impl Server {
    /// Builds it with these flags of the linker, and starts it.
    fn start(dir: &TempDir, flags: &str) -> Self {
        let program = dir.path().join("l7-go");
        let built = Command::new("go")
            .args(["build", "-mod=mod", "-buildvcs=false", "-trimpath"])
            .args(["-tags", "netgo,osusergo", "-ldflags", flags, "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(SOURCE)
            .status()
            .expect("go starts");
        assert!(built.success());
        let mut child = Command::new(&program)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut ready = String::new();
        let out = child.stdout.take().expect("its output");
        let process = Running(child);
        BufReader::new(out).read_line(&mut ready).expect("a line");
        let port = ready.trim().rsplit(':').next().expect("a port");
        Server {
            process,
            port: port.parse().unwrap_or_else(|_| panic!("{ready}")),
        }
    }

    fn context(&self) -> RunContext {
        RunContext {
            pids: vec![self.process.0.id()],
            ..RunContext::default()
        }
    }

    /// Asks by one connection: each time curl's arguments, and a path.
    fn asked(&self, scheme: &str, what: &[(&[&str], &str)]) {
        let mut curl = Command::new("curl");
        for (index, (options, path)) in what.iter().enumerate() {
            if index > 0 {
                curl.arg("--next");
            }
            curl.args(["--silent", "--insecure", "--max-time", "20"])
                .args(["--output", "/dev/null"])
                .args(*options)
                .arg(format!("{scheme}://127.0.0.1:{}{path}", self.port));
        }
        assert!(curl.status().expect("curl starts").success());
    }
}

/// Requests with methods, paths and statuses of their own, the large answer among them.
const ASKED: [(&[&str], &str); 5] = [
    (&[], "/size/1"),
    (&["--head"], "/size/2"),
    (&["--data", "size=4"], "/size/256"),
    (&[], "/none"),
    (&[], "/size/1"),
];

const SEEN: [(&str, &str, u64, u64); 4] = [
    ("GET", "/none", 404, 1),
    ("GET", "/size/1", 200, 2),
    ("HEAD", "/size/2", 200, 1),
    ("POST", "/size/256", 200, 1),
];

/// Lines that the agent wrote: method, path, status and how often.
fn written(text: &str) -> Vec<(String, String, u64, u64)> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| line[name].as_str().expect(name).to_owned();
        let number = |name: &str| line[name].as_u64().expect(name);
        let (sum, most) = (number("sum_ns"), number("most_ns"));
        assert!(most > 0 && most <= sum, "{line}");
        (
            text("method"),
            text("path"),
            number("status"),
            number("answers"),
        )
    };
    text.lines().map(line).collect()
}

/// Checks that the agent sees [`ASKED`], again after it was switched off and on.
fn sees(server: &Server, mode: &str, scheme: &str) {
    let dir = TempDir::new().expect("a folder");
    let file = dir.path().join("seen");
    let mut agent = Agent::start("l7", &[mode, file.to_str().expect("UTF-8")]);
    assert!(agent.hear()["loaded"].is_object(), "{mode}");
    for _ in 0..2 {
        assert_eq!(agent.attach(&server.context()), "attached", "{mode}");
        server.asked(scheme, &ASKED);
        let counts = agent.counts();
        // Nothing looks.
        server.asked(scheme, &ASKED);
        assert_eq!(counts["requests"], 5, "{mode} {scheme}: {counts}");
        assert_eq!(counts["answered"], 5, "{mode} {scheme}: {counts}");
        assert_eq!(counts["status_2xx"], 4, "{mode} {scheme}: {counts}");
        assert_eq!(counts["status_4xx"], 1, "{mode} {scheme}: {counts}");
        assert_eq!(counts["truncated"], 0, "{mode} {scheme}: {counts}");
        if mode == "goroutine" {
            assert_eq!(counts["by_one_goroutine"], 5, "{scheme}: {counts}");
        }
        let seen = fs::read_to_string(&file).expect("the agent writes it");
        fs::remove_file(&file).expect("it is there");
        let expected = SEEN.map(|(method, path, status, answers)| {
            (method.to_owned(), path.to_owned(), status, answers)
        });
        assert_eq!(written(&seen), expected, "{mode} {scheme}");
    }
    let ended = agent.end();
    assert!(ended.success(), "{mode}: {ended}");
}

#[test]
fn requests_are_seen_as_they_were_made() {
    if !able(&["go", "curl"]) {
        return;
    }
    let dir = TempDir::new().expect("a folder");
    let server = Server::start(&dir, "");
    for (mode, scheme) in [
        ("kernel", "http"),
        ("uprobe", "http"),
        ("uprobe", "https"),
        ("goroutine", "http"),
        ("goroutine", "https"),
    ] {
        sees(&server, mode, scheme);
    }
    let mut agent = Agent::start("l7", &["kernel"]);
    assert!(agent.hear()["loaded"].is_object());
    assert_eq!(agent.attach(&server.context()), "attached");
    server.asked("https", &ASKED);
    let counts = agent.counts();
    assert_eq!(counts["requests"], 0, "TLS is not seen through: {counts}");
    assert!(counts["opaque"].as_u64() > Some(10), "{counts}");
}

/// Two connections, of which one asks while the other is in the middle of a request.
fn in_turns<C: Read + Write>(connect: impl Fn() -> C) {
    let mut connections = [connect(), connect()];
    let says = |connection: &mut C, text: &str| {
        connection.write_all(text.as_bytes()).expect("it reads");
        connection.flush().expect("it reads");
    };
    for connection in &mut connections {
        says(connection, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
        // Its answer shows that the connection is there.
        let mut answer = Vec::new();
        while !answer.ends_with(b"not found\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).expect("an answer");
            answer.extend(byte);
        }
    }
    let [first, second] = &mut connections;
    let end = "\r\nConnection: close\r\n\r\n";
    says(first, "GET /size/1 HTTP/1.1\r\nHost: ");
    // The server reads that before more comes.
    sleep(Duration::from_millis(200));
    says(second, &format!("GET /none HTTP/1.1\r\nHost: a{end}"));
    sleep(Duration::from_millis(200));
    says(first, &format!("b{end}"));
    for (connection, status) in [(first, "200"), (second, "404")] {
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).expect("an answer");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
    }
}

/// A connection with TLS, by another program.
struct Tls(Running);

impl Tls {
    fn connect(port: u16) -> Self {
        let client = Command::new("openssl")
            .args([
                "s_client",
                "-quiet",
                "-connect",
                &format!("127.0.0.1:{port}"),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Tls(Running(client.expect("openssl starts")))
    }
}

impl Read for Tls {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.0.stdout.as_mut().expect("its output").read(into)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.0.stdin.as_mut().expect("its input").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.0.stdin.as_mut().expect("its input").flush()
    }
}

#[test]
fn requests_of_two_connections_are_kept_apart() {
    if !able(&["go", "openssl"]) {
        return;
    }
    let dir = TempDir::new().expect("a folder");
    let server = Server::start(&dir, "");
    let file = dir.path().join("seen");
    for mode in ["kernel", "uprobe"] {
        let mut agent = Agent::start("l7", &[mode, file.to_str().expect("UTF-8")]);
        assert!(agent.hear()["loaded"].is_object(), "{mode}");
        assert_eq!(agent.attach(&server.context()), "attached", "{mode}");
        match mode {
            "kernel" => in_turns(|| {
                TcpStream::connect(("127.0.0.1", server.port)).expect("the server listens")
            }),
            _ => in_turns(|| Tls::connect(server.port)),
        }
        let counts = agent.counts();
        assert_eq!(counts["requests"], 4, "{mode}: {counts}");
        let seen = fs::read_to_string(&file).expect("the agent writes it");
        fs::remove_file(&file).expect("it is there");
        let expected = [("/none", 404, 3), ("/size/1", 200, 1)]
            .map(|(path, status, answers)| ("GET".to_owned(), path.to_owned(), status, answers));
        assert_eq!(written(&seen), expected, "{mode}");
        assert!(agent.end().success(), "{mode}");
    }
}

#[test]
fn functions_are_found_in_a_program_without_symbols() {
    if !able(&["go", "curl"]) {
        return;
    }
    let dir = TempDir::new().expect("a folder");
    let server = Server::start(&dir, "-s -w");
    sees(&server, "uprobe", "https");
}

#[test]
fn what_is_no_go_program_is_told() {
    if !able(&["sleep"]) {
        return;
    }
    let sleeper = Command::new("sleep").arg("60").spawn().expect("it starts");
    let sleeper = Running(sleeper);
    let mut agent = Agent::start("l7", &["uprobe"]);
    assert!(agent.hear()["loaded"].is_object());
    let said = agent.attach(&RunContext {
        pids: vec![sleeper.0.id()],
        ..RunContext::default()
    });
    let why = said["failed"].as_str().unwrap_or_default();
    assert!(why.contains("sleep"), "{said}");
    assert!(why.contains("it is not a Go program"), "{said}");
    let said = Agent::start("l7", &["no-such-mode"]).hear();
    let why = said["failed"].as_str().unwrap_or_default();
    assert!(why.contains("kernel, uprobe, goroutine"), "{said}");
}
