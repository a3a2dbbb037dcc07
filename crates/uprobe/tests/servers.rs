//! Probes come and go in servers under load: every request is answered, and every answer is right.

mod common;

use bpfcost_uprobe::process::{Image, Memory, Probe, Runtime};
use common::{program, wait_until};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

/// Number of times probes come and go.
const CYCLES: u64 = 100;
/// Connections with requests at the same time.
const CLIENTS: usize = 4;
/// Bytes of an answer: more than one piece of any buffer.
const KIB: usize = 64;

/// A server of the address, killed with its end.
struct Server {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    /// nginx, with one worker, and a file of the bytes.
    fn nginx(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Freed for nginx: it can't choose one itself.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|free| free.local_addr())
            .unwrap()
            .port();
        fs::create_dir(folder.path().join("size")).unwrap();
        fs::write(folder.path().join(format!("size/{KIB}")), bytes).unwrap();
        let configuration = format!(
            "daemon off; user root; worker_processes 1; pid nginx.pid; error_log stderr;\n\
             events {{}}\n\
             http {{\n\
             access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t;\n\
             uwsgi_temp_path t; scgi_temp_path t; keepalive_requests 1000000;\n\
             server {{ listen 127.0.0.1:{port}; root .; }}\n\
             }}\n"
        );
        let place = folder.path().join("nginx.conf");
        fs::write(&place, configuration).unwrap();
        let process = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(place)
            .args(["-e", "stderr"])
            .spawn()
            .unwrap();
        let server = Server {
            process,
            port,
            folder,
        };
        wait_until(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        server
    }

    /// The Go server of the experiment `l7-go`.
    fn go() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/l7-go");
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("server");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(source)
            .env("CGO_ENABLED", "0")
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let mut process = Command::new(program)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line
            .strip_prefix("ready: http://127.0.0.1:")
            .and_then(|rest| rest.split(' ').next()?.parse().ok());
        Server {
            process,
            port: port.unwrap_or_else(|| panic!("it printed {line:?}")),
            folder,
        }
    }

    fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    /// The only child of the process, which may come after the first connection: the parent listens before it forks.
    fn worker(&self) -> i32 {
        let pid = self.pid();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let mut children = String::new();
        wait_until(|| {
            children = fs::read_to_string(&path).unwrap();
            !children.is_empty()
        });
        children.trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // nginx ends its worker.
        let pid = nix::unistd::Pid::from_raw(self.pid());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(self.folder.path());
    }
}

/// Asks for the bytes on one connection until it is over, and compares each answer.
fn ask(port: u16, bytes: &[u8], is_over: &AtomicBool, answers: &AtomicU64) {
    let mut connection = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
    let mut body = vec![0; bytes.len()];
    while !is_over.load(Ordering::Relaxed) {
        let request = format!("GET /size/{KIB} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        connection.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        connection.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), "HTTP/1.1 200 OK");
        while line.trim_end() != "" {
            line.clear();
            connection.read_line(&mut line).unwrap();
            if let Some((name, value)) = line.split_once(": ")
                && name == "Content-Length"
            {
                assert_eq!(value.trim_end(), bytes.len().to_string());
            }
        }
        connection.read_exact(&mut body).unwrap();
        assert!(body == bytes, "another body");
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets a flag when it is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Probes functions of a process that answers, at entry and those of `returning` at return, again and again.
fn come_and_go(pid: i32, port: u16, names: &[&str], returning: &[&str], bytes: &[u8]) {
    let image = Image::of_program(pid).unwrap();
    let functions: Vec<_> = names
        .iter()
        .map(|name| image.function(name).unwrap())
        .collect();
    let mut runtime = Runtime::open(pid).unwrap();
    let wild = program::wild(&mut runtime);
    let probes: Vec<_> = functions
        .iter()
        .map(|function| Probe {
            function,
            entry: Some(wild),
            returns: returning.contains(&&*function.name).then_some(wild),
            inside: &[],
        })
        .collect();
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // However this closure ends: the scope waits for the clients.
        let _end = SetAtEnd(&is_over);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| ask(port, bytes, &is_over, &answers)))
            .collect();
        let check = || assert!(!clients.iter().any(thread::ScopedJoinHandle::is_finished));
        for _ in 0..CYCLES {
            let attachment = runtime.attach(&probes).unwrap();
            wait_until(|| {
                check();
                let hits = runtime.hits(&attachment);
                hits.iter().all(|hits| hits.entry.hits > 0)
            });
            runtime.detach(attachment).unwrap();
            // Some are answered without probes, too.
            let before = answers.load(Ordering::Relaxed);
            wait_until(|| {
                check();
                answers.load(Ordering::Relaxed) > before
            });
        }
    });
    assert!(answers.load(Ordering::Relaxed) >= CYCLES);
    let memory = Memory::open(pid).unwrap();
    for function in &functions {
        function.check(&memory).unwrap();
    }
}

/// Returns what the Go server answers.
fn letters() -> Vec<u8> {
    (b'a'..=b'z').cycle().take(KIB << 10).collect()
}

fn is_missing(program: &str, argument: &str) -> bool {
    let output = Command::new(program).arg(argument).output();
    if output.is_err() {
        common::require::skip(format!("{program} is not installed"));
    }
    output.is_err()
}

#[test]
fn nginx_answers_every_request_rightly() {
    if is_missing("nginx", "-v") {
        return;
    }
    let bytes = letters();
    let server = Server::nginx(&bytes);
    let names = [
        "ngx_http_process_request_header",
        "ngx_http_write_filter",
        "ngx_http_finalize_request",
    ];
    // The others leave by a jump to another function.
    come_and_go(server.worker(), server.port, &names, &names[1..2], &bytes);
}

#[test]
fn a_go_server_answers_every_request_rightly() {
    if is_missing("go", "version") {
        return;
    }
    let server = Server::go();
    let names = [
        "net/http.serverHandler.ServeHTTP",
        "net/http.(*response).finishRequest",
        "main.(*accounts).add",
    ];
    come_and_go(server.pid(), server.port, &names, &names, &letters());
}
